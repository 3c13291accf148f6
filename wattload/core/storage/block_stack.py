"""The block stack under a mount: dm, md, partition, namespace, controller.

Also how many bytes each level writes per byte, and which drives the running system needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from wattload.core.record.target import BlockNode, NodeKind, QueueFacts
from wattload.core.storage.efi import EFI_TYPE, has_efi_partition
from wattload.core.storage.file_system import Mount, find_mount, read_mounts, unescape
from wattload.core.storage.loop_devices import read_backing
from wattload.core.sysfs import (
    LIVE,
    SECTOR_BYTES,
    Observation,
    Roots,
    block_folder,
    bracketed,
    explain,
    major_minor,
    numbered_block_folder,
    read_int,
    read_text,
    text_or_empty,
)

_ONE_COPY_UUIDS = ("CRYPT-", "mpath-", "VERITY-")
"""UUID prefixes of device-mapper tables that write each byte once."""

_BTRFS_COPIES = {
    "single": 1.0,
    "raid0": 1.0,
    "dup": 2.0,
    "raid1": 2.0,
    "raid10": 2.0,
    "raid1c3": 3.0,
    "raid1c4": 4.0,
}

ResolvePath = Callable[[Path], BlockNode | None]
"""Returns the stack under a file, for the backing file of a loop device."""

_CONTROLLER = re.compile(r"nvme\d+")
NAMESPACE = re.compile(r"nvme(\d+)n(\d+)")
_PATH = re.compile(r"nvme\d+c\d+n\d+")
_KINDS_BY_NAME: tuple[tuple[re.Pattern[str], NodeKind], ...] = (
    (_PATH, "path"),
    (NAMESPACE, "namespace"),
    (re.compile(r"vd[a-z]+"), "virtio"),
    (re.compile(r"sd[a-z]+|sr\d+"), "scsi"),
    (re.compile(r"(zram|ram|pmem)\d+"), "ram"),
    (re.compile(r"(nbd|rbd|drbd)\d+"), "network"),
)
_VIRTUAL_MODELS = (
    "QEMU",
    "VMware",
    "VBOX",
    "Virtual disk",
    "Msft Virtual",
    "Google PersistentDisk",
    "nvme_card-pd",
    "Amazon Elastic Block Store",
    "MSFT NVMe Accelerator",
    "Red Hat VirtIO",
)
"""Model names of virtual disks; drives that are passed through keep their own."""

_UNNAMED_MAJOR = "0:"
EFI_PARTITION = "an EFI system partition"
_BOOT_FOLDERS = ("/boot", "/boot/efi", "/boot/firmware", "/efi")


def md_redundancy(folder: Path) -> tuple[float | None, str]:
    """Return an md array's write factor from its sysfs folder, or ``None`` and the reason.

    For mirrors it is the number of present members. For parity RAID it assumes full stripes: a
    partial stripe also rewrites its parity, and may need reads for it.
    """
    try:
        level = read_text(folder / "md/level")
        count = read_int(folder / "md/raid_disks")
        present = count - read_int(folder / "md/degraded") if level == "raid1" else count
        layout = read_int(folder / "md/layout") if level == "raid10" else 0
    except (OSError, ValueError) as error:
        return None, explain(error)
    if level in ("linear", "raid0"):
        return 1.0, ""
    if level == "raid1":
        return float(present), ""
    if level == "raid10":  # md(4): near copies in bits 7:0, far copies in bits 15:8
        return float((layout & 0xFF) * (layout >> 8 & 0xFF)), ""
    parity = {"raid4": 1, "raid5": 1, "raid6": 2}.get(level)
    if parity is None or count <= parity:
        return None, f"the write factor of md level {level} over {count} devices is unknown"
    return count / (count - parity), ""


def dm_redundancy(folder: Path) -> tuple[float | None, str]:
    uuid = text_or_empty(folder / "dm/uuid")
    below = len(list((folder / "slaves").glob("*")))
    if below == 1 or uuid.startswith(_ONE_COPY_UUIDS):
        return 1.0, ""
    return (
        None,
        f"sysfs does not show how the mapping uses its {below} devices (dmsetup table does)",
    )


def btrfs_redundancy(pool: Path) -> tuple[float | None, str]:
    """Return a btrfs pool's write factor from the profiles of its data block groups.

    Args:
        pool: ``/sys/fs/btrfs/<uuid>``; the profiles are folders under ``allocation/data``.
    """
    profiles = sorted(entry.name for entry in (pool / "allocation/data").glob("*/"))
    if len(profiles) == 1 and profiles[0] in _BTRFS_COPIES:
        return _BTRFS_COPIES[profiles[0]], ""
    return None, f"its data profiles have no single factor: {', '.join(profiles) or 'none shown'}"


def block_node(folder: Path, roots: Roots, resolve_path: ResolvePath) -> BlockNode:
    """Return a block device and everything under it.

    Args:
        folder: its sysfs folder, links resolved.
        roots: where sysfs is.
        resolve_path: finds the stack under a loop device's backing file.
    """
    kind = _kind(folder)
    observation = Observation()
    observation.read("size_bytes", lambda: read_int(folder / "size") * SECTOR_BYTES)
    observation.read("major_minor", lambda: read_text(folder / "dev"))
    observation.read("model", lambda: _model(folder, kind), "this level has no model")
    observation.read("serial", lambda: _serial(folder, kind), "this level has no serial number")
    copies, reason = _redundancy(folder, kind)
    observation.put("redundancy", copies, reason)
    if kind == "partition":
        observation.lack("a partition uses its disk's queue", "queue")
    else:
        observation.put("queue", queue_facts(folder), "")
    children = tuple(_children(folder, kind, roots, resolve_path))
    return observation.build(BlockNode, kind=kind, name=folder.name, children=children)


def _kind(folder: Path) -> NodeKind:
    if (folder / "partition").exists():
        return "partition"
    inner: tuple[tuple[str, NodeKind], ...] = (
        ("dm", "device_mapper"),
        ("md", "md"),
        ("loop", "loop"),
    )
    for name, kind in inner:
        if (folder / name).is_dir():
            return kind
    by_name = (kind for pattern, kind in _KINDS_BY_NAME if pattern.fullmatch(folder.name))
    return next(by_name, "unknown")


def _model(folder: Path, kind: NodeKind) -> str | None:
    if kind == "device_mapper":
        return read_text(folder / "dm/name")
    if kind == "md":
        return f"{read_text(folder / 'md/level')} of {read_text(folder / 'md/raid_disks')} devices"
    if kind == "loop":
        return f"file {read_text(folder / 'loop/backing_file')}"
    if kind == "virtio":
        return "virtio disk"
    if kind == "scsi":
        device = folder / "device"
        return f"{read_text(device / 'vendor')} {read_text(device / 'model')}"
    return None


def _serial(folder: Path, kind: NodeKind) -> str | None:
    if kind == "virtio":
        return read_text(folder / "serial") or None
    if kind == "scsi":
        # SPC-4, Unit Serial Number page 80h: a header of four bytes, then text.
        page = (folder / "device/vpd_pg80").read_bytes()
        return page[4:].decode("ascii", "replace").strip(" \0") or None
    return None


def _redundancy(folder: Path, kind: NodeKind) -> tuple[float | None, str]:
    if kind == "md":
        return md_redundancy(folder)
    if kind == "device_mapper":
        return dm_redundancy(folder)
    return 1.0, ""


def _children(
    folder: Path, kind: NodeKind, roots: Roots, resolve_path: ResolvePath
) -> Iterator[BlockNode]:
    if kind == "partition":
        yield block_node(folder.parent, roots, resolve_path)
    elif kind in ("device_mapper", "md"):
        for slave in sorted((folder / "slaves").glob("*")):
            yield block_node(slave.resolve(), roots, resolve_path)
    elif kind == "loop":
        below = _under_loop(folder, roots)
        if below is not None:
            yield block_node(below, roots, resolve_path)
        elif backing := resolve_path(Path(read_text(folder / "loop/backing_file"))):
            yield backing
    elif kind in ("namespace", "path"):
        yield from _namespace_children(folder, roots, resolve_path)


def _under_loop(folder: Path, roots: Roots) -> Path | None:
    """Return the device behind a loop device, or the one that holds its file, if it has one.

    A path may be one of another mount namespace, so numbers are asked for first.
    """
    try:
        backing = read_backing(roots.top / "dev" / folder.name)
        number = backing.special or backing.device
    except OSError:  # only root may ask
        path = read_text(folder / "loop/backing_file")
        try:
            number = (roots.top / path.lstrip("/")).stat().st_rdev
        except OSError:
            return None
    return numbered_block_folder(major_minor(number), roots)


def _namespace_children(
    folder: Path, roots: Roots, resolve_path: ResolvePath
) -> Iterator[BlockNode]:
    if _CONTROLLER.fullmatch(folder.parent.name):
        yield controller_node(folder.parent)
        return
    # A shared namespace is in its subsystem's folder; each controller there has one path to it.
    match = NAMESPACE.fullmatch(folder.name)
    if match is None:
        return
    for controller in sorted(folder.parent.glob("nvme*")):
        if _CONTROLLER.fullmatch(controller.name):
            for path in sorted(controller.resolve().glob(f"nvme{match[1]}c*n{match[2]}")):
                yield block_node(path, roots, resolve_path)


def controller_node(folder: Path) -> BlockNode:
    """Return an NVMe controller as a leaf of the stack, from its sysfs folder."""
    observation = Observation()
    observation.read("model", lambda: read_text(folder / "model") or None)
    observation.put("serial", controller_serial(folder), "")
    observation.lack("a controller is not a block device", "major_minor", "size_bytes", "queue")
    observation.put("redundancy", 1.0, "")
    return observation.build(BlockNode, kind="controller", name=folder.name)


def controller_serial(folder: Path) -> str:
    """Return a controller's serial number, the key of records; its kernel name if it has none."""
    return text_or_empty(folder / "serial") or folder.name


