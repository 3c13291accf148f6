"""What else uses a drive: devices over it, mounts, exports to other hosts, and processes.

The kernel grants a drive exclusively although others write to it that did not ask for that: loop
devices over it, exports over a network, and programs such as ``dd`` or a virtual machine. Devices
and exports are in sysfs and configfs. A process shows the open files of each thread, also those
that it gave to io_uring, and its mappings, which outlive their descriptors. All are compared by
device number or by device and inode number: a path may be that of another mount namespace, or no
longer be right.

A PID namespace shows its own processes only, so one that is not the host's hides others. Process 1
of the host counts as no user where it can't be looked into, as from a service with fewer rights.
A descriptor on its way through a socket is not seen.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import stat
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from wattload.core.processes import ancestry, sees_all_processes
from wattload.core.storage.file_system import Mount, read_mounts
from wattload.core.storage.loop_devices import Backing, read_backing
from wattload.core.storage.raw_device import partitions
from wattload.core.sysfs import LIVE, Roots, read_text, text_or_empty

_ROOT_UID = 0
_SHARED = re.compile(rb"\n0*([0-9a-f]+)-0*([0-9a-f]+) ...s \S+ (\S+ [1-9]\d*) ")
"""A shared mapping in ``maps`` of proc_pid_maps(5): its range, and its file's device and inode.

Of a block device they are those of its node; ``map_files`` leads to the device.
"""
_REGISTERED = re.compile(r"^ *\d+: (.+)$", re.MULTILINE)
"""A file that io_uring holds, in ``fdinfo`` of its descriptor: its name, of late its path."""
_HAS_ENDED = (errno.ENOENT, errno.ESRCH, errno.EINVAL)
"""What procfs answers of a process that is gone, or is ending (``mountinfo``)."""
_LONGEST_LOOK_S = 1.0
"""For how long udev, or ``losetup --find``, may open a drive without being its user."""
_LOOPS_HIDDEN = "what other loop devices are over"
_EXPORTS = (
    ("nvmet", "nvmet/subsystems/*/namespaces/*/device_path"),
    ("nvmet", "nvmet/subsystems/*/passthru/device_path"),
    ("LIO", "target/core/*/*/info"),
    ("a USB gadget", "usb_gadget/*/functions/mass_storage.*/lun.*/file"),
)
"""Who exports a file or device, and which file in configfs names it."""
_EXPORTED = re.compile(r"(?:^|File: |UDEV PATH: )(/\S+)")
_EXPORTERS = ("nvmet", "target_core_mod", "usb_f_mass_storage")
"""The modules that do it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """What is looked for: a disk with its partitions, and the file behind a loop device.

    ``blocks`` maps the device numbers of disk and partitions to their folders in sysfs, the disk
    first. ``characters`` are the numbers of the character devices that reach the same blocks,
    ``controllers`` the names of its NVMe controllers.
    """

    blocks: Mapping[int, Path]
    characters: frozenset[int]
    controllers: frozenset[str]
    file: tuple[int, int] | None

    @property
    def name(self) -> str:
        return next(iter(self.blocks.values())).name

    def is_it(self, found: os.stat_result) -> bool:
        if stat.S_ISBLK(found.st_mode):
            return found.st_rdev in self.blocks
        if stat.S_ISCHR(found.st_mode):
            return found.st_rdev in self.characters
        return (found.st_dev, found.st_ino) == self.file

    def is_named(self, path: str) -> bool:
        """Return whether a path leads to it here, or may do so in another mount namespace."""
        is_of_its_name = Path(path).name in (
            {each.name for each in self.blocks.values()} | self.controllers
        )
        try:
            found = Path(path).stat()
        except OSError:
            return is_of_its_name
        return self.is_it(found) or (is_of_its_name and not stat.S_ISREG(found.st_mode))


@dataclass(slots=True)
class Users:
    """What uses a drive, each as a clause, and what can't be seen from here."""

    mounts: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)


def find_users(
    folder: Path, controllers: frozenset[str], file: tuple[int, int] | None, roots: Roots = LIVE
) -> Users:
    """Return what uses a drive, as far as it can be seen from here.

    This process and those that it started are left out. ``folder`` is the disk's in sysfs;
    ``controllers`` and ``file`` are those of ``Drive``.

    Raises:
        OSError: sysfs or this process's mounts can't be read.
        ValueError: sysfs shows no device numbers.
    """
    characters = [
        roots.sys / "class/nvme-generic" / folder.name.replace("nvme", "ng") / "dev",
        *folder.glob("device/scsi_generic/*/dev"),
        *folder.glob("device/bsg/*/dev"),
    ]
    drive = Drive(
        blocks=_blocks(folder),
        characters=frozenset(_number(read_text(each)) for each in characters if each.exists()),
        controllers=controllers,
        file=file,
    )
    users = Users()
    if not (roots.sys / "block" / drive.name).exists():
        users.hidden.append("block devices of this host")
    words = _devices_above(drive, users, roots)
    users.mounts += [f"{each}; unmount it" for each in _mounted(read_mounts(roots), words)]
    _note_exports(drive, users, roots)
    _note_processes(drive, words, users, roots)
    return users


