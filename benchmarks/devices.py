"""Block devices for the time of a benchmark, their identity, and the depth of their queues."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.child import output
from benchmarks.measure import Figures, NotMeasuredError, Way
from wattload.core.io import DeviceIdentity
from wattload.core.storage.raw_device import read_identity
from wattload.core.units import MIB

SYSFS = Path("/sys")
_BUSY_MS, _WEIGHTED_MS = 9, 10
"""Fields of a block device's ``stat`` (Documentation/block/stat.rst)."""
CLOSING_S = 10.0


def identity(path: Path) -> DeviceIdentity:
    """Return the identity of a block device, from sysfs."""
    return read_identity(path, folder_of(path))


def size_of(path: Path) -> int:
    """Return the size of a file or a block device."""
    return identity(path).size_bytes if path.is_block_device() else path.stat().st_size


def folder_of(path: Path) -> Path:
    """Return the folder in sysfs of a block device, or of the whole disk that a file is on.

    Raises:
        NotMeasuredError: the file is not on a block device.
    """
    number = path.stat().st_rdev if path.is_block_device() else path.stat().st_dev
    link = SYSFS / f"dev/block/{os.major(number)}:{os.minor(number)}"
    if not link.exists():
        raise NotMeasuredError(f"{path} is not on a block device, so its queue cannot be watched")
    folder = link.resolve()
    return folder.parent if (folder / "partition").exists() else folder


def watched(path: Path, way: Way) -> Way:
    """Return a way with ``queue_depth``: the mean number in flight while the device was busy."""
    stat = folder_of(path) / "stat"

    def run() -> Figures:
        before = [int(word) for word in stat.read_text().split()]
        figures = way()
        after = [int(word) for word in stat.read_text().split()]
        busy_ms = after[_BUSY_MS] - before[_BUSY_MS]
        weighted_ms = after[_WEIGHTED_MS] - before[_WEIGHTED_MS]
        return {**figures, "queue_depth": weighted_ms / busy_ms if busy_ms else 0.0}

    return run


@contextmanager
def loop_device(file: Path) -> Iterator[Path]:
    """Set up a loop device over a file, with O_DIRECT; detached at the end.

    Raises:
        NotMeasuredError: this machine has no loop devices.
    """
    device = output(["losetup", "--find", "--show", "--direct-io=on", str(file)]).strip()
    try:
        yield Path(device)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


@contextmanager
def zram_device(size_bytes: int) -> Iterator[Path]:
    """Add a compressed block device in memory, fully written; removed at the end.

    Raises:
        NotMeasuredError: this machine cannot add one.
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
            raise NotMeasuredError(f"{device} was added, but has no node in /dev")
        _fill(device, size_bytes)
        yield device
    finally:
        _reset(folder / "reset")
        (control / "hot_remove").write_text(str(number))


def _fill(device: Path, size_bytes: int) -> None:
    """Write all of a device: the first write of a page of zram allocates memory."""
    random = np.random.default_rng(0)
    with device.open("r+b", buffering=0) as whole:
        for _ in range(size_bytes // MIB):
            whole.write(random.bytes(MIB))
        os.fsync(whole.fileno())


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
