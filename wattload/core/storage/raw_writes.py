"""The log of all writes to whole drives, ``raw-writes.jsonl`` in the state folder.

A row is added, and is durable, before the first byte of a run is written; another one at its end.
The log decides which blocks on a drive are ours. So a row carries a digest of itself and of the row
before it, and a second file, ``raw-writes.last.json``, the number of rows and the last digest. If
one does not fit, nothing in the log is trusted. A last row that is cut off was never acknowledged
and does not count. A last row that the second file does not have yet is from a crash between both.

The end of a run that completed has the counts of writes to the drive at that moment, read while the
run still held it. If they have grown since, somebody else wrote. A run without them (killed, failed
or not ended yet) leaves that unknown, because nobody knows which write was its last.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from wattload.core.base_models import first_fault
from wattload.core.clock import utc_text
from wattload.core.errors import DataError, TargetError
from wattload.core.files import Folder, open_folder, sync_folder, user_name
from wattload.core.power import SMART, WRITTEN_STEP_BYTES
from wattload.core.storage.raw_device import disk_sequence
from wattload.core.sysfs import (
    LIVE,
    SECTOR_BYTES,
    Roots,
    block_folder,
    read_text,
    text_or_empty,
)

LOG_NAME = "raw-writes.jsonl"
LAST_NAME = "raw-writes.last.json"
MOST_BYTES = 256 << 20
"""Some 100,000 runs."""

WORN = "worn"
"""The name of a drive whose endurance is used up."""
UNSEEN = "unseen"
"""The name of what may use a drive and can't be seen from here; other findings are on the drive."""
UNKNOWN = "unknown"
"""The name of content that is neither blank nor ours, or perhaps not."""

_MODE = 0o600
_WRITTEN_SECTORS, _DISCARDED_SECTORS = 6, 13
"""Columns of ``/sys/block/<name>/stat`` (iostats.rst), from 0; discards since Linux 4.18."""

OWN_STEP_BYTES = WRITTEN_STEP_BYTES[SMART]
"""The step of an NVMe drive's own count of bytes written (Data Units Written)."""

