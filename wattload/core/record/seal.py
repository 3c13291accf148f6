"""The seal of a record: a digest of its content, which tells an edited record from a written one.

It tells of slips and of hands that meant well. It is no signature: who edits a record on purpose
can seal it anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

SEAL = "seal"

SealState = Literal["holds", "broken", "none"]
"""Whether a record is as it was written; ``none`` where the version that wrote it had no seal."""


def seal_of(document: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hex, of a record's JSON without its seal.

    Keys are sorted and nothing stands between them, so that a record may be laid out anew.
    """
    content = {key: value for key, value in document.items() if key != SEAL}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def seal_state(document: Mapping[str, Any], *, sealed_since: int) -> SealState:
    """Return what the seal of a record's JSON says; records have one from a version on.

    A later record without its seal was edited too: it was written with one.
    """
    version = document.get("schema_version")
    if SEAL not in document and (not isinstance(version, int) or version < sealed_since):
        return "none"
    return "holds" if document.get(SEAL) == seal_of(document) else "broken"
