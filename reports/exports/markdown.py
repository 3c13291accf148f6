"""A report as Markdown: the summary's sentences and the main table, as an issue shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from wattload.reports.blocks import Cell, Link, Notice, Sentences, Table, Words
from wattload.reports.compare import Row, compare
from wattload.reports.inputs import inputs_digest
from wattload.reports.plain import plain
from wattload.reports.quantity import counted
from wattload.reports.sections.figuretables import points_table, quantities_table
from wattload.reports.sections.summary import summary_section, title
from wattload.reports.subject import LETTERS, Group, Subject, lettered

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#&$])")
_CALLED = re.compile(r"(?<=:)(?=//)|(?<=@)(?=\w)|(?<=\bwww)(?=\.)", re.IGNORECASE)
"""Where an address or a name begins that would become a link or call somebody."""

_NOTHING = "\u200b"


def markdown_report(subject: Subject) -> str:
    """Return the summary, what limits the figures, and a table per workload."""
    parts = [f"## {_text(title(subject))}", *_summary(subject), *_tables(subject)]
    versions = ", ".join(sorted({run.record.software.wattload for run in subject.runs}))
    parts.append(
        f"Made by wattload {_text(versions)} from {counted(len(subject.runs), 'record')}; SHA-256 "
        f"over them: `{inputs_digest(subject.runs)}`."
    )
    return "\n\n".join(parts) + "\n"


def _summary(subject: Subject) -> Iterator[str]:
    for block in summary_section(subject).blocks:
        if isinstance(block, Sentences):
            yield "\n".join(f"{n}. {_words(each)}" for n, each in enumerate(block.sentences, 1))
        elif isinstance(block, Notice):
            lines = [f"- {_words(sentence)}" for sentence in block.sentences]
            yield "\n".join([f"**{_text(block.title)}**", "", *lines])


def _tables(subject: Subject) -> Iterator[str]:
    """Yield the headline figures of each workload, by points where it was swept."""
    if len(subject.arms) > len(LETTERS):
        yield f"There are {len(subject.arms)} arms; at most {len(LETTERS)} stand side by side."
        return
    for group in subject.groups:
        yield f"### {_text(group.workload)}"
        if len(group.arms) > 1:
            named = [lettered(*pair) for pair in zip(group.letters, group.arms, strict=True)]
            yield ", ".join(map(_text, named)) + "."
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
    titles = [_text(column.title) for column in table.columns]
    rules = ["--:" if column.figures else ":--" for column in table.columns]
    rows = [[_cell(cell) for cell in cells] for cells in table.rows]
    lines = [f"| {' | '.join(cells)} |" for cells in (titles, rules, *rows)]
    return "\n".join([f"{_text(table.caption)}:", "", *lines])


def _cell(cell: Cell) -> str:
    text = _text(" ".join(part for part in (cell.badge, cell.text) if part))
    return f"{text}<br><sub>{_text(cell.remark)}</sub>" if cell.remark else text


def _words(words: str | Words) -> str:
    parts = [words] if isinstance(words, str) else words
    return _text("".join(part.text if isinstance(part, Link) else part for part in parts))


def _text(text: str) -> str:
    """Return text of records as text: no markup, no link, no line of its own, nobody is called."""
    marked = _SPECIAL.sub(r"\\\1", " ".join(plain(text).split()))
    return _CALLED.sub(_NOTHING, marked)
