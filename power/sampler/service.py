"""The sampler's options and its start, as a service or as the process of one run."""

from __future__ import annotations

import argparse
import logging
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from wattload import __version__
from wattload.core.errors import ConfigError, WattloadError
from wattload.power.sampler.access import Access, SamplerHost
from wattload.power.sampler.protocol import PROTOCOL_VERSION
from wattload.power.sampler.server import SamplerServer

DEFAULT_SOCKET = Path("/run/wattload/sampler.sock")
_MAX_LOGGED = 2000
_MAX_WAITING = 1000
_DRAIN_LIMIT_S = 2.0
_DRAIN_POLL_S = 0.005
_STDERR = 2
_Failure = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--socket",
        type=Path,
        default=DEFAULT_SOCKET,
        help=f"the Unix socket to listen on; default: {DEFAULT_SOCKET}",
    )
    parser.add_argument("--runs", type=Path, required=True, help="the folder of the run folders")
    parser.add_argument(
        "--user",
        action="append",
        default=[],
        help=(
            "a user who may connect besides root and the sampler's own, by name or "
            "number; repeatable"
        ),
    )
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        help="a group whose members may connect, by name or number; repeatable",
    )
    parser.add_argument(
        "--device",
        action="append",
        metavar="NAME",
        help="a controller to serve, e.g. nvme0; repeatable; default: all",
    )
    parser.add_argument(
        "--allow-system-drive",
        action="store_true",
        help="let runs set the power state of a drive that holds root or swap",
    )


def serve(arguments: argparse.Namespace, host: SamplerHost) -> int:
    """Serve several users until a signal; return 0.

    Raises:
        ConfigError: a user, a group or the runs folder does not exist.
        PowerError: the socket can't be created, or others may change the journal.
    """
    from wattload.power.control.recovery import recover_changes

    access = Access.named(arguments.user, arguments.group)
    if not host.runs.is_dir():
        raise ConfigError(f"--runs must be an existing folder, got {host.runs}")
    host.journal.check()
    with _background_log():
        # Files in the users' folders belong to them and must not be writable for others.
        os.umask(0o022)
        _print_summary(host, arguments.socket, access)
        for recovery in recover_changes(host):
            logging.getLogger(__name__).warning("%s", recovery.sentence)
        SamplerServer(host, access).serve(arguments.socket)
    return 0


def serve_run(host: SamplerHost) -> None:
    """Serve the run that is connected to standard input, until it or a signal ends it.

    Raises:
        ConfigError: standard input is no connection.
    """
    try:
        # Children must not hold it: its end shows the run that the sampler has ended.
        client = socket.socket(fileno=os.dup(0))
    except OSError as error:
        raise ConfigError("a run starts this program; a service is `wattload sampler`") from error
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - not a path of anybody
        os.dup2(nothing.fileno(), 0)
    with _background_log():
        SamplerServer(host, Access()).serve_client(client)


@contextmanager
def _background_log() -> Iterator[None]:
    log = BackgroundLog()
    log.setFormatter(OneLineFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[log])
    try:
        yield
    finally:
        log.drain()


def _print_summary(host: SamplerHost, path: Path, access: Access) -> None:
    """Print what is served, to whom, and with which rights."""
    served = host.served_names()
    lines = [
        f"wattload sampler {__version__}, protocol {PROTOCOL_VERSION}, as user {os.geteuid()}",
        f"socket       {path} (mode {access.socket_mode:04o})",
        f"for          {access.describe()}",
        f"run folders  below {host.runs}",
        f"journal      {host.journal.folder}",
        *(f"{name:<11}  {host.serial_of(name)}: {_access_text(host, name)}" for name in served),
    ]
    if not served:
        lines.append(
            "controllers  none on this host: only other sources and block devices are sampled"
        )
    lines += _warnings()
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _access_text(host: SamplerHost, name: str) -> str:
    try:
        host.open_device(name).close()
    except WattloadError as error:
        return str(error)
    return "opened"


def _warnings() -> list[str]:
    """Return a warning if other users can change the code that root runs."""
    found = Path(__file__).stat()
    if os.geteuid() != 0 or (found.st_uid == 0 and not found.st_mode & 0o022):
        return []
    return [
        (
            f"warning: {Path(__file__).parent} can be changed by user {found.st_uid} or "
            "others, and root runs it; install wattload where only root can write, e.g. "
            "in /opt/wattload"
        )
    ]


class BackgroundLog(logging.Handler):
    """Writes the log in a thread: it may be on a run's file system, and that may hang.

    Messages are dropped while ``_MAX_WAITING`` wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: queue.Queue[bytes] = queue.Queue(_MAX_WAITING)
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(queue.Full):
            self._waiting.put_nowait((self.format(record) + "\n").encode(errors="replace"))

    def drain(self) -> None:
        """Wait until the messages are written, at most ``_DRAIN_LIMIT_S``."""
        deadline_s = time.monotonic() + _DRAIN_LIMIT_S
        while self._waiting.unfinished_tasks and time.monotonic() < deadline_s:
            time.sleep(_DRAIN_POLL_S)

    def _write(self) -> None:
        while True:
            line = self._waiting.get()
            # Not by sys.stderr, whose lock would keep the whole process when it ends.
            with suppress(OSError):
                os.write(_STDERR, line)
            self._waiting.task_done()


class OneLineFormatter(logging.Formatter):
    """Limits a message to one printable line: a client may have written part of it."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = _printable(record.message[:_MAX_LOGGED])
        return super().formatMessage(record)

    def formatException(self, ei: _Failure) -> str:
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"| {_printable(line)}" for line in lines)


def _printable(text: str) -> str:
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
