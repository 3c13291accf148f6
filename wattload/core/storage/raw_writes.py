"""The log of all writes to whole drives, ``raw-writes.jsonl`` in the state folder.

A row is added, and is durable, before the first byte of a run is written; another one at its end.
The log decides which blocks on a drive are ours. So a row carries a digest of itself and of the row
before it, and a second file, ``raw-writes.last.json``, the number of rows and the last digest. If
one does not fit, nothing in the log is trusted. A last row that is cut off was never acknowledged
and does not count. A last row that the second file does not have yet is from a crash between both.
"""

from __future__ import annotations

import errno
import fcntl
import getpass
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic_core import from_json

from wattload.core.clock import utc_text
from wattload.core.errors import DataError, TargetError
from wattload.core.files import Folder, open_folder, sync_folder
from wattload.core.sysfs import LIVE, SECTOR_BYTES, Roots, block_folder, read_int, read_text

LOG_NAME = "raw-writes.jsonl"
LAST_NAME = "raw-writes.last.json"
MOST_BYTES = 256 << 20
"""Some 100,000 runs."""

WORN = "worn"
"""The name of a drive whose endurance is used up; the other findings are on the drive."""

_MODE = 0o600
_WRITTEN_SECTORS = 6
"""The column of ``/sys/block/<name>/stat`` with the sectors written (iostats.rst), from 0."""

