"""Requests that block drivers were given and have answered, traced by the kernel.

The events are ``block_rq_issue``, ``block_rq_complete`` and ``block_rq_requeue``, in a trace
instance of our own ("Instances" in Linux ``Documentation/trace/ftrace.rst``), so that other users
of the tracer are not disturbed. The kernel filters them by device. They are read in binary, a
buffer page at a time, and decoded afterwards: text would cost the host more than the drive does.
The form of pages and events is that of ``include/linux/ring_buffer.h``, which libtraceevent reads
too; the places of the fields come from the files ``format`` and ``header_page``.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.storage.file_system import read_mounts
from wattload.core.sysfs import LIVE, Roots, explain, left_folders, own_name, read_text
from wattload.core.units import KIB, MIB

_PREFIX = "wattload-trace"
_EVENTS = ("issue", "complete", "requeue")
ISSUE, COMPLETE, REQUEUE = range(3)

_BUFFER_BYTES = 8 * MIB
"""Of each CPU: at 70 bytes an event, 100 ms of a million a second."""
_ALL_BUFFERS_BYTES = 512 * MIB
_PIPE_BYTES = MIB
_PAUSE_S = 0.005
_KEPT_BYTES = 2048 * MIB
"""Pages beyond these are thrown away, and counted as lost."""

_EVENT_BYTES = 64
"""About; larger than the smallest, so that what is thrown away is not overrated."""

_MINOR_BITS = 20
_FIELD = re.compile(r"field:[^;]*?(\w+)(?:\[\d*\])?;\s*offset:(\d+);\s*size:(\d+);")

_READ, _WRITE, _FLUSH = b"RWF"
"""Letters of ``rwbs``; an F in front of another one is a flush that goes with it."""
_DATA = (_READ, _WRITE)
_ROW = np.dtype(
    [
        ("time", np.int64),
        ("kind", np.uint8),
        ("device", np.uint32),
        ("sector", np.uint64),
        ("count", np.uint32),
        ("operation", np.uint8),
    ]
)

_PADDING, _TIME_EXTEND, _TIME_STAMP = 29, 30, 31
_DELTA_BITS = 27
_STAMP_MASK = np.uint64(0x1F << 59)
_SIZE_MASK = np.uint64((1 << 30) - 1)
"""Of a page's ``commit``: the two bits above say that events were lost before it."""


class TraceError(Exception):
    """No trace can be made; the message is a clause that says what is missing.

    ``is_unmounted`` is whether root can change that by a mount.
    """

    def __init__(self, clause: str, *, is_unmounted: bool = False) -> None:
        super().__init__(clause)
        self.is_unmounted = is_unmounted


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockEvents:
    """Events in the order of their times (CLOCK_MONOTONIC), arrays of shape ``(n,)``.

    ``kinds`` are ``ISSUE``, ``COMPLETE`` and ``REQUEUE``; ``numbers`` those of devices, as
    ``device_number`` returns them. Only reads and writes of data are kept.
    """

    times_ns: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    numbers: NDArray[np.uint32]
    sectors: NDArray[np.uint64]
    sector_counts: NDArray[np.uint32]
    is_read: NDArray[np.bool_]


def device_number(major_minor: str) -> int:
    """Return the kernel's number of a device from ``major:minor``."""
    major, minor = map(int, major_minor.split(":"))
    return major << _MINOR_BITS | minor


def find_tracefs(roots: Roots = LIVE) -> Path:
    """Return a folder of tracefs in which this process may make instances.

    Raises:
        TraceError: the kernel has none, it is not mounted, or this user may not use it.
    """
    mounts = [
        mount.mount_point / ("tracing" if mount.type == "debugfs" else "")
        for mount in read_mounts(roots)
        if mount.type in ("tracefs", "debugfs")
    ]
    for folder in mounts:
        if os.access(folder / "instances", os.W_OK | os.X_OK):
            return folder
    if not re.search(r"\ttracefs$", (roots.proc / "filesystems").read_text(), re.MULTILINE):
        raise TraceError("this kernel has no tracefs; it is built without CONFIG_TRACING")
    if os.geteuid() != 0:
        raise TraceError("only root may trace block devices; run as root")
    if mounts:
        raise TraceError(f"{mounts[0]} can't be written; mount it without ro")
    raise TraceError(
        "tracefs is not mounted; mount it (mount -t tracefs tracefs /sys/kernel/tracing), or start "
        "the container with -v /sys/kernel/tracing:/sys/kernel/tracing",
        is_unmounted=True,
    )


