"""A virtual drive's interval power, calibrated by reads at known times on a clock of its own."""

from __future__ import annotations

import pytest

from tests.lab.virtual_ssd.meters import Updates
from tests.lab_unit.loads import DEVICE, OPERATION_BYTES, SOURCE
from tests.lab_unit.virtual import NS, Bench, VirtualAdmin
from tests.power.energy_facts import facts
from wattload.core.power import Boxcar
from wattload.core.record.energy import CalibrationRecord
from wattload.power.energy.calibration import calibrate
from wattload.power.nvme.logs import read_smart
from wattload.run.pulses import pulse_times

PERIOD_S, STEP_S, DEPTH = 0.1, 0.01, 4
DECLARED = Boxcar(window_s=1.0)


def calibration(updates: Updates, window_s: float) -> CalibrationRecord:
    """Load a drive by the pulses and the train of a calibration, and read it all the time."""
    times = pulse_times(DECLARED.window_s, DECLARED.window_s)
    assert times is not None
    bench = Bench(updates=updates)
    bench.drive.window_s = window_s
    admin = VirtualAdmin(bench)
    origin_ns = bench.now_ns
    time_ns: list[int] = []
    values: list[float | None] = []

    def wait_until(until_ns: int) -> None:
        while bench.now_ns < until_ns:
            bench.wait(STEP_S)
            if bench.now_ns >= origin_ns + len(time_ns) * round(PERIOD_S * NS):
                time_ns.append(bench.now_ns - origin_ns)
                values.append(read_smart(admin).interval_power_w)

    def load(start_s: float, end_s: float) -> tuple[int, int]:
        wait_until(origin_ns + round(start_s * NS))
        start_ns = bench.now_ns
        while bench.now_ns < origin_ns + round(end_s * NS):
            while bench.outstanding < DEPTH:
                bench.give(is_write=False, size_bytes=OPERATION_BYTES // 4)
            wait_until(bench.now_ns + 1)
        while bench.outstanding:
            wait_until(bench.now_ns + 1)
        return start_ns - origin_ns, bench.finished_ns[-1] - origin_ns

    pulses, train = (tuple(load(*each) for each in part) for part in times)
    wait_until(bench.now_ns + 3 * NS)
    return CalibrationRecord(
        host="h",
        device=DEVICE,
        source=SOURCE,
        utc="",
        run_id="",
        key={},
        origin_ns=origin_ns,
        pulses=pulses,
        train=train,
        time_ns=tuple(time_ns),
        values=tuple(values),
    )


@pytest.mark.parametrize(
    ("updates", "window_s", "delay_s"),
    [("sliding", 1.0, 0.5), ("tumbling", 1.0, 1.0), ("sliding", 1.6, 0.8), ("sliding", 0.2, 0.1)],
)
def test_delay_is_that_of_the_drive_whatever_is_declared(
    updates: Updates, window_s: float, delay_s: float
) -> None:
    found = calibrate(calibration(updates, window_s), facts(SOURCE, sensor=DECLARED, device=DEVICE))
    assert found.basis == "calibrated", found.reason
    assert found.tau_s == pytest.approx(delay_s, abs=found.tau_uncertainty_s)
    assert found.tau_uncertainty_s < 0.3
    assert found.train_share == pytest.approx(0, abs=found.train_share_uncertainty)
