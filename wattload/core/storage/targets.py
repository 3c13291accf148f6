"""Targets: what a run reads and writes, resolved from the user's paths.

A target's facts are its file system, block stack, controllers, O_DIRECT alignment and the other
users of its devices.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from wattload.core.errors import ConfigError, TargetError
from wattload.core.host_paths import allow_writing, make_available
from wattload.core.io import DeviceIdentity
from wattload.core.record.target import BlockNode, FileSystemFacts, TargetFacts, TargetState
from wattload.core.storage.block_stack import (
    controllers_in,
    device_stack,
    find_stack,
    is_virtual,
    lowest_devices,
    system_stacks,
    upper_mount,
    walk,
)
from wattload.core.storage.file_system import (
    DirectIo,
    Mount,
    count_extents,
    device_direct_io,
    file_system_facts,
    find_direct_io,
    find_mount,
    is_on_root,
    read_mounts,
    scratch_file,
)
from wattload.core.storage.raw_device import disk_folder, read_identity
from wattload.core.sysfs import LIVE, Observation, Roots, explain
from wattload.core.units import compared_bytes, format_bytes

FEW_FILES = 100_000
"""Files whose lists take no memory to speak of."""
LEAST_FILE_BYTES = 4096
PLANNED_FILE_BYTES = 1024
"""Memory of one file in the lists of a plan: its path, name, size and shape."""

DATA_FOLDER_NAME = "wattload-data"


_ADVICE = (
    "mount its file system and name a directory there, or use target=block to overwrite a drive"
)
_NVME_CHARACTER = re.compile(r"(nvme|ng)\d+(n\d+)?")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM})
_TRIAL_BYTES = 4096


class TargetKind(StrEnum):
    """The kind of a target."""

    DIRECTORY = "directory"
    BLOCK = "block"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One place that a run reads and writes.

    ``direct_io`` is ``None`` if O_DIRECT is not available; ``direct_io_missing`` is the reason.
    ``facts`` is what the record stores: file system, block stack, controllers. ``device`` is set
    for a block device only.
    """

    index: int
    kind: TargetKind
    path: Path
    direct_io: DirectIo | None
    direct_io_missing: str | None
    facts: TargetFacts
    device: DeviceIdentity | None = None

    @property
    def is_read_only(self) -> bool:
        system = self.facts.file_system
        return system is not None and "ro" in system.mount_options

    @property
    def data_folder(self) -> Path:
        if self.kind is not TargetKind.DIRECTORY:
            raise TargetError(f"a {self.kind} target has no files")
        return self.path / DATA_FOLDER_NAME


def counting_devices(target: Target) -> tuple[str, ...]:
    """Return the devices whose counters represent a target: the lowest whole ones, each once.

    Below a multipath namespace these are its paths: the namespace itself does not count on older
    kernels (seen on 6.1: zeros after real I/O). A loop device that is a target counts for itself.
    """
    if target.kind is TargetKind.BLOCK:
        return target.facts.devices
    stack = target.facts.stack
    return () if stack is None else lowest_devices(stack)


def shared_with(
    devices: Sequence[str], own: Mount, mounts: Sequence[Mount], roots: Roots = LIVE
) -> tuple[str, ...]:
    """Return the other mount points and swap areas on the same lowest devices, each once.

    Another mount of the same file system (a bind mount) does not count. A target on the root file
    system always shares it with the running system.
    """
    return tuple(dict.fromkeys(_users(frozenset(devices), own, mounts, roots)))


def _users(
    devices: frozenset[str], own: Mount, mounts: Sequence[Mount], roots: Roots
) -> Iterator[str]:
    seen = {own.major_minor}
    for mount in mounts:
        if str(mount.mount_point) == "/" and mount.major_minor == own.major_minor:
            yield "/"
        if mount.major_minor in seen:
            continue
        seen.add(mount.major_minor)
        stack = find_stack(mount, mounts, roots)[0]
        if stack is not None and devices & set(lowest_devices(stack)):
            yield str(mount.mount_point)
    for name, stack, _ in system_stacks(roots):
        if name.startswith("swap") and stack is not None and devices & set(lowest_devices(stack)):
            yield name


