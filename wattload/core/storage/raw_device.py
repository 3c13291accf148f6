"""Whole block devices: which one a path names, its identity and serial number, its partitions.

A drive is known by its serial number. A loop device is known by its backing file, and memory that
is lost with its device (zram) by its kernel name.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

from wattload.core.errors import TargetError
from wattload.core.io import DeviceIdentity
from wattload.core.record.target import BlockNode
from wattload.core.storage.block_stack import NAMESPACE, controllers_in, is_virtual
from wattload.core.storage.loop_devices import backing_path, read_backing
from wattload.core.sysfs import (
    LIVE,
    SECTOR_BYTES,
    Roots,
    explain,
    major_minor,
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
_PRIVATE = re.compile(r"ata\d+$|end_device-|usb\d+$")
"""Folders that the kernel makes in sysfs for ATA ports, SAS end devices and USB buses."""


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
    number = major_minor(found.st_rdev)
    folder = numbered_block_folder(number, roots)
    if folder is None:
        raise TargetError(f"sysfs shows no block device {number}, which {path} is; mount /sys here")
    if (folder / "partition").exists():
        raise TargetError(f"{path} is a partition; name the whole drive")
    return node, folder


def read_identity(node: Path, folder: Path) -> DeviceIdentity:
    """Return a device's identity from its folder in sysfs; raises ``TargetError`` without one."""
    try:
        size_bytes = read_int(folder / "size") * SECTOR_BYTES
        block_bytes = read_int(folder / "queue/logical_block_size")
        number = read_text(folder / "dev")
    except (OSError, ValueError) as error:
        raise TargetError(
            f"the size of {node} can't be read: {explain(error)}; mount /sys here"
        ) from error
    return DeviceIdentity(
        path=node,
        major_minor=number,
        disk_sequence=disk_sequence(folder),
        size_bytes=size_bytes,
        logical_block_bytes=block_bytes,
    )


def disk_sequence(folder: Path) -> int | None:
    """Return the number that a disk got when it appeared, ``None`` before Linux 5.15."""
    try:
        return read_int(folder / "diskseq")
    except (OSError, ValueError):
        return None


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
    """Raise ``TargetError`` if an open device is not the one that was chosen, or as it was."""
    folder = numbered_block_folder(major_minor(os.fstat(descriptor).st_rdev))
    if folder is None:
        raise TargetError(f"sysfs no longer shows {identity.path}; start again")
    then, now = asdict(identity), asdict(read_identity(identity.path, folder))
    changes = [
        f"{name.replace('_', ' ')} {then[name]}, now {now[name]}"
        for name in then
        if then[name] != now[name]
    ]
    if changes:
        raise TargetError(f"{identity.path} was exchanged ({'; '.join(changes)}); start again")


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
    return tuple(
        Partition(
            name=each.name,
            major_minor=read_text(each / "dev"),
            folder=each,
            start_bytes=read_int(each / "start") * SECTOR_BYTES,
            size_bytes=read_int(each / "size") * SECTOR_BYTES,
        )
        for each in sorted(folder.iterdir())
        if (each / "partition").exists()
    )


def partition_node(partition: Partition, roots: Roots = LIVE) -> Path:
    """Return a partition's device node; raises ``OSError`` if it is missing or another device."""
    node = roots.top / "dev" / partition.name
    found = node.stat()
    if not stat.S_ISBLK(found.st_mode) or major_minor(found.st_rdev) != partition.major_minor:
        raise OSError(errno.ENODEV, f"it is not the device {partition.major_minor}", str(node))
    return node


def kind_text(stack: BlockNode) -> str | None:
    """Return why a device is not a drive that may be overwritten, ``None`` if it is one."""
    if stack.kind in WHOLE_DRIVES:
        return None
    return _WORDS.get(stack.kind, "not a kind of drive that wattload knows")


