"""Who may use a sampler, what it serves, and whose rights it uses for files.

The kernel identifies the users and groups that connect. A sampler that runs as root serves other
users: it reads and writes in a run's folder with the rights of that user, so that a symbolic link
there leads nowhere the user could not go. No client can change the sampler's own host settings.
"""

from __future__ import annotations

import ctypes
import grp
import os
import pwd
import re
import socket
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from wattload.core.errors import ConfigError, PowerError
from wattload.power.control.host import PowerHost

if TYPE_CHECKING:
    from wattload.power.config import PowerConfig

ROOT_UID = 0

MAX_ID = 0xFFFFFFFE
"""The next number, 2^32 - 1, means "no user" in the kernel's calls."""

_UNCHANGED = 0xFFFFFFFF
"""An id that no user has: ``setfsuid`` then returns the present id and changes nothing."""

_CREDENTIALS = struct.Struct("iII")

_SO_PEERGROUPS = 59
"""``include/uapi/asm-generic/socket.h``; Linux 4.13 and later."""

_MAX_OPTION_BYTES = 1024
"""The most that ``getsockopt`` accepts here: 256 groups. A user with more counts as in none."""

_SYS_SETGROUPS = {"x86_64": 116, "aarch64": 159, "riscv64": 159}
"""The kernel's own call affects one thread. The C library's waits until all threads have changed,
which a thread that reads a hanging drive can't do."""

_LIBRARY = ctypes.CDLL(None, use_errno=True)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")

Rights = Callable[[], AbstractContextManager[None]]
"""Grants the rights under which files are used, and nothing else: late imports may not be readable
under them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerHost(PowerHost):
    """A host, and ``runs``, the folder of the run folders: the sampler writes nowhere else.

    ``is_service`` is true if clients did not start the sampler and may have fewer rights. Only then
    do these apply: ``devices`` are the controllers it serves (``None``: all),
    ``allows_system_drive`` permits runs to set the power state of a drive with root or swap, and
    ``settings`` are the power settings that no run may choose.
    """

    runs: Path
    is_service: bool = False
    devices: frozenset[str] | None = None
    allows_system_drive: bool = False
    settings: PowerConfig | None = None

    @property
    def samples_name(self) -> str:
        """The name of this host's samples file in a run's folder."""
        return f"samples-{_UNSAFE.sub('_', self.name)}.jsonl"


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that connected; ``pid`` is 0 if it is outside this PID namespace."""

    pid: int
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def peer_of(connection: socket.socket) -> Peer:
    """Return who connected, according to the kernel (``SO_PEERCRED``, ``unix(7)``)."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid, gid, _groups_of(connection))


def _groups_of(connection: socket.socket) -> tuple[int, ...]:
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MAX_OPTION_BYTES)
    except OSError:
        return ()
    return struct.unpack(f"{len(raw) // 4}I", raw)


def open_process(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a process ends; ``None`` if it is invisible.

    The socket alone does not show this: a forked worker of the run may keep it open.
    """
    if pid <= 0:
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The users and groups that may connect, besides root and the sampler's own user."""

    uids: frozenset[int] = frozenset()
    gids: frozenset[int] = frozenset()

    @classmethod
    def named(cls, users: Sequence[str], groups: Sequence[str]) -> Self:
        """Return the access of users and groups, each given by name or number.

        Raises:
            ConfigError: a name is unknown on this host.
        """
        return cls(uids=frozenset(map(_uid, users)), gids=frozenset(map(_gid, groups)))

    def admits(self, peer: Peer) -> bool:
        """Return whether a peer may use the sampler."""
        if peer.uid in {ROOT_UID, os.geteuid(), *self.uids}:
            return True
        return not self.gids.isdisjoint((peer.gid, *peer.groups))

    @property
    def socket_mode(self) -> int:
        """Permissions of the socket: the least that let the permitted users connect."""
        if self.uids - {ROOT_UID, os.geteuid()} or len(self.gids) > 1:
            return 0o666  # a socket has one group, so the peer check decides
        return 0o660 if self.gids else 0o600

    @property
    def socket_gid(self) -> int | None:
        """The group of the socket, ``None`` to keep the sampler's own."""
        return next(iter(self.gids)) if self.socket_mode == 0o660 else None  # noqa: PLR2004

    def describe(self) -> str:
        """Return the permitted users and groups as text."""
        users = {ROOT_UID, os.geteuid(), *self.uids}
        named = [f"user {_user_name(uid)}" for uid in sorted(users)]
        return ", ".join(named + [f"group {_group_name(gid)}" for gid in sorted(self.gids)])


