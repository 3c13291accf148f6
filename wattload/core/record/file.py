"""The file of a record: written whole, sealed, and read; and a run's folder until it is there.

The seal is a digest of the file. It detects accidental edits; it is not a signature, since whoever
edits a record on purpose can seal it again.

The folder of a run appears under its name with all of this inside: the draft of the record, the
owner (host and boot), a lock that the run's first rank holds as long as it lives, and a reserve of
space, which is given up when the record is written. Readers can't take the lock: only its owner can
open it. Whoever finds such a folder after the run was killed writes the record from the draft.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError
from pydantic_core import from_json

from wattload.core.base_models import first_fault
from wattload.core.clock import boot_id
from wattload.core.errors import DataError, RecordError
from wattload.core.files import Folder, LockHeldError, choose_folder, open_folder, read_bounded
from wattload.core.sysfs import is_alive, own_name

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
        return from_json(text)
    except ValueError as error:
        raise RecordError(
            f"{file} can't be read as a record (truncated or not JSON): {error}"
        ) from error


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
    _require_model(document.get("power"), file)


def _require_model(power: object, file: Path) -> None:
    """Raise ``RecordError`` for a power section whose energies are of another model."""
    from wattload.core.record.energy import ENERGY_MODEL

    model = power.get("energy_model") if isinstance(power, Mapping) else ENERGY_MODEL
    if model == ENERGY_MODEL:
        return
    is_newer = isinstance(model, int) and model > ENERGY_MODEL
    action = "update wattload" if is_newer else "repeat the run"
    version = "an unknown version" if model is None else f"version {model!r}"
    raise RecordError(
        f"{file} has energies of {version} of the energy model, and this wattload reads version "
        f"{ENERGY_MODEL}; {action}"
    )


LOCK_FILE = "run.lock"
OWNER_FILE = "owner.json"
RESERVE_FILE = "reserve"

RESERVE_BYTES = 16 << 20
"""More than the record and the traces of a run of hours have."""

UNFINISHED = "it is running or was interrupted"

RUNS_FOLDER = "runs"
"""Where runs are kept unless ``runs=`` says otherwise, in the current folder."""

_UNBORN = ".new"
_UNBORN_NAME = re.compile(r"\..+\.new")
_MAKER = re.compile(r"\..+\.([0-9a-f-]{36})-(\d+)-(\d+)-(\d+)\.new")
"""Boot, PID namespace, process ID and start time of the process that fills such a folder."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_unfinished(folder: Path) -> bool:
    """Return whether a run's folder has no record yet: its run lives, or ended without one.

    False for a folder that another user has closed.
    """
    # The methods of Path raise an error for such a folder.
    is_drafted = os.path.isfile(folder / DRAFT_FILE)  # noqa: PTH113 - never raises
    return is_drafted and not os.path.exists(folder / RECORD_FILE)  # noqa: PTH110 - nor this


def unfinished_runs(paths: Sequence[Path]) -> list[Path]:
    """Return the unfinished runs among run folders and in folders of them, by name."""
    found = []
    for path in paths:
        if is_unfinished(path):
            found.append(path)
            continue
        with suppress(OSError):
            folders = sorted(each for each in path.iterdir() if not each.name.startswith("."))
            found += filter(is_unfinished, folders)
    return found


def unborn_folder(folder: Path) -> Path:
    """Return the name under which this process fills a run's folder before it appears."""
    prefix = f".{folder.name}.{boot_id()}-{_pid_namespace()}"
    return folder.with_name(own_name(prefix) + _UNBORN)


def remove_unborn(runs: Path) -> None:
    """Remove folders of runs that were killed before their folder appeared."""
    with suppress(OSError), choose_folder(runs) as above:
        for name in filter(_UNBORN_NAME.fullmatch, above.names()):
            with _locked_of_the_dead(runs / name, may_be_new=not _maker_is_dead(name)) as folder:
                if not isinstance(folder, str):
                    folder.remove(*folder.names())
                    above.remove_empty(name)


def _maker_is_dead(name: str) -> bool:
    """Return whether it is certain that the process that fills a folder has ended."""
    maker = _MAKER.fullmatch(name)
    if maker is None or (maker[1], maker[2]) != (boot_id(), _pid_namespace()):
        return False
    return not is_alive(int(maker[3]), int(maker[4]))


