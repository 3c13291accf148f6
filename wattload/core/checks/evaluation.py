"""All checks of a finished run, and of a stored record when it is read.

A check compares two sides that were counted by different means, and says which fault makes them
differ. ``evaluate`` is a pure function of the record, so a run and a later ``wattload check`` give
the same result. Checks that only the workload can make (delivered bytes, cold cache) come with its
outcome and are stored. ``wattload.results`` declares those of each workload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wattload.core.checks.clocks import clocks_agree
from wattload.core.checks.conditions import (
    bottleneck,
    halves_agree,
    link_at_maximum,
    long_enough,
    pair_together,
    start_temperature,
    utilisations_agree,
    write_granularity,
)
from wattload.core.checks.energy import (
    power_coverage,
    power_data_lost,
    power_of_this_run,
    power_statistics,
    wall_clock,
)
from wattload.core.checks.io import (
    device_bytes,
    queue_depth,
    written_bytes,
)
from wattload.core.checks.load import load_level
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
    sensor_model,
)
from wattload.core.checks.throttling import throttled
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord

ALL: tuple[Callable[[RunRecord], Sequence[Check]], ...] = (
    device_bytes,
    queue_depth,
    clocks_agree,
    long_enough,
    halves_agree,
    utilisations_agree,
    bottleneck,
    link_at_maximum,
    write_granularity,
    power_coverage,
    power_data_lost,
    power_of_this_run,
    wall_clock,
    power_updates,
    sensor_model,
    power_within_bounds,
    power_statistics,
    energy_cross_check,
    energy_lifetime,
    power_state_held,
    power_setting_held,
    saved_settings_kept,
    throttled,
    written_bytes,
    start_temperature,
    pair_together,
    load_level,
)


def evaluate(record: RunRecord) -> tuple[Check, ...]:
    """Return every check that needs nothing but the record."""
    return tuple(check for rule in ALL for check in rule(record))