def _uid(user: str) -> int:
    if user.isdecimal():
        return _number(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError as error:
        raise ConfigError(f"unknown user {user!r}; give a user's name or number") from error


def _gid(group: str) -> int:
    if group.isdecimal():
        return _number(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise ConfigError(
            f"unknown group {group!r}; give a group's name or number, or create it: "
            "groupadd --system wattload"
        ) from error


def _number(text: str) -> int:
    if int(text) > MAX_ID:
        raise ConfigError(f"a user or group number must be at most {MAX_ID}, got {text}")
    return int(text)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


@contextmanager
def acting_as(peer: Peer) -> Iterator[None]:
    """Work on files with the peer's rights; does nothing if they are this process's own.

    Uses ``setfsuid(2)``, as file servers do: it affects this thread only, so a thread that reads a
    device keeps its rights. Takes about 20 us.

    Raises:
        PowerError: this process may not act for other users.
    """
    if peer.uid == os.geteuid():
        yield
        return
    own = Peer(os.getpid(), os.geteuid(), os.getegid(), tuple(os.getgroups()))
    try:
        _become(peer)
    except OSError as error:
        _become(own)
        raise PowerError(
            f"the sampler can't act for user {peer.uid}; run it as root with CAP_SETUID and "
            "CAP_SETGID, or as that user"
        ) from error
    try:
        yield
    finally:
        _become(own)


def _become(peer: Peer) -> None:
    """Switch the file rights of this thread to a peer; raises ``OSError`` if that is not permitted.

    Groups come first: after the user id has changed, the groups can't be changed any more.
    """
    if tuple(os.getgroups()) != peer.groups:
        _set_groups(peer.groups)
    for change, number in ((_LIBRARY.setfsgid, peer.gid), (_LIBRARY.setfsuid, peer.uid)):
        change(ctypes.c_uint32(number))
        if ctypes.c_uint32(change(ctypes.c_uint32(_UNCHANGED))).value != number:
            raise PermissionError(
                f"id {number} was not accepted"
            )  # setfsuid reports failure in no other way


def _set_groups(groups: Sequence[int]) -> None:
    number = _SYS_SETGROUPS.get(os.uname().machine)
    if number is None:
        os.setgroups(groups)
        return
    array = (ctypes.c_uint32 * len(groups))(*groups)
    if _LIBRARY.syscall(ctypes.c_long(number), ctypes.c_size_t(len(groups)), array) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def check_run_folder(runs: Path, run_id: str, *, uid: int | None) -> Path:
    """Return the folder of a run; with ``uid`` it must be that user's, unless ``uid`` is root.

    Raises:
        PowerError: the folder is missing, or belongs to another user.
    """
    folder = runs / run_id
    try:
        found = folder.lstat()
    except OSError as error:
        raise PowerError(
            f"run folder {folder} is not available ({error.strerror}); the sampler writes "
            f"nowhere else, so run with runs={runs}"
        ) from error
    if not stat.S_ISDIR(found.st_mode):
        raise PowerError(f"{folder} is not a run folder; the sampler writes nowhere else")
    if uid not in (None, 0, found.st_uid):
        raise PowerError(
            f"the run folder {folder} belongs to user {found.st_uid}, not to user {uid} "
            "who announces the run"
        )
    return folder


def create_samples(path: Path) -> int:
    """Create a samples file and return its descriptor.

    Raises:
        PowerError: it exists already or can't be created.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o644)
    except OSError as error:
        raise PowerError(f"the samples file {path} can't be created: {error.strerror}") from error


def read_regular(path: Path, max_bytes: int) -> str:
    """Return the text of a file that another user may have planted to block or fill this process.

    Raises:
        OSError: it can't be read, or is a link, a pipe, a device, or longer than ``max_bytes``.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    descriptor = os.open(path, flags)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - the descriptor is what was checked
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(f"{path} is longer than {max_bytes} bytes")
    return data.decode("utf-8", errors="replace")
