"""What is printed on a terminal: aligned lines, wrapped, in colours that follow ``NO_COLOR``.

On one that is not UTF-8, characters that it lacks are spelt in ASCII.
"""

from __future__ import annotations

import codecs
import shlex
import sys
from collections.abc import Iterable, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import NamedTuple

from wattload.core.host_paths import on_host

LABEL_WIDTH = 12
NARROWEST = 20
"""Texts are wrapped at this width even on a narrower terminal."""

_ERRORS = "wattload-ascii"
_SPELLINGS = {
    "±": "+/-",
    "≤": "<=",
    "≥": ">=",
    "÷": "/",
    "×": "x",  # noqa: RUF001 - the sign is meant
    "µ": "u",
    "°": "deg ",
    "–": "-",  # noqa: RUF001 - the dash is meant
    "→": "->",
    "\u00a0": " ",
    "\u202f": " ",
}
"""Signs of numbers, units and ranges, and the spaces between digits."""


class Line(NamedTuple):
    """A line: its label, its text, its style, and whether it may be wrapped."""

    label: str
    text: str
    style: str = ""
    wraps: bool = True


def printable(text: str) -> str:
    """Escape what could control the terminal: others may have chosen the name of a file."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def print_lines(heading: str, lines: Sequence[Line]) -> None:
    """Print aligned lines to standard output, wrapped on a terminal only."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)
    if heading:
        console.print(Text(heading, style="bold"), soft_wrap=not console.is_terminal)
    indent = LABEL_WIDTH + 2
    for line in lines:
        start = Text(f"  {line.label:<{LABEL_WIDTH - 1}} ", style="dim" if line.label else "")
        text = Text(line.text, style=line.style)
        if not console.is_terminal or not line.wraps:
            console.print(Text.assemble(start, text), soft_wrap=True)
            continue
        rows = text.wrap(console, max(NARROWEST, console.width - indent))
        console.print(Text.assemble(start, *rows[:1]))
        for row in rows[1:]:
            console.print(Padding(row, (0, 0, 0, indent), expand=False))


def report_command(paths: Iterable[Path]) -> str:
    """Return the command that makes the page of runs, quoted for a shell."""
    return shlex.join(["wattload", "report", *(str(on_host(path)) for path in paths)])


def spell_what_is_missing() -> None:
    """Let standard output and error spell characters that their encoding lacks, or print ``?``."""
    codecs.register_error(_ERRORS, _spelt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors=_ERRORS)


def _spelt(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_SPELLINGS.get(letter, "?") for letter in missing), error.end