def queue_facts(folder: Path) -> QueueFacts:
    queue = folder / "queue"
    numbers = {
        "nr_requests": "nr_requests",
        "max_sectors_kb": "max_sectors_kb",
        "read_ahead_kb": "read_ahead_kb",
        "wbt_lat_us": "wbt_lat_usec",
        "logical_block_bytes": "logical_block_size",
        "physical_block_bytes": "physical_block_size",
    }
    observation = Observation()
    for key, name in numbers.items():
        observation.read(key, partial(read_int, queue / name))
    observation.read("scheduler", lambda: bracketed(read_text(queue / "scheduler")))
    observation.read("write_cache", lambda: read_text(queue / "write_cache"))
    observation.read("rotational", lambda: read_int(queue / "rotational") == 1)
    # The kernel shows a mask: 511 means multiples of 512 bytes.
    observation.read("dma_alignment_bytes", lambda: read_int(queue / "dma_alignment") + 1)
    count = sum(1 for _ in folder.glob("mq/*"))
    observation.put("hardware_queues", count or None, "it has no multi-queue folder")
    return observation.build(QueueFacts)


def walk(node: BlockNode) -> Iterator[BlockNode]:
    """Yield a node and everything under it, from the top down."""
    yield node
    for child in node.children:
        yield from walk(child)


