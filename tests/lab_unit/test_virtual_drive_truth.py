"""What integration makes of the virtual drive's own readings, against its truth."""

from __future__ import annotations

import pytest

from tests.lab.virtual_ssd.meters import Updates
from tests.lab_unit.loads import DEVICE, LOADS, SOURCE, Recorded, record
from tests.lab_unit.virtual import NS, Bench, VirtualAdmin
from wattload.core.power import Bounds, Boxcar, Evidence, Scope, SourceFacts
from wattload.core.record.energy import EnergyRecord
from wattload.core.record.phase import PhaseWindow
from wattload.power.account import build_energy_records
from wattload.power.nvme.admin import fetch
from wattload.power.nvme.measurement import read_power_measurement, start_measurement_command

UPDATES: tuple[Updates, ...] = ("sliding", "tumbling")


def facts(name: str, evidence: Evidence, sensor: Boxcar | Bounds) -> SourceFacts:
    return SourceFacts(
        name=name,
        device=DEVICE,
        device_name="nvme7",
        scope=Scope.DRIVE,
        evidence=evidence,
        sensor=sensor,
        period_s=0.1,
        resolution_w=0.01,
    )


def account(recorded: Recorded) -> dict[str, EnergyRecord]:
    """Return the records of the window by source."""
    seconds = (recorded.end_ns - recorded.start_ns) / NS
    window = PhaseWindow(
        name="load",
        host="h",
        timed=True,
        start_ns=recorded.start_ns,
        end_ns=recorded.end_ns,
        seconds=seconds,
        active_s=seconds,
        start_spread_s=0,
        end_spread_s=0,
        rank_count=1,
        read_bytes=0,
        written_bytes=0,
        operations=0,
        cpu_s=0,
    )
    sources = [
        facts(SOURCE, Evidence.SELF_REPORTED, Boxcar(window_s=1.0)),
        facts("bounds", Evidence.BOUNDS, Bounds()),
    ]
    records = build_energy_records(
        recorded.samples, sources, [window], idle_window=None, host="h", traffic={}
    )
    return {each.source: each for each in records}


@pytest.mark.parametrize("updates", UPDATES)
@pytest.mark.parametrize("state", [0, 1])
@pytest.mark.parametrize("load", LOADS)
def test_a_minute_by_interval_power_is_within_a_percent(
    load: str, state: int, updates: Updates
) -> None:
    recorded = record(LOADS[load], 60.0, updates, state=state)
    found = account(recorded)
    energy_j = found[SOURCE].energy_j
    assert energy_j == pytest.approx(recorded.truth_j, rel=0.01)
    bounds = found["bounds"]
    assert bounds.lower_j is not None
    assert bounds.upper_j is not None
    assert bounds.lower_j <= recorded.truth_j <= bounds.upper_j


@pytest.mark.parametrize("load", LOADS)
def test_five_minutes_by_the_drive_s_own_mean_are_within_half_a_percent(load: str) -> None:
    bench = Bench()
    admin = VirtualAdmin(bench)
    bench.wait(1.3)
    fetch(admin, start_measurement_command(stop_after_minutes=10))
    start_ns = bench.now_ns
    while bench.now_ns < start_ns + 300.6 * NS:
        action = LOADS[load]((bench.now_ns - start_ns) / NS)
        while action != "idle" and bench.outstanding < 4:
            bench.give(is_write=action == "write")
        bench.wait(0.05)
    log = read_power_measurement(admin)
    assert log.count == 300
    assert log.average.watts is not None
    truth_j = bench.energy_j(start_ns, start_ns + 300 * NS)
    assert log.average.watts * log.count == pytest.approx(truth_j, rel=0.005)


def test_state_1_is_slower_cooler_and_needs_less_power() -> None:
    fast = record(LOADS["unet3d_unpaced"], 60.0, "sliding", state=0)
    slow = record(LOADS["unet3d_unpaced"], 60.0, "sliding", state=1)
    assert slow.bench.engine.read_bytes < 0.7 * fast.bench.engine.read_bytes
    assert slow.truth_j < 0.75 * fast.truth_j
    assert slow.bench.engine.thermal.highest_k < fast.bench.engine.thermal.highest_k - 5
