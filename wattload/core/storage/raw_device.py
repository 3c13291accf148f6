"""Whole block devices: which one a path names, its identity and serial number, its partitions.

A drive is known by its serial number. A loop device is known by its backing file, and memory by its
kernel name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from wattload.core.errors import TargetError
from wattload.core.io import DeviceIdentity
from wattload.core.record.target import BlockNode
from wattload.core.storage.block_stack import NAMESPACE, controllers_in
from wattload.core.sysfs import (
    LIVE,
    SECTOR_BYTES,
    Roots,
    explain,
    numbered_block_folder,
    read_int,
    read_text,
)
from wattload.core.units import format_bytes

WHOLE_DRIVES = ("namespace", "scsi", "virtio", "loop", "ram")
"""The kinds of block devices that may be overwritten; others have drives under them."""

_WORDS = {
    "device_mapper": "a device-mapper volume",
    "md": "an md array",
    "path": "one path to a namespace",
    "network": "a network block device",
}
_BLKGETSIZE64 = 0x80081272
_BLKGETDISKSEQ = 0x80081280
_LOOP_GET_STATUS64 = 0x4C05
_LOOP_INFO_BYTES = 232
"""``linux/fs.h`` and ``struct loop_info64`` of ``linux/loop.h``."""


def disk_folder(path: str | Path, roots: Roots = LIVE) -> tuple[Path, Path]:
    """Return a whole block device's path, without links, and its folder in sysfs.

    Raises:
        TargetError: it is missing, not a block device, or a partition.
    """
    try:
        node = Path(path).expanduser().resolve(strict=True)
        found = node.stat()
    except FileNotFoundError as error:
        raise TargetError(
            f"{path} does not exist; name the device of a drive, e.g. target.path=/dev/nvme1n1"
        ) from error
    except (OSError, RuntimeError) as error:
        raise TargetError(f"{path} can't be used as a target: {error}") from error
    if stat.S_ISDIR(found.st_mode):
        raise TargetError(f"{path} is a directory; use target=directory, or name a drive's device")
    if not stat.S_ISBLK(found.st_mode):
        raise TargetError(f"{path} is not a block device; name one, e.g. /dev/nvme1n1")
    number = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    folder = numbered_block_folder(number, roots)
    if folder is None:
        raise TargetError(f"sysfs shows no block device {number}, which {path} is; mount /sys here")
    if (folder / "partition").exists():
        raise TargetError(f"{path} is a partition; name the whole drive")
    return node, folder


def read_identity(node: Path, folder: Path) -> DeviceIdentity:
    """Return the identity of a device from its folder in sysfs, without opening it.

    Raises:
        TargetError: its size or block size can't be read.
    """
    try:
        size_bytes = read_int(folder / "size") * SECTOR_BYTES
        block_bytes = read_int(folder / "queue/logical_block_size")
        number = read_text(folder / "dev")
    except (OSError, ValueError) as error:
        raise TargetError(
            f"the size of {node} can't be read: {explain(error)}; mount /sys here"
        ) from error
    try:
        sequence = read_int(folder / "diskseq")
    except (OSError, ValueError):  # before Linux 5.15
        sequence = None
    return DeviceIdentity(
        path=node,
        major_minor=number,
        disk_sequence=sequence,
        size_bytes=size_bytes,
        logical_block_bytes=block_bytes,
    )


def is_present(identity: DeviceIdentity, roots: Roots = LIVE) -> bool:
    """Return whether the kernel still has the device that was chosen, at its full size.

    Of a drive that went away, the size falls to 0 before its folder in sysfs is removed.
    """
    folder = numbered_block_folder(identity.major_minor, roots)
    try:
        return folder is not None and read_identity(identity.path, folder) == identity
    except TargetError:
        return False


def require_same(descriptor: int, identity: DeviceIdentity) -> None:
    """Compare an open device with the one that was chosen.

    Raises:
        TargetError: another device has taken its name, or its size has changed.
    """
    rdev = os.fstat(descriptor).st_rdev
    number = f"{os.major(rdev)}:{os.minor(rdev)}"
    size_bytes = _ioctl(descriptor, _BLKGETSIZE64, "Q")
    changes = []
    if number != identity.major_minor:
        changes.append(f"device number {identity.major_minor}, now {number}")
    if size_bytes != identity.size_bytes:
        changes.append(f"{identity.size_bytes} bytes, now {size_bytes}")
    if identity.disk_sequence is not None:
        sequence = _ioctl(descriptor, _BLKGETDISKSEQ, "Q")
        if sequence != identity.disk_sequence:
            changes.append(f"disk sequence {identity.disk_sequence}, now {sequence}")
    if changes:
        raise TargetError(f"{identity.path} was exchanged ({'; '.join(changes)}); start again")


def _ioctl(descriptor: int, request: int, layout: str) -> int:
    answer = bytearray(struct.calcsize(layout))
    fcntl.ioctl(descriptor, request, answer)
    (value,) = struct.unpack(layout, answer)
    return int(value)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: its kernel name, device number, folder in sysfs, and place in bytes."""

    name: str
    major_minor: str
    folder: Path
    start_bytes: int
    size_bytes: int


