"""The sections of a page as plain text, a line per sentence, row or drawn label, to compare."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from wattload.reports.blocks import (
    Block,
    Cell,
    Code,
    Facts,
    Figure,
    FigureRow,
    Fold,
    Heading,
    Node,
    Notice,
    Paragraph,
    Projection,
    Section,
    Setting,
    Table,
    Tree,
    Verdicts,
    Words,
)

_DRAWN = re.compile(r'data-tip="([^"]*)"|<text[^>]*>(.*?)</text>', re.DOTALL)
_TICK = re.compile(r"[-\u2212+]?[\d., ]+( ?(%|s|ms|µs|[kMG]?B|[kMGT]?B/s|M?W|m?in|h))?")
_SHOWN = 12
"""Labels of a chart and rows of a table beyond these are counted: people read a golden file."""


def page_text(sections: Sequence[Section]) -> str:
    """Return the sections of a page as text."""
    return _joined(line for each in sections for line in _section(each, 1))


def blocks_text(blocks: Sequence[Block]) -> str:
    """Return blocks as text."""
    return _joined(line for each in blocks for line in _block(each))


def _joined(lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    return text.replace("\xa0", " ").replace("\u202f", " ").replace("\u2009", " ") + "\n"


def _section(section: Section, level: int) -> Iterator[str]:
    yield f"{'#' * level} {section.title}" + (f" ({section.remark})" if section.remark else "")
    yield from (f"badge: {_cell(each)}" for each in section.badges)
    for block in section.blocks:
        yield from _block(block)
    for part in section.parts:
        yield from _section(part, level + 1)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Table():
            yield from _table(block)
        case Paragraph() | Heading():
            yield block.text
        case Notice():
            yield f"[{block.tone}] {block.title}"
            yield from (f"  {_text(each)}" for each in block.sentences)
        case Verdicts():
            yield from _verdicts(block)
        case Figure():
            yield f"figure {block.name}: {block.title}"
            yield f"  {block.caption}"
            yield from (f"  legend {colour}: {meaning}" for colour, meaning in block.legend)
            yield from (f"  drawn: {text}" for text in _drawn(block.svg))
            yield from _table(block.table)
        case FigureRow():
            yield from chain.from_iterable(map(_block, block.figures))
        case Code():
            yield from _shown(block.text.splitlines())
        case Projection():
            yield "".join(
                f"[{part.value:g}]" if isinstance(part, Setting) else part
                for part in block.sentence
            )
            yield from _table(block.table)
        case Tree():
            yield from _node(block.root, 1)
        case Facts():
            yield from (f"{name}: {_text(value)}" for name, value in block.pairs)
        case Fold():
            yield f"> {block.summary}"
            for each in block.blocks:
                yield from _block(each)


def _table(table: Table) -> Iterator[str]:
    yield f"table: {table.caption}" + (f" ({table.note})" if table.note else "")
    yield "  " + " | ".join(each.title for each in table.columns)
    rows = ("  " + " | ".join(map(_cell, row)) for row in table.rows)
    yield from _shown([*rows], "  ")


def _cell(cell: Cell) -> str:
    parts = (cell.badge and f"[{cell.badge}]", cell.text, cell.remark and f"({cell.remark})")
    return " ".join(filter(None, parts)) + (f" <{cell.tone}>" if cell.tone else "")


def _verdicts(block: Verdicts) -> Iterator[str]:
    for line in block.lines:
        yield f"verdict {line.title} ({line.remark}): {line.grade} {line.reason}"
        for finding in line.findings:
            yield f"  {finding.letter} {finding.text} ({finding.remark}) <{finding.tone}>"
            yield from (f"    {each}" for each in finding.lines)
        yield from (f"  drawn: {text}" for text in _drawn(line.svg))
        yield from (f"  note: {_text(each)}" for each in line.notes)


def _drawn(svg: str) -> list[str]:
    """Return the labels of a chart, each once, without those that are only numbers of an axis."""
    found = ("".join(each) for each in _DRAWN.findall(svg))
    plain = (html.unescape(re.sub(r"<[^>]+>", "", each)).strip() for each in found)
    texts = [each for each in dict.fromkeys(plain) if each and not _TICK.fullmatch(each)]
    return _shown(texts)


def _shown(lines: Sequence[str], indent: str = "") -> list[str]:
    more = [f"{indent}and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN + 1 else []
    return [*lines[: _SHOWN if more else None], *more]


def _node(node: Node, level: int) -> Iterator[str]:
    yield f"{'  ' * level}{node.label}: {node.detail}"
    for child in node.children:
        yield from _node(child, level + 1)


def _text(words: str | Words) -> str:
    if isinstance(words, str):
        return words
    return "".join(each if isinstance(each, str) else each.text for each in words)
