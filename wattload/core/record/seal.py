"""The seal of a record: a digest of its file, which tells an edited record from a written one.

It tells of slips and of hands that meant well. It is no signature: who edits a record on purpose
can seal it anew.
"""

from __future__ import annotations

import hashlib
from typing import Literal

SEAL_COMMAND = "grep -v '^ \"seal\": ' record.json | sha256sum"
"""Prints the seal that a record must carry: the digest of all of its lines but the seal's own."""

SealState = Literal["holds", "broken", "none"]
"""Whether a record is as it was written; ``none`` where the version that wrote it had no seal."""

_LINE = b'\n "seal": '


def seal_of(content: bytes) -> str:
    """Return the SHA-256, in hex, of a record's file without the line of its seal."""
    start = content.find(_LINE)
    if start >= 0:
        content = content[:start] + content[content.find(b"\n", start + 1) :]
    return hashlib.sha256(content).hexdigest()


def seal_state(content: bytes, seal: object, *, sealed: bool) -> SealState:
    """Return what the seal in a record's file says; ``sealed`` is whether its version had one.

    A record that should have a seal and has none was edited too: it was written with one.
    """
    if seal is None and not sealed:
        return "none"
    return "holds" if seal == seal_of(content) else "broken"
