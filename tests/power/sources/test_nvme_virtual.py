"""The sources with the lab's virtual drive, which knows the true energy and shares no code here."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.lab.virtual_ssd.meters import Updates
from tests.lab_unit.virtual import NS, Bench, VirtualAdmin
from tests.power.energy_facts import times_of, window
from tests.power.energy_traces import traces
from wattload.core.power import Integral, PowerSource, Sample, WindowEnergy
from wattload.core.record.energy import EnergyRecord
from wattload.power.config import PowerConfig
from wattload.power.control.journal import ChangeJournal
from wattload.power.energy.ledger import EnergyLedger
from wattload.power.sources.base import PowerDevice
from wattload.power.sources.nvme import find

TICK_NS = NS // 10
CYCLE_TICKS, BURST_TICKS = 70, 23
"""A checkpoint of 2.3 s every 7 s."""
DEPTH = 32
SETTLED_S = 3.0
NAMES = ("nvme", "nvme_ipm", "nvme_olec", "nvme_ocp", "nvme_25h")


@dataclass
class Run:
    """The samples of a virtual drive under bursts of writes, and the drive itself."""

    bench: Bench
    used: Sequence[PowerSource]
    samples: list[Sample] = field(default_factory=list)
    own: list[WindowEnergy] = field(default_factory=list)
    window: tuple[int, int] = (0, 0)
    busy_ns: list[tuple[int, int]] = field(default_factory=list)
    """The ticks with work, which a run knows by its bytes."""

    def record(self, name: str) -> EnergyRecord:
        (facts,) = [each.facts() for each in self.used if each.facts().name == name]
        start_ns, end_ns = self.window
        edges = {"start_ns": start_ns, "end_ns": end_ns, "intervals": (self.window,)}
        bursts = window("bursts", 0, 1, host="box").model_copy(update=edges)
        work = bursts.model_copy(update={"name": "bytes", "intervals": tuple(self.busy_ns)})
        times = times_of(bursts, work)
        ledger = EnergyLedger(traces(self.samples), [facts], host="box", times=times)
        (record,) = ledger.phase_records([bursts])
        return record

    @property
    def truth_j(self) -> float:
        return self.bench.energy_j(*self.window)


def burst(bench: Bench, until_ns: int) -> None:
    """Keep the drive busy with writes until a given time."""
    while bench.now_ns < until_ns:
        while bench.outstanding < DEPTH:
            bench.give(is_write=True)
        wake_ns = bench.engine.wake_ns
        step_ns = until_ns if wake_ns is None else min(until_ns, wake_ns)
        bench.wait((step_ns - bench.now_ns) / NS)


def sampled(bench: Bench, folder: Path, seconds: float, *, names: Collection[str] = NAMES) -> Run:
    device = PowerDevice(
        key="V", name="nvme7", is_nvme=True, journal=ChangeJournal(folder / "state"), run_id="run-1"
    )
    found = find(
        [device],
        PowerConfig(),
        open_device=lambda name: VirtualAdmin(bench),
        holds_system=lambda name: False,
    )
    used = [each for each in found if each.facts().name in names]
    run = Run(bench=bench, used=used)
    for source in used:
        source.open()
    for source in used:
        source.start()
    edge_ticks = round(SETTLED_S * NS / TICK_NS)
    ticks = round(seconds * NS / TICK_NS)
    edges = []
    for tick in range(ticks + 2 * edge_ticks):
        if tick in (edge_ticks, edge_ticks + ticks):
            edges.append(bench.now_ns)
        until_ns = bench.now_ns + TICK_NS
        if 0 <= tick - edge_ticks < ticks and tick % CYCLE_TICKS < BURST_TICKS:
            begun_ns = bench.now_ns
            if run.busy_ns and begun_ns - run.busy_ns[-1][1] < TICK_NS:
                begun_ns = run.busy_ns.pop()[0]
            burst(bench, until_ns)
            run.busy_ns.append((begun_ns, until_ns))
        bench.wait((until_ns - bench.now_ns) / NS)
        for source in used:
            run.samples += source.read()
    run.window = (edges[0], edges[1])
    for source in used:
        run.own += source.stop()
        source.close()
    return run


@pytest.fixture(params=["sliding", "tumbling"])
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Bench:
    updates: Updates = request.param
    bench = Bench(updates=updates)
    bench.wait(SETTLED_S)
    monkeypatch.setattr(time, "monotonic_ns", lambda: bench.now_ns)
    monkeypatch.setattr(time, "sleep", bench.wait)
    return bench


def test_a_minute_by_interval_power_and_the_whole_run_by_log_25h(
    bench: Bench, tmp_path: Path
) -> None:
    run = sampled(bench, tmp_path, 64)
    interval = run.record("nvme_ipm")
    assert interval.energy_j == pytest.approx(run.truth_j, rel=0.01)
    assert interval.energy_j is not None
    assert interval.uncertainty_j is not None
    assert abs(interval.energy_j - run.truth_j) <= interval.uncertainty_j
    assert interval.coverage == pytest.approx(1.0)
    assert run.record("nvme_ocp").energy_j == pytest.approx(run.truth_j, rel=0.05)
    limits = run.record("nvme")
    assert limits.lower_j is not None
    assert limits.upper_j is not None
    assert limits.lower_j <= run.truth_j <= limits.upper_j
    assert run.record("nvme_olec").energy_j is None
    (whole,) = run.own
    assert isinstance(run.used[-1].facts().sensor, Integral)
    assert whole.energy_j == pytest.approx(bench.energy_j(whole.start_ns, whole.end_ns), rel=0.005)
    assert sum(each.count for each in whole.histogram) == pytest.approx(70, abs=1)


@pytest.mark.slow
def test_five_minutes_that_end_idle_by_log_25h_alone(bench: Bench, tmp_path: Path) -> None:
    run = sampled(bench, tmp_path, 294.6, names={"nvme_25h"})
    (whole,) = run.own
    assert (whole.end_ns - whole.start_ns) / NS >= 300
    assert whole.energy_j == pytest.approx(bench.energy_j(whole.start_ns, whole.end_ns), rel=5e-4)
