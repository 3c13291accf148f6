"""The load that kept a host busy: what was requested, what was measured, and what the job kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from wattload.core.record.host import LoadLevel, LoadRecord, MemoryMeter
from wattload.core.units import GB, Unit
from wattload.reports.blocks import Block, Cell, Fold, Paragraph, Table, Tone, columns, row
from wattload.reports.runs.load import Run
from wattload.reports.sections.wording import sentence_of, unique
from wattload.reports.stats.comparison import Row
from wattload.reports.stats.conditions import is_compared
from wattload.reports.stats.loads import LoadedPoint, loaded_points, ratio_of_a
from wattload.reports.stats.subject import Group, Subject, lettered
from wattload.results.quantity import (
    MISSING,
    TIMES,
    UNIT_SPACE,
    Scale,
    counted,
    percent,
    ratio_ends,
    ratio_text,
    scale_for,
    scaled,
    with_unit,
)
from wattload.results.view import median_of_known

METER_WORDS: dict[MemoryMeter, str] = {
    "uncore": "memory controllers' counters",
    "resctrl": "resctrl, all memory traffic",
    "self_reported": "the load's own count",
}
_TRAFFIC = Scale(GB, "GB/s")
_WINDOWS = {"alone": "before the workload", "during": "during it", "after": "after it"}
_NOTE = (
    "Medians of the arm's valid runs, with their range. The quotas of a load are settled without "
    "the workload and then left as they are. Waiting for I/O counts as idle; other CPU is of "
    "neither the load nor the run. Pressure (PSI) is the share of time in which some task waited "
    "for CPU, I/O or memory."
)
_OWN_COUNT = (
    " Memory traffic is the load's own count: it leaves out what the workload and others moved, "
    "and its share is that of the load's own peak."
)


def load_statements(subject: Subject, group: Group) -> Iterator[Block]:
    """Yield how the ratio of two arms changes with the load, over all points."""
    if found := loaded_points(subject, group):
        yield Paragraph(" ".join(_statements(group, found)))


def _statements(group: Group, found: Sequence[LoadedPoint]) -> Iterator[str]:
    a, b = group.letters
    total = counted(len(found), "point")
    called = 0
    for call, words in (("more", "larger"), ("less", "smaller")):
        own = [each for each in found if each.call == call]
        called += len(own)
        if own:
            ratios = [each.change.ratio for each in own if each.change]
            ends = ratio_ends(min(ratios), max(ratios))
            yield (
                f"On the busy host, the rate of {a} ÷ the rate of {b} is {words} than on the idle "
                f"one at {len(own)} of {total}: {ends}{TIMES}, each with a 95 % interval that "
                "excludes 1 (corrected for all points)."
            )
    if rest := len(found) - called:
        yield f"At {rest} of {total}, no change with the load is shown."


def loaded_blocks(subject: Subject, group: Group) -> Iterator[Block]:
    """Yield the rates of two arms idle and under a load, and whether their ratio changes."""
    if found := loaded_points(subject, group):
        yield _rates_by_load(group, found)


def _rates_by_load(group: Group, found: Sequence[LoadedPoint]) -> Table:
    first, second = group.letters
    rates = [
        centre
        for each in found
        for entry in (each.idle, each.busy)
        for centre in entry.centres.values()
        if centre
    ]
    scale = scale_for(Unit.BYTES_PER_SECOND, *rates)
    loads = unique(each.load for each in found)
    rows = []
    for each in found:
        tone: Tone = "a" if each.call == "more" else "b" if each.call == "less" else "quiet"
        rows.append(
            row(
                ", ".join([each.name, *([each.load] if len(loads) > 1 else [])]),
                *_rate_cells(each.idle, group, scale),
                _ratio_cell(each.idle),
                *_rate_cells(each.busy, group, scale),
                _ratio_cell(each.busy),
                Cell(each.change_text, remark=each.interval_text),
                Cell("", tone, each.words, "" if each.call else each.reason),
                *([_kept(each, group)] if _has_kept(found) else []),
            )
        )
    titles = [
        "at",
        f"#idle {first}",
        f"#idle {second}",
        f"#idle {first} ÷ {second}",
        f"#busy {first}",
        f"#busy {second}",
        f"#busy {first} ÷ {second}",
        "#busy ÷ idle",
        "verdict",
    ]
    if _has_kept(found):
        titles.append(f"#load kept {first}, {second}")
    return Table(
        columns=columns(*titles),
        rows=rows,
        caption=f"Arms and load: rates in {scale.unit}, and whether their ratio changes",
        note=f"{first} ÷ {second} is the ratio of geometric means, in pairs where runs alternated, "
        "with its 95 % interval. Busy ÷ idle is the ratio of these ratios; its 95 % interval is by "
        "Welch's t on the ratios of pairs alone, and needs 6 of them under each load. The "
        "verdicts are corrected by Holm over the points of this table.",
    )


def _rate_cells(entry: Row, group: Group, scale: Scale) -> list[Cell]:
    return [Cell(scaled(entry.centres.get(arm), scale, 3)) for arm in group.arms]


def _ratio_cell(entry: Row) -> Cell:
    found = ratio_of_a(entry)
    if found is None:
        return Cell(MISSING)
    ratio, lower, upper = found
    ends = ratio_ends(lower, upper) if lower and upper else entry.shortage
    return Cell(f"{ratio_text(ratio)}{TIMES}", remark=ends)


def _has_kept(found: Sequence[LoadedPoint]) -> bool:
    return any(
        load.kept_fraction is not None
        for each in found
        for run in each.busy_point.group.runs
        for load in run.record.loads
    )


def _kept(each: LoadedPoint, group: Group) -> Cell:
    texts = []
    for arm in group.arms:
        values = [
            load.kept_fraction
            for run in each.busy_point.group.arms.get(arm, ())
            for load in run.record.loads
            if load.kept_fraction is not None
        ]
        texts.append(percent(median_of_known(values)))
    return Cell(", ".join(texts))


def load_blocks(subject: Subject, group: Group) -> Iterator[Block]:
    """Yield a table for each arm and load of a workload; nothing without a load."""
    tables = []
    for letter, (arm, runs) in zip(group.letters, group.arms.items(), strict=False):
        own = [run for run in runs if is_compared(subject, run)] or list(runs)
        names = dict.fromkeys(load.name for run in own for load in run.record.loads)
        title = lettered(letter, arm) if len(group.arms) > 1 else ""
        tables += [_table(title, name, own) for name in names]
    if tables:
        tables[-1] = replace(tables[-1], note=f"{_NOTE} {tables[-1].note}")
        yield Fold("Load on the host", tables)


def _table(title: str, name: str, runs: Sequence[Run]) -> Table:
    loads = [load for run in runs for load in run.record.loads if load.name == name]
    meters = list(dict.fromkeys(load.meter for load in loads))
    is_own = "self_reported" in meters
    rows = [_asked(loads)]
    for window, words in _WINDOWS.items():
        levels = [level for load in loads for level in load.levels if level.window == window]
        if levels:
            rows.append(_level(words, levels))
    kept = [load.kept_fraction for load in loads if load.kept_fraction is not None]
    caption = f"Load {name}: {', '.join(METER_WORDS[meter] for meter in meters)} of memory traffic"
    if title:
        caption = f"{title}, {caption[0].lower()}{caption[1:]}"
    remarks = "".join(
        f" {sentence_of(text)}" for text in unique(text for load in loads for text in load.remarks)
    )
    what = f" The load kept {_spread(kept)} of its work during the workload." if kept else ""
    return Table(
        columns=columns(
            "window",
            "#CPU busy",
            "#load's share",
            "#run's share",
            "#other CPU",
            "#stolen",
            "#memory traffic",
            "#of load's peak" if is_own else "#of peak",
            "#load's work",
            "#pressure CPU, I/O, memory",
        ),
        rows=rows,
        caption=caption,
        note=(what + (_OWN_COUNT if is_own else "") + remarks).strip(),
    )


def _asked(loads: Sequence[LoadRecord]) -> tuple[Cell, ...]:
    cpu = {load.cpu_share_asked for load in loads}
    memory = {load.memory_share_asked for load in loads}
    peaks = [load.peak_bytes_per_s for load in loads if load.peak_bytes_per_s is not None]
    of = loads[0].peak_of
    remark = (
        f"peak {of}: {with_unit(scaled(median(peaks), _TRAFFIC, 3), _TRAFFIC)}" if peaks else ""
    )
    missing = loads[0].missing.get("peak_bytes_per_s", "")
    return row(
        Cell("requested", remark="without the workload's reads"),
        ", ".join(_percent(each) for each in sorted(cpu, key=str)),
        *[""] * 4,
        Cell("", remark=remark or missing),
        ", ".join(_percent(each) for each in sorted(memory, key=str)),
        "",
        "",
    )


def _level(words: str, levels: Sequence[LoadLevel]) -> tuple[Cell, ...]:
    traffic = [each.memory_bytes_per_s for each in levels if each.memory_bytes_per_s is not None]
    reason = next((text for each in levels if (text := each.missing.get("memory_bytes_per_s"))), "")
    pressures = [
        _percent(median_of_known(getattr(each, f"pressure_{name}_share") for each in levels))
        for name in ("cpu", "io", "memory")
    ]
    return row(
        words,
        _shares(levels, "cpu_share"),
        _shares(levels, "load_cpu_share"),
        _shares(levels, "run_cpu_share"),
        _shares(levels, "other_cpu_share"),
        _shares(levels, "steal_share"),
        _traffic(traffic) if traffic else Cell(MISSING, remark=reason),
        _shares(levels, "memory_share"),
        _shares(levels, "work_fraction"),
        ", ".join(pressures),
    )


def _percent(share: float | None) -> str:
    """Return a share to a tenth of a percent, which is as much as such levels are worth."""
    return MISSING if share is None else f"{share * 100:.1f}{UNIT_SPACE}%"


def _shares(levels: Sequence[LoadLevel], name: str) -> Cell:
    known = [value for each in levels if (value := getattr(each, name)) is not None]
    reason = next((text for each in levels if (text := each.missing.get(name))), "")
    if not known:
        return Cell(MISSING, remark=reason)
    ends = (_percent(min(known)), _percent(max(known)))
    return Cell(_percent(median(known)), remark="" if ends[0] == ends[1] else " to ".join(ends))


def _traffic(values: Sequence[float]) -> Cell:
    ends = [scaled(end, _TRAFFIC, 3) for end in (min(values), max(values))]
    text = with_unit(scaled(median(values), _TRAFFIC, 3), _TRAFFIC)
    return Cell(text, remark="" if ends[0] == ends[1] else " to ".join(ends))


def _spread(values: Sequence[float]) -> str:
    low, high = _percent(min(values)), _percent(max(values))
    return low if low == high else f"{_percent(median(values))} ({low} to {high})"
