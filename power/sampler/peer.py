"""Who is at the other end of the socket, and how to touch files as that user.

A sampler that runs as root serves users who are not: whatever it writes into a run's folder it
writes with their rights, so that a symbolic link there leads nowhere that they could not go.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from wattload.core.errors import PowerError

_CREDENTIALS = struct.Struct("iII")


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that connected; ``pid`` is 0 where it lives outside this PID namespace."""

    pid: int
    uid: int
    gid: int


def peer_of(connection: socket.socket) -> Peer:
    """Return who connected, as the kernel knows it (``SO_PEERCRED``, ``unix(7)``)."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return Peer(*_CREDENTIALS.unpack(raw))


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

    Raises:
        PowerError: this process may not act for others.
    """
    if peer.uid == os.geteuid():
        yield
        return
    own_uid, own_gid = os.geteuid(), os.getegid()
    try:
        os.setegid(peer.gid)
        os.seteuid(peer.uid)
    except OSError as error:
        os.setegid(own_gid)
        raise PowerError(
            f"the sampler can't act for user {peer.uid}; run it as root with CAP_SETUID and "
            "CAP_SETGID, or as that user"
        ) from error
    try:
        yield
    finally:
        os.seteuid(own_uid)
        os.setegid(own_gid)
