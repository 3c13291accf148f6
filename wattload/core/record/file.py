"""The file of a record: written whole and sealed, read, and migrated from older versions.

The seal is a digest of the file. It detects accidental edits; it is not a signature, since whoever
edits a record on purpose can seal it again.

History of the format:

* 1 (2026-11): first version, without a seal. Nothing shows whether such a record was edited, or was
  a version 2 record whose seal was removed. Old records must stay useful, so it still counts in
  comparisons, and each comparison that uses one says so.
* 2 (2026-11): a record carries its seal.
* 3 (2026-11): a complete record must have the checks that its workload declares for this version,
  and its clocks were read several times. Older records are judged by what their version required.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from wattload.core.base_models import first_fault
from wattload.core.errors import DataError, RecordError
from wattload.core.files import Folder, open_folder, read_bounded

if TYPE_CHECKING:
    from wattload.core.record.run import RunRecord

BLANK = "0" * 64
"""Placeholder in the seal's line while the rest is digested; never a real seal."""

_PATTERN = r' "seal": "[0-9a-f]{64}",?'
_LINE = re.compile(rb"\n" + _PATTERN.encode() + rb"(?=\n|\Z)")
"""The seal's line with the newline before it; a record starts with a brace, so there is one."""

SEAL_COMMAND = f"grep -vE '^{_PATTERN}$' record.json | sha256sum"
"""Prints the seal a record must have: the digest of all lines but the seal's own."""

SealState = Literal["holds", "broken", "none"]
"""Whether a record's seal matches its content; ``none`` if its version had no seal."""

SCHEMA_VERSION = 3
SEALED_SINCE = 2

Document = Mapping[str, Any]

RECORD_FILE = "record.json"
LARGEST_RECORD_BYTES = 64 << 20
"""More than a hundred times the record of an ordinary run."""
DRAFT_FILE = "draft.json"
JOURNAL_PATTERN = "journal-*.jsonl"
"""Files of an unfinished run: the draft of its record, and a journal per rank."""


def seal_of(content: bytes) -> str | None:
    """Return the SHA-256, in hex, of a record's file without its seal's line.

    ``None`` unless exactly one line is a seal and nothing else, because other content in that line
    would not be digested.
    """
    lines = list(_LINE.finditer(content))
    if len(lines) != 1:
        return None
    (line,) = lines
    return hashlib.sha256(content[: line.start()] + content[line.end() :]).hexdigest()


def seal_state(content: bytes, seal: object, *, sealed: bool) -> SealState:
    """Return whether the seal of a record's file holds; ``sealed`` is whether its version had one.

    A record whose seal is missing was edited too: it was written with one.
    """
    if seal is None and not sealed:
        return "none"
    found = seal_of(content)
    return "holds" if found is not None and seal == found else "broken"


def _from_1(document: Document) -> Document:
    return {**document, "schema_version": 2, "seal": None}


def _from_2(document: Document) -> Document:
    return {**document, "schema_version": 3}


MIGRATIONS: Mapping[int, Callable[[Document], Document]] = {1: _from_1, 2: _from_2}
"""Migration from each older version to the next."""


def migrate(document: Any, file: Path) -> Document:  # noqa: ANN401 - JSON
    """Return a record's JSON document migrated to the current schema version.

    Raises:
        RecordError: the version is newer or never existed; the message names ``file``.
    """
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise RecordError(
            f"{file} has schema version {version}, written by a newer wattload; this version reads "
            f"1 to {SCHEMA_VERSION}: update wattload"
        )
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise RecordError(
            f"{file} has schema version {version!r}; this wattload reads versions 1 to "
            f"{SCHEMA_VERSION}"
        )
    for step in range(version, SCHEMA_VERSION):
        document = MIGRATIONS[step](document)
    return _with_converter(document)


