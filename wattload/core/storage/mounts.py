"""Mounts: the file system of a path and its category (``/proc/self/mountinfo``)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wattload.core.record.target import FileSystemFacts
from wattload.core.sysfs import LIVE, Observation, Roots

Category = Literal["local", "memory", "overlay", "network", "fuse", "unknown"]

_MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs", "devtmpfs"})
_OVERLAY = frozenset({"overlay", "aufs"})
_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "ceph", "gpfs", "beegfs", "beegfs_nodev"}
    | {"9p", "virtiofs", "glusterfs", "afs", "orangefs", "panfs", "wekafs"}
    | {"fuse.glusterfs", "fuse.ceph", "fuse.sshfs", "fuse.s3fs", "fuse.juicefs", "fuse.rclone"}
)
_LOCAL = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "bcachefs", "zfs", "f2fs", "jfs", "nilfs2", "vfat"}
    | {"exfat", "ntfs3", "gfs2", "ocfs2", "erofs", "squashfs", "iso9660", "udf"}
)
_ESCAPE = re.compile(r"\\([0-7]{3})")

_CATEGORIES: tuple[tuple[Category, frozenset[str]], ...] = (
    ("memory", _MEMORY),
    ("overlay", _OVERLAY),
    ("network", _NETWORK),
    ("local", _LOCAL),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of ``mountinfo`` (Linux ``Documentation/filesystems/proc.rst``, section 3.5).

    ``options`` are the mount's, then the file system's. ``major_minor`` is the file system's
    device, ``0:n`` if it has none. ``root`` is the mounted folder within the file system.
    """

    mount_id: int
    parent_id: int
    major_minor: str
    root: str
    mount_point: Path
    type: str
    source: str
    options: tuple[str, ...]

    @property
    def category(self) -> Category:
        """The category of the file system's type, as far as it matters for a measurement."""
        for category, types in _CATEGORIES:
            if self.type in types:
                return category
        return "fuse" if self.type.startswith("fuse") else "unknown"

    def option(self, name: str) -> str | None:
        """Return the value of the option ``name=value``, or ``None``."""
        prefix = f"{name}="
        found = (option for option in self.options if option.startswith(prefix))
        return next((option.removeprefix(prefix) for option in found), None)


def read_mounts(roots: Roots = LIVE) -> tuple[Mount, ...]:
    """Return the mounts of this process's namespace, in the order of their creation."""
    text = (roots.proc / "self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    return tuple(_parse(line) for line in text.splitlines() if line)


def _parse(line: str) -> Mount:
    own, _, file_system = line.partition(" - ")
    mount_id, parent_id, major_minor, root, mount_point, options = own.split(" ")[:6]
    kind, source, super_options = [*file_system.split(" "), ""][:3]
    return Mount(
        mount_id=int(mount_id),
        parent_id=int(parent_id),
        major_minor=major_minor,
        root=unescape(root),
        mount_point=Path(unescape(mount_point)),
        type=kind,
        source=unescape(source),
        options=tuple(dict.fromkeys([*options.split(","), *unescape(super_options).split(",")])),
    )


def unescape(text: str) -> str:
    r"""Return a name with the octal escapes of ``/proc`` decoded (``\040`` is a space)."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def find_mount(path: Path, mounts: Sequence[Mount]) -> Mount | None:
    """Return the mount of ``path`` (absolute, without links).

    Walks down like the kernel, from the root to the first child of the current mount that covers
    the path. A mount hidden by another one is therefore never chosen, however long its path.
    """
    current = _root(mounts)
    while current is not None:
        below = [
            mount
            for mount in mounts
            if mount.parent_id == current.mount_id
            and mount is not current
            and path.is_relative_to(mount.mount_point)
        ]
        if not below:
            break
        current = min(below, key=lambda mount: len(mount.mount_point.parts))
    return current


def _root(mounts: Sequence[Mount]) -> Mount | None:
    ids = {mount.mount_id for mount in mounts}
    for mount in mounts:
        topmost = mount.parent_id not in ids or mount.parent_id == mount.mount_id
        if mount.mount_point == Path("/") and topmost:
            return mount
    return None


def is_on_root(mount: Mount, mounts: Sequence[Mount]) -> bool:
    """Return whether the mount shows the same file system as ``/`` (a bind mount does too)."""
    root = find_mount(Path("/"), mounts)
    if root is None:
        return False
    # Each btrfs subvolume mount has its own number, so the source device is compared.
    same_pool = mount.type == root.type == "btrfs" and mount.source == root.source
    return same_pool or mount.major_minor == root.major_minor


def file_system_facts(path: Path, mount: Mount, *, is_root: bool) -> FileSystemFacts:
    """Return the record's facts about the file system at ``path``, sizes in bytes."""
    observation = Observation()
    try:
        sizes = os.statvfs(path)
    except OSError as error:
        observation.lack(f"statvfs: {error.strerror}", "total_bytes", "block_bytes")
    else:
        observation.put("total_bytes", sizes.f_frsize * sizes.f_blocks, "")
        observation.put("block_bytes", sizes.f_bsize, "")
    return observation.build(
        FileSystemFacts,
        category=mount.category,
        type=mount.type,
        source=mount.source,
        mount_point=str(mount.mount_point),
        mount_options=mount.options,
        is_root=is_root,
    )
