"""Makes texts of records safe to read: escapes invisible characters, shortens long words.

HTML escaping prevents markup. It does not prevent a text from changing the direction of the
following words, from using characters without a glyph, or from being a single word of 10 kB.
"""

from __future__ import annotations

import os
import re
import unicodedata

LONGEST = 160
"""Longer words are shortened to their ends; the record has the whole word."""

WIDEST = 36
"""A longer word may break anywhere, so that it does not widen a table."""

UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
"""Control characters, direction marks and what XML forbids, but not the joiners that emoji and
scripts need."""

_RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]+"
    "(?:[^\\S\\n]+[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]+)*"
)
_WORD = re.compile(rf"\S{{{LONGEST + 1},}}")
_WIDE = re.compile(rf"\S{{{WIDEST + 1},}}")
_ENDS = LONGEST // 2 - 1
_JOINER = "\u200d"
_FIRST_STRONG_ISOLATE, _POP_ISOLATE = "\u2068", "\u2069"


def sanitize(text: str) -> str:
    """Return a text for display: characters escaped, long words cut, directions isolated."""
    if len(text) > LONGEST:
        text = _WORD.sub(_shortened, text)
    if text.isascii() and text.isprintable():
        return text
    return _RIGHT_TO_LEFT.sub(
        lambda words: f"{_FIRST_STRONG_ISOLATE}{words.group()}{_POP_ISOLATE}", escape_unseen(text)
    )


def escape_unseen(text: str) -> str:
    """Return a text for copying: only invisible characters are replaced, by JSON escapes."""
    return UNSEEN.sub(lambda found: json_escape(found.group()), text)


def file_name(name: str) -> str:
    r"""Return the name of a file or folder, with bytes that are not UTF-8 as ``\xff``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def is_wide(text: str) -> bool:
    """Return whether a text has a word that must be broken to fit a column."""
    return len(text) > WIDEST and _WIDE.search(text) is not None


def _shortened(word: re.Match[str]) -> str:
    return shortened(word.group(), 2 * _ENDS + 1)


def shortened(name: str, longest: int) -> str:
    """Return a name without its middle if it has more characters; marks stay with their letter."""
    if len(name) <= longest:
        return name
    head = (longest - 1) // 2
    tail = len(name) - head
    while head and _is_within(name, head):
        head -= 1
    while tail < len(name) and _is_within(name, tail):
        tail += 1
    return f"{name[:head]}…{name[tail:]}"


def _is_within(name: str, at: int) -> bool:
    """Return whether the character there belongs to the one before it."""
    is_mark = unicodedata.category(name[at]).startswith("M") or name[at] == _JOINER
    return is_mark or name[at - 1] == _JOINER


def json_escape(character: str) -> str:
    r"""Return a character as JSON writes it without Unicode: ``\u200e``, or two of these."""
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))