def partitions(folder: Path) -> tuple[Partition, ...]:
    """Return the partitions that the kernel has of a disk; raises ``OSError`` if it shows none."""
    found = [entry for entry in sorted(folder.iterdir()) if (entry / "partition").exists()]
    return tuple(
        Partition(
            name=each.name,
            major_minor=read_text(each / "dev"),
            folder=each,
            start_bytes=read_int(each / "start") * SECTOR_BYTES,
            size_bytes=read_int(each / "size") * SECTOR_BYTES,
        )
        for each in found
    )


def partition_node(partition: Partition, roots: Roots = LIVE) -> Path:
    """Return the device node of a partition.

    Raises:
        OSError: there is none here, or it is another device.
    """
    node = roots.top / "dev" / partition.name
    found = node.stat()
    number = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    if not stat.S_ISBLK(found.st_mode) or number != partition.major_minor:
        raise OSError(errno.ENODEV, f"it is not the device {partition.major_minor}", str(node))
    return node


def kind_words(stack: BlockNode) -> str | None:
    """Return why a device is not a drive that may be overwritten, ``None`` if it is one."""
    if stack.kind in WHOLE_DRIVES:
        return None
    return _WORDS.get(stack.kind, "not a kind of drive that wattload knows")


def drive_words(stack: BlockNode, size_bytes: int) -> str:
    """Return a drive as a person knows it, without its serial: ``a Micron_9550 of 30.72 TB``."""
    models = [node.model for node in controllers_in(stack) if node.model]
    if stack.kind == "loop":
        model = "loop device"
    elif stack.kind == "ram":
        model = "device in memory"
    else:
        model = models[0] if models else stack.model or "drive"
    return f"a {model} of {format_bytes(size_bytes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveName:
    """What a drive is known by: its ``serial``, or what takes its place.

    ``accepted`` are the texts by which a user may name it. ``hint`` is where a user finds one.
    """

    serial: str
    accepted: frozenset[str]
    hint: str = "as its label has it"

    def is_named(self, given: tuple[str, ...]) -> bool:
        """Return whether one of the given texts names this drive."""
        return bool(self.accepted & set(given))


def drive_name(node: Path, folder: Path, stack: BlockNode) -> DriveName:
    """Return what a drive is known by.

    Raises:
        TargetError: it can't be told from other drives.
    """
    try:
        if stack.kind == "namespace":
            return _namespace_name(node, folder)
        if stack.kind == "loop":
            return _loop_name(node, folder)
    except (OSError, ValueError) as error:
        raise TargetError(
            f"the serial number of {node} can't be read ({explain(error)}), so it can't be told "
            "from other drives"
        ) from error
    if stack.kind == "ram":
        hint = "its kernel name, since it is memory"
        return DriveName(serial=folder.name, accepted=frozenset({folder.name}), hint=hint)
    if not stack.serial:
        raise TargetError(
            f"{node} reports no serial number ({stack.missing.get('serial', 'it is empty')}), so "
            "it can't be told from other drives"
        )
    return DriveName(serial=stack.serial, accepted=frozenset({stack.serial}))


def _namespace_name(node: Path, folder: Path) -> DriveName:
    serial = read_text(folder.parent / "serial")
    if not serial:
        raise ValueError("it is empty")
    others = [
        each for each in folder.parent.glob("nvme*") if NAMESPACE.fullmatch(each.name) is not None
    ]
    if len(others) == 1:
        return DriveName(serial=serial, accepted=frozenset({serial}))
    name = f"{serial}:{namespace_id(folder)}"
    hint = "SERIAL:NSID, since the drive has several namespaces"
    return DriveName(serial=name, accepted=frozenset({name}), hint=hint)


def namespace_id(folder: Path) -> int:
    """Return the identifier of an NVMe namespace; raises ``OSError`` or ``ValueError``."""
    return read_int(folder / "nsid")


def _loop_name(node: Path, folder: Path) -> DriveName:
    """Return the name of a loop device: the device and inode number of its backing file."""
    descriptor = os.open(node, os.O_RDONLY | os.O_CLOEXEC)
    try:
        answer = bytearray(_LOOP_INFO_BYTES)
        fcntl.ioctl(descriptor, _LOOP_GET_STATUS64, answer)
    finally:
        os.close(descriptor)
    device, inode, _, offset_bytes, _ = struct.unpack_from("<5Q", answer)
    part = f"+{offset_bytes}" if offset_bytes else ""
    serial = f"loop:{device}:{inode}{part}"
    accepted = {serial}
    backing = Path(read_text(folder / "loop/backing_file"))
    try:
        found = backing.stat()
    except OSError:
        found = None  # deleted, or in another mount namespace
    if found is not None and found.st_ino == inode:
        if not stat.S_ISREG(found.st_mode):
            raise TargetError(f"{node} is a loop device over another device; name that one")
        accepted.add(str(backing))
    return DriveName(
        serial=serial, accepted=frozenset(accepted), hint="the path of its backing file"
    )


def other_loops(folder: Path, roots: Roots = LIVE) -> tuple[str, ...]:
    """Return the other loop devices that have the same backing file as this one."""
    own = read_text(folder / "loop/backing_file")
    found = []
    for each in sorted(roots.sys.glob("block/loop*/loop/backing_file")):
        name = each.parent.parent.name
        if name != folder.name and read_text(each) == own:
            found.append(name)
    return tuple(found)
