"""Escapes what others have named, so that it does not control the terminal."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable
from typing import TextIO, cast

_OVERRIDES = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They reverse the order of what follows, so that a name reads like another."""


class Escaped:
    """A text stream on which nothing that is printed controls the terminal.

    Others may have chosen the name of a file, a label or a serial number. ``plain`` is the stream
    itself.
    """

    def __init__(self, plain: TextIO) -> None:
        self.plain = plain

    def write(self, text: str) -> int:
        """Write a text of one or more lines, escaped."""
        self.plain.write(escaped(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.plain, name)


def escape_streams() -> None:
    """Escape what is printed to standard output and error from now on."""
    if sys.stdout is not None and not isinstance(sys.stdout, Escaped):
        sys.stdout = cast("TextIO", Escaped(sys.stdout))
    if sys.stderr is not None and not isinstance(sys.stderr, Escaped):
        sys.stderr = cast("TextIO", Escaped(sys.stderr))


def escaped(text: str) -> str:
    """Escape what could control the terminal, in one or more lines."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def printable(text: str) -> str:
    """Escape what could control the terminal or begin a line."""
    return "".join(each if _is_harmless(each) else ascii(each)[1:-1] for each in text)


def _is_harmless(letter: str) -> bool:
    """Return whether a letter is visible or a space, or joins and shapes others, as in emoji."""
    if letter.isprintable() or letter == "\t":
        return True
    return letter not in _OVERRIDES and unicodedata.category(letter) in ("Zs", "Cf")
