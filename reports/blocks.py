"""The elements of a page: sections of blocks. All text is plain; the template escapes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

Item = TypeVar("Item")
Tone = Literal["", "good", "warn", "bad", "open", "a", "b", "c", "d", "e", "f", "quiet"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: text, a tone that colours it, a badge before it, or a remark under it.

    A cell with an ``anchor`` can be linked to. ``formula`` is what the page's script makes its text
    of again, in a ``Projection``.
    """

    text: str
    tone: Tone = ""
    badge: str = ""
    remark: str = ""
    anchor: str = ""
    formula: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its title, and whether it has figures (right-aligned)."""

    title: str
    figures: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under columns. ``caption`` describes the table, ``note`` is printed under it.

    A table with an ``anchor`` can be linked to.
    """

    kind: ClassVar[str] = "table"
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str
    note: str = ""
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One paragraph; a ``quiet`` one is grey."""

    kind: ClassVar[str] = "paragraph"
    text: str
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """Text that links to another place on the page, or to a ``file``, quoted, relative to it."""

    text: str
    anchor: str = ""
    file: str = ""


Words = Sequence[str | Link]
"""The parts of a sentence: plain text and links."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A box with a title and sentences; of many, only the first are outside a fold.

    A ``bad`` notice folds nothing. A notice with an ``anchor`` can be linked to.
    """

    kind: ClassVar[str] = "notice"
    title: str
    sentences: Sequence[str | Words]
    tone: Tone = "open"
    anchor: str = ""

    SHOWN: ClassVar[int] = 5

    @property
    def first(self) -> Sequence[str | Words]:
        """The sentences that are always visible; a single remaining one is not folded."""
        folds = self.tone != "bad" and len(self.sentences) > self.SHOWN + 1
        return self.sentences[: self.SHOWN] if folds else self.sentences

    @property
    def others(self) -> Sequence[str | Words]:
        return self.sentences[len(self.first) :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One answer of the first screen: who wins, by how much, and how certain that is.

    ``remark`` and each of ``lines`` are printed under it. ``letter`` is who is ahead, and ``tone``
    its colour if it won. ``quiet`` is for what nobody measured.
    """

    text: str
    remark: str = ""
    lines: Sequence[str] = ()
    letter: str = ""
    tone: Tone = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictLine:
    """One workload of the first screen: its findings, its bars as SVG, and how far to trust it.

    ``notes`` are printed under the bars, or without bars under the last finding. ``anchor`` is the
    workload's section; ``grade`` is in the colour of ``tone``, links to ``evidence``, and is empty
    without figures.
    """

    title: str
    remark: str
    anchor: str
    findings: Sequence[Finding]
    svg: str
    notes: Sequence[str | Words]
    grade: str
    tone: Tone
    reason: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """The first screen: a line per workload under ``titles``; ``bars`` is the title over bars."""

    kind: ClassVar[str] = "verdicts"
    titles: Sequence[str]
    bars: str
    lines: Sequence[VerdictLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart as SVG with its title and caption, and its data as a table in a fold.

    ``name`` is unique on the page, and can be linked to. ``svg`` is the only markup that is not
    escaped: ``reports.charts.plot`` made it; several pictures are panels of one chart. ``legend``
    pairs the name of a colour with its meaning.
    """

    kind: ClassVar[str] = "figure"
    name: str
    title: str
    svg: str
    caption: str
    table: Table
    legend: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class FigureRow:
    """Figures next to each other where there is room for several."""

    kind: ClassVar[str] = "figures"
    figures: Sequence[Figure]


@dataclass(frozen=True, slots=True)
class Code:
    """Text to copy, unchanged."""

    kind: ClassVar[str] = "code"
    text: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """One level of a tree."""

    label: str
    detail: str
    children: Sequence[Node] = ()


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree, such as a block stack."""

    kind: ClassVar[str] = "tree"
    root: Node
    caption: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values in columns; ``brief`` values take narrow ones, ``prose`` wide ones."""

    kind: ClassVar[str] = "facts"
    pairs: Sequence[tuple[str, str | Words]]
    width: Literal["", "brief", "prose"] = ""


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks in a fold; those with ``data`` are tables to look up, and are not printed."""

    kind: ClassVar[str] = "fold"
    summary: str
    blocks: Sequence[Block]
    data: bool = False
    anchor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A number that the reader may change: its name, what it is at first, and its least value."""

    name: str
    value: float
    least: float


@dataclass(frozen=True, slots=True)
class Projection:
    """A table of what follows from the settings in its ``sentence``.

    It is that of the settings as they are at first; the page's script lets the reader change them.
    """

    kind: ClassVar[str] = "projection"
    sentence: Sequence[str | Setting]
    table: Table


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a section; with an ``anchor`` it can be linked to."""

    kind: ClassVar[str] = "heading"
    text: str
    anchor: str = ""


Block = (
    Table
    | Paragraph
    | Notice
    | Verdicts
    | Figure
    | FigureRow
    | Code
    | Tree
    | Facts
    | Fold
    | Projection
    | Heading
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page: a fold under its title, which is ``open`` if it carries the message.

    ``parts`` are sections within it, one level deep; those with ``folded`` are folds too. What is
    ``looked_up`` is not printed.
    """

    anchor: str
    title: str
    blocks: Sequence[Block] = ()
    parts: Sequence[Section] = ()
    remark: str = ""
    badges: Sequence[Cell] = ()
    open: bool = False
    folded: bool = False
    looked_up: bool = False


def row(*cells: str | Cell) -> tuple[Cell, ...]:
    """Return a row of cells; plain text becomes a cell."""
    return tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in cells)


def columns(*titles: str) -> tuple[Column, ...]:
    """Return columns; a title that begins with ``#`` is for figures."""
    return tuple(Column(title.removeprefix("#"), title.startswith("#")) for title in titles)


def listing(
    caption: str,
    items: Iterable[Item],
    values: Mapping[str, Callable[[Item], str | Cell]],
    note: str = "",
) -> Table:
    """Return a row per item; each column has a title and a function from an item to its cell."""
    return Table(
        columns=columns(*values),
        rows=[row(*(value(item) for value in values.values())) for item in items],
        caption=caption,
        note=note,
    )
