"""The file of a record: written whole and sealed, and read.

The seal is a digest of the file. It detects accidental edits; it is not a signature, since whoever
edits a record on purpose can seal it again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
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

SealState = Literal["holds", "broken"]
"""Whether a record's seal matches its content."""

SCHEMA_VERSION = 1

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


def seal_state(content: bytes, seal: object) -> SealState:
    """Return whether the seal of a record's file holds; one that is missing was taken out."""
    found = seal_of(content)
    return "holds" if found is not None and seal == found else "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record as stored on disk, with the state of its seal and its SHA-256.

    ``summary`` is the one in the file, which the record does not keep.
    """

    record: RunRecord
    seal: SealState
    summary: Mapping[str, Any]
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
    from wattload.core.record.summary import summary_of

    whole = record.model_copy(update={"summary": summary_of(record), "seal": BLANK})
    return _formatted(whole.model_copy(update={"seal": seal_of(_formatted(whole))}))


def _formatted(record: RunRecord) -> bytes:
    return record.model_dump_json(indent=1).encode() + b"\n"


def read_record(path: Path) -> RunRecord:
    """Return the record in ``path`` (a run folder, or its ``record.json``).

    Raises:
        RecordError: the file is missing, truncated, not a record, or of another format.
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
    record = _validated(_parsed(content, file), file)
    return StoredRecord(
        record=record.model_copy(update={"summary": {}}),
        seal=seal_state(content, record.seal),
        summary=record.summary,
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

    _require_format(document, file)
    try:
        return RunRecord.model_validate(document)
    except ValidationError as error:
        place, message, _ = first_fault(error)
        raise RecordError(f"{file} is not a valid record: {place}: {message}") from error


def _require_format(document: Any, file: Path) -> None:  # noqa: ANN401 - JSON
    """Raise ``RecordError`` for a document that is not a record of this format."""
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version is None:
        raise RecordError(f"{file} is not a record: it has no schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        software = document.get("software")
        writer = software.get("wattload") if isinstance(software, Mapping) else None
        raise RecordError(
            f"{file} has schema version {version!r}, and this wattload reads version "
            f"{SCHEMA_VERSION}; read it with "
            + (f"wattload {writer}, which wrote it" if writer else "the version that wrote it")
        )
