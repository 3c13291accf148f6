"""Records of older versions, brought to the form of today step by step.

History of the format:

* 1 (2026-11): first version. It has no seal, so nothing says whether such a record was edited, nor
  whether it was one of version 2 whose seal was taken out. It counts in comparisons all the same,
  as old records must stay of use, and each comparison that it takes part in says so.
* 2 (2026-11): a record carries its seal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wattload.core.errors import RecordError

SCHEMA_VERSION = 2
SEALED_SINCE = 2

Document = Mapping[str, Any]


def _from_1(document: Document) -> Document:
    return {**document, "schema_version": 2, "seal": None}


MIGRATIONS: Mapping[int, Callable[[Document], Document]] = {1: _from_1}
"""From each older version to the one after it."""


def migrate(document: Any, file: Path) -> Document:  # noqa: ANN401 - JSON
    """Return a record's JSON in the form of this version.

    Raises:
        RecordError: the version is newer, or none that ever was; the message names ``file``.
    """
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise RecordError(
            f"{file} has schema version {version}, written by a newer wattload; this one reads "
            f"versions 1 to {SCHEMA_VERSION}: update it"
        )
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise RecordError(
            f"{file} has schema version {version!r}; this wattload reads versions 1 to "
            f"{SCHEMA_VERSION}"
        )
    for step in range(version, SCHEMA_VERSION):
        document = MIGRATIONS[step](document)
    result: Document = document
    return result
