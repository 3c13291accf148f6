"""What a page is made of: sections of blocks. Every text is plain; the template escapes it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

Tone = Literal["", "good", "warn", "bad", "open", "a", "b", "c", "d", "e", "f", "quiet"]

_CHART_NAME = re.compile(r'<svg [^>]*aria-labelledby="([^" ]+)-title[" ]')


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: text, a tone that colours it, a badge before it, or a remark under it.

    With an anchor it can be linked to.
    """

    text: str
    tone: Tone = ""
    badge: str = ""
    remark: str = ""
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its title, and whether it holds figures (right-aligned)."""

    title: str
    figures: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under columns. ``caption`` says what it shows, ``note`` stands under it.

    With an ``anchor`` it can be linked to.
    """

    kind: ClassVar[str] = "table"
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str
    note: str = ""
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One paragraph; ``lead`` sets it larger."""

    kind: ClassVar[str] = "paragraph"
    text: str
    lead: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """Words that lead to another place on the page."""

    text: str
    anchor: str


Words = Sequence[str | Link]
"""What a sentence is made of: plain text and links."""


@dataclass(frozen=True, slots=True)
class Sentences:
    """Numbered sentences in large type, each with links to where its figures stand."""

    kind: ClassVar[str] = "sentences"
    sentences: Sequence[Words]


@dataclass(frozen=True, slots=True)
class Notice:
    """A box with a title and sentences; of many, all but the first are in a fold.

    A ``bad`` one folds nothing. With an ``anchor`` it can be linked to.
    """

    kind: ClassVar[str] = "notice"
    title: str
    sentences: Sequence[str | Words]
    tone: Tone = "open"
    anchor: str = ""

    SHOWN: ClassVar[int] = 5

    @property
    def first(self) -> Sequence[str | Words]:
        """The sentences that always show; one alone is not worth a fold."""
        folds = self.tone != "bad" and len(self.sentences) > self.SHOWN + 1
        return self.sentences[: self.SHOWN] if folds else self.sentences

    @property
    def others(self) -> Sequence[str | Words]:
        """The sentences in the fold."""
        return self.sentences[len(self.first) :]


@dataclass(frozen=True, slots=True)
class Arm:
    """What one arm of a comparison is: its letter, its role in charts, and facts of its runs."""

    letter: str
    role: str
    name: str
    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Arms:
    """The arms of a page side by side, in the colours that its charts give them."""

    kind: ClassVar[str] = "arms"
    arms: Sequence[Arm]


@dataclass(frozen=True, slots=True)
class Tile:
    """One headline figure: label, number, unit, and what must be known with it."""

    label: str
    value: str
    unit: str = ""
    note: str = ""
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Headline figures side by side."""

    kind: ClassVar[str] = "tiles"
    tiles: Sequence[Tile]


@dataclass(frozen=True, slots=True)
class Card:
    """One workload or run in the overview: a title that links to it, a sentence, its tiles."""

    title: str
    anchor: str
    remark: str
    tiles: Sequence[Tile]
    badges: Sequence[Cell] = ()


@dataclass(frozen=True, slots=True)
class Cards:
    """Cards side by side."""

    kind: ClassVar[str] = "cards"
    cards: Sequence[Card]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart as SVG with its caption, and its data as a table in a fold.

    ``svg`` is the only markup that is not escaped: ``wattload.reports.svg`` made it. ``legend``
    pairs a colour's name with what it stands for.
    """

    kind: ClassVar[str] = "figure"
    svg: str
    caption: str
    table: Table
    legend: Sequence[tuple[str, str]] = ()

    @property
    def anchor(self) -> str:
        """The chart's own name, by which it can be linked to; empty if its SVG has none."""
        named = _CHART_NAME.search(self.svg[:1000])
        return named.group(1) if named else ""


@dataclass(frozen=True, slots=True)
class Absent:
    """Where a chart would be, had there been anything to draw: what is missing, and why."""

    kind: ClassVar[str] = "absent"
    title: str
    reason: str


@dataclass(frozen=True, slots=True)
class Code:
    """Text to copy, as it is."""

    kind: ClassVar[str] = "code"
    text: str
    caption: str = ""
    name: str = ""


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
    pairs: Sequence[tuple[str, str]]
    width: Literal["", "brief", "prose"] = ""


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks behind a line that opens them; what is ``looked_up`` is not on paper, but its line."""

    kind: ClassVar[str] = "fold"
    summary: str
    blocks: Sequence[Block]
    tone: Tone = ""
    looked_up: bool = False


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a section; with an anchor it can be linked to."""

    kind: ClassVar[str] = "heading"
    text: str
    anchor: str = ""


Block = (
    Table
    | Paragraph
    | Sentences
    | Notice
    | Arms
    | Tiles
    | Cards
    | Figure
    | Absent
    | Code
    | Tree
    | Facts
    | Fold
    | Heading
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page with its own entry in the contents.

    ``parts`` are sections within it, one level deep; ``folded`` shows them closed, under their
    title and ``remark``; a section that is not ``listed`` has no entry.
    """

    anchor: str
    title: str
    blocks: Sequence[Block] = ()
    parts: Sequence[Section] = ()
    remark: str = ""
    badges: Sequence[Cell] = ()
    folded: bool = False
    listed: bool = True


def row(*cells: str | Cell) -> tuple[Cell, ...]:
    """Return a row of cells, plain text among them."""
    return tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in cells)


def columns(*titles: str) -> tuple[Column, ...]:
    """Return columns; a title that begins with ``#`` holds figures."""
    return tuple(Column(title.removeprefix("#"), title.startswith("#")) for title in titles)
