"""A sensor is calibrated by what it reads under a known load, whatever its response."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests.power.energy.simulated_runs import (
    NOISE_W,
    READ_S,
    Kind,
    Power,
    Reader,
    calibration,
    clocked,
    counting,
    instant,
    noise,
    sliding,
)
from tests.power.energy_traces import Floats
from wattload.core.power import Boxcar, Counter, Instant, Sensor
from wattload.core.record.energy import CalibrationRecord, SensorRecord
from wattload.power.energy.calibration import Readings, calibrate, response_curve, sensor_record

HALF = Boxcar(window_s=0.5)
FINE = Counter(quantum_j=1e-3)


def filtered(constant_s: float, window_s: float = 0.0) -> Reader:
    def read(power: Power, reads_s: Floats, rng: np.random.Generator) -> Floats:
        seen = power.filtered(constant_s)
        return sliding(window_s)(seen, reads_s, rng) if window_s else instant(seen, reads_s, rng)

    return read


def late(lag_s: float, inner: Reader) -> Reader:
    return lambda power, reads_s, rng: inner(power, reads_s - lag_s, rng)


def recorded(declared: Sensor, reader: Reader, seed: int = 1) -> CalibrationRecord:
    kind = Kind("", lambda _: reader, declared)
    found = calibration(kind, reader, np.random.default_rng(seed))
    assert found is not None
    return found


def calibrated(declared: Sensor, reader: Reader, seed: int = 1, **changes: object) -> SensorRecord:
    record = recorded(declared, reader, seed).model_copy(update=changes)
    return calibrate(record, Kind("", lambda _: reader, declared).facts)


CASES: dict[str, tuple[Sensor, Reader, float, float | None]] = {
    "instant": (Instant(), instant, 0.0, 0.0),
    "noisy instant": (Instant(), lambda *given: noise(instant(*given), given[2], 0.5), 0.0, None),
    "sliding mean": (HALF, sliding(0.5), 0.25, 0.0625),
    "late mean": (Boxcar(window_s=0.5, lag_s=0.2), late(0.2, sliding(0.5)), 0.45, 0.0625),
    "undeclared mean": (Instant(), sliding(0.5), 0.25, 0.0625),
    "filter": (Instant(), filtered(0.3), 0.3, 0.3 / math.e),
    "filtered mean": (HALF, filtered(0.15, 0.5), 0.4, None),
    "counter": (FINE, counting(1e-3), 0.0, None),
    "late counter": (FINE, counting(1e-3, lag_s=0.8), 0.8, None),
    "counter that wraps": (
        Counter(quantum_j=1e-3, wrap_j=64.0),
        counting(1e-3, lag_s=0.3, wrap_j=64.0),
        0.3,
        None,
    ),
}


def train_error(sensor: SensorRecord) -> float:
    """Return how far the train is from its duty, in uncertainties."""
    assert sensor.train_share is not None
    assert sensor.train_share_uncertainty is not None
    return abs(sensor.train_share) / sensor.train_share_uncertainty


@pytest.mark.parametrize("name", CASES)
def test_delay_of_each_sensor_is_found(name: str) -> None:
    declared, reader, tau_s, kappa_s = CASES[name]
    for seed in range(5):
        found = calibrated(declared, reader, seed)
        assert found.basis == "calibrated", found.reason
        assert found.responds
        assert abs(found.tau_s - tau_s) <= max(0.02 * tau_s, found.tau_uncertainty_s)
        assert found.tau_uncertainty_s < 0.05
        assert found.fall_later_s == 0
        assert train_error(found) <= 1.5
        assert 0 <= found.kappa_s <= found.settle_s
        if kappa_s is not None:
            assert found.kappa_s == pytest.approx(kappa_s, abs=0.02)


def count_on_clock(power: Power, reads_s: Floats, rng: np.random.Generator) -> Floats:
    return counting(1e-3)(power, np.floor(reads_s / 0.5) * 0.5 - 0.4, rng)


@pytest.mark.parametrize(
    ("declared", "reader", "update_s", "tau_s"),
    [
        (Boxcar(window_s=0.5, update_period_s=0.5), clocked(0.5, 0.5), 0.5, 0.5),
        (Boxcar(window_s=1.0), clocked(1.0, 1.0), 1.0, 1.0),
        (Counter(quantum_j=1e-3, update_period_s=0.5), count_on_clock, 0.5, 0.4 + READ_S / 2),
    ],
    ids=["declared clock", "unknown clock", "a counter is exact when it changes"],
)
def test_update_clock_and_noise_are_found(
    declared: Sensor, reader: Reader, update_s: float, tau_s: float
) -> None:
    for seed in range(3):
        found = calibrated(declared, reader, seed)
        assert found.basis == "calibrated", found.reason
        assert found.update_s == pytest.approx(update_s, rel=0.01)
        assert found.jitter_s < 0.05
        assert found.tau_s == pytest.approx(tau_s, abs=found.tau_uncertainty_s)
        if not isinstance(declared, Counter):
            assert NOISE_W / 3 < found.noise_w < 1.5 * NOISE_W
            assert found.declared_tau_s == pytest.approx(tau_s, rel=0.01)


def test_slow_decay_is_a_later_fall() -> None:
    def decaying(power: Power, reads_s: Floats, rng: np.random.Generator) -> Floats:
        return instant(power.followed(0.05, 0.3), reads_s, rng)

    found = calibrated(Instant(), decaying)
    assert found.basis == "calibrated"
    assert found.tau_s == pytest.approx(0.05, abs=0.03)
    assert found.fall_later_s == pytest.approx(0.25, abs=0.03)
    assert train_error(found) > 5
    assert not found.is_aliasing


@pytest.mark.parametrize("update_s", [0.2, 0.3, 0.4, 0.5, 0.7, 1.0])
def test_meter_that_takes_samples_of_moments_fails_the_train(update_s: float) -> None:
    for seed in range(8):
        found = calibrated(Instant(update_period_s=update_s), clocked(0.0, update_s), seed)
        assert found.basis == "calibrated", found.reason
        assert found.is_aliasing
        honest = calibrated(Instant(update_period_s=update_s), clocked(update_s, update_s), seed)
        assert honest.basis == "calibrated", honest.reason
        assert not honest.is_aliasing


def test_a_meter_of_moments_may_be_read_at_the_edges_of_the_train() -> None:
    found = calibrated(Instant(), instant, seed=11)
    assert found.train_share == pytest.approx(0.06, abs=0.01)
    assert not found.is_aliasing


def test_readings_of_another_drive_do_not_respond_but_noise_can_hide_the_load() -> None:
    def idle(_: Power, reads_s: Floats, rng: np.random.Generator) -> Floats:
        return noise(np.full(reads_s.size, 5.0), rng)

    def noisy(power: Power, reads_s: Floats, rng: np.random.Generator) -> Floats:
        return noise(instant(power, reads_s, rng), rng, 40.0) + 100.0

    jump_w = calibrated(Instant(), instant).jump_w or 0.0
    for seed in range(20):
        found = calibrated(Instant(), idle, seed)
        assert found.responds is False
        assert (found.jump_most_w or 0.0) < 1.0
        assert (calibrated(Instant(), noisy, seed).jump_most_w or 0.0) > jump_w / 2

    facts, record = Kind("", lambda _: idle, Instant()).facts, recorded(Instant(), idle)
    in_run = sensor_record(facts, Readings.of(record, facts).profile, [], [record])
    assert (in_run.basis, in_run.responds) == ("declared", False)
    assert in_run.jump_most_w == calibrate(record, facts).jump_most_w


@pytest.mark.parametrize(
    ("reader", "reason"),
    [
        (filtered(3.0), "not calibrated: "),
        (sliding(15.0), "not calibrated: "),
        (lambda power, reads_s, _: np.full(reads_s.size, 5.0), "hardly change"),
        (
            lambda power, reads_s, rng: np.where(reads_s < 10, 5.0, instant(power, reads_s, rng)),
            "differ in power",
        ),
    ],
    ids=["slow filter", "slow mean", "constant", "load that failed at times"],
)
def test_readings_that_show_no_response_leave_the_sensor_as_declared(
    reader: Reader, reason: str
) -> None:
    found = calibrated(Instant(), reader)
    assert (found.basis, found.tau_s) == ("declared", found.declared_tau_s)
    assert found.responds is not False
    assert reason in found.reason


def test_incomplete_pulses_and_a_train_that_was_not_read_do_not_calibrate() -> None:
    record = recorded(Instant(), instant)
    lost = [value if index % 200 > 50 else None for index, value in enumerate(record.values)]
    count = int(np.searchsorted(record.time_ns, record.train[0][0] + 10**8))
    cut = {"time_ns": record.time_ns[:count], "values": record.values[:count]}
    for changes, reason in (
        ({"pulses": record.pulses[:5]}, "8 pulses"),
        ({"pulses": (), "train": ()}, "8 pulses"),
        ({"values": tuple(lost)}, "8 pulses"),
        ({"train": ()}, "fast train"),
        (cut, "fast train"),
    ):
        found = calibrated(Instant(), instant, **changes)
        assert found.basis == "declared"
        assert reason in found.reason


@pytest.mark.parametrize("name", ["instant", "sliding mean", "filtered mean", "late counter"])
def test_reads_that_are_late_on_a_busy_host_widen_the_uncertainty(name: str) -> None:
    declared, reader, tau_s, _ = CASES[name]
    record = recorded(declared, reader)
    is_read = [index % 17 >= 5 for index in range(len(record.values))]
    time_ns, values = (
        tuple(itertools.compress(each, is_read)) for each in (record.time_ns, record.values)
    )
    found = calibrated(declared, reader, time_ns=time_ns, values=values)
    assert found.basis == "calibrated", found.reason
    assert found.tau_s == pytest.approx(tau_s, abs=found.tau_uncertainty_s)
    assert found.tau_uncertainty_s > calibrated(declared, reader).tau_uncertainty_s


@pytest.mark.parametrize("declared", [Instant(), Boxcar(window_s=1.0), Counter(quantum_j=1.0)])
@pytest.mark.parametrize("count", [0, 1, 2, 400])
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -1.0, 5.0])
def test_odd_readings_leave_the_sensor_as_declared(
    declared: Sensor, count: int, value: float | None
) -> None:
    record = recorded(declared, instant)
    time_ns = record.time_ns[:count]
    odd = record.model_copy(update={"time_ns": time_ns, "values": (value,) * len(time_ns)})
    facts = Kind("", lambda _: instant, declared).facts
    assert calibrate(odd, facts).basis == "declared"
    assert response_curve(odd, facts) is None
