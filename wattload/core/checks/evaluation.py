"""All checks of a finished run, and of a stored record when it is read.

A check compares two sides that were counted by different means, and says which fault makes them
differ. ``evaluate`` is a pure function of the record, so a run and a later ``wattload check`` give
the same result. Checks that only the workload can make (delivered bytes, cold cache) come with its
outcome and are stored. ``wattload.results`` declares those of each workload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wattload.core.checks import conditions, drive, energy, host, io, sensors
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord

ALL: tuple[Callable[[RunRecord], Sequence[Check]], ...] = (
    io.hosts_took_part,
    io.device_bytes,
    io.queue_depth,
    host.clocks_agree,
    host.common_clock,
    conditions.long_enough,
    conditions.halves_agree,
    conditions.utilisations_agree,
    conditions.ran_throughout,
    conditions.cpu_throttled,
    conditions.bottleneck,
    drive.link_at_maximum,
    drive.write_granularity,
    energy.power_coverage,
    energy.power_data_lost,
    energy.power_of_this_run,
    energy.wall_clock,
    sensors.power_updates,
    sensors.sensor_calibrated,
    energy.energy_remarks,
    energy.energy_tail,
    sensors.power_within_bounds,
    energy.power_statistics,
    sensors.energy_cross_check,
    sensors.energy_lifetime,
    drive.power_state_held,
    drive.power_setting_held,
    drive.saved_settings_kept,
    drive.throttled,
    io.written_bytes,
    conditions.start_temperature,
    conditions.pair_together,
    host.load_level,
)


def evaluate(record: RunRecord) -> tuple[Check, ...]:
    """Return every check that needs nothing but the record."""
    return tuple(check for rule in ALL for check in rule(record))