def is_virtual(stack: BlockNode) -> bool:
    return any(
        node.kind == "virtio"
        or node.name.startswith("xvd")
        or (node.model or "").removeprefix("ATA").lstrip().startswith(_VIRTUAL_MODELS)
        for node in walk(stack)
        if node.kind not in ("device_mapper", "loop")
    )


def controllers_in(stack: BlockNode | None) -> Sequence[BlockNode]:
    """Return the NVMe controllers of a stack in order, each kernel name once."""
    nodes = [] if stack is None else [node for node in walk(stack) if node.kind == "controller"]
    return list({node.name: node for node in nodes}.values())


def lowest_devices(stack: BlockNode) -> tuple[str, ...]:
    """Return the names of the lowest whole block devices of a stack in order, each once."""
    return tuple(dict.fromkeys(_lowest(stack)))


def _lowest(node: BlockNode) -> Iterator[str]:
    below = [child for child in node.children if child.kind != "controller"]
    if not below and (node.major_minor is not None or node.kind == "path"):
        yield node.name
    for child in below:
        yield from _lowest(child)


def find_stack(
    mount: Mount, mounts: Sequence[Mount], roots: Roots = LIVE
) -> tuple[BlockNode | None, str]:
    """Return the block stack under a mount, or ``None`` and the reason.

    A network file system gives one node without children. An overlay gives the stack under its
    upper folder, if that folder is visible from here.
    """
    if mount.category == "memory":
        return None, f"{mount.type} is memory: there is no block device under it"
    if mount.category == "network":
        return _network_node(mount), ""
    if mount.category == "overlay":
        return _overlay_stack(mount, mounts, roots)
    if mount.type == "btrfs":
        return _btrfs_stack(mount, mounts, roots)
    return _device_stack(mount, mounts, roots)


def _device_stack(
    mount: Mount, mounts: Sequence[Mount], roots: Roots
) -> tuple[BlockNode | None, str]:
    if mount.major_minor.startswith(_UNNAMED_MAJOR):
        return None, f"sysfs does not show which devices {mount.type} uses"
    folder = numbered_block_folder(mount.major_minor, roots)
    if folder is None:
        return None, f"sysfs shows no block device {mount.major_minor} (is /sys hidden here?)"
    return _node(folder, mounts, roots), ""


