"""The seal of a record: a digest of its file, by which a file that was changed is known.

It tells of slips and of hands that meant well. It is no signature: who edits a record on purpose
can seal it anew.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal

BLANK = "0" * 64
"""Stands in the seal's line while the rest is digested; no content has it as its seal."""

_PATTERN = r' "seal": "[0-9a-f]{64}",?'
_LINE = re.compile(rb"\n" + _PATTERN.encode() + rb"(?=\n|\Z)")
"""The line with the end of the one before it: a record begins with a brace."""

SEAL_COMMAND = f"grep -vE '^{_PATTERN}$' record.json | sha256sum"
"""Prints the seal that a record must carry: the digest of all of its lines but the seal's own."""

SealState = Literal["holds", "broken", "none"]
"""Whether a record's seal fits its content; ``none`` where its version had no seal."""


def seal_of(content: bytes) -> str | None:
    """Return the SHA-256, in hex, of a record's file without the line of its seal.

    ``None`` unless one line, and one alone, is a seal and nothing else: whatever shared that line
    would not be digested.
    """
    lines = list(_LINE.finditer(content))
    if len(lines) != 1:
        return None
    (line,) = lines
    return hashlib.sha256(content[: line.start()] + content[line.end() :]).hexdigest()


def seal_state(content: bytes, seal: object, *, sealed: bool) -> SealState:
    """Return what the seal in a record's file says; ``sealed`` is whether its version had one.

    A record that should have a seal and has none was edited too: it was written with one.
    """
    if seal is None and not sealed:
        return "none"
    found = seal_of(content)
    return "holds" if found is not None and seal == found else "broken"