def refuse_too_many_files(
    targets: Sequence[Target], *, setting: str, file_count: int, data_bytes: float
) -> None:
    """Refuse a data set that can't be on the targets, before lists of its files fill the memory.

    A run's preflight compares fewer files with the free space exactly.

    Raises:
        TargetError: it is larger than the file systems.
        ConfigError: the lists of its files need more than a quarter of this host's memory.
    """
    if file_count <= FEW_FILES:
        return
    needed_bytes = max(data_bytes, file_count * LEAST_FILE_BYTES)
    found = {
        target.path.stat().st_dev: os.statvfs(target.path)
        for target in targets
        if target.kind is TargetKind.DIRECTORY
    }
    total_bytes = sum(each.f_blocks * each.f_frsize for each in found.values())
    free_bytes = sum(each.f_bavail * each.f_frsize for each in found.values())
    if found and needed_bytes > total_bytes:
        needed, free, total = compared_bytes(needed_bytes, free_bytes, total_bytes)
        raise TargetError(
            f"{setting}={file_count} needs {needed}, but the targets have {free} free of {total}; "
            "use fewer files"
        )
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if file_count * PLANNED_FILE_BYTES > memory_bytes // 4:
        raise ConfigError(
            f"{setting}={file_count} needs {format_bytes(file_count * PLANNED_FILE_BYTES)} of "
            f"memory for the list of files, more than a quarter of {format_bytes(memory_bytes)}; "
            "use fewer files"
        )


def resolve_targets(
    paths: Sequence[str | Path],
    *,
    host: str,
    roots: Roots = LIVE,
    try_direct_io: bool = True,
    kind: TargetKind = TargetKind.DIRECTORY,
) -> tuple[Target, ...]:
    """Return a target for each directory or block device, in the given order.

    What can't be determined is ``None`` with a reason in the facts. A block device is not opened.

    Args:
        paths: existing directories, or with ``BLOCK`` the devices of whole drives.
        host: the host's name in the record.
        roots: where sysfs and proc are.
        try_direct_io: try O_DIRECT on a nameless file of a few kilobytes in each directory;
            otherwise support is unknown.
        kind: what the paths are.

    Raises:
        TargetError: no path was given, or one is given twice, missing or of another kind; or a
            block device is a partition.
    """
    if not paths:
        raise TargetError("no target was given; name a directory with target.path=/mnt/ssd")
    if kind is TargetKind.BLOCK:
        return _block_targets(paths, host=host, roots=roots)
    folders = [_directory(path) for path in paths]
    for folder in folders:
        if folders.count(folder) > 1:
            raise TargetError(f"{folder} is named twice as a target; name each directory once")
    try:
        mounts = read_mounts(roots)
    except OSError as error:
        raise TargetError(f"the mounts of this host can't be read: {explain(error)}") from error
    return tuple(
        _target(
            index,
            folder,
            find_direct_io(folder) if try_direct_io else (None, "not tried"),
            host=host,
            mounts=mounts,
            roots=roots,
        )
        for index, folder in enumerate(folders)
    )


def _block_targets(paths: Sequence[str | Path], *, host: str, roots: Roots) -> tuple[Target, ...]:
    disks = [disk_folder(path, roots) for path in paths]
    folders = [folder for _, folder in disks]
    for node, folder in disks:
        if folders.count(folder) > 1:
            raise TargetError(f"{node} is named twice as a target; name each drive once")
    return tuple(
        _block_target(index, node, folder, host=host, roots=roots)
        for index, (node, folder) in enumerate(disks)
    )


def _block_target(index: int, node: Path, folder: Path, *, host: str, roots: Roots) -> Target:
    identity = read_identity(node, folder)
    direct_io = device_direct_io(node, identity.logical_block_bytes)
    observation = Observation()
    observation.put("direct_io_memory_align_bytes", direct_io.memory_align_bytes, "")
    observation.put("direct_io_offset_align_bytes", direct_io.offset_align_bytes, "")
    observation.lack("a block device target has no file system", "file_system")
    stack = device_stack(folder, roots)
    observation.put("stack", stack, "")
    observation.put("virtual", is_virtual(stack), "")
    facts = observation.build(
        TargetFacts,
        index=index,
        host=host,
        kind=TargetKind.BLOCK.value,
        path=str(node),
        devices=(stack.name,) if stack.kind == "loop" else lowest_devices(stack),
        controllers=tuple(dict.fromkeys(node.serial or "" for node in controllers_in(stack))),
        warnings=tuple(_stack_warnings(stack)),
    )
    return Target(
        index=index,
        kind=TargetKind.BLOCK,
        path=node,
        direct_io=direct_io,
        direct_io_missing=None,
        facts=facts,
        device=identity,
    )


