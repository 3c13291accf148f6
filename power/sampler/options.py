"""The sampler's command line, for ``wattload sampler`` and for the process of one run alike."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from types import TracebackType

from wattload import __version__
from wattload.core.errors import ConfigError, WattloadError
from wattload.power.sampler.access import Access
from wattload.power.sampler.host import SamplerHost
from wattload.power.sampler.protocol import PROTOCOL_VERSION
from wattload.power.sampler.server import SamplerServer

DEFAULT_SOCKET = Path("/run/wattload/sampler.sock")

_LONGEST_LOGGED = 2000

_Failure = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the sampler's options."""
    parser.add_argument(
        "--socket",
        type=Path,
        default=DEFAULT_SOCKET,
        help=f"the Unix socket to listen on; {DEFAULT_SOCKET} if not given",
    )
    parser.add_argument("--runs", type=Path, required=True, help="the folder of the run folders")
    _add_clients(parser)
    _add_drives(parser)


def _add_clients(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--user",
        action="append",
        default=[],
        help="a user, or a number, who may connect beside root and the sampler's own; repeatable",
    )
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        help="a group, or a number, whose members may connect; repeatable",
    )


def _add_drives(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        action="append",
        metavar="NAME",
        help="a controller to serve, e.g. nvme0; repeatable; all if not given",
    )
    parser.add_argument(
        "--allow-system-drive",
        action="store_true",
        help="let runs set the power state of a drive that holds root or swap",
    )


def serve(arguments: argparse.Namespace, host: SamplerHost, *, once: bool = False) -> int:
    """Serve until told to end; returns 0.

    Raises:
        ConfigError: there is no such user, group or folder.
        PowerError: the socket can't be made.
    """
    _log_to_stderr()
    access = Access.named(arguments.user, arguments.group)
    server = SamplerServer(host, path=arguments.socket, once=once, access=access)
    if not once:
        if not host.runs.is_dir():
            raise ConfigError(f"--runs must be a folder that is there, got {host.runs}")
        # What is written in the users' folders is theirs, and nobody else's to change.
        os.umask(0o022)
        _introduce(host, arguments.socket, access)
        _tell_leftovers(host)
    server.serve()
    return 0


def _introduce(host: SamplerHost, socket: Path, access: Access) -> None:
    """Print what is served, to whom, and with which rights."""
    served = [name for name in host.list_names() if host.devices is None or name in host.devices]
    lines = [
        f"wattload sampler {__version__}, protocol {PROTOCOL_VERSION}, as user {os.geteuid()}",
        f"socket       {socket} (mode {access.socket_mode:04o})",
        f"for          {access.describe()}",
        f"run folders  below {host.runs}",
        f"journal      {host.journal.folder}",
        *(f"{name:<11}  {host.serial_of(name)}: {_how(host, name)}" for name in served),
    ]
    if not served:
        lines.append("controllers  none here: only other sources and block devices are sampled")
    lines += _warnings()
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _how(host: SamplerHost, name: str) -> str:
    try:
        host.open_device(name).close()
    except WattloadError as error:
        return str(error)
    return "opened"


def _warnings() -> list[str]:
    """Return what lets other users have the sampler's rights: its own code in their hands."""
    found = Path(__file__).stat()
    if os.geteuid() != 0 or (found.st_uid == 0 and not found.st_mode & 0o022):
        return []
    return [
        f"warning: {Path(__file__).parent} can be changed by user {found.st_uid} or others, and "
        "root runs it; install wattload where root alone writes, e.g. in /opt/wattload"
    ]


def _tell_leftovers(host: SamplerHost) -> None:
    """Undo what a killed service left; a sampler of one run does so when the run opens."""
    from wattload.power.leftovers import undo_leftovers

    for leftover in undo_leftovers(host):
        logging.getLogger(__name__).warning("%s", leftover.sentence)


class OneLineFormatter(logging.Formatter):
    """Keeps a message to one line of printable letters: part of it may be a client's."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        """Return the line of a record."""
        record.message = _printable(record.message[:_LONGEST_LOGGED])
        return super().formatMessage(record)

    def formatException(self, ei: _Failure) -> str:  # noqa: N802 - logging's own name
        """Return a traceback, each line of it marked as one."""
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"| {_printable(line)}" for line in lines)


def _printable(text: str) -> str:
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(OneLineFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
