"""A program for snmpd's ``pass_persist`` that serves the objects in a file, and holds if told to.

Usage: snmp_objects.py FOLDER. ``objects.json`` maps an OID to its type and value. The OIDs that are
asked for are appended to ``asked``; while ``hold`` exists, no answer is given.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

POLL_S = 0.01


def answer(folder: Path, oid: str) -> list[str]:
    """Return the lines that answer a get."""
    with (folder / "asked").open("a") as file:
        file.write(f"{oid}\n")
    while (folder / "hold").exists():
        time.sleep(POLL_S)
    found = json.loads((folder / "objects.json").read_text()).get(oid)
    return ["NONE"] if found is None else [f".{oid}", *found]


def main() -> None:
    folder = Path(sys.argv[1])
    while line := sys.stdin.readline().strip():
        if line == "PING":
            lines = ["PONG"]
        else:
            oid = sys.stdin.readline().strip().removeprefix(".")
            lines = answer(folder, oid) if line == "get" else ["NONE"]
        print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
