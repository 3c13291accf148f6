"""From spans on ranks to windows on hosts, and what each counter saw in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from wattload.core.blockstat import BlockStat
from wattload.core.record.phase import IoCounter, PhaseSpan, PhaseWindow
from wattload.core.units import NS_PER_S
from wattload.life.phases import BIN_NS, MarkedSpan, TrafficRow

SHORTEST_HALVED_S = 2.0


def phase_windows(spans: Sequence[PhaseSpan]) -> tuple[PhaseWindow, ...]:
    """Return one window per phase and host, in order of their start."""
    windows = [_window(group) for group in _grouped(spans).values()]
    return tuple(sorted(windows, key=lambda window: (window.start_ns, window.end_ns)))


def _grouped(spans: Iterable[PhaseSpan]) -> dict[tuple[str, str], list[PhaseSpan]]:
    groups: dict[tuple[str, str], list[PhaseSpan]] = defaultdict(list)
    for span in spans:
        groups[span.host, span.name].append(span)
    return groups


def _window(spans: list[PhaseSpan]) -> PhaseWindow:
    first_by_rank = [min(s.start_ns for s in own) for own in _by_rank(spans)]
    last_by_rank = [max(s.end_ns for s in own) for own in _by_rank(spans)]
    start_ns, end_ns = min(first_by_rank), max(last_by_rank)
    intervals = merged((s.start_ns, s.end_ns) for s in spans)
    active_ns = sum(end - start for start, end in intervals)
    return PhaseWindow(
        name=spans[0].name,
        host=spans[0].host,
        timed=spans[0].timed,
        start_ns=start_ns,
        end_ns=end_ns,
        seconds=(end_ns - start_ns) / NS_PER_S,
        active_s=active_ns / NS_PER_S,
        start_spread_s=(max(first_by_rank) - start_ns) / NS_PER_S,
        end_spread_s=(end_ns - min(last_by_rank)) / NS_PER_S,
        rank_count=len(first_by_rank),
        read_bytes=sum(s.read_bytes for s in spans),
        written_bytes=sum(s.written_bytes for s in spans),
        operations=sum(s.operations for s in spans),
        cpu_s=sum(s.cpu_s for s in spans),
        intervals=tuple(intervals),
    )


def _by_rank(spans: Iterable[PhaseSpan]) -> list[list[PhaseSpan]]:
    ranks: dict[int, list[PhaseSpan]] = defaultdict(list)
    for span in spans:
        ranks[span.rank].append(span)
    return list(ranks.values())


def merged(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of intervals as disjoint ones, in order; intervals that touch are joined."""
    union: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def application_counters(windows: Sequence[PhaseWindow]) -> list[IoCounter]:
    """Return what our own loops counted, one counter per window."""
    return [
        IoCounter(
            host=window.host,
            device="target",
            source="application",
            phase=window.name,
            read_bytes=window.read_bytes,
            written_bytes=window.written_bytes,
            read_operations=None,
            write_operations=None,
            busy_s=None,
            weighted_s=None,
            missing=dict.fromkeys(
                ("read_operations", "write_operations"), "our loops count reads and writes together"
            )
            | dict.fromkeys(("busy_s", "weighted_s"), "kept by the block layer only"),
        )
        for window in windows
    ]


def block_counters(marked: Sequence[MarkedSpan]) -> list[IoCounter]:
    """Return what the block devices counted per phase.

    Ranks of one host enter a phase within a spread: overlapping spans are taken together, from the
    reading of the first that started to the reading of the last that ended, so that every byte of
    the phase is inside and none is counted twice.
    """
    counters: list[IoCounter] = []
    groups: dict[tuple[str, str], list[MarkedSpan]] = defaultdict(list)
    for item in marked:
        groups[item.span.host, item.span.name].append(item)
    for (host, phase), items in groups.items():
        for device in sorted({name for item in items for name in item.at_start}):
            total = BlockStat.zero()
            for start, end in merged((i.span.start_ns, i.span.end_ns) for i in items):
                first = next(i for i in items if i.span.start_ns == start)
                last = next(i for i in items if i.span.end_ns == end)
                total = total + (last.at_end[device] - first.at_start[device])
            counters.append(_block_counter(host, phase, device, total))
    return counters


def _block_counter(host: str, phase: str, device: str, stat: BlockStat) -> IoCounter:
    return IoCounter(
        host=host,
        device=device,
        source="block",
        phase=phase,
        read_bytes=stat.read_bytes,
        written_bytes=stat.write_bytes,
        read_operations=stat.read_ios,
        write_operations=stat.write_ios,
        busy_s=stat.busy_s,
        weighted_s=stat.weighted_s,
    )


def with_half_rates(
    windows: Sequence[PhaseWindow], traffic: Sequence[TrafficRow]
) -> tuple[PhaseWindow, ...]:
    """Return the windows with the rates of the first and second half of their active time.

    Seconds in which nothing moved count as such: a drive that stalls is slower for it. Only the
    pauses between a phase's spans do not count. Under two active seconds the halves say nothing
    and are left out.
    """
    return tuple(
        window.model_copy(update={"half_rates_bytes_per_s": _half_rates(window, traffic)})
        for window in windows
    )


def _half_rates(window: PhaseWindow, traffic: Sequence[TrafficRow]) -> tuple[float, float] | None:
    if window.active_s < SHORTEST_HALVED_S:
        return None
    halves = [0.0, 0.0]
    for time_ns, host, _rank, phase, read_bytes, written_bytes in traffic:
        if (host, phase) == (window.host, window.name):
            elapsed_s = _active_s_before(window, time_ns + BIN_NS // 2)
            halves[int(elapsed_s >= window.active_s / 2)] += read_bytes + written_bytes
    return (halves[0] / (window.active_s / 2), halves[1] / (window.active_s / 2))


def _active_s_before(window: PhaseWindow, time_ns: int) -> float:
    """Return how long the phase had been active by a moment."""
    return (
        sum(max(0, min(end_ns, time_ns) - start_ns) for start_ns, end_ns in window.intervals)
        / NS_PER_S
    )
