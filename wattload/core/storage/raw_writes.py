"""The log of all writes to whole drives, ``raw-writes.jsonl`` in the state folder.

A row is added, and is durable, before the first byte of a run is written; another one at its end.
The log decides which blocks on a drive are ours, and which permissions to overwrite are spent. So a
row carries a digest of itself and of the row before it. If one does not fit, nothing in the log is
trusted. A last row that is cut off was never acknowledged and does not count.
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
from typing import Any, Literal

from pydantic_core import from_json

from wattload.core.clock import utc_text
from wattload.core.errors import DataError, TargetError
from wattload.core.files import Folder, open_folder, sync_folder
from wattload.core.sysfs import LIVE, SECTOR_BYTES, Roots, block_folder, read_int, read_text

LOG_NAME = "raw-writes.jsonl"
MOST_BYTES = 256 << 20
"""Some 10,000 runs on drives full of unknown blocks."""

_MODE = 0o600
_WRITTEN_SECTORS = 6
"""The column of ``/sys/block/<name>/stat`` with the sectors written (iostats.rst), from 0."""

Status = Literal["complete", "failed", "aborted"]
Sample = tuple[int, int]
"""The offset of a sampled block, and the CRC-32 of its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """What is on a drive that is neither blank nor ours, as far as it was found.

    ``signatures`` are names and places (``ext4:UUID@sda1+1080``), ``samples`` the blocks of unknown
    content.
    """

    signatures: frozenset[str] = frozenset()
    samples: frozenset[Sample] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """What is written down before a run writes to a drive.

    ``serial`` is what the drive is known by (see ``DriveName``). ``findings`` are the names of all
    that the guard found, ``overwrite`` those of it that the user named. ``devices`` are the block
    devices that count the writes, with the bytes that each had counted before.
    """

    run_id: str
    command: tuple[str, ...]
    path: str
    serial: str
    size_bytes: int
    disk_sequence: int | None
    findings: tuple[str, ...]
    overwrite: tuple[str, ...]
    foreign: Foreign
    nonce: int
    planned_bytes: int
    devices: Mapping[str, int]
    time_utc: str = field(default_factory=utc_text)
    user: str = field(default_factory=lambda: f"{_user()} ({os.getuid()})")


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of a run: the bytes that the kernel counted, ``None`` if it no longer shows them.

    ``foreign`` is what is left on the drive, ``None`` if nobody looked.
    """

    run_id: str
    serial: str
    status: Status
    written_bytes: int | None
    foreign: Foreign | None
    time_utc: str = field(default_factory=utc_text)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveLog:
    """The rows of one drive, in order."""

    begins: tuple[Begin, ...]
    ends: Mapping[str, End]

    @property
    def nonces(self) -> frozenset[int]:
        """The nonces of all runs on this drive."""
        return frozenset(row.nonce for row in self.begins)

    @property
    def spent(self) -> Mapping[str, Begin]:
        """The names that allowed a run to overwrite, with the first run that each allowed."""
        found: dict[str, Begin] = {}
        for row in self.begins:
            for name in row.overwrite:
                found.setdefault(name, row)
        return found

    @property
    def permitted(self) -> Foreign:
        """What the last run was allowed to overwrite and left on the drive."""
        if not self.begins:
            return Foreign()
        last = self.begins[-1]
        end = self.ends.get(last.run_id)
        return last.foreign if end is None or end.foreign is None else end.foreign

    @property
    def written_bytes(self) -> int:
        """The bytes that all runs wrote; what is unknown counts as planned."""
        return sum(
            row.planned_bytes
            if (end := self.ends.get(row.run_id)) is None or end.written_bytes is None
            else end.written_bytes
            for row in self.begins
        )


class RawWriteLog:
    """The log in a state folder, shared by all runs of a host and user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def path(self) -> Path:
        """Where the log is."""
        return self.folder / LOG_NAME

    def of_drive(self, serial: str) -> DriveLog:
        """Return the rows of a drive.

        Raises:
            TargetError: the log was changed by others, or can't be read.
        """
        rows = [row for row in self._rows() if row["serial"] == serial]
        begins = tuple(_begin(row) for row in rows if row["event"] == "begin")
        ends = {row["run_id"]: _end(row) for row in rows if row["event"] == "end"}
        return DriveLog(begins=begins, ends=ends)

    def begin(self, row: Begin) -> None:
        """Add a row that survives a power cut; without it nothing may be written.

        Raises:
            TargetError: it can't be written.
        """
        self._append({"event": "begin", **_document(row)})

    def end(self, run_id: str, status: Status, left: Mapping[str, Foreign] | None = None) -> None:
        """Add the end of a run, once for each of its drives.

        Whoever finishes a run calls it: the run itself, its sampler, or the next one to start.

        Args:
            run_id: the run's; a run without a row is left alone.
            status: how it ended.
            left: what is left on each drive, by serial, as far as somebody looked.

        Raises:
            TargetError: the log can't be read or written.
        """
        rows = [row for row in self._rows() if row["run_id"] == run_id]
        ended = {row["serial"] for row in rows if row["event"] == "end"}
        for begin in (_begin(row) for row in rows if row["event"] == "begin"):
            if begin.serial in ended:
                continue
            end = End(
                run_id=run_id,
                serial=begin.serial,
                status=status,
                written_bytes=_grown_bytes(begin),
                foreign=(left or {}).get(begin.serial),
            )
            self._append({"event": "end", **_document(end)})

    def _rows(self) -> list[dict[str, Any]]:
        try:
            with open_folder(self.folder) as folder:
                descriptor = folder.update(LOG_NAME, os.O_RDONLY)
            with os.fdopen(descriptor, "rb") as file:
                mode, content = os.fstat(descriptor).st_mode, file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            return []
        except (OSError, DataError) as error:
            raise TargetError(f"the log of raw writes can't be used: {error}") from error
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise TargetError(f"{self.path} may be written by other users, so it is not trusted")
        if len(content) > MOST_BYTES:
            raise TargetError(f"{self.path} is longer than {MOST_BYTES} bytes; move it elsewhere")
        return [row for row, _ in self._parsed(content)]

    def _parsed(self, content: bytes) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield the rows with their digests."""
        digest = ""
        for number, line in enumerate(content.split(b"\n")[:-1], start=1):
            try:
                row = from_json(line)
                found = row.pop("digest")
            except (ValueError, AttributeError, KeyError):
                row, found = {}, None
            digest = _digest(digest, row)
            if found != digest:
                raise TargetError(
                    f"{self.path}, line {number}, is not as wattload wrote it, so nothing is "
                    "overwritten; move the file elsewhere, and name again what is on each drive"
                )
            yield row, digest

    def _append(self, row: Mapping[str, Any]) -> None:
        try:
            with self._locked() as descriptor:
                with os.fdopen(os.dup(descriptor), "rb") as file:
                    file.seek(0)
                    content = file.read()
                whole_bytes = content.rfind(b"\n") + 1
                if whole_bytes < len(content):  # a row that was never acknowledged
                    os.ftruncate(descriptor, whole_bytes)
                digests = ["", *(digest for _, digest in self._parsed(content[:whole_bytes]))]
                sealed = {**row, "digest": _digest(digests[-1], row)}
                payload = json.dumps(sealed, separators=(",", ":")).encode() + b"\n"
                if os.write(descriptor, payload) < len(payload):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301
                os.fsync(descriptor)
        except TargetError:
            raise
        except (OSError, DataError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise TargetError(
                f"{self.path} can't be written ({reason}), so nothing is written to the drive; set "
                "WATTLOAD_STATE_DIR to a writable folder"
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[int]:
        with self.open_folder() as folder:
            is_new = LOG_NAME not in folder.names()
            descriptor = folder.append(LOG_NAME)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if is_new:
                    os.fchmod(descriptor, _MODE)
                    folder.sync()
                yield descriptor
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


def _document(row: Begin | End) -> dict[str, Any]:
    """Return a row as plain data, as JSON gives it back."""
    values = {each.name: getattr(row, each.name) for each in fields(row)}
    if row.foreign is not None:
        values["foreign"] = {
            "signatures": sorted(row.foreign.signatures),
            "samples": sorted(list(each) for each in row.foreign.samples),
        }
    document: dict[str, Any] = json.loads(json.dumps(values))
    return document


def _foreign(value: Mapping[str, Any] | None) -> Foreign | None:
    if value is None:
        return None
    samples = frozenset((int(offset), int(crc)) for offset, crc in value["samples"])
    return Foreign(signatures=frozenset(value["signatures"]), samples=samples)


def _begin(row: Mapping[str, Any]) -> Begin:
    values = {each.name: row[each.name] for each in fields(Begin)}
    for name in ("command", "findings", "overwrite"):
        values[name] = tuple(values[name])
    return Begin(**{**values, "foreign": _foreign(row["foreign"]) or Foreign()})


def _end(row: Mapping[str, Any]) -> End:
    values = {each.name: row[each.name] for each in fields(End)}
    return End(**{**values, "foreign": _foreign(row["foreign"])})
