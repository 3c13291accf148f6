"""The checks of a finished run: each compares two sides that different counters kept.

``evaluate`` is a pure function of the record, so that the run that made it and ``wattload check``
later judge alike. Checks that only the workload can make (delivered bytes, cold cache) come with
its outcome and stand beside these in the record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wattload.core.checks.crosscheck import (
    energy_cross_check,
    energy_lifetime,
    power_within_bounds,
)
from wattload.core.checks.energy import (
    energy_closure,
    power_coverage,
    power_data_lost,
    power_of_this_run,
    power_state_shares,
)
from wattload.core.checks.host import bottleneck, clocks_agree, link_at_maximum
from wattload.core.checks.interleaved import pair_together, start_temperature
from wattload.core.checks.movement import (
    bytes_add_up,
    device_bytes,
    queue_depth,
    rate_closure,
)
from wattload.core.checks.settings import (
    power_setting_held,
    power_state_held,
    saved_settings_kept,
)
from wattload.core.checks.staleness import power_updates
from wattload.core.checks.throttled import throttled
from wattload.core.checks.window import long_enough, steady
from wattload.core.record.check import Check
from wattload.core.record.run import RunRecord

ALL: tuple[Callable[[RunRecord], Sequence[Check]], ...] = (
    bytes_add_up,
    rate_closure,
    device_bytes,
    queue_depth,
    clocks_agree,
    long_enough,
    steady,
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
    """Return every check that a record by itself can answer."""
    return tuple(check for rule in ALL for check in rule(record))