def _directory(path: str | Path) -> Path:
    """Return the absolute, link-free form of an existing directory."""
    try:
        folder = Path(path).expanduser().resolve(strict=True)
        mode = folder.stat().st_mode
    except FileNotFoundError as error:
        raise TargetError(f"{path} does not exist; {make_available(path)}") from error
    except (OSError, RuntimeError) as error:
        raise TargetError(f"{path} can't be used as a target: {error}") from error
    if stat.S_ISDIR(mode):
        return folder
    if stat.S_ISBLK(mode):
        raise TargetError(f"{path} is a block device; {_ADVICE}")
    if stat.S_ISCHR(mode) and _NVME_CHARACTER.fullmatch(folder.name):
        raise TargetError(
            f"{path} is an NVMe character device; name its block device (/dev/nvme0n1) with "
            "target=block, or a directory on it"
        )
    if stat.S_ISREG(mode):
        raise TargetError(f"{path} is a file; name its folder")
    raise TargetError(f"{path} is not a directory; name one")


def _target(
    index: int,
    folder: Path,
    found: tuple[DirectIo | None, str | None],
    *,
    host: str,
    mounts: Sequence[Mount],
    roots: Roots,
) -> Target:
    direct_io, direct_io_missing = found
    observation = Observation()
    alignments = ("direct_io_memory_align_bytes", "direct_io_offset_align_bytes")
    if direct_io is None:
        observation.lack(direct_io_missing or "", *alignments)
    else:
        sizes = (direct_io.memory_align_bytes, direct_io.offset_align_bytes)
        for name, value in zip(alignments, sizes, strict=True):
            observation.put(name, value, "")
    facts = _facts(index, folder, observation, host=host, mounts=mounts, roots=roots)
    return Target(
        index=index,
        kind=TargetKind.DIRECTORY,
        path=folder,
        direct_io=direct_io,
        direct_io_missing=direct_io_missing,
        facts=facts,
    )


def _facts(
    index: int,
    folder: Path,
    observation: Observation,
    *,
    host: str,
    mounts: Sequence[Mount],
    roots: Roots,
) -> TargetFacts:
    mount = find_mount(folder, mounts)
    stack: BlockNode | None = None
    warnings: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    if mount is None:
        observation.lack("no mount covers the directory", "file_system", "stack", "virtual")
    else:
        stack, reason = find_stack(mount, mounts, roots)
        file_system = file_system_facts(folder, mount, is_root=_fills_root(mount, mounts, roots))
        observation.put("file_system", file_system, "")
        observation.put("stack", stack, reason)
        observation.put("virtual", *_virtual(mount, stack))
        warnings = tuple(_warnings(file_system, stack))
        if stack is not None:
            others = shared_with(lowest_devices(stack), mount, mounts, roots)
    return observation.build(
        TargetFacts,
        index=index,
        host=host,
        kind=TargetKind.DIRECTORY.value,
        path=str(folder),
        devices=() if stack is None else lowest_devices(stack),
        controllers=tuple(dict.fromkeys(node.serial or "" for node in controllers_in(stack))),
        shared_with=others,
        warnings=warnings,
    )


def _fills_root(mount: Mount, mounts: Sequence[Mount], roots: Roots) -> bool:
    """Return whether writes to the mount use space of the root file system."""
    upper = upper_mount(mount, mounts, roots)[0] if mount.category == "overlay" else None
    return is_on_root(mount, mounts) or (upper is not None and is_on_root(upper, mounts))


def _virtual(mount: Mount, stack: BlockNode | None) -> tuple[bool | None, str]:
    if mount.category == "memory":
        return False, ""
    if mount.category == "network":
        return None, "the server's disks can't be seen from here"
    if stack is None:
        return None, "the devices under it are unknown"
    return is_virtual(stack), ""


def _warnings(system: FileSystemFacts, stack: BlockNode | None) -> Iterator[str]:
    yield from _file_system_warnings(system)
    if system.is_root:
        yield (
            "the target is on the root file system: drive counters and power include other programs"
        )
    if stack is not None:
        yield from _stack_warnings(stack)


