"""The file system of a path: its mount and category, what O_DIRECT needs, and a file's extents.

Mounts come from ``/proc/self/mountinfo``. Holes and unwritten blocks of a file are read without the
device, so a timed read needs files without them: FIEMAP shows them
(``Documentation/filesystems/fiemap.rst``), and writes dirty pages out first.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import mmap
import os
import re
import secrets
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wattload.core.files import choose_folder, naming
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


def read_mounts(roots: Roots = LIVE, process: str = "self") -> tuple[Mount, ...]:
    """Return the mounts of a process's namespace, in the order of their creation."""
    place = roots.proc / process / "mountinfo"
    text = place.read_text(encoding="utf-8", errors="surrogateescape")
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


_AT_EMPTY_PATH = 0x1000
_STATX_DIOALIGN = 0x2000
_STATX_BYTES = 256
_MASK_OFFSET = 0
_MEMORY_ALIGN_OFFSET = 152
_OFFSET_ALIGN_OFFSET = 156
"""``struct statx`` of Linux 6.1: ``stx_mask``, ``stx_dio_mem_align``, ``stx_dio_offset_align``."""

PROBED_ALIGNMENTS = (512, 4096)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectIo:
    """The alignments that O_DIRECT needs, in bytes, from ``statx(STATX_DIOALIGN)``.

    Without an answer from the kernel they are probed, or are the logical block
    of a device; ``found_by`` is ``statx``, ``probe`` or ``queue``.
    """

    memory_align_bytes: int
    offset_align_bytes: int
    found_by: str


@contextmanager
def scratch_file(folder: Path, flags: int = 0) -> Iterator[int]:
    """Open a new nameless file in ``folder`` for reading and writing; it is gone at the end.

    Args:
        folder: an existing directory.
        flags: further flags of ``open``, such as ``os.O_DIRECT``.

    Raises:
        OSError: the file can't be created, or not with these flags.
    """
    descriptor = _open_nameless(folder, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_nameless(folder: Path, flags: int) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    except OSError as error:
        # Some network file systems lack O_TMPFILE and answer with one of these three errors.
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT):
            raise
    name = f".wattload-probe-{secrets.token_hex(8)}"
    with choose_folder(folder) as opened:
        made = opened.create(name, os.O_RDWR, 0o600)
        try:
            return opened.update(name, os.O_RDWR | flags) if flags else os.dup(made)
        finally:
            os.close(made)
            os.unlink(name, dir_fd=opened.descriptor)


def find_direct_io(folder: Path) -> tuple[DirectIo | None, str | None]:
    """Return the alignments that O_DIRECT needs in ``folder``, or ``None`` and the reason.

    Uses ``statx(STATX_DIOALIGN)`` (Linux 6.1). If the file system does not answer, direct writes
    and reads of 512 and 4096 bytes are tried.
    """
    try:
        with scratch_file(folder) as descriptor:
            answer = statx_alignment(descriptor)
    except OSError as error:
        existing = next(filter(Path.is_file, folder.iterdir()), None)
        if error.errno != errno.EROFS or existing is None:
            return None, f"no file can be created there: {error.strerror}"
        with existing.open("rb") as file:
            answer = statx_alignment(file.fileno()) or (0, 0)
    if answer is None:
        return _probe(folder)
    memory, offset = answer
    if offset == 0:
        return None, "the file system does not support O_DIRECT (statx)"
    return DirectIo(memory_align_bytes=memory, offset_align_bytes=offset, found_by="statx"), None


def device_direct_io(node: Path, logical_block_bytes: int) -> DirectIo:
    """Return the alignments that O_DIRECT needs on a block device, which always supports it.

    Kernels before 6.11 have no answer for a device: the size of its logical blocks is enough.
    """
    descriptor = os.open(node, os.O_PATH | os.O_CLOEXEC)
    try:
        answer = statx_alignment(descriptor)
    finally:
        os.close(descriptor)
    if answer is None or not answer[1]:
        size = logical_block_bytes
        return DirectIo(memory_align_bytes=size, offset_align_bytes=size, found_by="queue")
    return DirectIo(memory_align_bytes=answer[0], offset_align_bytes=answer[1], found_by="statx")


def statx_alignment(descriptor: int) -> tuple[int, int] | None:
    """Return the (memory, offset) alignment in bytes of an open file; (0, 0) without O_DIRECT.

    ``None`` if the C library, the kernel or the file system does not support the query.
    """
    statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
    if statx is None:
        return None
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    if statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_DIOALIGN, buffer) != 0:
        return None
    mask, memory_align, offset_align = (
        int(ctypes.c_uint32.from_buffer(buffer, offset).value)
        for offset in (_MASK_OFFSET, _MEMORY_ALIGN_OFFSET, _OFFSET_ALIGN_OFFSET)
    )
    return (memory_align, offset_align) if mask & _STATX_DIOALIGN else None


def _probe(folder: Path) -> tuple[DirectIo | None, str | None]:
    try:
        with scratch_file(folder, os.O_DIRECT) as descriptor:
            if not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
                return None, "the file system ignored O_DIRECT on open without an error"
            return _smallest_alignment(descriptor)
    except OSError as error:
        return None, f"open with O_DIRECT: {error.strerror}"


