"""From the paths a user names to targets: file system, block stack, controllers, O_DIRECT."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from wattload.core.blockstack import controllers_in, is_virtual, walk
from wattload.core.blockstat import lowest_devices
from wattload.core.directio import find_direct_io, scratch_file
from wattload.core.errors import TargetError
from wattload.core.extents import count_extents
from wattload.core.mounts import Mount, file_system_facts, find_mount, is_on_root, read_mounts
from wattload.core.record.target import BlockNode, FileSystemFacts, TargetFacts, TargetState
from wattload.core.sharing import shared_with
from wattload.core.stack import find_stack, upper_mount
from wattload.core.sysfs import LIVE, Observation, Roots, explain
from wattload.core.target import DirectIo, Target, TargetKind

_ADVICE = "this version runs on directories: mount its file system and name a directory there"
_NVME_CHARACTER = re.compile(r"(nvme|ng)\d+(n\d+)?")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM})
_TRIAL_BYTES = 4096


def resolve_targets(
    paths: Sequence[str | Path],
    *,
    host: str,
    roots: Roots = LIVE,
    try_direct_io: bool = True,
) -> tuple[Target, ...]:
    """Return a target for each directory, in the given order.

    What can't be found out is ``None`` with a reason in the facts.

    Args:
        paths: existing directories.
        host: the host's name in the record.
        roots: where sysfs and proc are.
        try_direct_io: make a nameless file of a few kilobytes in each directory, and drop it, to
            learn whether O_DIRECT works there; otherwise that is not known.

    Raises:
        TargetError: no path was given, one is given twice, is missing, or is no directory.
    """
    if not paths:
        raise TargetError("no target was given; name a directory as target.path=/mnt/ssd")
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
            find_direct_io(folder) if try_direct_io else (None, "it was not tried"),
            host=host,
            mounts=mounts,
            roots=roots,
        )
        for index, folder in enumerate(folders)
    )


def _directory(path: str | Path) -> Path:
    """Return the absolute, link-free form of an existing directory."""
    try:
        folder = Path(path).expanduser().resolve(strict=True)
        mode = folder.stat().st_mode
    except FileNotFoundError as error:
        raise TargetError(
            f"{path} does not exist; create the directory on the drive under test, or mount it"
        ) from error
    except (OSError, RuntimeError) as error:
        raise TargetError(f"{path} can't be looked at as a target: {error}") from error
    if stat.S_ISDIR(mode):
        return folder
    if stat.S_ISBLK(mode):
        raise TargetError(f"{path} is a block device; {_ADVICE}")
    if stat.S_ISCHR(mode) and _NVME_CHARACTER.fullmatch(folder.name):
        raise TargetError(f"{path} is an NVMe character device; {_ADVICE}")
    if stat.S_ISREG(mode):
        raise TargetError(f"{path} is a file; this version runs on directories: name its folder")
    raise TargetError(f"{path} is no directory; this version runs on directories only")


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
    """Return whether what is written there takes space from the root file system."""
    upper = upper_mount(mount, mounts, roots)[0] if mount.category == "overlay" else None
    return is_on_root(mount, mounts) or (upper is not None and is_on_root(upper, mounts))


def _virtual(mount: Mount, stack: BlockNode | None) -> tuple[bool | None, str]:
    if mount.category == "memory":
        return False, ""
    if mount.category == "network":
        return None, "the server's disks can't be seen from here"
    if stack is None:
        return None, "the devices under it are not known"
    return is_virtual(stack), ""


def _warnings(system: FileSystemFacts, stack: BlockNode | None) -> Iterator[str]:
    yield from _file_system_warnings(system)
    if system.is_root:
        yield (
            "the target lies on the root file system: what else runs on this host is in the "
            "drive's counters and power"
        )
    nodes = [] if stack is None else list(walk(stack))
    kinds = {node.kind for node in nodes}
    if stack is not None and is_virtual(stack):
        yield (
            "a virtual disk lies under the target: cold means guest-cold, the host below may serve "
            "reads from its own memory"
        )
    if "loop" in kinds:
        yield "the target is a file system in a file, through a loop device"
    if "ram" in kinds:
        yield "the target's block device is memory: nothing here reaches a drive"
    if len([node for node in nodes if node.kind == "path"]) > 1:
        yield "the drive is reached by several paths: counters are the sum of its paths"


def _file_system_warnings(system: FileSystemFacts) -> Iterator[str]:
    if system.category == "memory":
        yield (
            f"the target is {system.type}, which is memory: nothing here reaches a drive, and "
            "O_DIRECT means nothing"
        )
    elif system.category == "overlay":
        yield (
            "the target is an overlay, as a container's own files are: mount the drive under test "
            "into the container and name that directory"
        )
    elif system.category == "network":
        yield f"the target is {system.type}: the network and the server are part of every figure"
    elif system.category == "fuse":
        yield f"the target is {system.type}: a program in user space is part of every figure"
    if any(option.startswith("compress") for option in system.mount_options):
        yield "the file system compresses: bytes on the drive differ from bytes written"


def check_writable(target: Target) -> None:
    """Write a few kilobytes to the target and drop them.

    Raises:
        TargetError: the directory is not writable, its file system is read-only or full.
    """
    folder = target.path
    if folder is None:
        raise TargetError(f"a {target.kind} target holds no files")
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
    if error.errno in _FORBIDDEN:
        return f"{folder} is not writable for this user; chown it, or name another target"
    return f"{folder} can't be written{where}: {error.strerror}"


def target_state(target: Target, data_files: Sequence[Path]) -> TargetState:
    """Return what of a target changes during a run.

    Args:
        target: the target.
        data_files: files whose extents are counted; one ioctl each, which writes them out.
    """
    observation = Observation()
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
