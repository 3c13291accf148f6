"""The block stack under a file system: dm, md, partition, namespace, controller (``/sys``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from wattload.core.record.target import BlockNode, NodeKind, QueueFacts
from wattload.core.redundancy import dm_redundancy, md_redundancy
from wattload.core.sysfs import (
    SECTOR_BYTES,
    Observation,
    Roots,
    bracketed,
    read_int,
    read_text,
)

ResolvePath = Callable[[Path], BlockNode | None]
"""Returns the stack under a file's file system: what a loop device's backing file lies on."""

_CONTROLLER = re.compile(r"nvme\d+")
_NAMESPACE = re.compile(r"nvme(\d+)n(\d+)")
_PATH = re.compile(r"nvme\d+c\d+n\d+")
_KINDS_BY_NAME: tuple[tuple[re.Pattern[str], NodeKind], ...] = (
    (_PATH, "path"),
    (_NAMESPACE, "namespace"),
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
"""How hypervisors and clouds name the disks they make up; drives passed through keep their own."""


def block_node(folder: Path, roots: Roots, resolve_path: ResolvePath) -> BlockNode:
    """Return a block device and all that lies under it.

    Args:
        folder: its sysfs folder, links resolved.
        roots: where sysfs is.
        resolve_path: what to ask for the stack under a loop device's backing file.
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
        backing = resolve_path(Path(read_text(folder / "loop/backing_file")))
        if backing is not None:
            yield backing
    elif kind in ("namespace", "path"):
        yield from _namespace_children(folder, roots, resolve_path)


def _namespace_children(
    folder: Path, roots: Roots, resolve_path: ResolvePath
) -> Iterator[BlockNode]:
    if _CONTROLLER.fullmatch(folder.parent.name):
        yield controller_node(folder.parent)
        return
    # A shared namespace stands in its subsystem's folder; each controller there has one path to it.
    match = _NAMESPACE.fullmatch(folder.name)
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
    observation.lack("a controller is no block device", "major_minor", "size_bytes", "queue")
    observation.put("redundancy", 1.0, "")
    return observation.build(BlockNode, kind="controller", name=folder.name)


def controller_serial(folder: Path) -> str:
    """Return a controller's serial number, the key of records; its kernel name if it has none."""
    try:
        return read_text(folder / "serial") or folder.name
    except OSError:
        return folder.name


def queue_facts(folder: Path) -> QueueFacts:
    """Return the settings of a block device's request queue."""
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
    for field, name in numbers.items():
        observation.read(field, partial(read_int, queue / name))
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
    """Return whether a disk that a hypervisor makes up lies anywhere in the stack."""
    return any(
        node.kind == "virtio"
        or node.name.startswith("xvd")
        or (node.model or "").startswith(_VIRTUAL_MODELS)
        for node in walk(stack)
        if node.kind not in ("device_mapper", "loop")
    )


def controllers_in(stack: BlockNode | None) -> Sequence[BlockNode]:
    """Return the NVMe controllers of a stack, each kernel name once, in its order."""
    nodes = [] if stack is None else [node for node in walk(stack) if node.kind == "controller"]
    return list({node.name: node for node in nodes}.values())
