"""The sampler's socket: who may try it, and what becomes of one that was left behind."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from wattload.core.errors import PowerError

_WAITING_CLIENTS = 8


@contextlib.contextmanager
def listening(path: Path, *, for_others: bool) -> Iterator[socket.socket]:
    """Listen on a path until the block ends, which removes it.

    The mode is 0600. ``for_others`` makes it 0666: then others must be able to try, and the
    kernel's word on who they are (``SO_PEERCRED``) alone decides.

    Raises:
        PowerError: the socket can't be made, or a sampler listens there.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        mask = os.umask(0o111 if for_others else 0o177)
        try:
            _remove_stale(path)
            listener.bind(str(path))
        except OSError as error:
            raise PowerError(f"the socket {path} can't be made: {error}") from error
        finally:
            os.umask(mask)
        try:
            listener.listen(_WAITING_CLIENTS)
            yield listener
        finally:
            # A client of one run removes the socket's folder as soon as it is connected.
            path.unlink(missing_ok=True)


def _remove_stale(path: Path) -> None:
    """Remove the socket of a sampler that was killed; a living one keeps its own."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if probe.connect_ex(str(path)) == 0:
            raise PowerError(f"a sampler listens on {path} already")
    path.unlink()
