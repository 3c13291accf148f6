"""Becomes a program that the kernel kills when the process that started it ends.

``python -P -m wattload.loaders.gdsio.launch PARENT PROGRAM ARGUMENT...``: gdsio reads nothing from
its parent, so it would outlive a killed run.
"""

from __future__ import annotations

import os
import sys

from wattload.core.interrupts import end_with


def main() -> None:
    parent, *command = sys.argv[1:]
    end_with(int(parent))
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
