"""Texts of records made safe to read: what can't be seen is named, what is too long is cut.

HTML escaping keeps a text from being markup. It does not keep a text from turning the direction of
the words after it, from holding characters that no font shows, or from being one word of 10 kB.
"""

from __future__ import annotations

import os
import re

LONGEST = 160
"""A word of more characters is shown by its ends; the whole of it is in the embedded record."""

WIDEST = 36
"""A word of more characters may break anywhere, so that it widens no table."""

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Controls, and what sets the direction of text. Not the joiners that emoji and scripts need."""

_RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]+"
    "(?:[^\\S\\n]+[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]+)*"
)
_WORD = re.compile(rf"\S{{{LONGEST + 1},}}")
_WIDE = re.compile(rf"\S{{{WIDEST + 1},}}")
_ENDS = LONGEST // 2 - 1
_FIRST_STRONG_ISOLATE, _POP_ISOLATE = "\u2068", "\u2069"


def plain(text: str) -> str:
    """Return a text for people: unseen characters as escapes, long words cut, directions apart."""
    if len(text) > LONGEST:
        text = _WORD.sub(_shortened, text)
    if text.isascii() and text.isprintable():
        return text
    return _RIGHT_TO_LEFT.sub(_isolated, exact(text))


def exact(text: str) -> str:
    """Return a text to copy: only unseen characters are replaced, by what JSON writes for them."""
    return _UNSEEN.sub(_escaped, text)


def file_name(name: str) -> str:
    r"""Return the name of a file or folder, with bytes of it that are no UTF-8 as ``\xff``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def is_wide(text: str) -> bool:
    """Return whether a text has a word that must be broken to fit a column."""
    return len(text) > WIDEST and _WIDE.search(text) is not None


def _shortened(word: re.Match[str]) -> str:
    found = word.group()
    return f"{found[:_ENDS]}…{found[-_ENDS:]}"


def _isolated(words: re.Match[str]) -> str:
    return f"{_FIRST_STRONG_ISOLATE}{words.group()}{_POP_ISOLATE}"


def _escaped(character: re.Match[str]) -> str:
    units = character.group().encode("utf-16-be")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))