def _pid_namespace() -> str:
    """Return the number of this process's PID namespace, ``0`` if the kernel shows none."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)  # noqa: PTH116 - no path of a file
    except OSError:
        return "0"


def write_owner(folder: Folder) -> None:
    """Write down which host makes the run, and in which boot of it."""
    folder.write(OWNER_FILE, owner_text())


def owner_text() -> str:
    """Return the content of the owner file of a run that this host makes."""
    return json.dumps({"host": socket.gethostname(), "boot_id": boot_id()}) + "\n"


def is_owned(folder: Path, owner: str) -> bool:
    """Return whether a run's folder exists here, and the host with this owner file has made it."""
    with suppress(OSError, DataError), open_folder(folder) as opened:
        return opened.read(OWNER_FILE) == owner.encode()
    return False


def reserve_space(folder: Folder) -> None:
    """Reserve the space of the record; does nothing on a file system that reserves none.

    Raises:
        OSError: there is not enough space, or a quota or the limit on the size of files is lower.
    """
    with os.fdopen(folder.create(RESERVE_FILE), "wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise


def release_space(folder: Path) -> None:
    """Give up the reserved space, in which the record is then written."""
    with suppress(OSError, DataError), open_folder(folder) as opened:
        opened.remove(RESERVE_FILE)


def remove_marks(folder: Folder) -> None:
    """Remove what shows that a run is unfinished, except for its draft."""
    folder.remove(RESERVE_FILE, OWNER_FILE, LOCK_FILE)


@contextmanager
def abandoned(folder: Path) -> Iterator[Folder | str]:
    """Yield the folder of a run that ended without a record, or why it must be left alone.

    The run's lock is then held during the block. A run of another host is left alone: whether that
    host lives can't be known here. The same host is the same boot, or the same name in another
    boot, which no process survives. If the folder does not say which host it was, the lock decides:
    the owner file was lost, or was deleted because that host is gone.
    """
    with _locked_of_the_dead(folder, may_be_new=False) as opened:
        is_recorded = isinstance(opened, Folder) and RECORD_FILE in opened.names()
        yield "it has a record by now" if is_recorded else opened


def unfinished_reason(folder: Path) -> str:
    """Return a clause on a folder without a record: which host its run is of, and what to do."""
    host = None
    with suppress(DataError, OSError), open_folder(folder) as opened:
        host = _other_host(_owner(opened))
    return _unfinished_on(host)


def _unfinished_on(host: str | None) -> str:
    if host is None:
        return f"{UNFINISHED}; `wattload check` on its folder records an interrupted run"
    return (
        f"{UNFINISHED} on host {host!r}; use `wattload check` on its folder there; if that host is "
        f"gone, delete its {OWNER_FILE} and use it here"
    )


@contextmanager
def _locked_of_the_dead(folder: Path, *, may_be_new: bool) -> Iterator[Folder | str]:
    """Yield a run's folder, locked, if no process works in it; or why it must be left alone.

    One that ``may_be_new`` and has no owner may be one that a process is filling now.
    The folder stays open, so that nobody can put another one in its place.
    """
    with ExitStack() as held:
        found: Folder | str
        try:
            found = held.enter_context(open_folder(folder))
            owner = _owner(found)
            if _other_host(owner) is not None or (owner is None and may_be_new):
                found = _unfinished_on(_other_host(owner))
            else:
                held.callback(found.lock(LOCK_FILE).release)
        except LockHeldError as error:
            found = f"it is running ({error.strerror})"
        except (DataError, OSError) as error:
            found = f"{UNFINISHED}, and an interrupted run can't be recorded here: {error}"
        yield found


def _owner(folder: Folder) -> tuple[str, str] | None:
    """Return the host and the boot that make a run; ``None`` if the folder does not say."""
    content = folder.read(OWNER_FILE)
    try:
        owner = json.loads(content or b"")
        host, boot = owner["host"], owner["boot_id"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    return (str(host), str(boot)) if host and boot else None


def _other_host(owner: tuple[str, str] | None) -> str | None:
    """Return the name of the owner's host if that is not this one."""
    if owner is None or owner[1] == boot_id() or owner[0] == socket.gethostname():
        return None
    return owner[0]
