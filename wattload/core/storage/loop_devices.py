"""Loop devices: what is behind one, as the kernel holds it open, and where that has data.

The file or device behind a loop device is known by numbers. A path says little about it: it may
have several names, or have lost its name, or be one of another mount namespace.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wattload.core.errors import TargetError
from wattload.core.storage.file_system import data_runs
from wattload.core.sysfs import LIVE, Roots, major_minor, numbered_block_folder, read_text

_LOOP_GET_STATUS64 = 0x4C05
_LOOP_INFO_BYTES = 232
"""``struct loop_info64`` of ``linux/loop.h``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    """What is behind a loop device, as the kernel holds it open.

    ``device`` and ``inode`` are those of the file, ``special`` the device number of a file that is
    a device itself, else 0. ``offset_bytes`` is where the loop device starts in it.
    """

    device: int
    inode: int
    special: int
    offset_bytes: int

    @property
    def file(self) -> tuple[int, int]:
        return self.device, self.inode


def read_backing(node: Path) -> Backing:
    """Return what is behind a loop device; raises ``OSError`` (``ENXIO``: nothing is)."""
    descriptor = os.open(node, os.O_RDONLY | os.O_CLOEXEC)
    try:
        answer = bytearray(_LOOP_INFO_BYTES)
        fcntl.ioctl(descriptor, _LOOP_GET_STATUS64, answer)
    finally:
        os.close(descriptor)
    device, inode, special, offset_bytes = struct.unpack_from("<4Q", answer)
    return Backing(device=device, inode=inode, special=special, offset_bytes=offset_bytes)


def backing_path(node: Path, folder: Path, backing: Backing, roots: Roots = LIVE) -> Path:
    """Return the path of the regular file behind a loop device.

    Raises ``TargetError`` if it is a device, or no longer at its path.
    """
    if backing.special:
        number = major_minor(backing.special)
        below = numbered_block_folder(number, roots)
        name = number if below is None else below.name
        raise TargetError(f"{node} is a loop device over another device ({name}); name that one")
    path = Path(read_text(folder / "loop/backing_file"))
    try:
        found = path.stat()
    except OSError:
        found = None
    if (
        found is None
        or (found.st_dev, found.st_ino) != backing.file
        or not stat.S_ISREG(found.st_mode)
    ):
        raise TargetError(
            f"{node} is a loop device over a file that is not at its path any more (deleted, "
            "replaced, or in another mount namespace), so what else uses it is unknown; "
            "detach it (losetup -d), and attach the file anew"
        )
    return path


def holds_data_outside(
    node: Path, path: Path, backing: Backing, size_bytes: int, known: Sequence[tuple[int, int]]
) -> bool:
    """Return whether the backing file has data that is not in the ``known`` ranges of the device.

    A hole of a sparse file proves that nothing is there. Raises ``OSError`` if none are shown.
    """
    with node.open("rb") as device:
        os.fsync(device)  # what was written to the device, and is not in the file yet
    first = backing.offset_bytes
    with path.open("rb") as file:
        for start, end in data_runs(file.fileno(), first + size_bytes):
            at = max(start - first, 0)
            while at < min(end - first, size_bytes):
                ends = [last for begin, last in known if begin <= at < last]
                if not ends:
                    return True
                at = max(ends)
    return False