Status = Literal["complete", "failed", "aborted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCounts:
    """All that counts the writes to a drive, at one moment.

    ``written`` and ``discarded`` are the kernel's bytes by block device, those of partitions
    included, whoever wrote them. They are exact, but begin anew with a boot (``boot_id``) and when
    a disk appears (``disk_sequence``). ``switches`` are the ``queue/iostats`` of the devices: most
    do not count while it is 0, zram always does. ``drive_bytes`` is an NVMe drive's own count, in
    steps of ``OWN_STEP_BYTES``: it has the writes of other hosts. ``file_ns`` is when the file
    behind a loop device was changed last.
    """

    boot_id: str
    disk_sequence: int | None
    switches: Mapping[str, str]
    written: Mapping[str, int]
    discarded: Mapping[str, int]
    drive_bytes: int | None = None
    file_ns: int | None = None

    def others_since(self, before: WriteCounts) -> str:
        """Return what shows, or lets nobody rule out, writes since ``before``; else empty."""
        return next(filter(None, (*self._lapses(before), *self._growths(before))), "")

    def _lapses(self, before: WriteCounts) -> Iterator[str]:
        """Yield why the kernel's counts can't be compared with those of ``before``."""
        if self.boot_id != before.boot_id:
            yield "the kernel's count of writes began anew, as the host was started again"
        if self.disk_sequence is None:
            yield "this kernel does not number disks, so it may be another one"
        if self.disk_sequence != before.disk_sequence:
            yield "the kernel's count of writes began anew, as the device was attached again"
        if not self.written or self.written.keys() != before.written.keys():
            yield "the kernel does not count the writes to it"
        if self.switches != before.switches:
            yield "the kernel's count of writes was switched off or on (queue/iostats)"

    def _growths(self, before: WriteCounts) -> Iterator[str]:
        for then, now, done in (
            (before.written, self.written, "written"),
            (before.discarded, self.discarded, "discarded"),
        ):
            if any(now.get(name, 0) < count for name, count in then.items()):
                yield f"the kernel's count of bytes {done} fell, so the device was reset"
            elif grown := sum(now.values()) - sum(then.values()):
                yield f"{grown:,} bytes were {done} by the kernel's count"
        if self.file_ns != before.file_ns:
            yield "its backing file was changed"
        if (self.drive_bytes is None) != (before.drive_bytes is None):
            yield "its own count of bytes written can't be read"
        elif self.drive_bytes != before.drive_bytes:
            yield (
                f"its own count of bytes written, in steps of {OWN_STEP_BYTES:,}, went "
                f"from {before.drive_bytes:,} to {self.drive_bytes:,}"
            )


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
    user: str = field(default_factory=lambda: f"{user_name(os.getuid())} ({os.getuid()})")


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of a run: the bytes that the kernel counted, ``None`` if it no longer shows them.

    ``own_bytes`` is what the run itself counted as written to its only drive, ``left`` are the
    counts at its end; both are ``None`` unless it completed.
    """

    run_id: str
    serial: str
    status: Status
    written_bytes: int | None
    own_bytes: int | None = None
    left: WriteCounts | None = None
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

        It is 0 again once a later run has found something else; what is ``UNKNOWN`` is judged by
        ``others_since``.
        """
        covered = 0
        for row in self.begins:
            if set(row.findings) - {WORN, UNSEEN, UNKNOWN}:
                covered = 0
            end = self.ends.get(row.run_id)
            if end is not None and end.status == "complete":
                covered = max(covered, row.covered_bytes)
        return covered

    def others_since(self, now: WriteCounts) -> str:
        """Return why the drive may hold what no run of the log wrote, since the last one began.

        Empty if the counts rule that out. That run must have completed, and the kernel must have
        counted as many bytes as the run: also a device that the kernel does not count fails here.
        """
        if not self.begins:
            return ""
        run_id = self.begins[-1].run_id
        end = self.ends.get(run_id)
        if end is None or end.status != "complete":
            return f"{run_id} did not complete, so what was written since its last write is unknown"
        if end.left is None or end.own_bytes is None:
            missing = f"the counts at the end of {run_id} are missing"
            return f"{missing}, so what was written since is unknown"
        if end.written_bytes != end.own_bytes:
            counted = "not all" if end.written_bytes is None else f"{end.written_bytes:,}"
            return f"the kernel counted {counted} bytes while {run_id} wrote {end.own_bytes:,}"
        reason = now.others_since(end.left)
        return f"since {run_id}, {reason}" if reason else self._not_overwritten()

    def _not_overwritten(self) -> str:
        """Return which run met unknown content of which some may be left; else empty.

        A permission is for one run, and that one need not write over the whole drive.
        """
        for row in reversed(self.begins):
            end = self.ends.get(row.run_id)
            is_complete = end is not None and end.status == "complete"
            if is_complete and row.covered_bytes >= self.covered_bytes:
                return ""
            if UNKNOWN in row.findings:
                return f"{row.run_id} found some, and no run wrote over all of the drive since"
        return ""

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
_BEGIN, _END = TypeAdapter(Begin), TypeAdapter(End)


class RawWriteLog:
    """The log in a state folder, shared by all runs of a host and user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def path(self) -> Path:
        return self.folder / LOG_NAME

    def of_drive(self, serial: str) -> DriveLog:
        """Return the rows of a drive; raises ``TargetError`` if others changed the log."""
        rows = [row for row in self._rows() if row["serial"] == serial]
        begins = tuple(self._row(_BEGIN, row) for row in rows if row["event"] == "begin")
        ends = {row["run_id"]: self._row(_END, row) for row in rows if row["event"] == "end"}
        return DriveLog(begins=begins, ends=ends)

    def begin(self, row: Begin) -> None:
        """Add a row that survives a power cut; without it nothing may be written."""
        self._append({"event": "begin", **_BEGIN.dump_python(row, mode="json")})

    def end(
        self,
        run_id: str,
        status: Status,
        *,
        own_bytes: int | None = None,
        left: WriteCounts | None = None,
    ) -> None:
        """Add the end of a run, once for each of its drives; a run without a row is left alone.

        Whoever finishes a run calls it: the run itself, its sampler, or the next one to start.
        ``own_bytes`` and ``left`` are those of ``End``.
        """
        rows = [row for row in self._rows() if row["run_id"] == run_id]
        ended = {row["serial"] for row in rows if row["event"] == "end"}
        for begin in (self._row(_BEGIN, row) for row in rows if row["event"] == "begin"):
            if begin.serial in ended:
                continue
            end = End(
                run_id=run_id,
                serial=begin.serial,
                status=status,
                written_bytes=_grown_bytes(begin, left),
                own_bytes=own_bytes,
                left=left,
            )
            self._append({"event": "end", **_END.dump_python(end, mode="json")})

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

    def _row(self, kind: TypeAdapter[RowT], row: Mapping[str, Any]) -> RowT:
        try:
            return kind.validate_python(row)
        except ValidationError as error:
            place, message, _ = first_fault(error)
            raise self._foreign(
                f"{self.path} has a row of another version ({place}: {message})"
            ) from error

    def _append(self, row: Mapping[str, Any]) -> None:
        try:
            with self.open_folder() as folder:
                is_new = LOG_NAME not in folder.names()
                descriptor = folder.append(LOG_NAME)
                with os.fdopen(descriptor, "rb") as file:
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                    if is_new:
                        os.fchmod(descriptor, _MODE)
                        folder.sync()
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

    def open_folder(self) -> Folder:
        """Open the state folder, made durably if it is missing."""
        missing = [each for each in (self.folder, *self.folder.parents) if not each.exists()]
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in missing:
            sync_folder(each.parent)
        return open_folder(self.folder)


def counted_bytes(
    devices: Sequence[str], roots: Roots = LIVE, column: int = _WRITTEN_SECTORS
) -> dict[str, int]:
    """Return the bytes that the kernel has counted as written, by device; only what it shows."""
    found = {}
    for name in devices:
        folder = block_folder(name, roots) or roots.sys / "block" / name
        try:
            found[name] = int(read_text(folder / "stat").split()[column]) * SECTOR_BYTES
        except (OSError, ValueError, IndexError):
            continue
    return found


def read_counts(name: str, devices: Sequence[str], roots: Roots = LIVE) -> WriteCounts:
    """Return the kernel's counts of the writes to a drive, by ``name``, and its ``devices``."""
    folder = block_folder(name, roots)
    return WriteCounts(
        boot_id=read_text(roots.proc / "sys/kernel/random/boot_id"),
        disk_sequence=None if folder is None else disk_sequence(folder),
        switches={
            each: text_or_empty(roots.sys / "class/block" / each / "queue/iostats")
            for each in devices
        },
        written=counted_bytes(devices, roots),
        discarded=counted_bytes(devices, roots, _DISCARDED_SECTORS),
    )


def _grown_bytes(begin: Begin, left: WriteCounts | None) -> int | None:
    """Return the bytes written since a row, ``None`` if another disk has the name by now."""
    now = left or read_counts(Path(begin.path).name, tuple(begin.devices))
    is_same = now.disk_sequence == begin.disk_sequence
    if not is_same or not now.written or now.written.keys() != begin.devices.keys():
        return None
    grown = [now.written[name] - before for name, before in begin.devices.items()]
    return None if min(grown) < 0 else sum(grown)


def _digest(before: str, row: Mapping[str, Any]) -> str:
    text = json.dumps([before, row], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _object(content: bytes) -> dict[str, Any]:
    """Return a JSON object, an empty one for anything else."""
    try:
        found = from_json(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