class BlockTrace:
    """A trace of some devices from construction to ``stop``; ``close`` removes it at every end."""

    def __init__(self, numbers: Sequence[int], roots: Roots = LIVE) -> None:
        """Start tracing.

        Raises:
            TraceError: it can't be made here.
        """
        if not numbers:
            raise TraceError("no block device is known below the targets")
        tracing = find_tracefs(roots)
        for left in left_folders(tracing / "instances", _PREFIX, roots):
            with suppress(OSError):  # a process reads it
                left.path.rmdir()
        self._folder = tracing / "instances" / own_name(_PREFIX, roots)
        self._opened = ExitStack()
        self._stopped = threading.Event()
        self._pages: list[bytes] = []
        self._kept_bytes = self._dropped_bytes = 0
        self._thread = threading.Thread(target=self._follow, name="block-trace", daemon=True)
        try:
            self._begin(numbers)
        except (OSError, ValueError) as error:
            self.close()
            clause = explain(error)
            raise TraceError(f"the trace of block devices was refused: {clause}") from error
        except BaseException:
            self.close()
            raise

    def _begin(self, numbers: Sequence[int]) -> None:
        self._folder.mkdir()
        self._write("tracing_on", "0")
        cpus = sorted((self._folder / "per_cpu").iterdir())
        size_bytes = min(_BUFFER_BYTES, _ALL_BUFFERS_BYTES // len(cpus))
        self._write("buffer_size_kb", str(size_bytes // KIB))
        self._write("trace_clock", "mono")
        wanted = " || ".join(f"dev == {number}" for number in numbers)
        for name in _EVENTS:
            self._write(f"events/block/block_rq_{name}/filter", wanted)
            self._write(f"events/block/block_rq_{name}/enable", "1")
        block = self._folder / "events/block"
        self._formats = [TraceFormat.read(block / f"block_rq_{name}/format") for name in _EVENTS]
        self._page = TraceFormat.read(self._folder.parent.parent / "events/header_page")
        self._cpus = cpus
        self._files = [self._open(cpu / "trace_pipe_raw") for cpu in cpus]
        self._pipe = os.pipe()
        for end in self._pipe:
            self._opened.callback(os.close, end)
        with suppress(OSError):  # above the limit of a user's pipes
            fcntl.fcntl(self._pipe[0], fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._thread.start()
        self._write("tracing_on", "1")

    def stop(self) -> tuple[BlockEvents, int]:
        """End the trace; return its events, and how many the kernel had no room for."""
        self._write("tracing_on", "0")
        self._end_thread()
        self._drain()
        for file in self._files:
            self._read_rest(file)
        lost = sum(map(_lost, self._cpus)) + self._dropped_bytes // _EVENT_BYTES
        raw, self._pages = b"".join(self._pages), []
        return decode(raw, self._page, self._formats), lost

    def close(self) -> None:
        """Remove the instance; safe to call twice."""
        self._end_thread()
        self._opened.close()
        with suppress(OSError):
            self._folder.rmdir()

    @property
    def _page_bytes(self) -> int:
        place, size = self._page.places["data"]
        return place + size

    def _end_thread(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _follow(self) -> None:
        while not self._stopped.is_set():
            if not self._drain():
                self._stopped.wait(_PAUSE_S)

    def _drain(self) -> int:
        """Move all full pages here; return their bytes. They are not copied on the way."""
        return sum(map(self._drain_one, self._files))

    def _drain_one(self, file: int) -> int:
        moved = 0
        with suppress(BlockingIOError):
            while count := os.splice(file, self._pipe[1], _PIPE_BYTES, flags=os.SPLICE_F_NONBLOCK):
                moved += count
                self._keep(count)
        return moved

    def _keep(self, count: int) -> None:
        parts = []
        while count:
            parts.append(os.read(self._pipe[0], count))
            count -= len(parts[-1])
        if self._kept_bytes > _KEPT_BYTES:
            self._dropped_bytes += sum(map(len, parts))
        else:
            self._kept_bytes += sum(map(len, parts))
            self._pages += parts

    def _read_rest(self, file: int) -> None:
        with suppress(BlockingIOError):
            while part := os.read(file, self._page_bytes):
                self._pages.append(part.ljust(self._page_bytes, b"\0"))

    def _open(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._opened.callback(os.close, descriptor)
        return descriptor

    def _write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """Fields of an event or a page: offset and size in bytes by name. ``number`` is an event's."""

    number: int
    places: dict[str, tuple[int, int]]

    @classmethod
    def read(cls, path: Path) -> TraceFormat:
        return cls.parse(read_text(path))

    @classmethod
    def parse(cls, text: str) -> TraceFormat:
        number = re.search(r"^ID: (\d+)$", text, re.MULTILINE)
        places = {name: (int(at), int(size)) for name, at, size in _FIELD.findall(text)}
        return cls(int(number[1]) if number else 0, places)


def _lost(cpu: Path) -> int:
    """Return the events of a CPU that were overwritten or not stored."""
    lines = [line.partition(":") for line in read_text(cpu / "stats").splitlines()]
    counts = {name: value for name, _, value in lines}
    return sum(int(counts.get(name, 0)) for name in ("overrun", "commit overrun", "dropped events"))


def decode(raw: bytes, page: TraceFormat, formats: Sequence[TraceFormat]) -> BlockEvents:
    """Return the events in whole buffer pages; ``formats`` are those of the kinds, in their order.

    All pages are decoded side by side, one event of each at a time.
    """
    start, size = page.places["data"]
    memory = np.frombuffer(raw, dtype=np.uint8)
    words, longs = memory.view("<u4"), memory.view("<u8")
    heads = np.arange(0, len(memory), start + size, dtype=np.int64)
    clocks = longs[heads // 8]
    at = heads + start
    ends = at + (longs[heads // 8 + 1] & _SIZE_MASK).astype(np.int64)
    times, places = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    while len(at):
        kind = (words[at // 4] & 31).astype(np.int64)
        delta = (words[at // 4] >> 5).astype(np.uint64)
        first = words[np.minimum(at // 4 + 1, len(words) - 1)].astype(np.uint64)
        long_time = (first << np.uint64(_DELTA_BITS)) + delta
        clocks = np.where(
            kind == _TIME_STAMP,
            long_time | (clocks & _STAMP_MASK),
            clocks + np.where(kind == _TIME_EXTEND, long_time, delta),
        )
        is_event = kind < _PADDING
        times.append(clocks[is_event])
        places.append((at + np.where(kind == 0, 8, 4))[is_event])
        has_length = (kind == 0) | (kind == _PADDING)
        length = np.where(has_length, first.astype(np.int64) + 4, kind * 4 + 4)
        length[kind >= _TIME_EXTEND] = 8
        is_end = (kind == _PADDING) & (delta == 0)
        at = at + length
        more = ~is_end & (at < ends)
        at, ends, clocks = at[more], ends[more], clocks[more]
    return _events(memory, np.concatenate(places), np.concatenate(times), formats)


def _events(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    times: NDArray[np.uint64],
    formats: Sequence[TraceFormat],
) -> BlockEvents:
    """Return the reads and writes of data among the events at these places."""
    words = memory.view("<u4")
    numbers = words[places // 4] & 0xFFFF
    parts = [_of_kind(words, memory, places[numbers == form.number], form) for form in formats]
    order = [np.flatnonzero(numbers == form.number) for form in formats]
    rows = np.concatenate(parts)
    rows["time"] = times[np.concatenate(order)].astype(np.int64)
    rows["kind"] = np.repeat(np.arange(len(formats)), [len(part) for part in parts])
    rows = rows[(rows["count"] > 0) & np.isin(rows["operation"], _DATA)]
    rows = rows[np.argsort(rows["time"], kind="stable")]
    return BlockEvents(
        times_ns=rows["time"],
        kinds=rows["kind"],
        numbers=rows["device"],
        sectors=rows["sector"],
        sector_counts=rows["count"],
        is_read=rows["operation"] == _READ,
    )


def _of_kind(
    words: NDArray[np.uint32],
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    form: TraceFormat,
) -> NDArray[np.void]:
    rows = np.zeros(len(places), dtype=_ROW)
    offsets = {name: place for name, (place, _) in form.places.items()}
    rows["device"] = words[(places + offsets["dev"]) // 4]
    low, high = (words[(places + offsets["sector"] + more) // 4] for more in (0, 4))
    rows["sector"] = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
    rows["count"] = words[(places + offsets["nr_sector"]) // 4]
    first, second = (memory[places + offsets["rwbs"] + more] for more in (0, 1))
    rows["operation"] = np.where(first == _FLUSH, second, first)
    return rows