def _blocks(folder: Path) -> dict[int, Path]:
    places = (folder, *(each.folder for each in partitions(folder)))
    return {_number(read_text(each / "dev")): each for each in places}


def _number(text: str) -> int:
    major, minor = text.split(":")
    return os.makedev(int(major), int(minor))


def _devices_above(drive: Drive, users: Users, roots: Roots) -> dict[int, str]:
    """Note the block devices over a drive at any depth; return all device numbers with words."""
    loops = list(_loops(drive, users, roots))
    words = {number: folder.name for number, folder in drive.blocks.items()}
    below = [drive.blocks]
    for blocks in below:  # it grows
        found = []
        for number, folder in blocks.items():
            for holder in sorted((folder / "holders").iterdir()):
                name = text_or_empty(holder / "dm/name")
                text = f"{holder.name} ({name})" if name else holder.name
                found.append((holder.resolve(), f"{text} over {words[number]}"))
        for loop, backing in loops:
            lower = words[backing.special] if backing.special in blocks else ""
            if backing.device in blocks:
                lower = f"a file on {words[backing.device]}"
            elif blocks is drive.blocks and backing.file == drive.file:
                lower = "the same file"
            if lower:
                start = f" from byte {backing.offset_bytes}" if backing.offset_bytes else ""
                found.append((loop, f"{loop.name}, a loop device over {lower}{start}"))
        for upper, text in found:
            numbers = _blocks(upper)
            if not numbers.keys() <= words.keys():
                words.update(dict.fromkeys(numbers, text))
                below.append(numbers)
                end = f"detach it (losetup --detach /dev/{upper.name})"
                end = end if upper.name.startswith("loop") else "stop it"
                users.others.append(f"{text} is active; {end}, or name another drive")
    return words


def _loops(drive: Drive, users: Users, roots: Roots) -> Iterator[tuple[Path, Backing]]:
    """Yield the other loop devices with what is behind them."""
    names = {each.name: number for number, each in drive.blocks.items()}
    for entry in sorted(roots.sys.glob("block/loop*/loop")):
        folder = entry.parent.resolve()
        if folder.name == drive.name:
            continue
        try:
            yield folder, read_backing(roots.top / "dev" / folder.name)
        except OSError as error:
            if error.errno == errno.ENXIO:  # it was detached meanwhile
                continue
            # Without its node there is only a path, perhaps one of another mount namespace.
            path = Path(text_or_empty(entry / "backing_file").removesuffix(" (deleted)"))
            if path.name in names:
                offset_bytes = int(text_or_empty(entry / "offset") or 0)
                special = names[path.name]
                yield folder, Backing(device=0, inode=0, special=special, offset_bytes=offset_bytes)
            elif _LOOPS_HIDDEN not in users.hidden:
                users.hidden.append(_LOOPS_HIDDEN)


def _mounted(mounts: Sequence[Mount], words: Mapping[int, str]) -> Iterator[str]:
    """Yield which of the devices are mounted, and where.

    A file system of several devices has a number of its own; its source names one of them.
    """
    names = {text.split()[0].rstrip(","): text for text in words.values()}
    for mount in mounts:
        named = names.get(mount.source.removeprefix("/dev/"))
        if text := words.get(_number(mount.major_minor)) or named:
            comma = "," if "," in text else ""
            yield f"{text}{comma} is mounted at {mount.mount_point}"


def _note_exports(drive: Drive, users: Users, roots: Roots) -> None:
    """Note which part of the kernel exports a drive, or the file behind it."""
    top = roots.sys / "kernel/config"
    is_loaded = any((roots.sys / "module" / each).exists() for each in _EXPORTERS)
    if is_loaded and not any(top.glob("*")):
        users.hidden.append("exports to other hosts, since configfs is not mounted")
    for who, pattern in _EXPORTS:
        for place in sorted(top.glob(pattern)):
            match = _EXPORTED.search(text_or_empty(place))
            if match is None or text_or_empty(place.parent / "enable") == "0":
                continue
            if drive.is_named(str(roots.top / match[1].lstrip("/"))):
                clause = f"{who} exports {match[1]} ({place.parent}); disable that first"
                users.others.append(clause)


