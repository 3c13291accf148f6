"""The host a run is on: what it is, how busy it is, what software runs, and its ranks."""

from wattload.core.host.facts import host_facts
from wattload.core.host.rank import rank_facts
from wattload.core.host.software import software_facts
from wattload.core.host.state import host_state

__all__ = ["host_facts", "host_state", "rank_facts", "software_facts"]
