"""Who is at the other end of the socket, and how to touch files as that user.

A sampler that runs as root serves users who are not: whatever it reads or writes in a run's folder
it does with their rights, so that a symbolic link there leads nowhere that they could not go.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from wattload.core.errors import PowerError

_CREDENTIALS = struct.Struct("iII")

_SO_PEERGROUPS = 59
"""``include/uapi/asm-generic/socket.h``; Linux 4.13 and later."""

_LONGEST_OPTION_BYTES = 1024
"""The most that ``getsockopt`` takes here: 256 groups. Who has more is served as if in none."""

_UNCHANGED = 0xFFFFFFFF
"""An id that no user has: ``setfsuid`` answers with the present one and changes nothing."""

_SYS_SETGROUPS = {"x86_64": 116, "aarch64": 159, "riscv64": 159}
"""The kernel's own call holds for one thread. The C library's waits for all of them to follow, and
one that reads a drive which hangs follows when the drive does."""

_LIBRARY = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that connected; ``pid`` is 0 where it lives outside this PID namespace."""

    pid: int
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def peer_of(connection: socket.socket) -> Peer:
    """Return who connected, as the kernel knows it (``SO_PEERCRED``, ``unix(7)``)."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid, gid, _groups_of(connection))


def open_process(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends, ``None`` if out of sight.

    The socket alone does not tell: a forked worker of the run may hold it open.
    """
    if pid <= 0:
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


@contextmanager
def acting_as(peer: Peer) -> Iterator[None]:
    """Do file work with the peer's rights; nothing to do where they are this process's own.

    By ``setfsuid(2)``, as file servers do it: it holds for this thread alone, so that a source
    that reads its device in another one keeps the right to. Some 20 us.

    Raises:
        PowerError: this process may not act for others.
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


def _groups_of(connection: socket.socket) -> tuple[int, ...]:
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _LONGEST_OPTION_BYTES)
    except OSError:
        return ()
    return struct.unpack(f"{len(raw) // 4}I", raw)


def _become(peer: Peer) -> None:
    """Touch files as this user from now on; raises ``OSError`` where that is not granted.

    Groups first: with the user's own id goes the right over files, not the right to change groups.
    """
    if tuple(os.getgroups()) != peer.groups:
        _set_groups(peer.groups)
    for change, number in ((_LIBRARY.setfsgid, peer.gid), (_LIBRARY.setfsuid, peer.uid)):
        change(ctypes.c_uint32(number))
        if ctypes.c_uint32(change(ctypes.c_uint32(_UNCHANGED))).value != number:
            raise PermissionError(f"id {number} was not taken")  # it has no other way to fail


def _set_groups(groups: Sequence[int]) -> None:
    number = _SYS_SETGROUPS.get(os.uname().machine)
    if number is None:
        os.setgroups(groups)
        return
    array = (ctypes.c_uint32 * len(groups))(*groups)
    if _LIBRARY.syscall(ctypes.c_long(number), ctypes.c_size_t(len(groups)), array) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