def _smallest_alignment(descriptor: int) -> tuple[DirectIo | None, str | None]:
    reason = None
    with mmap.mmap(-1, 2 * max(PROBED_ALIGNMENTS)) as memory, memoryview(memory) as view:
        for size in PROBED_ALIGNMENTS:
            # Offset, length and address are multiples of the tested size and of no larger one.
            with view[size : 2 * size] as block:
                try:
                    os.pwritev(descriptor, [block], size)
                    os.preadv(descriptor, [block], size)
                except OSError as error:
                    reason = f"direct I/O of {size} bytes: {error.strerror}"
                    continue
            found = DirectIo(memory_align_bytes=size, offset_align_bytes=size, found_by="probe")
            return found, None
    return None, reason


_FS_IOC_FIEMAP = 0xC020660B
"""``_IOWR('f', 11, struct fiemap)`` of ``linux/fs.h``."""

_FIEMAP = struct.Struct("<QQIIII")
"""``struct fiemap``: start, length, flags, mapped extents, room for extents, reserved."""

_EXTENT = struct.Struct("<QQQ16xI12x")
"""``struct fiemap_extent``: logical, physical, length, 2 reserved, flags, 3 reserved."""
_RUN = struct.Struct("<QQQ?")
_FLAG_SYNC = 1
_EXTENT_LAST = 0x1
_EXTENT_UNWRITTEN = 0x800
_WHOLE_FILE = 2**64 - 1
_ROOM = 256
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NO_FIEMAP = {errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS, errno.EBADR}


@dataclass(frozen=True, slots=True)
class ExtentMap:
    """Where the bytes of a file are.

    ``unwritten_bytes`` are on no device: holes, and extents that were never written to. It is
    ``None`` if the file system can't say. ``sha256`` is the digest of the map: it changes when a
    part of the file is moved, punched out or unwritten. It is ``None`` without FIEMAP.
    """

    unwritten_bytes: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class _Run:
    """Bytes that follow each other in the file and on the device, all written to or none."""

    logical: int
    physical: int
    length: int
    is_written: bool

    def joined(self, after: _Run) -> _Run | None:
        """Return both as one run, ``None`` if the other one does not continue this one."""
        continued = (self.logical + self.length, self.physical + self.length, self.is_written)
        if continued != (after.logical, after.physical, after.is_written):
            return None
        return _Run(self.logical, self.physical, self.length + after.length, self.is_written)


def count_extents(path: Path) -> int:
    """Return the number of extents of a file; writes its dirty pages out first.

    With no room for extents the kernel only counts (``Documentation/filesystems/fiemap.rst``).

    Raises:
        OSError: the file can't be opened, or its file system has no FIEMAP.
    """
    request = bytearray(_FIEMAP.pack(0, _WHOLE_FILE, _FLAG_SYNC, 0, 0, 0))
    descriptor = os.open(path, _FLAGS)
    try:
        with naming(path):
            fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, request)
    finally:
        os.close(descriptor)
    mapped: int = _FIEMAP.unpack(request)[3]
    return mapped


def extent_map(path: Path) -> ExtentMap:
    """Return where a file's bytes are; writes its dirty pages out first.

    A file system without FIEMAP may still report holes by ``lseek(SEEK_HOLE)``. It does not know
    of extents that were never written to, so a file without holes is then unknown.

    Raises:
        OSError: the file can't be opened, or is a symbolic link.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        size_bytes = os.fstat(descriptor).st_size
        try:
            with naming(path):
                runs = list(_joined(_runs(descriptor, size_bytes)))
        except OSError as error:
            if error.errno not in _NO_FIEMAP:
                raise
            runs_bytes = sum(end - start for start, end in data_runs(descriptor, size_bytes))
            return ExtentMap((size_bytes - runs_bytes) or None, None)
    finally:
        os.close(descriptor)
    packed = (_RUN.pack(run.logical, run.physical, run.length, run.is_written) for run in runs)
    return ExtentMap(
        unwritten_bytes=size_bytes - sum(run.length for run in runs if run.is_written),
        sha256=hashlib.sha256(b"".join(packed)).hexdigest(),
    )


def _runs(descriptor: int, size_bytes: int) -> Iterator[_Run]:
    """Yield the extents in order, the last one up to the end of the file."""
    position = 0
    while position < size_bytes:
        request = bytearray(_FIEMAP.size + _ROOM * _EXTENT.size)
        _FIEMAP.pack_into(request, 0, position, size_bytes - position, _FLAG_SYNC, 0, _ROOM, 0)
        fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, request)
        count = _FIEMAP.unpack_from(request)[3]
        for number in range(count):
            place = _FIEMAP.size + number * _EXTENT.size
            logical, physical, length, flags = _EXTENT.unpack_from(request, place)
            # An answer starts with the whole extent at its position, of which a part is known.
            skipped = max(position - logical, 0)
            end = min(logical + length, size_bytes)
            if end > logical + skipped:
                is_written = not flags & _EXTENT_UNWRITTEN
                start = logical + skipped
                yield _Run(start, physical + skipped, end - start, is_written)
            position = logical + length
            if flags & _EXTENT_LAST:
                return
        if not count:
            return


def _joined(runs: Iterator[_Run]) -> Iterator[_Run]:
    """Yield runs joined where they continue each other: extents may be reported in parts."""
    last: _Run | None = None
    for run in runs:
        both = last.joined(run) if last else None
        if last and not both:
            yield last
        last = both or run
    if last:
        yield last


def data_runs(descriptor: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield where each run of data between two holes starts and ends, in bytes, by lseek(2).

    A file system without holes reports all bytes as data.
    """
    position = 0
    while position < size_bytes:
        try:
            start = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # there is no data behind this position
                raise
            return
        position = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, position
