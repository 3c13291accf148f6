"""Idle power before and after a run, polled and quiet."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from tests.power.energy_facts import facts
from tests.power.energy_traces import Floats, ns, samples_of, traces
from wattload.core.power import Boxcar, Channel, Counter, Evidence, Instant, Sample, Scope
from wattload.core.record.energy import IdleRecord
from wattload.power.energy.idle import IdleTime
from wattload.power.energy.ledger import EnergyLedger

POLLED_S: Floats = np.round(np.arange(0, 60, 0.1), 6)
QUIET = IdleTime(moment="before", polled=False, window=(ns(-60), ns(0)))
POLLED = IdleTime(moment="before", polled=True, window=(ns(1), ns(59)))
IPM = facts("ipm", sensor=Boxcar(window_s=1.0, update_period_s=0.0))


@functools.cache
def ipm() -> list[Sample]:
    """Return a drive's own mean that is read from second 0 on, the first time after the quiet."""
    return samples_of(POLLED_S, np.where(POLLED_S == 0, 0.5, 3.0), source="ipm")


def states(values: Floats) -> list[Sample]:
    return samples_of(POLLED_S, values, channel=Channel.POWER_STATE)


def of(records: tuple[IdleRecord, ...], *, polled: bool) -> IdleRecord:
    (found,) = [record for record in records if record.polled is polled]
    return found


@functools.cache
def ipm_ledger() -> EnergyLedger:
    warm = samples_of(POLLED_S[::10], np.full(60, 310.0), channel=Channel.TEMPERATURE_K)
    return EnergyLedger(
        traces(ipm() + states(np.full(POLLED_S.size, 4.0)) + warm), [IPM], host="box"
    )


def test_quiet_power_of_a_drives_own_mean_is_the_first_reading_after_it() -> None:
    records = ipm_ledger().idle_records([QUIET, POLLED])
    quiet, polled = of(records, polled=False), of(records, polled=True)
    assert (quiet.mean_w, quiet.sample_count, quiet.coverage) == (0.5, 1, None)
    assert quiet.evidence is Evidence.SELF_REPORTED
    assert quiet.seconds == 60
    assert polled.mean_w == pytest.approx(3.0, rel=1e-4)
    assert (polled.power_state, polled.temperature_k, polled.coverage) == (4, 310.0, 1)


def test_a_meter_outside_of_the_drive_reads_on_in_the_quiet() -> None:
    times_s = np.round(np.arange(-650, 600) / 10, 6)
    samples = samples_of(times_s, np.where(times_s < 0, 0.5, 3.0))
    meter = facts("meter", Evidence.MEASURED, Instant())
    records = EnergyLedger(traces(samples), [meter], host="box").idle_records([QUIET, POLLED])
    quiet = of(records, polled=False)
    assert quiet.sample_count == 600 + 1
    assert quiet.mean_w == pytest.approx(0.5, rel=0.03)
    assert of(records, polled=True).mean_w == pytest.approx(3.0, rel=1e-3)


@pytest.mark.parametrize("sensor", [Instant(), Counter(quantum_j=0.001)])
def test_a_reading_that_is_no_mean_says_nothing_of_the_quiet_before_it(
    sensor: Instant | Counter,
) -> None:
    source = facts("ipm", sensor=sensor)
    samples = samples_of(POLLED_S, POLLED_S * 3, source="ipm", channel=source.figure_channel)
    (quiet,) = EnergyLedger(traces(samples), [source], host="box").idle_records([QUIET])
    assert quiet.missing["mean_w"] == "a reading of ipm is not the mean of the time before it"


def test_a_quiet_that_no_read_followed_is_unknown() -> None:
    late = IdleTime(moment="before", polled=False, window=(ns(100), ns(160)))
    (quiet,) = ipm_ledger().idle_records([late])
    assert quiet.missing["mean_w"] == "there was no read after the quiet time"


def test_a_failed_read_after_the_quiet_is_not_replaced_by_the_next() -> None:
    first, *others = ipm()
    failed = replace(first, value=None)
    (quiet,) = EnergyLedger(traces([failed, *others]), [IPM], host="box").idle_records([QUIET])
    assert (quiet.mean_w, quiet.sample_count) == (None, 0)
    assert quiet.missing["mean_w"].startswith("the read after the quiet time failed")


def test_idle_time_in_two_power_states_has_none() -> None:
    samples = ipm() + states(np.where(POLLED_S < 30, 4.0, 3.0))
    (polled,) = EnergyLedger(traces(samples), [IPM], host="box").idle_records([POLLED])
    assert polled.missing["power_state"] == "it changed during the window"
    assert polled.missing["temperature_k"] == "no temperature was read"


def test_only_drives_that_are_measured_have_an_idle_power() -> None:
    gpu = facts("nvml_power", scope=Scope.GPU)
    bounds = facts("nvme", Evidence.BOUNDS)
    assert EnergyLedger(traces(ipm()), [gpu, bounds], host="box").idle_records([POLLED]) == ()
