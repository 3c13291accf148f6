"""The load that kept a host busy: what was requested, what was measured, and what the job kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from wattload.core.record.load import LoadLevel, LoadRecord, MemoryMeter
from wattload.core.units import GB
from wattload.reports.blocks import Block, Cell, Fold, Table, columns, row
from wattload.reports.runs.load import Run
from wattload.reports.sections.wording import sentence_of, unique
from wattload.reports.stats.conditions import is_compared
from wattload.reports.stats.subject import Group, Subject, lettered
from wattload.results.quantity import MISSING, UNIT_SPACE, Scale, scaled, with_unit
from wattload.results.view import median_of_known

METER_WORDS: dict[MemoryMeter, str] = {
    "uncore": "memory controllers' counters",
    "resctrl": "resctrl, all memory traffic",
    "self_reported": "the load's own count",
}
_TRAFFIC = Scale(GB, "GB/s")
_STRETCHES = {"alone": "before the workload", "during": "during it", "after": "after it"}
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
    for stretch, words in _STRETCHES.items():
        levels = [level for load in loads for level in load.levels if level.stretch == stretch]
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
            "stretch",
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