def device_stack(folder: Path, roots: Roots = LIVE) -> BlockNode:
    """Return a block device and everything under it, by its folder in sysfs.

    What is under a loop device's file is found only if this process's mounts can be read.
    """
    try:
        mounts = read_mounts(roots)
    except OSError:
        mounts = ()
    return _node(folder, mounts, roots)


def _node(folder: Path, mounts: Sequence[Mount], roots: Roots) -> BlockNode:
    def stack_of_file(path: Path) -> BlockNode | None:
        mount = find_mount(path, mounts)
        return None if mount is None else find_stack(mount, mounts, roots)[0]

    return block_node(folder, roots, stack_of_file)


def _network_node(mount: Mount) -> BlockNode:
    observation = Observation()
    observation.lack(
        "its devices are the server's",
        *("major_minor", "size_bytes", "model", "serial", "redundancy", "queue"),
    )
    return observation.build(BlockNode, kind="network", name=mount.source)


def _overlay_stack(
    mount: Mount, mounts: Sequence[Mount], roots: Roots
) -> tuple[BlockNode | None, str]:
    below, reason = upper_mount(mount, mounts, roots)
    return (None, reason) if below is None else find_stack(below, mounts, roots)


def upper_mount(
    mount: Mount, mounts: Sequence[Mount], roots: Roots = LIVE
) -> tuple[Mount | None, str]:
    """Return the mount that an overlay's upper folder lies on, or ``None`` and the reason."""
    upper = mount.option("upperdir")
    if upper is None:
        return None, "the overlay has no upper folder, so it can't be written"
    if not upper.startswith("/"):
        return None, f"the overlay names its upper folder relatively ({upper})"
    try:
        # Inside a container the path is the host's: without this check, a folder mounted at the
        # same place would be mistaken for it.
        (roots.top / upper.lstrip("/")).stat()
    except OSError as error:
        return None, f"the overlay's upper folder can't be seen from here: {error.strerror}"
    below = find_mount(Path(upper), mounts)
    if below is None or below.category == "overlay":
        return None, "the overlay's upper folder is on an overlay itself"
    return below, ""


def _btrfs_stack(
    mount: Mount, mounts: Sequence[Mount], roots: Roots
) -> tuple[BlockNode | None, str]:
    source = _device_folder(mount.source, roots)
    if source is None:
        return None, f"sysfs shows no block device {mount.source}"
    pool = next(
        (link.parent.parent for link in roots.sys.glob(f"fs/btrfs/*/devices/{source.name}")), None
    )
    if pool is None:
        return _node(source, mounts, roots), ""
    observation = Observation()
    copies, reason = btrfs_redundancy(pool)
    observation.put("redundancy", copies, reason)
    observation.put("model", "btrfs", "")
    observation.lack("a pool does not have this", "major_minor", "size_bytes", "serial", "queue")
    devices = sorted((pool / "devices").glob("*"))
    children = tuple(_node(device.resolve(), mounts, roots) for device in devices)
    return observation.build(BlockNode, kind="pool", name=pool.name, children=children), ""


def _device_folder(device: str, roots: Roots) -> Path | None:
    """Return the sysfs folder of a device node; device-mapper names need the node itself."""
    folder = block_folder(Path(device).name, roots)
    if folder is not None:
        return folder
    try:
        number = Path(device).stat().st_rdev
    except OSError:
        return None
    return numbered_block_folder(major_minor(number), roots)


@dataclass(frozen=True, slots=True)
class SystemDrives:
    """What the running system needs: root, /boot, the EFI system partition, and swap.

    ``controllers`` are NVMe controllers by name; ``disks`` maps every whole disk to what it holds.
    ``unknown`` is what could not be determined. ``hidden`` is true if that is only the folder that
    an overlay at ``/`` writes to, as in a container. ``unclear`` maps each disk, and each
    controller, whose partition table can't be read to the reason.
    """

    controllers: frozenset[str]
    unknown: str | None
    disks: Mapping[str, str] = field(default_factory=dict)
    hidden: bool = False
    unclear: Mapping[str, str] = field(default_factory=dict)

    def holds(self, controller: str) -> bool | None:
        """Return whether a controller's drive holds one of them, ``None`` if unknown."""
        if controller in self.controllers:
            return True
        return None if self.unknown or controller in self.unclear else False


