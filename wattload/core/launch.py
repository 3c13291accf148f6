"""Runs an outside program on behalf of a process, and ends all that the program started.

``python -P -m wattload.core.launch PARENT GRACE_S PROGRAM ARGUMENT...``: gdsio, dlio-benchmark and
meters read nothing from their parent, so they would outlive a killed run. The program may be a
script that starts others: all of them end with the program, with this process and with its parent.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection, Sequence

from wattload.core.interrupts import ENDING_SIGNALS, end_with
from wattload.core.processes import adopt_orphans, end_descendants

NOT_STARTED = 127
"""The exit status for a program that can't be started, as a shell has it."""


def with_this_process(command: Sequence[str], *, grace_s: float = 0.0) -> list[str]:
    """Return the command line of a program that ends with this process; a path comes first.

    Its status is the program's. End it by SIGTERM: after SIGKILL it can't end what the program has
    started. It must be started by a thread that lives on. ``grace_s`` is the time that the program
    has to end by itself after a SIGTERM.
    """
    own = [sys.executable, "-P", "-m", "wattload.core.launch", str(os.getpid()), str(grace_s)]
    return [*own, *command]


def main() -> None:
    parent, grace_s, *command = sys.argv[1:]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    heeded = {number for number in ENDING_SIGNALS if signal.getsignal(number) != signal.SIG_IGN}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heeded | {signal.SIGCHLD})
    adopt_orphans()
    end_with(int(parent), signal.SIGTERM)
    program = _started(command, before)
    # Who reads the program's output sees when the program closes it.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    status = None
    while status is None and signal.sigwait(heeded | {signal.SIGCHLD}) == signal.SIGCHLD:
        status = _status_of(program)
    end_descendants(grace_s=float(grace_s))
    _end_as(_status_of(program) if status is None else status)


def _started(command: list[str], mask: Collection[int]) -> int:
    """Start the program with a mask of signals, and return its process id."""
    own = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        end_with(own)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execv(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]} can't be started: {error.strerror}\n")
    finally:
        sys.stderr.flush()
        os._exit(NOT_STARTED)


def _status_of(program: int) -> int | None:
    """Wait for all children that have ended; return the program's status if it is one of them.

    The kernel counts their CPU time for this process.
    """
    status = None
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == program:
                status = ended[1]
    except ChildProcessError:
        return status
    return status


def _end_as(status: int | None) -> None:
    """Exit as the program has ended: with its status, or by the signal that ended it."""
    if status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    sys.exit(1 if status is None else os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
