"""The sampler's socket: who may try it, and what becomes of one that was left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from wattload.core.errors import PowerError
from wattload.power.sampler.access import ROOT_UID, Access

_WAITING_CLIENTS = 32

_ROOM_BYTES = 107
"""``struct sockaddr_un`` has 108 bytes for a path that ends with a zero byte."""


@contextlib.contextmanager
def listening(path: Path, access: Access) -> Iterator[socket.socket]:
    """Listen on a path until the block ends, which removes it.

    Raises:
        PowerError: the socket can't be made, its folder is open to others, or a sampler has it.
    """
    if len(os.fsencode(path)) > _ROOM_BYTES:
        raise PowerError(
            f"the path of a socket has at most {_ROOM_BYTES} bytes, {path} is longer; name a "
            "shorter one"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, _locked(path):
        try:
            _remove_stale(path)
            _bind(listener, path, access)
        except OSError as error:
            raise PowerError(f"the socket {path} can't be made: {error}") from error
        try:
            listener.listen(_WAITING_CLIENTS)
            listener.setblocking(False)
            yield listener
        finally:
            # A client of one run removes the socket's folder as soon as it is connected.
            path.unlink(missing_ok=True)


def _bind(listener: socket.socket, path: Path, access: Access) -> None:
    """Make the socket closed to all others first, so that nobody comes in before its time."""
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(mask)
    if access.socket_gid is not None:
        os.chown(path, -1, access.socket_gid, follow_symlinks=False)
    path.chmod(access.socket_mode)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep a second sampler off the path; the kernel gives it back however this one ends."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        _check_folder(path.parent)
        descriptor = os.open(path.with_name(path.name + ".lock"), flags, 0o600)
    except OSError as error:
        raise PowerError(f"the socket {path} can't be made: {error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise PowerError(f"a sampler listens on {path} already") from error
    try:
        yield
    finally:
        os.close(descriptor)


def _check_folder(folder: Path) -> None:
    """Refuse a folder in which another user could put his own socket in the place of ours."""
    found = folder.stat()
    is_others = found.st_uid not in (ROOT_UID, os.geteuid())
    is_open = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
    if is_others or is_open:
        raise PowerError(
            f"the socket's folder {folder} belongs to user {found.st_uid} and has mode "
            f"{stat.S_IMODE(found.st_mode):04o}: others could replace the socket; name a folder "
            "that only the sampler's user can write to, e.g. /run/wattload"
        )


def _remove_stale(path: Path) -> None:
    """Remove the socket of a sampler that was killed, and nothing but a socket."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