def drive_text(stack: BlockNode, size_bytes: int) -> str:
    """Return a drive as a person knows it, without its serial: ``a Micron_9550 of 30.72 TB``."""
    models = [node.model for node in controllers_in(stack) if node.model]
    if stack.kind == "loop":
        model = "loop device"
    elif stack.kind == "ram":
        model = "device in memory"
    else:
        model = models[0] if models else stack.model or "drive"
    return f"a {model} of {format_bytes(size_bytes)}"


def attachment_text(stack: BlockNode, folder: Path) -> str:
    """Return how other hosts may reach a drive that is not NVMe, empty if it is this host's alone.

    Known as private are ATA, SAS and USB by their place in sysfs, loop devices and memory.
    """
    if stack.kind in ("loop", "ram"):
        return ""
    if is_virtual(stack):
        return "is a hypervisor's disk, which other guests may have too"
    if stack.kind == "scsi" and any(_PRIVATE.match(each) for each in folder.resolve().parts):
        return ""
    return "is attached in a way that is not known to be private to this host"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveName:
    """What a drive is known by: its ``serial``, or what takes its place.

    ``accepted`` are the texts by which a user may name it. ``hint`` is where a user finds one.
    """

    serial: str
    accepted: frozenset[str]
    hint: str = "as its label has it"


def drive_name(node: Path, folder: Path, stack: BlockNode, roots: Roots = LIVE) -> DriveName:
    """Return what a drive is known by; raises ``TargetError`` if nothing tells it from others."""
    try:
        if stack.kind == "namespace":
            return _namespace_name(node, folder)
        if stack.kind == "loop":
            return _loop_name(node, folder, roots)
        if stack.kind == "ram":
            return _memory_name(folder, roots)
    except (OSError, ValueError) as error:
        raise TargetError(
            f"the serial number of {node} can't be read ({explain(error)}), so it can't be told "
            "from other drives"
        ) from error
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
    if sum(bool(NAMESPACE.fullmatch(each.name)) for each in folder.parent.iterdir()) == 1:
        return DriveName(serial=serial, accepted=frozenset({serial}))
    name = f"{serial}:{read_int(folder / 'nsid')}"
    hint = "SERIAL:NSID, since the drive has several namespaces"
    return DriveName(serial=name, accepted=frozenset({name}), hint=hint)


def _loop_name(node: Path, folder: Path, roots: Roots) -> DriveName:
    """Return the name of a loop device: the device and inode number of its backing file."""
    backing = read_backing(node)
    path = backing_path(node, folder, backing, roots)
    part = f"+{backing.offset_bytes}" if backing.offset_bytes else ""
    serial = f"loop:{backing.device}:{backing.inode}{part}"
    accepted = frozenset({serial, str(path)})
    hint = "the path of its backing file (losetup --list shows it)"
    return DriveName(serial=serial, accepted=accepted, hint=hint)


def _memory_name(folder: Path, roots: Roots) -> DriveName:
    """Return the name of a device in memory; the kernel reuses the names ``ram0`` and ``pmem0``.

    Persistent memory has the UUID of its namespace. Other memory lasts until the next boot at most,
    and its disk sequence is not used again before.
    """
    if folder.name.startswith("zram"):
        hint = "its kernel name, since it is memory"
        return DriveName(serial=folder.name, accepted=frozenset({folder.name}), hint=hint)
    if folder.name.startswith("pmem"):
        uuid = read_text(folder / "device/uuid")
        if not uuid:
            raise ValueError("its namespace has no UUID")
        hint = "the UUID of its namespace (ndctl list)"
        return DriveName(serial=f"pmem:{uuid}", accepted=frozenset({uuid}), hint=hint)
    name = f"{folder.name}:{read_int(folder / 'diskseq')}"
    boot = read_text(roots.proc / "sys/kernel/random/boot_id")
    hint = "NAME:SEQUENCE, its kernel name and its disk sequence (lsblk -o NAME,DISK-SEQ)"
    return DriveName(serial=f"{name}:{boot}", accepted=frozenset({name}), hint=hint)
