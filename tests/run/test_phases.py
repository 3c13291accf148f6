"""Phases as they run: spans, bytes over time, journals, and the totals of a record."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.power.energy_facts import facts
from tests.power.energy_traces import ns, samples_of, traces
from tests.records import Scenario, cluster_of, make_cluster, make_run, of_windows
from tests.run.test_energy import report, section_of
from wattload.core.host.counters import BlockStat, ProcessTree
from wattload.core.power import Channel, Evidence
from wattload.core.record.phase import PhaseWindow, phase_windows
from wattload.core.record.run import RunRecord
from wattload.core.record.summary import drive_energy, moved_bytes
from wattload.core.units import NS_PER_S
from wattload.core.workload import Mark
from wattload.run.folder import settle
from wattload.run.phases import (
    BIN_NS,
    OpenPhase,
    PhaseRecorder,
    PhaseTraffic,
    Traffic,
    block_counters,
    bytes_over_time,
    phase_halves,
)


@dataclass
class Clock:
    """A monotonic clock that the test sets."""

    now_ns: int = ns(0) + 30_000_000

    def monotonic_ns(self) -> int:
        """Return the time."""
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("wattload.run.phases.time.monotonic_ns", made.monotonic_ns)
    return made


@pytest.fixture
def recorder(clock: Clock) -> PhaseRecorder:
    def device() -> dict[str, BlockStat]:
        moved = (clock.now_ns - Clock.now_ns) // 1_000_000  # 1,000 bytes a second
        return {
            "vda": BlockStat(
                read_operations=0,
                read_bytes=0,
                write_operations=moved,
                written_bytes=moved,
                busy_s=0.0,
                weighted_s=0.0,
            )
        }

    return PhaseRecorder(host="box", rank=0, tree=ProcessTree(), read_stats=device)


def _write(phase: OpenPhase, clock: Clock, seconds: float, bytes_each: int = 100) -> None:
    """Write every 20 ms."""
    for _ in range(round(seconds * 50)):
        clock.now_ns += 20_000_000
        phase.moved(written_bytes=bytes_each, read_bytes=1)


def _traffic(recorder: PhaseRecorder, name: str) -> PhaseTraffic:
    (found,) = [each for each in recorder.traffic_of_phases() if each.phase == name]
    return found


def _with_part(recorder: PhaseRecorder, clock: Clock) -> tuple[Mark, Mark]:
    with recorder.phase("write") as phase:
        _write(phase, clock, 1.26, 500)
        start = phase.mark()
        _write(phase, clock, 2.0, 100)
        _write(phase, clock, 2.0, 300)
        end = phase.mark()
        _write(phase, clock, 1.34, 700)
        phase.add_part("steady", start, end)
    return start, end


def test_traffic_of_a_part_sums_to_the_growth_between_its_marks(
    recorder: PhaseRecorder, clock: Clock
) -> None:
    start, end = _with_part(recorder, clock)
    part, whole = _traffic(recorder, "steady"), _traffic(recorder, "write")
    assert part.written_bytes.sum() == end.written_bytes - start.written_bytes == 40_000
    assert part.read_bytes.sum() == end.read_bytes - start.read_bytes == 200
    assert (part.written_bytes >= 0).all()
    assert part.time_ns[0] == start.time_ns - start.time_ns % BIN_NS
    assert part.time_ns[-1] == end.time_ns - end.time_ns % BIN_NS
    at = np.searchsorted(whole.time_ns, part.time_ns)
    assert (part.written_bytes[1:-1] == whole.written_bytes[at][1:-1]).all()
    assert (part.written_bytes <= whole.written_bytes[at]).all()


def test_span_and_device_counters_of_a_part_are_those_between_its_marks(
    recorder: PhaseRecorder, clock: Clock
) -> None:
    start, end = _with_part(recorder, clock)
    spans = {item.span.name: item.span for item in recorder.spans}
    part = spans["steady"]
    assert (part.parent, part.timed, part.is_part) == ("write", True, True)
    assert not spans["write"].is_part
    assert (part.start_ns, part.end_ns) == (start.time_ns, end.time_ns)
    assert (part.written_bytes, part.operations) == (40_000, 200)
    counters = {each.phase: each for each in block_counters(recorder.spans)}
    assert counters["steady"].written_bytes == 4_000
    assert counters["write"].written_bytes == 6_600


def test_half_rates_of_a_part_are_of_its_own_halves(recorder: PhaseRecorder, clock: Clock) -> None:
    _with_part(recorder, clock)
    windows = phase_windows([item.span for item in recorder.spans])
    found = {each.phase: each for each in phase_halves(windows, recorder.traffic_of_phases())}
    steady = next(window for window in windows if window.name == "steady")
    rates = [
        each / (steady.active_s / 2)
        for each in (found["steady"].first_bytes, found["steady"].second_bytes)
    ]
    assert rates == pytest.approx([5_050, 15_050], rel=0.06)


def test_states_of_a_part_have_its_bytes_and_no_sum_has_them_twice(
    recorder: PhaseRecorder, clock: Clock
) -> None:
    _with_part(recorder, clock)
    windows = phase_windows([item.span for item in recorder.spans])
    times_s = np.arange(-30, 100) / 10
    states = np.zeros(times_s.size)
    samples = [
        *samples_of(times_s, np.full(times_s.size, 10.0), source="meter"),
        *samples_of(times_s, states, source="nvme", channel=Channel.POWER_STATE),
    ]
    made = report(1, 1)
    source = made.opened.sources[0]
    instant = facts("meter", Evidence.MEASURED)
    opened = made.opened.model_copy(
        update={"sources": (source.model_copy(update={"facts": instant, "name": "meter"}),)}
    )
    section = section_of(
        replace(made, opened=opened), windows, traces(samples), recorder.traffic_of_phases()
    )
    energies = {each.phase: each for each in section.energy}
    for window in windows:
        energy = energies[window.name]
        assert energy.energy_j == pytest.approx(10 * window.seconds, rel=0.01)
        moved = [share.moved_bytes for share in energy.states]
        assert sum(each or 0 for each in moved) == window.read_bytes + window.written_bytes
    whole = next(window for window in windows if window.name == "write")
    assert moved_bytes(windows) == whole.read_bytes + whole.written_bytes
    changes = {**of_windows(windows), "targets": (), "controllers": (), "power": section}
    total = drive_energy(_record().model_copy(update=changes))
    assert total["energy_in_window_j"] == energies["write"].energy_j


def _mark(time_ns: int, written_bytes: int) -> Mark:
    return Mark(
        time_ns=time_ns,
        read_bytes=0,
        written_bytes=written_bytes,
        operations=0,
        cpu_s=0.0,
        devices={},
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_part_of_any_traffic_sums_exactly_and_takes_no_more_than_there_was(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(0, 3 * NS_PER_S, 400))
    sizes = rng.integers(0, 1 << 40, 400)
    traffic, moved = Traffic(), np.concatenate(([0], np.cumsum(sizes)))
    for time_ns, size in zip(times.tolist(), sizes.tolist(), strict=True):
        traffic.of("write").add(time_ns, 0, size)
    edges_ns = sorted(rng.integers(0, 3 * NS_PER_S, 2).tolist())
    marks = [_mark(at, int(moved[np.searchsorted(times, at, "right")])) for at in edges_ns]
    traffic.copy("write", "part", *marks)
    rows = {each.phase: each for each in traffic.columns("box", 0)}
    growth = marks[1].written_bytes - marks[0].written_bytes
    if not growth:
        assert "part" not in rows
        return
    part, whole = rows["part"], rows["write"]
    assert part.written_bytes.sum() == growth
    at = np.searchsorted(whole.time_ns, part.time_ns)
    assert (part.written_bytes <= whole.written_bytes[at]).all()


def test_parts_of_one_name_that_share_a_bin_are_joined() -> None:
    traffic = Traffic()
    for tenth in range(10):
        traffic.of("write").add(tenth * BIN_NS, 0, 100)
    middle = _mark(BIN_NS * 4 + BIN_NS // 2, 450)
    traffic.copy("write", "round", middle, _mark(BIN_NS * 9, 950))
    traffic.copy("write", "round", _mark(0, 0), middle)
    (rounds,) = [each for each in traffic.columns("box", 0) if each.phase == "round"]
    assert rounds.written_bytes.sum() == 950
    assert (np.diff(rounds.time_ns) > 0).all()


def test_marks_that_count_one_of_two_entries_scale_the_part() -> None:
    traffic = Traffic()
    for tenth in range(10):
        traffic.of("write").add(tenth * BIN_NS, 0, 100)
    traffic.copy("write", "part", _mark(0, 0), _mark(BIN_NS * 9, 401))
    (part,) = [each for each in traffic.columns("box", 0) if each.phase == "part"]
    assert part.written_bytes.sum() == 401
    assert part.written_bytes.min() >= 0


@pytest.mark.parametrize(
    ("bins", "intervals_s", "moved"),
    [
        ({-0.05: 500, 0.95: 700}, [(0, 1)], {0: 0, 0.025: 250, 0.05: 500, 0.95: 500, 1: 1200}),
        ({1.0: 300}, [(0, 1)], {0: 0, 1: 300}),
        ({-0.2: 300}, [(0, 1)], {0: 0, 1: 300}),
        ({0.9: 1000, 1.9: 700}, [(0, 0.93), (1.98, 3)], {0.93: 1000, 1.98: 1000, 3: 1700}),
        ({0.0: 1001}, [(0.01, 0.02), (0.05, 0.08)], {0.02: 250, 0.05: 250, 0.08: 1001}),
        ({0.2: 800}, [(0, 0.1), (0.4, 0.5)], {0: 0, 0.1: 800, 0.5: 800}),
        ({}, [(0, 1)], {0: 0, 1: 0}),
    ],
    ids=["at both edges", "after", "before", "not in a pause", "in several", "in a pause", "none"],
)
def test_bytes_of_a_bin_are_in_the_intervals_of_the_phase(
    bins: dict[float, int], intervals_s: list[tuple[float, float]], moved: dict[float, int]
) -> None:
    read_bytes = np.array([*bins.values()], dtype=np.int64)
    traffic = PhaseTraffic(
        host="host1",
        rank=0,
        phase="read",
        time_ns=np.array([ns(at_s) for at_s in bins], dtype=np.int64),
        read_bytes=read_bytes // 2,
        written_bytes=read_bytes - read_bytes // 2,
    )
    found = bytes_over_time([traffic], [(ns(start_s), ns(end_s)) for start_s, end_s in intervals_s])
    assert found(np.array([ns(at_s) for at_s in moved])).tolist() == [*moved.values()]


def test_a_pause_is_a_rest_if_it_lasts_as_long_as_one(
    recorder: PhaseRecorder, clock: Clock
) -> None:
    recorder.rest_s = 3.0
    recorder.end_pause("train")
    ends_ns = []
    for pause_s in (2, 4):
        with recorder.phase("write"):
            clock.now_ns += NS_PER_S
        ends_ns.append(clock.now_ns)
        with recorder.phase("train", timed=False):
            clock.now_ns += pause_s * NS_PER_S
        recorder.end_pause("train")
    windows = {window.name: window for window in phase_windows([e.span for e in recorder.spans])}
    rest = windows["rest"]
    assert rest.intervals == ((ends_ns[1], ends_ns[1] + 3 * NS_PER_S),)
    assert not rest.timed
    assert rest.parents == {"train"}
    assert {each.phase for each in block_counters(recorder.spans)} == {"write", "train"}


def test_a_run_that_does_not_rest_has_no_rest_in_a_pause(
    recorder: PhaseRecorder, clock: Clock
) -> None:
    with recorder.phase("write"):
        clock.now_ns += NS_PER_S
    clock.now_ns += 100 * NS_PER_S
    recorder.end_pause("train")
    assert [each.span.name for each in recorder.spans] == ["write"]


def test_a_job_ends_once_and_then_nothing_is_timed(recorder: PhaseRecorder) -> None:
    ended: list[str] = []
    recorder.at_job_end = lambda: ended.append("once")
    recorder.end_job()
    recorder.end_job()
    assert ended == ["once"]
    with recorder.phase("ceiling", timed=False):
        pass
    with (
        pytest.raises(RuntimeError, match="read begins after the end of the job"),
        recorder.phase("read"),
    ):
        pass


def _record() -> RunRecord:
    record, _ = make_run(Scenario(workload="checkpoint", power="measured", virtual=False))
    return record


def _window(windows: tuple[PhaseWindow, ...], index: int, **changes: Any) -> PhaseWindow:
    return [window for window in windows if window.timed][index].model_copy(update=changes)


def test_total_is_the_sum_of_the_timed_phases() -> None:
    record = _record()
    total_j = drive_energy(record)["energy_in_window_j"]
    assert total_j is not None
    assert total_j == sum(energy.energy_j or 0.0 for energy in record.power.energy)


def test_phases_that_share_time_have_no_sum() -> None:
    record = _record()
    one, two = _window(record.windows, 0), _window(record.windows, 1)
    shared = two.model_copy(
        update={"start_ns": one.start_ns, "intervals": ((one.start_ns, two.end_ns),)}
    )
    changed = record.model_copy(update=of_windows((one, shared)))
    assert drive_energy(changed)["energy_in_window_j"] is None


def test_a_part_without_a_figure_leaves_no_sum() -> None:
    record = _record()
    first, *others = record.power.energy
    missing = {**first.missing, "energy_j": "it was not read"}
    gone = first.model_copy(update={"energy_j": None, "missing": missing})
    power = record.power.model_copy(update={"energy": (gone, *others)})
    changed = record.model_copy(update={"power": power})
    assert drive_energy(changed)["energy_in_window_j"] is None


def test_the_log_of_several_hosts_is_in_the_order_of_their_common_clock(tmp_path: Path) -> None:
    """The first host has been up for months, the second for no time."""
    first, second = cluster_of("ada", "bob")
    record, _ = make_cluster([replace(first, boot_ns=10**16), replace(second, boot_ns=10**3)])
    lines = {
        name: json.dumps({"event": name, "time_ns": time_ns, "rank": rank})
        for rank, name, time_ns in (
            (0, "begin", 10**16),
            (1, "middle", 10**3 + 10),
            (0, "end", 10**16 + 20),
        )
    }
    (tmp_path / "journal-0.jsonl").write_text(f"{lines['begin']}\n{lines['end']}\n")
    (tmp_path / "journal-1.jsonl").write_text(f"{lines['middle']}\ntorn")
    settle(record, [tmp_path], tmp_path)
    assert (tmp_path / "log.jsonl").read_text().splitlines() == [
        lines[name] for name in ("begin", "middle", "end")
    ]
    assert not list(tmp_path.glob("journal-*"))
