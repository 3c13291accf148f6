"""Becomes a program that the kernel kills when the process that started it ends.

``python -P -m wattload.loaders.gdsio.launch PARENT PROGRAM ARGUMENT...``: gdsio reads nothing from
its parent, so it would outlive a killed run.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_SET_PARENT_DEATH_SIGNAL = 1  # prctl(2), PR_SET_PDEATHSIG; kept by execve


def main() -> None:
    """Replace this process by the program."""
    parent, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != int(parent):
        raise SystemExit("the run that started this program has ended")
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
