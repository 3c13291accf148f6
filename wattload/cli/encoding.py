"""Output on a terminal that is not UTF-8: characters that it lacks are spelt in ASCII."""

from __future__ import annotations

import codecs
import sys
from io import TextIOWrapper

ERRORS = "wattload-ascii"

SPELLINGS = {
    "±": "+/-",
    "≤": "<=",
    "≥": ">=",
    "÷": "/",
    "×": "x",  # noqa: RUF001 - the sign is meant
    "µ": "u",
    "°": "deg ",
    "–": "-",  # noqa: RUF001 - the dash is meant
    "…": "...",
    "→": "->",
    "\u00a0": " ",
    "\u202f": " ",
}


def spell_what_is_missing() -> None:
    """Let standard output and error spell characters that their encoding lacks."""
    codecs.register_error(ERRORS, _spelt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors=ERRORS)


def _spelt(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(SPELLINGS.get(letter, "?") for letter in missing), error.end
