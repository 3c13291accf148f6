"""From a mount to the block stack under it, and the controllers that the running system needs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattload.core.blockstack import block_node, controllers_in
from wattload.core.mounts import Mount, find_mount, read_mounts, unescape
from wattload.core.record.target import BlockNode
from wattload.core.redundancy import btrfs_redundancy
from wattload.core.sysfs import (
    LIVE,
    Observation,
    Roots,
    block_folder,
    explain,
    numbered_block_folder,
)

_UNNAMED_MAJOR = "0:"


def find_stack(
    mount: Mount, mounts: Sequence[Mount], roots: Roots = LIVE
) -> tuple[BlockNode | None, str]:
    """Return the block stack under a mount, or ``None`` and the reason.

    A network file system gives one node without children. An overlay gives the stack under its
    upper folder, where that folder can be seen from here.
    """
    if mount.category == "memory":
        return None, f"{mount.type} is memory: no block device lies under it"
    if mount.category == "network":
        return _network_node(mount), ""
    if mount.category == "overlay":
        return _overlay_stack(mount, mounts, roots)
    if mount.type == "btrfs":
        return _btrfs_stack(mount, mounts, roots)
    return _plain_stack(mount, mounts, roots)


def _plain_stack(
    mount: Mount, mounts: Sequence[Mount], roots: Roots
) -> tuple[BlockNode | None, str]:
    if mount.major_minor.startswith(_UNNAMED_MAJOR):
        return None, f"{mount.type} does not show in sysfs which devices it uses"
    folder = numbered_block_folder(mount.major_minor, roots)
    if folder is None:
        return None, f"sysfs shows no block device {mount.major_minor} (is /sys hidden here?)"
    return _node(folder, mounts, roots), ""


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
        return None, "the overlay has no upper folder: nothing can be written to it"
    if not upper.startswith("/"):
        return None, f"the overlay names its upper folder relatively ({upper})"
    try:
        # Seen from inside a container the path is the host's: without this look a folder mounted
        # at the same place would be taken for it.
        (roots.top / upper.lstrip("/")).stat()
    except OSError as error:
        return None, f"the overlay's upper folder can't be seen from here: {error.strerror}"
    below = find_mount(Path(upper), mounts)
    if below is None or below.category == "overlay":
        return None, "the overlay's upper folder lies on an overlay itself"
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
    observation.lack("a pool has none of its own", "major_minor", "size_bytes", "serial", "queue")
    devices = sorted((pool / "devices").glob("*"))
    children = tuple(_node(device.resolve(), mounts, roots) for device in devices)
    return observation.build(BlockNode, kind="pool", name=pool.name, children=children), ""


def _device_folder(device: str, roots: Roots) -> Path | None:
    """Return the sysfs folder of a device node's path; names of device mapper need the node."""
    folder = block_folder(Path(device).name, roots)
    if folder is not None:
        return folder
    try:
        number = Path(device).stat().st_rdev
    except OSError:
        return None
    return numbered_block_folder(f"{os.major(number)}:{os.minor(number)}", roots)


@dataclass(frozen=True, slots=True)
class SystemDrives:
    """The controllers that hold root or swap; ``unknown`` says what could not be found out."""

    controllers: frozenset[str]
    unknown: str | None

    def holds(self, controller: str) -> bool | None:
        """Return whether root or swap lies on it, ``None`` where that can't be said."""
        if controller in self.controllers:
            return True
        return None if self.unknown else False


def system_drives(roots: Roots = LIVE) -> SystemDrives:
    """Return the NVMe controllers under the root file system and the swap spaces."""
    found: set[str] = set()
    unknown: str | None = None
    for name, stack, reason in system_stacks(roots):
        found.update(node.name for node in controllers_in(stack))
        if stack is None and reason:
            unknown = f"what holds {name} is not known: {reason}"
    return SystemDrives(frozenset(found), unknown)


def system_stacks(roots: Roots = LIVE) -> Iterator[tuple[str, BlockNode | None, str]]:
    """Yield ``root`` and each ``swap <path>`` with the stack under it, or ``None`` and why."""
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
        yield "root", *find_stack(root, mounts, roots)
    for line in swaps:
        path = Path(unescape(line.split()[0]))
        yield f"swap {path}", *_swap_stack(path, line.split()[1], mounts, roots)


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
