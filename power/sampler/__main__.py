"""``python -m wattload.power.sampler``: serve the run that started this process, then exit.

The run is connected to standard input. If the run was killed, this process writes its record.
``wattload sampler`` is a service.
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from wattload.core.errors import ConfigError, DataError, WattloadError
from wattload.core.files import open_folder
from wattload.core.host.memory_group import limit_that_killed
from wattload.core.leftovers import remove_leftovers
from wattload.core.record.file import (
    RECORD_FILE,
    is_owned,
    owner_text,
    remove_marks,
    unfinished_runs,
)
from wattload.power.sampler.host import SamplerHost
from wattload.power.sampler.protocol import BEGIN, MessageStream
from wattload.power.sampler.samples import SampleFile
from wattload.power.sampler.server import Commands, Sampler, process_of, serve_client

_LAST_BREATH_S = 2.0
"""How long a killed run may hold its lock after its connection has closed: both end together."""

_OWNER_S = 5.0
"""How long the host that made a shared folder may take to record a run that has ended."""

_POLL_S = 0.1

_LOG = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve one client; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m wattload.power.sampler",
        description="Read power during one run, and restore power states however it ends.",
    )
    parser.add_argument("--runs", type=Path, required=True, help="the folder of the run folders")
    parser.add_argument("--service", type=int, help="the descriptor of a service that is connected")
    try:
        serve_run(parser.parse_args(argv), SamplerHost())
    except WattloadError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def serve_run(arguments: argparse.Namespace, host: SamplerHost) -> None:
    """Serve the run that is connected to standard input, until it or a signal ends it.

    Raises:
        ConfigError: standard input is no connection.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    runs = arguments.runs.absolute()
    pid = os.getppid()
    parent = process_of(pid)
    try:
        # Children must not hold it: its end shows the run that the sampler has ended.
        connection = socket.socket(fileno=os.dup(0))
    except OSError as error:
        raise ConfigError("a run starts this program; a service is `wattload sampler`") from error
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - not a path of anybody
        os.dup2(nothing.fileno(), 0)
    if not _begins(connection):
        return
    commands = _commands(arguments.service, host, runs)
    reason = serve_client(MessageStream(connection), commands, parent=parent)
    if not reason:
        return  # a signal has ended this process; the run lives
    if commands.run_id is not None and not (runs / commands.run_id / RECORD_FILE).exists():
        limit_bytes = limit_that_killed(pid)
        if limit_bytes is not None:
            reason = (
                f"killed by its memory limit: {limit_bytes} bytes were allowed, set "
                "workload.memory_share"
            )
        write_record(runs / commands.run_id, reason, commands, parent)
    remove_leftovers(runs)
    if unfinished_runs([runs]):  # such as one that was killed before it opened the sampler
        from wattload.power.sampler.aborted_record import finish_abandoned

        finish_abandoned([runs])


def _begins(connection: socket.socket) -> bool:
    """Wait for the run's leave to change anything; return whether it came, with a log to write."""
    with suppress(ConnectionResetError):
        leave, descriptors, *_ = socket.recv_fds(connection, len(BEGIN), 1)
        for log in descriptors:
            os.dup2(log, sys.stdout.fileno())
            os.dup2(log, sys.stderr.fileno())
            os.close(log)
        return bool(leave)
    return False


def _commands(service: int | None, host: SamplerHost, runs: Path) -> Commands:
    if service is not None:
        from wattload.power.sampler.relay import Relay

        os.set_inheritable(service, False)
        return Relay(MessageStream(socket.socket(fileno=service)), host, runs)
    return Sampler(
        host,
        lambda run_id, period_s: SampleFile.create(
            runs / run_id, host=host.name, period_s=period_s
        ),
    )


def write_record(folder: Path, reason: str, commands: Commands, parent: int | None) -> None:
    """Write the record of a run that was killed, if need be once its process has ended."""
    from wattload.power.sampler.aborted_record import finish_dead

    why_not = finish_dead(folder, reason, commands.states)
    if why_not and (parent is None or has_ended(parent)):
        leave_to_owner(folder)
        why_not = finish_dead(folder, reason, commands.states)
    if why_not:
        _LOG.error("run %s has no record: %s", folder.name, why_not)


def has_ended(process: int) -> bool:
    """Wait for a process that has closed its files, and holds its locks a moment longer."""
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(_LAST_BREATH_S * 1000))


def leave_to_owner(folder: Path) -> None:
    """Let the host that made a shared folder record its run first; then any host may.

    A process of the run has ended on this host, so the run ends on all of them.
    """
    deadline_s = time.monotonic() + _OWNER_S
    while not is_owned(folder, owner_text()) and not (folder / RECORD_FILE).exists():
        if time.monotonic() > deadline_s:
            with suppress(OSError, DataError), open_folder(folder) as opened:
                remove_marks(opened)
            return
        time.sleep(_POLL_S)


if __name__ == "__main__":
    sys.exit(main())