def _stack_warnings(stack: BlockNode) -> Iterator[str]:
    nodes = list(walk(stack))
    kinds = {node.kind for node in nodes}
    if is_virtual(stack):
        yield (
            "the target is on a virtual disk: cold means guest-cold, as the hypervisor may cache"
        )
    if stack.kind == "loop":
        yield "the target is a loop device: its backing file's file system is part of every figure"
    elif "loop" in kinds:
        yield "the target is a file system in a file (loop device)"
    if "ram" in kinds:
        yield "the target's block device is memory: nothing here reaches a drive"
    if len([node for node in nodes if node.kind == "path"]) > 1:
        yield "the drive has several paths: counters are the sum over its paths"


def _file_system_warnings(system: FileSystemFacts) -> Iterator[str]:
    if system.category == "memory":
        yield (
            f"the target is {system.type}, which is memory: nothing here reaches a drive, and "
            "O_DIRECT has no effect"
        )
    elif system.category == "overlay":
        yield (
            "the target is an overlay, like a container's own files: mount the drive under test "
            "into the container and name that directory"
        )
    elif system.category == "network":
        yield f"the target is {system.type}: the network and the server are part of every figure"
    elif system.category == "fuse":
        yield f"the target is {system.type}: a program in user space is part of every figure"
    if any(option.startswith("compress") for option in system.mount_options):
        yield "the file system compresses: bytes on the drive differ from bytes written"


def check_writable(target: Target) -> None:
    """Write a few kilobytes to the target and discard them; nothing is written to a block device.

    Raises:
        TargetError: the directory is not writable, its file system is read-only or full; or this
            user may not write to the block device.
    """
    folder = target.path
    if target.kind is TargetKind.BLOCK:
        if not os.access(folder, os.R_OK | os.W_OK):
            raise TargetError(f"{folder} can't be written by user {os.geteuid()}; run as root")
        return
    try:
        with scratch_file(folder) as descriptor:
            os.write(descriptor, bytes(_TRIAL_BYTES))
            os.fsync(descriptor)
    except OSError as error:
        raise TargetError(_not_writable(target, folder, error)) from error


def _not_writable(target: Target, folder: Path, error: OSError) -> str:
    system = target.facts.file_system
    where = "" if system is None else f" ({system.type} mounted at {system.mount_point})"
    if error.errno == errno.EROFS:
        return f"{folder} is on a read-only file system{where}; mount it read-write"
    if error.errno in _FULL:
        return f"{folder} is full{where}: {error.strerror}; free space or name another target"
    if error.errno in _FORBIDDEN and os.geteuid() == 0:
        return f"{folder} is not writable, not even by root{where}; name another target"
    if error.errno in _FORBIDDEN:
        return (
            f"{folder} is not writable by user {os.geteuid()}; {allow_writing(folder)}, or name "
            "another target"
        )
    return f"{folder} can't be written{where}: {error.strerror}"


def target_state(target: Target, data_files: Sequence[Path]) -> TargetState:
    """Return the state of a target that changes during a run.

    Args:
        target: the target.
        data_files: files whose extents are counted, with one ioctl each that also writes them out.
    """
    observation = Observation()
    if target.kind is TargetKind.BLOCK:
        reason = "a block device target has no file system"
        observation.lack(reason, "free_bytes", "fill_fraction", "extents_per_file")
        return observation.build(TargetState, index=target.index)
    folder = target.data_folder.parent
    try:
        sizes = os.statvfs(folder)
    except OSError as error:
        observation.lack(f"statvfs: {error.strerror}", "free_bytes", "fill_fraction")
    else:
        used = 1 - sizes.f_bfree / sizes.f_blocks if sizes.f_blocks else None
        observation.put("free_bytes", sizes.f_frsize * sizes.f_bavail, "")
        observation.put("fill_fraction", used, "the file system reports no size")
    observation.put("extents_per_file", *_extents(target.data_folder, data_files))
    return observation.build(TargetState, index=target.index)


def _extents(folder: Path, files: Sequence[Path]) -> tuple[dict[str, int] | None, str]:
    counts: dict[str, int] = {}
    for file in files:
        name = str(file.relative_to(folder)) if file.is_relative_to(folder) else file.name
        try:
            counts[name] = count_extents(file)
        except OSError as error:
            return None, f"FIEMAP of {name}: {error.strerror}"
    return counts, ""
