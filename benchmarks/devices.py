"""Block devices for the time of a benchmark, their identity, and the depth of their queues."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from benchmarks.measure import NotMeasuredError
from wattload.core.io import DeviceIdentity
from wattload.core.storage.raw_device import read_identity

SYSFS = Path("/sys")
PERIOD_S = 0.05
_READS, _WRITES, _BUSY_MS, _WEIGHTED_MS = 0, 4, 9, 10
"""Fields of a block device's ``stat`` (Documentation/block/stat.rst)."""


def identity(path: Path) -> DeviceIdentity:
    """Return the identity of a block device, from sysfs."""
    return read_identity(path, folder_of(path))


def size_of(path: Path) -> int:
    """Return the bytes that a file or a block device holds."""
    return identity(path).size_bytes if path.is_block_device() else path.stat().st_size


def folder_of(path: Path) -> Path:
    """Return the folder in sysfs of a block device, or of the whole disk that a file is on.

    Raises:
        NotMeasuredError: the file is on no block device.
    """
    number = path.stat().st_rdev if path.is_block_device() else path.stat().st_dev
    link = SYSFS / f"dev/block/{os.major(number)}:{os.minor(number)}"
    if not link.exists():
        raise NotMeasuredError(f"{path} is on no block device, so that its queue can't be watched")
    folder = link.resolve()
    return folder.parent if (folder / "partition").exists() else folder


@contextmanager
def loop_device(file: Path) -> Iterator[Path]:
    """Set up a loop device over a file, by O_DIRECT; detached at the end.

    Raises:
        NotMeasuredError: this machine sets up no loop device.
    """
    command = ["losetup", "--find", "--show", "--direct-io=on", str(file)]
    try:
        made = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise NotMeasuredError("losetup is not installed (apt-get install mount)") from error
    if made.returncode:
        raise NotMeasuredError(f"no loop device can be set up: {made.stderr.strip()}")
    device = Path(made.stdout.strip())
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", str(device)], check=True)


CLOSING_S = 10.0


@contextmanager
def zram_device(size_bytes: int) -> Iterator[Path]:
    """Add a compressed block device in memory; removed at the end.

    Raises:
        NotMeasuredError: this machine adds none.
    """
    control = SYSFS / "class/zram-control"
    try:
        number = int((control / "hot_add").read_text())
    except OSError as error:
        raise NotMeasuredError(f"no zram device can be added: {error}") from error
    device, folder = Path(f"/dev/zram{number}"), SYSFS / f"block/zram{number}"
    try:
        (folder / "disksize").write_text(str(size_bytes))
        if not device.is_block_device():
            raise NotMeasuredError(f"{device} was added, but /dev has no node of it")
        yield device
    except OSError as error:
        raise NotMeasuredError(f"{device} can't be set up: {error}") from error
    finally:
        _reset(folder / "reset")
        (control / "hot_remove").write_text(str(number))


def _reset(file: Path) -> None:
    """Reset a device; the kernel closes the files of an io_uring some time after its process."""
    deadline_s = time.monotonic() + CLOSING_S
    while True:
        try:
            file.write_text("1")
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)
        else:
            return


class QueueWatch:
    """Reads a device's counters every 50 ms on a thread of its own, while a benchmark uses it."""

    def __init__(self, path: Path) -> None:
        self._stat = folder_of(path) / "stat"
        self._rows: list[tuple[float, list[int]]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> QueueWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def mean_depth(self) -> float | None:
        """Return the mean number of operations in flight while the device was busy.

        From the middle two thirds of the time in which it did at least a third of its highest rate,
        so that start, end and fsync do not count. ``None`` if it did nothing that it counts.
        """
        rates = [
            (_operations(late) - _operations(early)) / (end_s - start_s)
            for (start_s, early), (end_s, late) in pairwise(self._rows)
        ]
        busy = [number for number, rate in enumerate(rates) if rate > max(rates) / 3]
        if not busy:
            return None
        cut = (busy[-1] - busy[0]) // 6
        _, early = self._rows[busy[0] + cut]
        _, late = self._rows[busy[-1] + 1 - cut]
        busy_ms = late[_BUSY_MS] - early[_BUSY_MS]
        return (late[_WEIGHTED_MS] - early[_WEIGHTED_MS]) / busy_ms if busy_ms else None

    def _watch(self) -> None:
        while not self._end.wait(PERIOD_S):
            self._rows.append((time.monotonic(), [int(x) for x in self._stat.read_text().split()]))


def _operations(counters: list[int]) -> int:
    return counters[_READS] + counters[_WRITES]
