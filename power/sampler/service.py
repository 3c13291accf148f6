"""A sampler service: a socket, and a process for each run that connects.

The permissions of the socket decide who may connect. Runs on different drives are independent of
each other; the lock of a drive admits one run at a time.
"""

from __future__ import annotations

import grp
import logging
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from wattload import __version__
from wattload.core.errors import ConfigError, PowerError, WattloadError
from wattload.core.host.capabilities import Capability, has_capability
from wattload.power.control.undo import recover_changes
from wattload.power.sampler.host import SamplerHost
from wattload.power.sampler.protocol import MessageStream
from wattload.power.sampler.server import ENDING_SIGNALS, Sampler, serve_client

_WAITING_CLIENTS = 32
_PAUSE_S = 1.0
_LOG = logging.getLogger(__name__)


def serve(path: Path, group: str | None, host: SamplerHost) -> None:
    """Serve runs on a Unix socket until a signal; members of ``group`` may connect.

    Raises:
        ConfigError: the group does not exist.
        PowerError: the socket can't be created, or others may change the journal.
    """
    gid = None if group is None else _gid(group)
    host.journal.check()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for number in ENDING_SIGNALS:
        signal.signal(number, _stop)
    try:
        _print_summary(host, path, group)
        for recovery in recover_changes(host):
            if not recovery.in_use:
                _LOG.warning("%s", recovery.sentence)
        with listening(path, gid) as listener:
            _accept(listener, host)
    except _StopError as stop:
        _LOG.info("ended by %s", stop)


def _accept(listener: socket.socket, host: SamplerHost) -> None:
    """Start a process for each client until a signal; then end these processes."""
    children: set[int] = set()
    try:
        while True:
            try:
                stream, _ = listener.accept()
                with stream:
                    children -= set(_ended_children())
                    with _blocked_signals():  # one in between would miss the new process
                        children.add(_start(stream, listener, host))
            except OSError as error:  # as many files or processes as the host permits
                _LOG.error("a client could not be served: %s", error)
                time.sleep(_PAUSE_S)
    finally:
        children -= set(_ended_children())
        for child in children:
            os.kill(child, signal.SIGTERM)
        for child in children:
            os.waitpid(child, 0)


class _StopError(Exception):
    """A signal has ended the service."""


def _stop(number: int, frame: object) -> None:
    raise _StopError(signal.Signals(number).name)


@contextmanager
def _blocked_signals() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ended_children() -> Iterator[int]:
    with suppress(ChildProcessError):
        while child := os.waitpid(-1, os.WNOHANG)[0]:
            yield child


def _start(stream: socket.socket, listener: socket.socket, host: SamplerHost) -> int:
    """Fork a process that serves a client; this one has neither threads nor open devices.

    The ending signals are blocked.
    """
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        listener.close()
        _serve_run(MessageStream(stream), host)
        status = 0
    except BaseException:
        _LOG.exception("a client is dropped")
    finally:
        logging.shutdown()
        os._exit(status)


def _serve_run(stream: MessageStream, host: SamplerHost) -> None:
    for number in ENDING_SIGNALS:  # the service's handler ends the service
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
    serve_client(stream, Sampler(host, lambda run_id, period_s: _SampleStream(stream)))


class _SampleStream:
    """Streams samples to the client."""

    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream

    def write(self, lines: Sequence[str]) -> bool:
        try:
            self._stream.send({"samples": lines})
        except OSError:
            return False
        return True

    def close(self) -> None:
        """The connection stays: commands follow."""


@contextmanager
def listening(path: Path, gid: int | None) -> Iterator[socket.socket]:
    """Listen on a path until the block ends, then remove it; members of ``gid`` may connect.

    Raises:
        PowerError: the socket can't be created, or a sampler listens there already.
    """
    if _answers(path):
        raise PowerError(f"a sampler already listens on {path}")
    _remove_socket(path)  # of a sampler that was killed
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            _bind(listener, path, gid)
            yield listener
        finally:
            _remove_socket(path)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
        return probe.connect_ex(str(path)) == 0
    return False


def _bind(listener: socket.socket, path: Path, gid: int | None) -> None:
    mask = os.umask(0o177)  # nobody connects before the group is set
    try:
        listener.bind(str(path))
        if gid is not None:
            os.chown(path, -1, gid)
            path.chmod(0o660)
        listener.listen(_WAITING_CLIENTS)
    except OSError as error:
        raise PowerError(f"the socket {path} can't be created: {error}") from error
    finally:
        os.umask(mask)


def _remove_socket(path: Path) -> None:
    """Remove a socket, but no other kind of file."""
    with suppress(OSError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()


def _gid(group: str) -> int:
    if group.isdecimal():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise ConfigError(
            f"unknown group {group!r}; give a group's name or number, or create it: "
            "groupadd --system wattload"
        ) from error


def _print_summary(host: SamplerHost, path: Path, group: str | None) -> None:
    """Print what is served, to whom, and with which rights."""
    served = host.served_names()
    lines = [
        f"wattload sampler {__version__}, as user {os.geteuid()}",
        f"socket       {path}",
        f"for          user {os.geteuid()}" + (f", group {group}" if group else ""),
        f"journal      {host.journal.folder}",
        *(f"{name:<11}  {host.serial_of(name)}: {_access_text(host, name)}" for name in served),
    ]
    if not served:
        lines.append(
            "controllers  none on this host: only other sources and block devices are sampled"
        )
    sys.stdout.write("\n".join([*lines, *_warnings()]) + "\n")
    sys.stdout.flush()


def _access_text(host: SamplerHost, name: str) -> str:
    try:
        host.open_device(name).close()
    except WattloadError as error:
        return str(error)
    return "opened"


def _warnings() -> list[str]:
    """Return what keeps power states from being read, or others from being kept out."""
    warnings = []
    if not has_capability(Capability.SYS_ADMIN):
        warnings.append(
            "warning: without CAP_SYS_ADMIN, power states and SMART can be neither read nor set; "
            "run it as root or, in a container, with cap_add: [SYS_ADMIN]"
        )
    found = Path(__file__).stat()
    if os.geteuid() == 0 and (found.st_uid != 0 or found.st_mode & 0o022):
        warnings.append(
            f"warning: {Path(__file__).parent} can be changed by user {found.st_uid} or "
            "others, and root runs it; install wattload where only root can write, e.g. "
            "in /opt/wattload"
        )
    return warnings