def _with_converter(document: Document) -> Document:
    """Name pyarrow as the loader of old dlrm runs: it converted, whatever loader was set."""
    workload = document.get("workload")
    if not isinstance(workload, dict) or workload.get("name") != "dlrm":
        return document
    if workload.get("loader") in {"arrow", "native"}:
        return document
    return {**document, "workload": {**workload, "loader": "arrow"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record as stored on disk, with the state of its seal, its version and its SHA-256."""

    record: RunRecord
    seal: SealState
    schema_version: int
    sha256: str


def write_record(record: RunRecord, folder: Path) -> Path:
    """Write ``record.json`` atomically, sealed and fsynced; return its path."""
    with open_folder(folder) as own:
        write_record_in(own, record)
    return folder / RECORD_FILE


def write_record_in(folder: Folder, record: RunRecord) -> None:
    """Write ``record.json`` to an open folder; see ``write_record``."""
    folder.write(RECORD_FILE, _sealed(record))


def _sealed(record: RunRecord) -> bytes:
    """Return the content of a record's file, with its seal in the last line but one."""
    blank = _formatted(record.model_copy(update={"seal": BLANK}))
    return _formatted(record.model_copy(update={"seal": seal_of(blank)}))


def _formatted(record: RunRecord) -> bytes:
    return record.model_dump_json(indent=1).encode() + b"\n"


def read_record(path: Path) -> RunRecord:
    """Return the record in ``path`` (a run folder, or its ``record.json``).

    Raises:
        RecordError: the file is missing, truncated, not a record, or of a newer schema version.
    """
    return read_stored(path).record


def read_stored(path: Path) -> StoredRecord:
    """Return the record in ``path`` with its file's state; raises like ``read_record``."""
    file = path / RECORD_FILE if os.path.isdir(path) else path  # noqa: PTH112 - never raises
    try:
        content = read_bounded(file, LARGEST_RECORD_BYTES)
    except FileNotFoundError as error:
        raise RecordError(
            f"{file} is a link to {file.readlink()}, which does not exist"
            if file.is_symlink()
            else f"{path} has no {RECORD_FILE}; name a run folder such as runs/*"
        ) from error
    except DataError as error:
        raise RecordError(f"{error}, so it can't be read as a record") from error
    except (OSError, ValueError) as error:
        raise RecordError(f"{file} can't be read as a record: {error}") from error
    document = _parsed(content, file)
    record = _validated(document, file)
    version = int(document["schema_version"])
    return StoredRecord(
        record=record,
        seal=seal_state(content, record.seal, sealed=version >= SEALED_SINCE),
        schema_version=version,
        sha256=hashlib.sha256(content).hexdigest(),
    )


def decode_record(text: str, file: Path) -> RunRecord:
    """Return the record in the text of a file; raises ``RecordError`` that names the file."""
    return _validated(_parsed(text, file), file)


def _parsed(text: str | bytes, file: Path) -> Any:  # noqa: ANN401 - JSON
    try:
        document = from_json(text)
        duplicate = _duplicate_key(text, document)
    except ValueError as error:
        raise RecordError(
            f"{file} can't be read as a record (truncated or not JSON): {error}"
        ) from error
    if duplicate is not None:
        raise RecordError(
            f"{file} is not a valid record: it has the key {duplicate!r} twice in one object; "
            "each key must occur once"
        )
    return document


def _duplicate_key(text: str | bytes, document: object) -> str | None:
    """Return a key that occurs twice in an object, or ``None``."""
    content = text.encode() if isinstance(text, str) else text
    # Content formatted the way we write it lost no key in parsing. Looking at each key takes ten
    # times as long, and a page may have a thousand records.
    if content == to_json(document, indent=1) + b"\n":
        return None
    try:
        json.loads(content, object_pairs_hook=_unique_keys)
    except _DuplicateKeyError as error:
        return str(error)
    return None


class _DuplicateKeyError(Exception):
    """A key occurs twice in an object; the message is the key."""


def _unique_keys(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _DuplicateKeyError(next(name for name in names if names.count(name) > 1))
    return found


def _validated(document: Any, file: Path) -> RunRecord:  # noqa: ANN401 - JSON
    from wattload.core.record.run import RunRecord

    migrated = migrate(document, file)
    try:
        return RunRecord.model_validate(migrated)
    except ValidationError as error:
        place, message, _ = first_fault(error)
        raise RecordError(f"{file} is not a valid record: {place}: {message}") from error
