"""Idle power before and after a run, polled and quiet, and what polling costs."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from tests.power.energy_facts import facts
from tests.power.energy_traces import Floats, ns, samples_of
from wattload.core.power import Boxcar, Channel, Counter, Evidence, Instant, Sample, Scope
from wattload.core.record.energy import IdleRecord
from wattload.power.energy.ledger import EnergyLedger, polling_costs
from wattload.power.energy.source_ledger import IdleTime

POLLED_S: Floats = np.round(np.arange(0, 60, 0.1), 6)
QUIET = IdleTime(moment="before", polled=False, window=(ns(-60), ns(0)))
POLLED = IdleTime(moment="before", polled=True, window=(ns(1), ns(59)))
IPM = facts("ipm", sensor=Boxcar(window_s=1.0, update_period_s=0.0))
METER = facts("meter", Evidence.MEASURED, Instant())


def ipm(quiet_w: float = 0.5, polled_w: float = 3.0) -> list[Sample]:
    """Return a drive's own mean that is read from second 0 on, the first time after the quiet."""
    watts = np.full(POLLED_S.size, polled_w)
    watts[0] = quiet_w
    return samples_of(POLLED_S, watts, source="ipm")


def states(value: float = 4.0) -> list[Sample]:
    return [
        *samples_of(POLLED_S, np.full(POLLED_S.size, value), channel=Channel.POWER_STATE),
        *samples_of(POLLED_S[::10], np.full(60, 310.0), channel=Channel.TEMPERATURE_K),
    ]


@functools.cache
def ipm_ledger() -> EnergyLedger:
    return EnergyLedger(ipm() + states(), [IPM], host="box")


def of(records: tuple[IdleRecord, ...], *, polled: bool) -> IdleRecord:
    (found,) = [record for record in records if record.polled is polled]
    return found


def test_quiet_of_the_drives_own_mean_is_what_the_first_read_after_it_tells() -> None:
    records = ipm_ledger().idle_records([QUIET, POLLED])
    quiet, polled = of(records, polled=False), of(records, polled=True)
    assert (quiet.mean_w, quiet.sample_count, quiet.coverage) == (0.5, 1, None)
    assert quiet.evidence is Evidence.SELF_REPORTED
    assert quiet.seconds == 60
    assert polled.mean_w == pytest.approx(3.0, rel=1e-4)
    assert polled.coverage == 1
    assert (polled.power_state, polled.temperature_k) == (4, 310.0)


def test_polling_costs_polled_minus_quiet() -> None:
    (cost,) = polling_costs(ipm_ledger().idle_records([QUIET, POLLED]))
    assert (cost.host, cost.device, cost.source, cost.moment) == (
        "box",
        "SERIAL1",
        "ipm",
        "before",
    )
    assert cost.difference_w == pytest.approx(2.5, rel=1e-4)


def test_a_meter_outside_of_the_drive_goes_on_in_the_quiet() -> None:
    times_s = np.round(np.arange(-650, 600) / 10, 6)
    watts = np.where(times_s < 0, 0.5, 3.0)
    records = EnergyLedger(samples_of(times_s, watts), [METER], host="box").idle_records(
        [QUIET, POLLED]
    )
    quiet = of(records, polled=False)
    assert quiet.sample_count == 600 + 1
    assert quiet.mean_w == pytest.approx(0.5, rel=0.03)
    assert of(records, polled=True).mean_w == pytest.approx(3.0, rel=1e-3)


def test_a_reading_of_the_moment_says_nothing_of_the_quiet_before_it() -> None:
    source = facts("ipm", sensor=Instant())
    (quiet,) = EnergyLedger(ipm(), [source], host="box").idle_records([QUIET])
    assert quiet.mean_w is None
    assert quiet.missing["mean_w"] == "ipm reads the power of the moment, not of the time before"


def test_one_count_tells_no_power() -> None:
    source = facts("count", sensor=Counter(quantum_j=0.001))
    samples = samples_of(POLLED_S, POLLED_S * 3, source="count", channel=Channel.ENERGY_J)
    (quiet,) = EnergyLedger(samples, [source], host="box").idle_records([QUIET])
    assert quiet.missing["mean_w"] == "a single reading of count is not a power"


def test_a_quiet_that_no_read_followed_is_unknown_and_so_is_its_cost() -> None:
    late = IdleTime(moment="before", polled=False, window=(ns(100), ns(160)))
    records = ipm_ledger().idle_records([late, POLLED])
    assert of(records, polled=False).missing["mean_w"] == "there was no read after the quiet time"
    (cost,) = polling_costs(records)
    assert cost.difference_w is None
    assert cost.polled_w == pytest.approx(3.0, rel=1e-4)
    assert cost.missing["difference_w"] == "there was no read after the quiet time"


def test_a_read_after_the_quiet_that_failed_is_not_made_up_for_by_the_next() -> None:
    first, *others = ipm()
    failed = replace(first, value=None)
    (quiet,) = EnergyLedger([failed, *others], [IPM], host="box").idle_records([QUIET])
    assert (quiet.mean_w, quiet.sample_count) == (None, 0)
    assert quiet.missing["mean_w"].startswith("the read after the quiet time failed")


def test_idle_that_changed_its_state_has_none() -> None:
    half = np.where(POLLED_S < 30, 4.0, 3.0)
    samples = ipm() + samples_of(POLLED_S, half, channel=Channel.POWER_STATE)
    (polled,) = EnergyLedger(samples, [IPM], host="box").idle_records([POLLED])
    assert polled.missing["power_state"] == "it changed during the window"
    assert polled.missing["temperature_k"] == "no temperature was read"


def test_only_drives_that_are_measured_have_an_idle_power() -> None:
    gpu = facts("nvml_power", scope=Scope.GPU)
    bounds = facts("nvme", Evidence.BOUNDS)
    assert EnergyLedger(ipm(), [gpu, bounds], host="box").idle_records([POLLED]) == ()


def test_restart_of_a_drive_amid_idleness_leaves_a_hole_in_its_counter() -> None:
    samples = samples_of(POLLED_S, 3 * POLLED_S, source="rail", channel=Channel.ENERGY_J)
    rail = facts("rail", sensor=Counter(quantum_j=0.001))
    restarts = {"SERIAL1": [ns(30.05)]}
    records = EnergyLedger(samples, [rail], host="box", resets_ns=restarts).idle_records([POLLED])
    assert of(records, polled=True).coverage == pytest.approx(57.9 / 58)