def _note_processes(drive: Drive, words: Mapping[int, str], users: Users, roots: Roots) -> None:
    """Note which processes have a drive open or mapped, and the mounts in their namespaces."""
    own, here = os.getpid(), roots.proc / "self/ns"
    if not sees_all_processes(roots.proc):
        users.hidden.append("processes outside of this container")
    namespaces = {(here / "mnt").stat().st_ino}
    foreign: set[bytes] = set()
    unreadable = set()
    processes = [each for each in roots.proc.iterdir() if each.name.isdigit()]
    for name, folder in ((each.name, task) for each in processes for task in _tables(each)):
        if int(name) == own:
            continue
        try:
            namespace = Path(folder, "ns/mnt").stat().st_ino
            if namespace not in namespaces:
                namespaces.add(namespace)
                for text in _mounted(read_mounts(roots, Path(folder).name), words):
                    place = f"in the mount namespace of {process_name(int(name), roots)}"
                    users.mounts.append(f"{text} {place}; unmount it there")
            use, deadline_s = _use_of(folder, drive, foreign), time.monotonic() + _LONGEST_LOOK_S
            if use is not None and own in ancestry(int(name), roots.proc):
                continue
            while use is not None and time.monotonic() < deadline_s:
                time.sleep(_LONGEST_LOOK_S / 10)
                use = _use_of(folder, drive, foreign)
            if use is not None:
                who = process_name(int(name), roots)
                clause = f"{who} has it {use}; end that first"
                users.others += [clause] if clause not in users.others else []
        except PermissionError:
            unreadable.add(int(name))
        except OSError as error:
            if error.errno not in _HAS_ENDED:
                raise
    if unreadable - {1} or os.geteuid() != _ROOT_UID:
        users.hidden.append("the open files of other processes")


_syscall = ctypes.CDLL(None).syscall
_KCMP = {"x86_64": 312, "aarch64": 272}.get(os.uname().machine, -1)
_KCMP_FILES = 2
"""Of kcmp(2): 0 is the answer if two threads share their table of open files."""


def _tables(process: Path) -> list[str]:
    """Return the folder of one thread for each table of open files that a process has.

    The main thread may have ended before others, and a thread may have a table of its own. Procfs
    has a folder for every thread beside that of the process, which it does not list.
    """
    found: list[int] = []
    with suppress(OSError):
        for task in map(int, os.listdir(process / "task")):  # noqa: PTH208 - names alone
            known = {*found[:1], *found[-1:]}
            if all(_syscall(_KCMP, each, task, _KCMP_FILES, 0, 0) for each in known):
                found.append(task)
    return [str(process.parent / str(each)) for each in found] or [str(process)]


def _use_of(process: str, drive: Drive, foreign: set[bytes]) -> str | None:
    """Return how a thread could write to a drive; ``foreign`` are known files that are not it.

    The kernel shows a file that was opened for writing by the mode of its link, in ``fd`` as in
    ``map_files``.
    """
    folder = os.open(f"{process}/fd", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for name in os.listdir(folder):  # noqa: PTH208 - a descriptor
            with suppress(FileNotFoundError):
                if not os.lstat(name, dir_fd=folder).st_mode & stat.S_IWUSR:
                    continue
                found = _stat(name, folder)
                if found is not None and drive.is_it(found):
                    return "open for writing"
                if found is not None and not stat.S_IFMT(found.st_mode):  # such as io_uring
                    text = text_or_empty(Path(f"{process}/fdinfo/{name}"))
                    if any(drive.is_named(each) for each in _REGISTERED.findall(text)):
                        return "registered with io_uring, perhaps for writing"
    finally:
        os.close(folder)
    maps = b"\n" + Path(f"{process}/maps").read_bytes()
    for first, last, identity in _SHARED.findall(maps):
        link = f"{process}/map_files/{first.decode()}-{last.decode()}"
        with suppress(FileNotFoundError):
            found = None if identity in foreign else _stat(link)
            if found is None or not drive.is_it(found):
                foreign.add(identity)
            elif Path(link).lstat().st_mode & stat.S_IWUSR:
                return "mapped for writing"
    return None


def _stat(link: str, folder: int | None = None) -> os.stat_result | None:
    """Return what a link of procfs leads to, ``None`` if that refuses root, as a user's FUSE does.

    Raises:
        PermissionError: this process may not look there.
    """
    try:
        return os.stat(link, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.EPERM:  # of map_files, without CAP_SYS_ADMIN
            raise
        os.readlink(link, dir_fd=folder)
        return None


_F_OFD_GETLK = 36
_FLOCK = "hhqqi4x"
"""``struct flock`` of fcntl(2): type, whence, start, length, process."""


def lock_holder(descriptor: int) -> int | None:
    """Return the process that has locked bytes of an open file, ``None`` if there is none.

    fcntl(2): it is -1 for a lock that belongs to an open file and not to a process.
    """
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, process = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, _F_OFD_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else int(process)


def process_name(process: int, roots: Roots = LIVE) -> str:
    """Return a process in words, with its name if it can be read."""
    name = text_or_empty(roots.proc / str(process) / "comm")
    return f"process {process} ({name})" if name else f"process {process}"
