"""A sensor is calibrated by what it reads under a known load, whatever its response."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from wattload.core.power import Boxcar, Counter, Evidence, Instant, Scope, Sensor, SourceFacts
from wattload.core.record.energy import CalibrationRecord, SensorRecord
from wattload.power.energy.calibration import (
    PULSE_COUNT,
    PULSE_LONG_S,
    PULSE_MIN_S,
    calibrate,
    pulse_times,
    response_curve,
)

DATA = Path(__file__).parent / "data"
IDLE_W, LOAD_W = 4.0, 9.0
FINE_S = 0.001
READ_S = 0.1
NOISE_W = 0.03

Floats = NDArray[np.float64]
Meter = Callable[[Floats], Floats]
"""Makes readings at each ms from the power there, both in W (or J) and of shape (n,)."""


def mean(power_w: Floats, window_s: float) -> Floats:
    count = max(1, round(window_s / FINE_S))
    sums = np.cumsum(np.concatenate((np.full(count, power_w[0]), power_w)))
    return np.asarray((sums[count:] - sums[:-count]) / count)


def low_pass(power_w: Floats, time_constant_s: float) -> Floats:
    from scipy.signal import lfilter

    share = -math.expm1(-FINE_S / time_constant_s)
    filtered, _ = lfilter([share], [1, share - 1], power_w, zi=[(1 - share) * power_w[0]])
    return np.asarray(filtered)


def attack_and_decay(power_w: Floats, attack_s: float, decay_s: float) -> Floats:
    shown = np.empty_like(power_w)
    level = power_w[0]
    for index, watts in enumerate(power_w):
        level += (watts - level) * FINE_S / (attack_s if watts > level else decay_s)
        shown[index] = level
    return shown


def held(values: Floats, update_s: float, phase_s: float = 0.0) -> Floats:
    count = round(update_s / FINE_S)
    at = np.arange(values.size) + round(phase_s / FINE_S)
    return values[np.maximum(at // count * count - round(phase_s / FINE_S), 0)]


def late(values: Floats, lag_s: float) -> Floats:
    count = round(lag_s / FINE_S)
    return np.concatenate((np.full(count, values[0]), values[: values.size - count]))


def facts_of(sensor: Sensor) -> SourceFacts:
    return SourceFacts(
        name="meter",
        device="S1",
        device_name="nvme0",
        scope=Scope.DRIVE,
        evidence=Evidence.MEASURED,
        sensor=sensor,
        period_s=READ_S,
    )


def recorded(
    meter: Meter,
    *,
    seed: int,
    window_s: float = 0.5,
    update_s: float = READ_S,
    load_w: float = LOAD_W,
    noise_w: float = NOISE_W,
    pulse_count: int = PULSE_COUNT,
    clock_s: tuple[float, float] = (FINE_S, 0.0),
    least_s: float = PULSE_MIN_S,
) -> CalibrationRecord:
    """Return a calibration of a meter, which makes its readings of the power at each ms.

    ``clock_s`` is the time between its updates and their phase: the noise of one is held.
    """
    rng = np.random.default_rng(seed)
    times = pulse_times(window_s, update_s, least_s)
    assert times is not None
    pulses, train = times[0][:pulse_count], times[1]
    end_s = train[-1][1] + 4.0
    time_s = np.arange(0, end_s, FINE_S)
    power_w = np.full(time_s.size, IDLE_W)
    for start_s, stop_s in (*pulses, *train):
        power_w[round(start_s / FINE_S) : round(stop_s / FINE_S)] = load_w
    shown = meter(power_w)
    # A sampler reads late by up to some ms.
    read_s = np.arange(rng.uniform(0, READ_S), end_s - READ_S, READ_S)
    read_s += rng.uniform(0, 0.003, read_s.size)
    noise = rng.normal(0, noise_w, 2 + int(end_s / clock_s[0]))
    values = shown[(read_s / FINE_S).astype(int)]
    values = values + noise[((read_s + clock_s[1]) / clock_s[0]).astype(int)]
    return CalibrationRecord(
        host="node1",
        device="S1",
        source="meter",
        utc="2026-01-01T00:00:00Z",
        run_id="",
        key={},
        origin_ns=10**12,
        pulses=nanoseconds(pulses),
        train=nanoseconds(train),
        time_ns=tuple(np.rint(read_s * 1e9).astype(int).tolist()),
        values=tuple(values.tolist()),
    )


def nanoseconds(times: Sequence[tuple[float, float]]) -> tuple[tuple[int, int], ...]:
    return tuple((round(start_s * 1e9), round(end_s * 1e9)) for start_s, end_s in times)


def counted(power_w: Floats, update_s: float, lag_s: float = 0.0) -> Floats:
    count_j = np.cumsum(power_w) * FINE_S
    return held(late(count_j, lag_s), update_s)


CASES: dict[str, tuple[Sensor, Meter, float, float | None]] = {
    "instant": (Instant(), lambda power: power, 0.0, 0.0),
    "sliding mean": (Boxcar(window_s=0.5), lambda power: mean(power, 0.5), 0.25, 0.0625),
    "late mean": (
        Boxcar(window_s=0.5, lag_s=0.2),
        lambda power: late(mean(power, 0.5), 0.2),
        0.45,
        0.0625,
    ),
    "undeclared mean": (Instant(), lambda power: mean(power, 0.5), 0.25, 0.0625),
    "filter": (Instant(), lambda power: low_pass(power, 0.3), 0.3, 0.3 / math.e),
    "filtered mean": (
        Boxcar(window_s=0.5),
        lambda power: low_pass(mean(power, 0.5), 0.15),
        0.4,
        None,
    ),
    "counter": (
        Counter(quantum_j=1e-3, update_period_s=0.1),
        lambda power: counted(power, 0.001),
        0.0,
        None,
    ),
    "late counter": (
        Counter(quantum_j=1e-3, update_period_s=0.1),
        lambda power: counted(power, 0.001, 0.8),
        0.8,
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_delay_of_each_sensor_is_found(name: str) -> None:
    sensor, meter, tau_s, kappa_s = CASES[name]
    noise_w = 0.003 if isinstance(sensor, Counter) else NOISE_W
    for seed in range(5):
        found = calibrate(recorded(meter, seed=seed, noise_w=noise_w), facts_of(sensor))
        assert found.basis == "calibrated", found.reason
        assert found.responds
        assert abs(found.tau_s - tau_s) <= max(0.02 * tau_s, found.tau_uncertainty_s)
        assert found.tau_uncertainty_s < 0.025
        assert found.fall_later_s == 0
        assert train_error(found) <= 1
        if kappa_s is not None:
            assert found.kappa_s == pytest.approx(kappa_s, abs=0.02)


def train_error(sensor: SensorRecord) -> float:
    """Return how far the train is from its duty, in uncertainties."""
    assert sensor.train_share is not None
    assert sensor.train_share_uncertainty is not None
    return abs(sensor.train_share) / sensor.train_share_uncertainty


def test_update_clock_and_noise_are_found() -> None:
    record = recorded(
        lambda power: held(mean(power, 0.5), 0.5, 0.13), seed=1, update_s=0.5, clock_s=(0.5, 0.13)
    )
    found = calibrate(record, facts_of(Boxcar(window_s=0.5, update_period_s=0.5)))
    assert found.update_s == pytest.approx(0.5, rel=0.01)
    assert found.jitter_s < 0.03
    assert found.noise_w == pytest.approx(NOISE_W, rel=0.3)
    assert found.tau_s == pytest.approx(0.5, abs=found.tau_uncertainty_s)
    assert found.declared_tau_s == pytest.approx(0.5)


@pytest.mark.parametrize("phase_s", [0.1, 0.4, 0.9])
def test_long_pulses_suit_a_mean_of_one_second_on_a_clock_of_its_own(phase_s: float) -> None:
    record = recorded(
        lambda power: held(mean(power, 1.0), 1.0, phase_s),
        seed=1,
        window_s=1.0,
        clock_s=(1.0, phase_s),
        least_s=PULSE_LONG_S,
    )
    found = calibrate(record, facts_of(Boxcar(window_s=1.0)))
    assert found.basis == "calibrated", found.reason
    assert found.update_s == pytest.approx(1.0, rel=0.01)
    assert found.tau_s == pytest.approx(1.0, abs=found.tau_uncertainty_s)
    assert found.declared_tau_s == pytest.approx(1.0, rel=0.01)


def test_held_counter_is_exact_when_it_changes() -> None:
    record = recorded(
        lambda power: counted(power, 0.5, 0.4), seed=1, window_s=0.9, update_s=0.5, noise_w=0
    )
    found = calibrate(record, facts_of(Counter(quantum_j=1e-3, update_period_s=0.5)))
    assert found.update_s == pytest.approx(0.5, rel=0.01)
    assert found.tau_s == pytest.approx(0.4 + READ_S / 2, abs=found.tau_uncertainty_s)
    assert found.tau_uncertainty_s < 0.1


def test_counter_may_wrap() -> None:
    sensor = Counter(quantum_j=1e-3, wrap_j=64.0)
    record = recorded(lambda power: counted(power, 0.001, 0.3) % 64.0, seed=1, noise_w=0)
    found = calibrate(record, facts_of(sensor))
    assert found.tau_s == pytest.approx(0.3, abs=0.02)


def test_slow_decay_is_a_later_fall() -> None:
    record = recorded(lambda power: attack_and_decay(power, 0.05, 0.3), seed=1)
    found = calibrate(record, facts_of(Instant()))
    assert found.basis == "calibrated"
    assert found.tau_s == pytest.approx(0.05, abs=0.02)
    assert found.fall_later_s == pytest.approx(0.25, abs=0.03)


def test_meter_that_aliases_fails_the_train() -> None:
    record = recorded(
        lambda power: held(power, 0.2, 0.03), seed=1, update_s=0.2, clock_s=(0.2, 0.03)
    )
    found = calibrate(record, facts_of(Instant(update_period_s=0.2)))
    assert found.basis == "calibrated"
    assert train_error(found) > 5


def test_constant_readings_show_nothing() -> None:
    record = recorded(np.ones_like, seed=1, noise_w=0)
    found = calibrate(record, facts_of(Instant()))
    assert found.basis == "declared"
    assert found.responds is None
    assert "hardly change" in found.reason


def test_slow_mean_is_not_taken_for_that_of_another_drive() -> None:
    record = recorded(lambda power: mean(power, 15.0), seed=1)
    found = calibrate(record, facts_of(Instant()))
    assert found.basis == "declared"
    assert found.responds is not False


def test_readings_of_another_drive_do_not_respond() -> None:
    for seed in range(10):
        found = calibrate(recorded(np.ones_like, seed=seed), facts_of(Instant()))
        assert found.responds is False
        assert found.noise_w == pytest.approx(NOISE_W, rel=0.3)


def test_sensor_slower_than_the_pulses_stays_as_declared() -> None:
    record = recorded(lambda power: low_pass(power, 3.0), seed=1)
    found = calibrate(record, facts_of(Boxcar(window_s=0.5)))
    assert found.basis == "declared"
    assert found.reason.startswith("not calibrated: ")
    assert found.tau_s == found.declared_tau_s


def test_pulses_cut_short_do_not_calibrate() -> None:
    record = recorded(lambda power: power, seed=1, pulse_count=5)
    found = calibrate(record, facts_of(Instant()))
    assert found.basis == "declared"
    assert "5 of 8 pulses" in found.reason


def test_lost_readings_do_not_calibrate() -> None:
    record = recorded(lambda power: power, seed=1)
    values = [value if index % 200 > 50 else None for index, value in enumerate(record.values)]
    found = calibrate(record.model_copy(update={"values": tuple(values)}), facts_of(Instant()))
    assert found.basis == "declared"
    assert "of 8 pulses" in found.reason


@pytest.mark.parametrize("sensor", [Instant(), Boxcar(window_s=1.0), Counter(quantum_j=1.0)])
@pytest.mark.parametrize("count", [0, 1, 2, 400])
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -1.0, 5.0])
def test_odd_readings_leave_the_sensor_as_declared(
    sensor: Sensor, count: int, value: float | None
) -> None:
    record = recorded(lambda power: power, seed=1)
    odd = record.model_copy(
        update={"time_ns": record.time_ns[:count], "values": (value,) * len(record.time_ns[:count])}
    )
    assert calibrate(odd, facts_of(sensor)).basis == "declared"
    assert response_curve(odd, facts_of(sensor)) is None


def test_load_that_fails_at_times_does_not_calibrate() -> None:
    def failing(power_w: Floats) -> Floats:
        shown = power_w.copy()
        shown[: shown.size // 4] = IDLE_W
        return shown

    found = calibrate(recorded(failing, seed=1), facts_of(Instant()))
    assert found.basis == "declared"
    assert "differ in power" in found.reason


def test_counter_with_a_change_or_two_in_each_pulse_makes_no_error() -> None:
    record = recorded(lambda power: held(np.cumsum(power) * FINE_S, 1.9, 0.3), seed=1, noise_w=0)
    assert calibrate(record, facts_of(Counter(quantum_j=1.0))).basis == "declared"


def test_calibration_without_pulses_leaves_the_sensor_as_declared() -> None:
    record = recorded(lambda power: power, seed=1)
    idle = record.model_copy(update={"pulses": (), "train": ()})
    assert calibrate(idle, facts_of(Instant())).basis == "declared"


def test_pulses_suit_the_sensor() -> None:
    times = pulse_times(0.5, 0.4)
    assert times is not None
    pulses, train = times
    changes_s = np.array(pulses).ravel()
    lengths_s = np.diff(np.concatenate(([0.0], changes_s, [train[0][0]])))
    assert len(pulses) >= 8
    assert lengths_s.min() >= max(2.0, 2 * (0.5 + 0.4))
    phases = np.sort(changes_s / 0.4 % 1)
    assert np.diff(phases).max() < 0.2
    assert train[-1][1] <= 60
    cycle_s = train[1][0] - train[0][0]
    assert 4 <= 1 / cycle_s <= 7


def test_slow_sensor_gets_no_pulses() -> None:
    assert pulse_times(1.0, 1.0) is None
    assert pulse_times(10.0, 0.1) is None


def test_curve_is_the_mean_response() -> None:
    record = recorded(lambda power: mean(power, 0.5), seed=1)
    curve = response_curve(record, facts_of(Boxcar(window_s=0.5)))
    assert curve is not None
    middle = np.interp(0.25, curve.time_s + curve.step_s / 2, curve.share)
    assert middle == pytest.approx(0.5, abs=0.03)
    assert curve.share[-5:].mean() == pytest.approx(1.0, abs=0.02)


def test_mean_of_a_real_gpu_is_found() -> None:
    recorded_pulses = json.loads((DATA / "nvml_pulses.json").read_text(encoding="utf-8"))
    reads = recorded_pulses["average"]
    record = CalibrationRecord(
        host="node1",
        device="GPU-1",
        source="meter",
        utc="2026-01-01T00:00:00Z",
        run_id="",
        key={},
        origin_ns=0,
        pulses=tuple((start_ns, end_ns) for start_ns, end_ns in recorded_pulses["pulses"]),
        train=(),
        time_ns=tuple(reads["time_ns"]),
        values=tuple(reads["value"]),
    )
    found = calibrate(record, facts_of(Boxcar(window_s=1.0)))
    assert found.basis == "calibrated", found.reason
    assert found.update_s == pytest.approx(0.1, rel=0.01)
    assert found.tau_s == pytest.approx(0.53, abs=0.03)
    assert found.kappa_s == pytest.approx(0.12, abs=0.01)
    assert found.train_share is None
