"""Becomes a program that the kernel kills when the process that started it ends.

``python -P -m wattload.loaders.launch PARENT PROGRAM ARGUMENT...``: gdsio and dlio-benchmark read
nothing from their parent, so they would outlive a killed run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from wattload.core.interrupts import end_with


def with_this_process(command: Sequence[str]) -> list[str]:
    """Return the command line of a program that ends with this process; a path comes first."""
    return [sys.executable, "-P", "-m", "wattload.loaders.launch", str(os.getpid()), *command]


def main() -> None:
    parent, *command = sys.argv[1:]
    end_with(int(parent))
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
