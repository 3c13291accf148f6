"""A report as text.

CSV with a row per run and figure for spreadsheets, and Markdown with the summary and the main
table for issue trackers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence

from wattload.reports.blocks import Cell, Link, Notice, Sentences, Table, Words
from wattload.reports.quantity import counted
from wattload.reports.render.json_export import finite
from wattload.reports.runs.load import Run, inputs_digest
from wattload.reports.sanitize import escape_unseen, sanitize
from wattload.reports.sections.ratios import points_table, quantities_table
from wattload.reports.sections.summary import summary_section, title
from wattload.reports.stats.comparison import Row, compare
from wattload.reports.stats.figures import quantities
from wattload.reports.stats.subject import LETTERS, Group, Subject, lettered
from wattload.reports.stats.sweeps import points

COLUMNS = (
    "run_id",
    "workload",
    "arm",
    "label",
    "started_utc",
    "status",
    "seal",
    "figure",
    "phase",
    "unit",
    "better",
    "headline",
    "value",
    "lower",
    "upper",
    "evidence",
    "valid",
    "why_not",
    "forced",
    "call",
    "why_called",
)
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
"""The start of a text that a spreadsheet may run; some skip blanks or accept wide signs."""

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#&$])")
_LINKED = re.compile(r"(?<=:)(?=//)|(?<=@)(?=\w)|(?<=\bwww)(?=\.)", re.IGNORECASE)
"""The start of an address that would become a link, or of a name that would be notified."""

_ZERO_WIDTH_SPACE = "\u200b"
Compared = Mapping[tuple[str, str], Row]
"""By run and figure, the row that compares it with the other arm."""


def csv_report(subject: Subject) -> str:
    """Return every figure of every run, in SI base units; missing values are empty.

    ``valid`` is whether the figure may be compared: the run by its checks, energy by its own
    checks, and by its evidence. ``forced`` is what excludes its comparison and was forced. ``call``
    is the verdict at its point, in words, and ``why_called`` the reason. Text that a spreadsheet
    would run as a formula begins with an apostrophe.
    """
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    compared = _compared(subject)
    for run in subject.runs:
        writer.writerows(_rows(subject, run, compared))
    return file.getvalue()


def _compared(subject: Subject) -> Compared:
    """Return the comparison of each figure of two arms."""
    return {
        (run.id, row.quantity.key): row
        for group in subject.groups
        if group.is_pair
        for point in points(group)
        for row in compare(subject, point.group)
        for run in point.group.runs
    }


def _rows(subject: Subject, run: Run, compared: Compared) -> Iterator[dict[str, object]]:
    record, faults = run.record, subject.faults(run)
    energy_faults = subject.energy_faults(run)
    of_run = {
        "run_id": _csv_text(run.id),
        "workload": _csv_text(record.workload.name),
        "arm": _csv_text(subject.arm(run)),
        "label": _csv_text(record.label),
        "started_utc": _csv_text(record.started_utc),
        "status": record.status,
        "seal": run.seal,
    }
    for quantity, figure in quantities(record).values():
        why_not = [*faults, *(energy_faults if quantity.is_energy else ())]
        why_not += [] if figure.ranks else ["the evidence is too weak to compare"]
        row = compared.get((run.id, quantity.key))
        yield of_run | {
            "figure": _csv_text(quantity.key),
            "phase": _csv_text(quantity.phase),
            "unit": quantity.unit.value,
            "better": quantity.better,
            "headline": _flag(is_so=quantity.headline),
            "value": finite(figure.value),
            "lower": finite(figure.lower),
            "upper": finite(figure.upper),
            "evidence": _csv_text(figure.evidence),
            "valid": _flag(is_so=not why_not and figure.value is not None),
            "why_not": _csv_text("; ".join([*why_not, *([figure.note] if figure.note else [])])),
            "forced": _csv_text(row.forced if row else ""),
            "call": _csv_text(row.words if row else ""),
            "why_called": _csv_text(row.reason if row else ""),
        }


def _flag(*, is_so: bool) -> str:
    return "true" if is_so else "false"


def _csv_text(text: str) -> str:
    """Return text of records as a cell: invisible characters escaped, formulas disabled."""
    shown = escape_unseen(text)
    return f"'{shown}" if _FORMULA.match(shown) else shown


def markdown_report(subject: Subject) -> str:
    """Return the summary, its caveats, and a table per workload."""
    parts = [f"## {_markdown_text(title(subject))}", *_summary(subject), *_tables(subject)]
    versions = ", ".join(sorted({run.record.software.wattload for run in subject.runs}))
    parts.append(
        f"Made by wattload {_markdown_text(versions)} from {counted(len(subject.runs), 'record')}; "
        f"SHA-256 of the records: `{inputs_digest(subject.runs)}`."
    )
    return "\n\n".join(parts) + "\n"


def _summary(subject: Subject) -> Iterator[str]:
    for block in summary_section(subject).blocks:
        if isinstance(block, Sentences):
            yield "\n".join(f"{n}. {_words(each)}" for n, each in enumerate(block.sentences, 1))
        elif isinstance(block, Notice):
            lines = [f"- {_words(sentence)}" for sentence in block.sentences]
            yield "\n".join([f"**{_markdown_text(block.title)}**", "", *lines])


def _tables(subject: Subject) -> Iterator[str]:
    """Yield the headline figures of each workload, by points for a sweep."""
    if len(subject.arms) > len(LETTERS):
        yield f"There are {len(subject.arms)} arms; at most {len(LETTERS)} are shown side by side."
        return
    for group in subject.groups:
        yield f"### {_markdown_text(group.workload)}"
        if len(group.arms) > 1:
            named = [lettered(*pair) for pair in zip(group.letters, group.arms, strict=True)]
            yield ", ".join(map(_markdown_text, named)) + "."
        heads = [row for row in compare(subject, group) if row.quantity.headline]
        yield from (_table(table) for table in _by_points(heads, group))


def _by_points(rows: Sequence[Row], group: Group) -> Iterator[Table]:
    alone = [row for row in rows if not row.axis]
    if alone:
        yield quantities_table(alone, group, "Headline figures and energy")
    for key in dict.fromkeys(row.quantity.key for row in rows if row.axis):
        swept = [row for row in rows if row.axis and row.quantity.key == key]
        yield points_table(swept, group)


def _table(table: Table) -> str:
    titles = [_markdown_text(column.title) for column in table.columns]
    rules = ["--:" if column.figures else ":--" for column in table.columns]
    rows = [[_cell(cell) for cell in cells] for cells in table.rows]
    lines = [f"| {' | '.join(cells)} |" for cells in (titles, rules, *rows)]
    return "\n".join([f"{_markdown_text(table.caption)}:", "", *lines])


def _cell(cell: Cell) -> str:
    text = _markdown_text(" ".join(part for part in (cell.badge, cell.text) if part))
    return f"{text}<br><sub>{_markdown_text(cell.remark)}</sub>" if cell.remark else text


def _words(words: str | Words) -> str:
    parts = [words] if isinstance(words, str) else words
    return _markdown_text("".join(part.text if isinstance(part, Link) else part for part in parts))


def _markdown_text(text: str) -> str:
    """Return text of records without markup, links, line breaks or mentions."""
    marked = _SPECIAL.sub(r"\\\1", " ".join(sanitize(text).split()))
    return _LINKED.sub(_ZERO_WIDTH_SPACE, marked)