Status = Literal["complete", "failed", "aborted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """What is written down before a run writes to a drive.

    ``serial`` is what the drive is known by (see ``DriveName``). ``findings`` are the names of all
    that the guard found, ``overwrite`` those of it that the user named: for this run alone, whether
    or not it comes to overwrite them. ``covered_bytes`` is how much from the start of the drive the
    run will have written throughout if it completes. ``devices`` are the block devices that count
    the writes, with the bytes that each had counted before.
    """

    run_id: str
    command: tuple[str, ...]
    path: str
    serial: str
    size_bytes: int
    disk_sequence: int | None
    findings: tuple[str, ...]
    overwrite: tuple[str, ...]
    nonce: int
    planned_bytes: int
    covered_bytes: int
    devices: Mapping[str, int]
    time_utc: str = field(default_factory=utc_text)
    user: str = field(default_factory=lambda: f"{_user()} ({os.getuid()})")


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of a run: the bytes that the kernel counted, ``None`` if it no longer shows them."""

    run_id: str
    serial: str
    status: Status
    written_bytes: int | None
    time_utc: str = field(default_factory=utc_text)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveLog:
    """The rows of one drive, in order."""

    begins: tuple[Begin, ...]
    ends: Mapping[str, End]

    @property
    def nonces(self) -> frozenset[int]:
        return frozenset(row.nonce for row in self.begins)

    @property
    def covered_bytes(self) -> int:
        """How much from the start of the drive a completed run has left with nothing but ours.

        It is 0 again once a later run has found something else.
        """
        covered = 0
        for row in self.begins:
            if set(row.findings) - {WORN}:
                covered = 0
            end = self.ends.get(row.run_id)
            if end is not None and end.status == "complete":
                covered = max(covered, row.covered_bytes)
        return covered

    @property
    def written_bytes(self) -> int:
        """The bytes that all runs wrote; what is unknown counts as planned."""
        return sum(
            row.planned_bytes
            if (end := self.ends.get(row.run_id)) is None or end.written_bytes is None
            else end.written_bytes
            for row in self.begins
        )


RowT = TypeVar("RowT", Begin, End)


class RawWriteLog:
    """The log in a state folder, shared by all runs of a host and user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def path(self) -> Path:
        return self.folder / LOG_NAME

    def of_drive(self, serial: str) -> DriveLog:
        """Return the rows of a drive.

        Raises:
            TargetError: the log was changed by others, or can't be read.
        """
        rows = [row for row in self._rows() if row["serial"] == serial]
        begins = tuple(self._row(Begin, row) for row in rows if row["event"] == "begin")
        ends = {row["run_id"]: self._row(End, row) for row in rows if row["event"] == "end"}
        return DriveLog(begins=begins, ends=ends)

    def begin(self, row: Begin) -> None:
        """Add a row that survives a power cut; without it nothing may be written.

        Raises:
            TargetError: it can't be written.
        """
        self._append({"event": "begin", **_document(row)})

    def end(self, run_id: str, status: Status) -> None:
        """Add the end of a run, once for each of its drives.

        Whoever finishes a run calls it: the run itself, its sampler, or the next one to start.

        Args:
            run_id: the run's; a run without a row is left alone.
            status: how it ended.

        Raises:
            TargetError: the log can't be read or written.
        """
        rows = [row for row in self._rows() if row["run_id"] == run_id]
        ended = {row["serial"] for row in rows if row["event"] == "end"}
        for begin in (self._row(Begin, row) for row in rows if row["event"] == "begin"):
            if begin.serial in ended:
                continue
            end = End(
                run_id=run_id,
                serial=begin.serial,
                status=status,
                written_bytes=_grown_bytes(begin),
            )
            self._append({"event": "end", **_document(end)})

    def _rows(self) -> list[dict[str, Any]]:
        try:
            with open_folder(self.folder) as folder:
                if LOG_NAME not in folder.names():
                    return self._checked(folder, b"")[0]
                descriptor = folder.update(LOG_NAME, os.O_RDONLY)
                with os.fdopen(descriptor, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_SH)
                    mode, content = os.fstat(descriptor).st_mode, file.read(MOST_BYTES + 1)
                    if mode & (stat.S_IWGRP | stat.S_IWOTH):
                        raise TargetError(
                            f"{self.path} may be written by other users, so it is not trusted"
                        )
                    if len(content) > MOST_BYTES:
                        raise TargetError(
                            f"{self.path} is longer than {MOST_BYTES} bytes; move it elsewhere"
                        )
                    return self._checked(folder, content)[0]
        except FileNotFoundError:
            return []
        except (OSError, DataError) as error:
            raise TargetError(f"the log of raw writes can't be used: {error}") from error

    def _checked(self, folder: Folder, content: bytes) -> tuple[list[dict[str, Any]], str]:
        """Return the rows and the last digest, compared with those of the second file."""
        rows, digests = [], [""]
        for number, line in enumerate(content.split(b"\n")[:-1], start=1):
            row = _object(line)
            found = row.pop("digest", None)
            digests.append(_digest(digests[-1], row))
            if found != digests[-1]:
                raise self._foreign(f"{self.path}, line {number}, is not as wattload wrote it")
            rows.append(row)
        last = folder.read(LAST_NAME)
        noted = {"count": 0, "digest": ""} if last is None else _object(last)
        known = [
            {"count": len(rows) - back, "digest": each}
            for back, each in enumerate(reversed(digests[-2:]))
        ]
        if noted not in known:
            raise self._foreign(
                f"{self.path} does not end with the row that {LAST_NAME} beside it names"
            )
        return rows, digests[-1]

    def _foreign(self, sentence: str) -> TargetError:
        return TargetError(
            f"{sentence}, so nothing is overwritten; move {LOG_NAME} and {LAST_NAME} elsewhere, "
            "and name again what is on each drive"
        )

    def _row(self, kind: type[RowT], row: Mapping[str, Any]) -> RowT:
        try:
            values = {each.name: row[each.name] for each in fields(kind)}
        except KeyError as error:
            raise self._foreign(f"{self.path} has a row of another version, without {error}") from (
                error
            )
        lists = {name: tuple(each) for name, each in values.items() if isinstance(each, list)}
        return kind(**{**values, **lists})

    def _append(self, row: Mapping[str, Any]) -> None:
        try:
            with self._locked() as (folder, descriptor):
                with os.fdopen(os.dup(descriptor), "rb") as file:
                    file.seek(0)
                    content = file.read()
                whole_bytes = content.rfind(b"\n") + 1
                if whole_bytes < len(content):  # a row that was never acknowledged
                    os.ftruncate(descriptor, whole_bytes)
                rows, before = self._checked(folder, content[:whole_bytes])
                digest = _digest(before, row)
                payload = _json({**row, "digest": digest}) + b"\n"
                if os.write(descriptor, payload) < len(payload):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301
                os.fsync(descriptor)
                # A crash before this leaves one row more than it names, which is accepted.
                noted = _json({"count": len(rows) + 1, "digest": digest})
                folder.write(LAST_NAME, noted, _MODE)
        except TargetError:
            raise
        except (OSError, DataError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise TargetError(
                f"{self.path} can't be written ({reason}), so nothing is written to the drive; set "
                "WATTLOAD_STATE_DIR to a writable folder"
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[tuple[Folder, int]]:
        with self.open_folder() as folder:
            is_new = LOG_NAME not in folder.names()
            descriptor = folder.append(LOG_NAME)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if is_new:
                    os.fchmod(descriptor, _MODE)
                    folder.sync()
                yield folder, descriptor
            finally:
                os.close(descriptor)

    def open_folder(self) -> Folder:
        """Open the state folder, made durably if it is missing."""
        missing = [each for each in (self.folder, *self.folder.parents) if not each.exists()]
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in missing:
            sync_folder(each.parent)
        return open_folder(self.folder)


def counted_bytes(devices: Sequence[str], roots: Roots = LIVE) -> dict[str, int]:
    """Return the bytes that the kernel has counted as written, by device; only what it shows."""
    found = {}
    for name in devices:
        folder = block_folder(name, roots) or roots.sys / "block" / name
        try:
            columns = read_text(folder / "stat").split()
            found[name] = int(columns[_WRITTEN_SECTORS]) * SECTOR_BYTES
        except (OSError, ValueError, IndexError):
            continue
    return found


def _grown_bytes(begin: Begin) -> int | None:
    """Return the bytes written since a row, ``None`` if another disk has the name by now."""
    folder = block_folder(Path(begin.path).name)
    try:
        sequence = None if folder is None else read_int(folder / "diskseq")
    except (OSError, ValueError):
        sequence = None
    now = counted_bytes(tuple(begin.devices))
    if sequence != begin.disk_sequence or not now or now.keys() != begin.devices.keys():
        return None
    grown = [now[name] - before for name, before in begin.devices.items()]
    return None if min(grown) < 0 else sum(grown)


def _digest(before: str, row: Mapping[str, Any]) -> str:
    text = json.dumps([before, row], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _object(content: bytes) -> dict[str, Any]:
    """Return a JSON object, an empty one for anything else."""
    try:
        found = from_json(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _document(row: Begin | End) -> dict[str, Any]:
    """Return a row as plain data, as JSON gives it back."""
    values = {each.name: getattr(row, each.name) for each in fields(row)}
    document: dict[str, Any] = json.loads(json.dumps(values))
    return document
