"""The index of a folder of runs.

One table with a row per run folder; a script sorts and filters it, but is not needed to read it. A
broken record has a row with the error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wattload.core.errors import RecordError
from wattload.core.record.file import SealState
from wattload.core.record.results import Metric
from wattload.core.record.run import RunRecord
from wattload.reports.render.page import policy, relative_link, style_sheet, template
from wattload.reports.runs.energy import Energy, energy_text
from wattload.reports.runs.load import readable_records, record_fault, search_records
from wattload.reports.runs.redact import Masker
from wattload.reports.sanitize import file_name
from wattload.reports.sections.runs import first_figures, row_energy
from wattload.reports.sections.wording import moment
from wattload.reports.stats.conditions import conditions
from wattload.reports.stats.subject import ARMS, UNKNOWN_STATE
from wattload.results.labels import label
from wattload.results.quantity import MINUS, MISSING, UNIT_SPACE, counted, number, quantity
from wattload.results.reading import read_judged

PAGE = "report.html"
"""The name of a run's own page in the run's folder."""

TITLES = (
    "Started, UTC",
    "Workload",
    "Label",
    "Drive",
    "Power state",
    "Scale",
    "Status",
    "Failed checks",
    "Headline figures",
    "Energy",
    "Since the arm's last run",
)
FIGURES = frozenset({"Failed checks", "Headline figures", "Energy"})
"""The columns that are sorted by number."""

CHANGES_MAX = 4
"""The most changed conditions of a row; the rest are counted."""

_PASSING = frozenset({"temperature at start", "file system fill"})
"""Conditions that differ between any two runs."""

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a row: its text, its sort key, a remark, and a tone."""

    text: str
    key: str = ""
    remark: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRow:
    """One run folder: its link, and its fields; ``broken`` is the error of an unreadable record."""

    name: str
    link: str
    fields: tuple[Field, ...] = ()
    broken: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a later run of the same workload and label is compared with."""

    record: RunRecord
    conditions: Mapping[str, str]

    @property
    def arm(self) -> tuple[str, str]:
        return self.record.workload.name, self.record.label


def render_index(folder: Path, *, output: Path, redact: bool = False) -> str:
    """Return the index of the runs in a folder, as HTML.

    Args:
        folder: the folder that contains the run folders.
        output: the path of the page; links are relative to it. With ``redact`` there are no links.
        redact: mask host names, serials and paths.

    Raises:
        RecordError: the folder does not exist or has no run.
    """
    rows = index_rows(folder, output, redact=redact)
    broken = sum(bool(row.broken) for row in rows)
    style = style_sheet() + (_FOLDER / "index.css").read_text(encoding="utf-8")
    script = (_FOLDER / "index.js").read_text(encoding="utf-8")
    return template(_FOLDER / "index.html").render(
        title="Runs" if redact else f"Runs in {file_name(folder.resolve().name)}",
        count=counted(len(rows), "run"),
        broken=counted(broken, "record") if broken else "",
        columns=[(title, title in FIGURES) for title in TITLES],
        rows=rows,
        style=style,
        script=script,
        policy=policy(style, script),
    )


def index_rows(folder: Path, output: Path, *, redact: bool) -> tuple[IndexRow, ...]:
    """Return a row for each run folder below a folder, the latest name first.

    Raises:
        RecordError: the folder does not exist or has no run.
    """
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir() raises without permission
        raise RecordError(f"{folder} is not a folder; --index takes a folder of runs such as runs")
    found = search_records(folder)
    files = found.files[::-1]
    if not files and not found.unfinished:
        raise RecordError(f"no runs in {folder}; name the folder that contains the run folders")
    masker = Masker(readable_records(files)) if redact else None
    left_out = [
        IndexRow(
            name="unnamed run" if redact else each.name,
            link="",
            broken="no readable record" if redact else each.reason,
        )
        for each in found.left_out()
    ]
    rows = [_row(file, folder, output, masker) for file in files]
    changes = _changes([seen for _, seen in rows if seen is not None])
    return (
        *left_out,
        *(
            row if seen is None else replace(row, fields=(*row.fields, changes[id(seen)]))
            for row, seen in rows
        ),
    )


def _changes(every: Sequence[_Seen]) -> dict[int, Field]:
    """Return for each run what changed since the run of its arm that began before it."""
    found: dict[int, Field] = {}
    last: dict[tuple[str, str], _Seen] = {}
    for seen in sorted(every, key=lambda each: (each.record.started_utc, each.record.run_id)):
        before = last.get(seen.arm)
        found[id(seen)] = Field(text="first run") if before is None else _change(before, seen)
        last[seen.arm] = seen
    return found


def _change(before: _Seen, after: _Seen) -> Field:
    """Return by how much the first figure and the energy changed, and which conditions did."""
    pairs = zip(first_figures(before.record)[:1], first_figures(after.record)[:1], strict=False)
    figures = [
        f"{label(new.name, new.unit)} {_percent(old.value, new.value)}"
        for old, new in pairs
        if old.name == new.name and old.value and new.value
    ]
    energies = [row_energy(each.record) for each in (before, after)]
    old_j, new_j = (energy and energy.energy_j for energy in energies)
    if old_j and new_j:
        figures.append(f"energy {_percent(old_j, new_j)}")
    names = dict.fromkeys([*before.conditions, *after.conditions])
    changed = [
        f"{name.removeprefix('config ')} {old} \u2192 {new}"
        for name in names
        if name not in _PASSING
        and (old := before.conditions.get(name, "unknown"))
        != (new := after.conditions.get(name, "unknown"))
    ]
    rest = len(changed) - CHANGES_MAX
    shown = [*changed[:CHANGES_MAX], *([f"{rest} more"] if rest > 0 else [])]
    return Field(text=", ".join(figures) or MISSING, remark="; ".join(shown) or "same settings")


def _percent(old: float | None, new: float | None) -> str:
    """Return a change of positive figures in percent, with its sign."""
    change = 100 * (new / old - 1) if old and new else 0.0
    return f"{'+' if change >= 0 else MINUS}{number(abs(change), 2)}{UNIT_SPACE}%"


def _row(
    file: Path, folder: Path, output: Path, masker: Masker | None
) -> tuple[IndexRow, _Seen | None]:
    name = file_name(str(file.parent.relative_to(folder)))
    try:
        stored = read_judged(file)
    except RecordError as error:
        return _unreadable_row(file, name, output, error, masked=masker is not None), None
    if masker is not None:
        record = masker.record(stored.record)
        # A folder may have any name; only names in the record are known to be masked.
        name, link = record.run_id, ""
    else:
        record, link = stored.record, _link(file.parent, output)
    row = IndexRow(name=name, link=link, fields=_fields(record, stored.seal))
    return row, _Seen(record=record, conditions=conditions(record))


def _unreadable_row(
    file: Path, name: str, output: Path, error: RecordError, *, masked: bool
) -> IndexRow:
    """Return the row of an unreadable record; if masked, without the error."""
    if masked:
        return IndexRow(name="unnamed run", link="", broken="unreadable record")
    return IndexRow(name=name, link=_link(file.parent, output), broken=record_fault(file, error))


def _link(folder: Path, output: Path) -> str:
    """Return the link to a run, relative to the index: its own page, or its folder."""
    page = folder / PAGE
    target = page if page.is_file() else folder
    return relative_link(target, output) + ("" if page.is_file() else "/")


def _fields(record: RunRecord, seal: SealState) -> tuple[Field, ...]:
    state = ARMS["power_state"](record)
    return (
        Field(text=moment(record.started_utc).removesuffix(" UTC"), key=record.started_utc),
        Field(text=record.workload.name),
        Field(text=record.label),
        Field(text=ARMS["target"](record)),
        Field(text="unknown" if state == UNKNOWN_STATE else state),
        Field(text=record.workload.scale),
        _status(record, seal),
        _checks(record),
        _figures(first_figures(record)),
        _energy(row_energy(record)),
    )


def _status(record: RunRecord, seal: SealState) -> Field:
    if seal == "broken":
        return Field(text=record.status, remark="edited after the run", tone="bad")
    return Field(text=record.status, tone="good" if record.status == "complete" else "bad")


def _checks(record: RunRecord) -> Field:
    failed = [each.name.replace("_", " ") for each in record.checks if each.fails_run]
    count = str(len(failed))
    return Field(text=count, key=count, remark=", ".join(failed), tone="bad" if failed else "")


def _figures(figures: Sequence[Metric]) -> Field:
    if not figures:
        return Field(text=MISSING)
    first, *others = figures
    return Field(
        text=quantity(first.value, first.unit),
        key="" if first.value is None else repr(first.value),
        remark=", ".join(
            [
                label(first.name, first.unit),
                *(f"{label(o.name, o.unit)} {quantity(o.value, o.unit)}" for o in others),
            ]
        ),
    )


def _energy(energy: Energy | None) -> Field:
    if energy is None:
        return Field(text=MISSING, remark="no timed phase finished")
    text = energy_text(energy)
    reason = energy.reason.partition(";")[0]
    if reason.startswith("power=none"):
        reason = "not measured (power=none)"
    value = energy.energy_j if energy.energy_j is not None else energy.upper_j
    return Field(
        text=text,
        key="" if value is None else repr(value),
        remark=reason if text == MISSING else energy.words,
        tone="" if energy.ranks else "quiet",
    )
