"""Serve one virtual drive: ``python -m tests.lab.virtual_ssd <folder> [--serial SERIAL]``.

The folder gets ``control.sock`` (the side socket), ``truth.csv``, and, once it can be connected
to, ``port`` with the number of its TCP port.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import time
from pathlib import Path

from tests.lab.virtual_ssd.control import Control
from tests.lab.virtual_ssd.design import DESIGNS, Design
from tests.lab.virtual_ssd.drive import VirtualSsd
from tests.lab.virtual_ssd.server import Server
from tests.lab.virtual_ssd.truth import Truth


async def serve(folder: Path, design: Design) -> None:
    """Serve until cancelled."""
    drive = VirtualSsd(design, time.monotonic_ns())
    truth = Truth(folder / "truth.csv", drive.engine)
    server = Server(drive, truth)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with await Control(server).serve(folder / "control.sock"):
            reported = folder / "port.new"
            reported.write_text(str(listener.getsockname()[1]))
            reported.rename(folder / "port")
            await server.serve(listener)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--serial", choices=DESIGNS, default=Design().serial)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(serve(arguments.folder, DESIGNS[arguments.serial]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
