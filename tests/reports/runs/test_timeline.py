from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.record_power import PowerKind
from tests.records import Scenario, make_run, of_windows
from tests.reports.conftest import one
from wattload.core.power import Channel
from wattload.core.record.host import ClockOffset
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.run import RunRecord
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import CommonClock, depth, leading, overlap, parents, phases_of
from wattload.reports.runs.timeline import BIN_NS, make_timeline
from wattload.reports.runs.traces import PowerTrace, Signal

MEASURED = Scenario(run_id="run-a", seconds=3.0, power="measured", virtual=False)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return one(tmp_path, MEASURED)


def test_the_area_under_the_rate_is_the_bytes_that_moved(run: Run) -> None:
    timeline = make_timeline(run)
    drawn = {line.name: line.value.sum() * BIN_NS / 1e9 for line in timeline.rates}
    windows = run.record.windows
    assert drawn["read"] == pytest.approx(sum(window.read_bytes for window in windows))
    assert drawn["write"] == pytest.approx(sum(window.written_bytes for window in windows))


def test_rates_begin_and_end_at_zero_so_that_they_can_be_filled(run: Run) -> None:
    for line in make_timeline(run).rates[:2]:
        assert line.value[0] == line.value[-1] == 0.0


def test_bytes_of_a_bin_that_begins_before_the_timed_start_are_drawn_from_there(run: Run) -> None:
    trace = run.traces.throughput
    assert trace is not None
    early = replace(trace, time_ns=trace.time_ns - BIN_NS // 2)
    timeline = make_timeline(replace(run, traces=replace(run.traces, throughput=early)))
    (strip,) = [each for each in timeline.strips if each.timed]
    window = next(each for each in run.record.windows if each.name == strip.name)
    for line in timeline.rates[:2]:
        inside = (line.time_s > strip.start_s - 1e-6) & (line.time_s < strip.end_s)
        moved = getattr(window, "read_bytes" if line.name == "read" else "written_bytes")
        assert line.value[inside].sum() * BIN_NS / 1e9 == pytest.approx(moved)
        assert line.time_s[-1] >= strip.end_s - BIN_NS / 1e9


def test_bytes_are_spread_back_to_the_count_before_but_not_beyond_their_phase(run: Run) -> None:
    trace = run.traces.throughput
    assert trace is not None
    own = np.flatnonzero(trace.phase.are("read"))
    counts = np.zeros_like(trace.read_bytes)
    counts[own[9]], counts[own[14]] = 10_000, 20_000
    sparse = replace(trace, read_bytes=counts, written_bytes=np.zeros_like(counts))
    timeline = make_timeline(replace(run, traces=replace(run.traces, throughput=sparse)))
    line, (strip,) = timeline.rates[0], [each for each in timeline.strips if each.timed]
    first = int(np.searchsorted(line.time_s, strip.start_s - 1e-6))
    assert line.value[first : first + 15].tolist() == [1e4] * 10 + [4e4] * 5
    assert line.value.sum() * BIN_NS / 1e9 == pytest.approx(30_000)


def test_device_rates_come_from_the_cumulative_counters(run: Run) -> None:
    line = next(line for line in make_timeline(run).rates if line.role == "device")
    assert line.name == "device nvme0n1"
    moved = sum(window.read_bytes + window.written_bytes for window in run.record.windows)
    assert line.value.sum() * 0.1 == pytest.approx(moved * 1.001, rel=1e-6)


def test_phases_are_strips_on_the_same_axis(run: Run) -> None:
    timeline = make_timeline(run)
    assert [(strip.name, strip.timed) for strip in timeline.strips] == [
        ("prepare", False),
        ("warm_up", False),
        ("read", True),
    ]
    assert timeline.strips[0].start_s == 0.0
    assert timeline.start_s < 0.0 < timeline.end_s


def _lines(run: Run, *signals: Signal) -> Run:
    return replace(run, traces=replace(run.traces, power=PowerTrace(signals=signals)))


def _signal(run: Run, channel: Channel, time_s: list[float], value: list[float]) -> Signal:
    source = run.record.power.sources[0]
    return Signal(
        host=source.host,
        source=source.name,
        device=source.device,
        channel=channel,
        time_ns=np.array([round(t * 1e9) for t in time_s], dtype=np.int64),
        value=np.array(value),
    )


def test_missing_samples_break_the_power_line(run: Run) -> None:
    signal = _signal(run, Channel.POWER_W, [5.0, 5.1, 5.2, 8.0, 8.1], [9.0] * 5)
    (line,) = make_timeline(_lines(run, signal)).watts
    assert line.value.size == 6
    assert np.isnan(line.value[3])


def test_a_counter_is_drawn_as_power_between_its_steps(run: Run) -> None:
    # 6 J in 2 s, then 4 J in 1 s; reads between two steps repeat the value.
    signal = _signal(
        run, Channel.ENERGY_J, [5.0, 6.0, 7.0, 7.5, 8.0, 9.0], [0.0, 0.0, 6.0, 6.0, 10.0, 2.0]
    )
    (line,) = make_timeline(_lines(run, signal)).watts
    assert line.value[:2].tolist() == [3.0, 4.0]
    assert np.isnan(line.value[2])  # it wrapped


def test_a_counter_that_never_steps_draws_nothing(run: Run) -> None:
    signal = _signal(run, Channel.ENERGY_J, [5.0, 6.0], [4.0, 4.0])
    assert make_timeline(_lines(run, signal)).watts == ()


def test_a_source_that_energy_does_not_rest_on_is_not_drawn(run: Run) -> None:
    other = replace(_signal(run, Channel.POWER_W, [5.0, 6.0], [300.0] * 2), device="GPU-1")
    assert make_timeline(_lines(run, other)).watts == ()


@pytest.mark.parametrize(("power", "lower"), [("bounds", 4.0), ("upper", None)])
def test_bounds_are_a_band_and_no_line(
    tmp_path: Path, power: PowerKind, lower: float | None
) -> None:
    run = one(tmp_path, replace(MEASURED, power=power))
    timeline = make_timeline(run)
    assert timeline.watts == ()
    (band,) = timeline.bands
    assert set(band.upper.tolist()) == {25.0}
    assert (None if band.lower is None else band.lower[0]) == lower


def test_without_traces_only_phases_are_left(tmp_path: Path) -> None:
    run = one(tmp_path, MEASURED)
    bare = replace(run, traces=replace(run.traces, power=None, throughput=None))
    timeline = make_timeline(bare)
    assert (timeline.rates, timeline.watts, timeline.bands) == ((), (), ())
    assert len(timeline.strips) == 3


def test_a_device_that_moved_nothing_is_no_line(run: Run) -> None:
    still = [
        Signal(
            host="box",
            source="block",
            device="vda",
            channel=channel,
            time_ns=np.array([0, 10**9], dtype=np.int64),
            value=np.array([7.0, 7.0]),
        )
        for channel in (Channel.READ_BYTES, Channel.WRITTEN_BYTES)
    ]
    assert all(line.role != "device" for line in make_timeline(_lines(run, *still)).rates)


def two_hosts(record: RunRecord, ahead_ns: int) -> RunRecord:
    """Add a host whose monotonic clock is ahead, in the same phases at the same moments."""
    (host,) = record.hosts
    offset = ClockOffset(monotonic_ns=ahead_ns, offset_ns=ahead_ns, bound_ns=1000)
    other = host.model_copy(
        update={
            "facts": host.facts.model_copy(update={"name": "two"}),
            "offsets": (offset,),
        }
    )
    windows = [
        window.model_copy(
            update={
                "host": "two",
                "start_ns": window.start_ns + ahead_ns,
                "end_ns": window.end_ns + ahead_ns,
                "intervals": ((window.start_ns + ahead_ns, window.end_ns + ahead_ns),),
            }
        )
        for window in record.windows
    ]
    both = of_windows([*record.windows, *windows])
    return record.model_copy(update={"hosts": (host, other), **both})


def test_hosts_with_different_clocks_meet_on_one_axis() -> None:
    record = two_hosts(make_run(MEASURED)[0], 77_000_000_000)
    phases = phases_of(record)
    assert [phase.name for phase in phases] == ["prepare", "warm_up", "read"]
    assert phases[-1].seconds == pytest.approx(3.0)
    assert phases[-1].active_s == pytest.approx(3.0)
    assert phases[-1].rank_count == 2
    assert phases[-1].moved_bytes == 2 * record.windows[-1].read_bytes
    assert CommonClock(record).seconds("two", 77_000_000_000 + record.windows[0].start_ns) == 0.0


def _nested(record: RunRecord) -> RunRecord:
    """Put a timed epoch inside the phase read, which then leads alone."""
    (window,) = (one for one in record.windows if one.name == "read")
    (span,) = (one for one in record.spans if one.name == "read")
    middle_ns = (window.start_ns + window.end_ns) // 2
    epochs = [
        span.model_copy(update={"name": "epoch", "parent": "read", "end_ns": middle_ns}),
        span.model_copy(update={"name": "epoch", "parent": "read", "start_ns": middle_ns + 9}),
    ]
    return record.model_copy(update={"spans": (*record.spans, *epochs)})


def test_a_phase_within_a_timed_one_does_not_lead() -> None:
    record = _nested(make_run(MEASURED)[0])
    assert [phase.name for phase in leading(record)] == ["read"]
    assert depth("epoch", parents(record)) == 1
    assert len(phases_of(record)[-1].intervals_s) == 2


def test_phases_that_share_time_overlap_and_neighbours_do_not() -> None:
    record = _nested(make_run(MEASURED)[0])
    phases = {phase.name: phase for phase in phases_of(record)}
    assert overlap([phases["read"], phases["epoch"]])
    assert not overlap([phases["warm_up"], phases["read"]])


def test_interleaved_phases_do_not_overlap() -> None:
    record = make_run(replace(MEASURED, workload="checkpoint"))[0]
    write, read = record.windows[1:]
    both = [
        write.model_copy(update={"intervals": ((0, 10), (20, 30))}),
        read.model_copy(update={"intervals": ((10, 20), (30, 40))}),
    ]
    phases = phases_of(record.model_copy(update=of_windows(tuple(both))))
    assert not overlap(phases)


def test_a_circle_of_parents_ends() -> None:
    above = {"a": "b", "b": "a"}
    assert depth("a", above) == 2
    record = make_run(MEASURED)[0]
    spans: list[PhaseSpan] = [
        span.model_copy(update={"parent": span.name}) for span in record.spans
    ]
    assert leading(record.model_copy(update={"spans": tuple(spans)})) == ()