def system_drives(roots: Roots = LIVE) -> SystemDrives:
    """Return the drives under root, /boot, the EFI system partition and the swap spaces.

    An EFI system partition counts on every disk, mounted or not. Reading the partition tables of
    disks with partitions needs the right to open them.
    """
    disks: dict[str, str] = {}
    controllers: set[str] = set()
    unknown: list[str] = []
    unclear: dict[str, str] = {}
    for name, stack, reason in system_stacks(roots):
        if stack is None and reason:
            unknown.append(f"the drive that holds {name} is unknown: {reason}")
        for node in [] if stack is None else walk(stack):
            if node.kind == "controller":
                controllers.add(node.name)
            elif node.kind not in ("partition", "network", "pool"):
                disks.setdefault(node.name, name)
    is_hidden = unknown == [f"the drive that holds root is unknown: {_hidden_root(roots)}"]
    for disk, is_held, reason in _efi_disks(roots):
        names = [node.name for node in controllers_in(_node(disk, (), roots))]
        if is_held:
            disks.setdefault(disk.name, EFI_PARTITION)
            controllers.update(names)
        elif reason:
            unclear.update(dict.fromkeys((disk.name, *names), reason))
    return SystemDrives(
        controllers=frozenset(controllers),
        unknown=unknown[-1] if unknown else None,
        disks=disks,
        hidden=is_hidden,
        unclear=unclear,
    )


def _hidden_root(roots: Roots) -> str | None:
    """Return why the folder that an overlay at ``/`` writes to can't be found, if that is so."""
    try:
        mounts = read_mounts(roots)
    except OSError:
        return None
    root = find_mount(Path("/"), mounts)
    is_overlay = root is not None and root.category == "overlay"
    return upper_mount(root, mounts, roots)[1] if root is not None and is_overlay else None


def _efi_disks(roots: Roots) -> Iterator[tuple[Path, bool, str]]:
    """Yield each disk with partitions, whether one is an EFI system partition, or why unknown."""
    for entry in sorted((roots.sys / "block").glob("*")):
        folder = entry.resolve()
        if not any((each / "partition").exists() for each in folder.glob(f"{folder.name}*")):
            continue
        try:
            yield folder, holds_efi_partition(folder, roots), ""
        except (OSError, ValueError) as error:
            yield folder, False, f"its partition table can't be read: {explain(error)}"


def holds_efi_partition(folder: Path, roots: Roots = LIVE) -> bool:
    """Return whether a disk has an EFI system partition, mounted or not.

    The partition table is read from the disk, or if that is not permitted, from udev's database.

    Raises:
        OSError: neither can be read.
        ValueError: sysfs does not show the size of its blocks.
    """
    try:
        block_bytes = read_int(folder / "queue/logical_block_size")
        with (roots.top / "dev" / folder.name.replace("!", "/")).open("rb") as disk:
            return has_efi_partition(disk, block_bytes)
    except OSError:
        parts = [each for each in folder.glob(f"{folder.name}*") if (each / "partition").exists()]
        texts = [(roots.top / "run/udev/data" / f"b{read_text(e / 'dev')}") for e in parts]
        try:
            return any(EFI_TYPE in read_text(each) for each in texts)
        except OSError:
            pass
        raise


def system_stacks(roots: Roots = LIVE) -> Iterator[tuple[str, BlockNode | None, str]]:
    """Yield ``root``, what boots, and each ``swap <path>`` with its stack, or ``None`` and why.

    A root in memory has no stack and no reason.
    """
    try:
        mounts = read_mounts(roots)
        swaps = (roots.proc / "swaps").read_text(encoding="utf-8").splitlines()[1:]
    except OSError as error:
        yield "root and swap", None, explain(error)
        return
    root = find_mount(Path("/"), mounts)
    if root is None:
        yield "root", None, "mountinfo shows no root"
    else:
        yield "root", *_system_stack(root, mounts, roots)
    for mount in mounts:
        if str(mount.mount_point) in _BOOT_FOLDERS and mount.type != "autofs":
            yield str(mount.mount_point), *_system_stack(mount, mounts, roots)
    for line in swaps:
        path = Path(unescape(line.split()[0]))
        yield f"swap {path}", *_swap_stack(path, line.split()[1], mounts, roots)


def _system_stack(
    mount: Mount, mounts: Sequence[Mount], roots: Roots
) -> tuple[BlockNode | None, str]:
    below = upper_mount(mount, mounts, roots)[0] if mount.category == "overlay" else mount
    if below is not None and below.category == "memory":
        return None, ""
    return find_stack(mount, mounts, roots)


def _swap_stack(
    path: Path, kind: str, mounts: Sequence[Mount], roots: Roots
) -> tuple[BlockNode | None, str]:
    if kind == "file":
        mount = find_mount(path, mounts)
        return (None, "no mount holds it") if mount is None else find_stack(mount, mounts, roots)
    folder = _device_folder(str(path), roots)
    if folder is None:
        return None, "sysfs shows no such block device"
    return _node(folder, mounts, roots), ""
