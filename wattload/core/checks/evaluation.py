"""All checks of a finished run.

``evaluate`` is a pure function of the record, so a run and a later ``wattload check`` give the
same result. Checks that only the workload can make (delivered bytes, cold cache) come with its
outcome and are stored with these in the record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wattload.core.checks.conditions import (
    bottleneck,
    clocks_agree,
    halves_agree,
    link_at_maximum,
    long_enough,
    pair_together,
    start_temperature,
)
from wattload.core.checks.energy import (
    energy_closure,
    power_coverage,
    power_data_lost,
    power_of_this_run,
    power_state_shares,
)
from wattload.core.checks.io import bytes_add_up, device_bytes, queue_depth, rate_closure
from wattload.core.checks.power_settings import (
    power_setting_held,
    power_state_held,
    saved_settings_kept,
)
from wattload.core.checks.sensors import (
    energy_cross_check,
    energy_lifetime,
    power_updates,
    power_within_bounds,
)
from wattload.core.checks.throttling import throttled
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord

ALL: tuple[Callable[[RunRecord], Sequence[Check]], ...] = (
    bytes_add_up,
    rate_closure,
    device_bytes,
    queue_depth,
    clocks_agree,
    long_enough,
    halves_agree,
    bottleneck,
    link_at_maximum,
    power_coverage,
    power_data_lost,
    power_of_this_run,
    power_updates,
    power_within_bounds,
    energy_closure,
    energy_cross_check,
    energy_lifetime,
    power_state_shares,
    power_state_held,
    power_setting_held,
    saved_settings_kept,
    throttled,
    start_temperature,
    pair_together,
)


def evaluate(record: RunRecord) -> tuple[Check, ...]:
    """Return every check that needs nothing but the record."""
    return tuple(check for rule in ALL for check in rule(record))
