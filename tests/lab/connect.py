"""In the guest: serve virtual drives over NVMe/TCP and have the kernel connect to them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.lab.virtual_ssd.design import Design

HOST = "6e7a6b1e-0d3c-4e63-9f4d-3f3f5a1f7c01"
WAIT_S = 120


def attach_virtual(folder: Path, design: Design) -> None:
    """Start a process that serves a virtual drive, and have the kernel connect to it."""
    # Ahead of others: a drive has a processor of its own.
    words = [str(folder), "--serial", design.serial]
    serve = [sys.executable, "-m", "tests.lab.virtual_ssd", *words]
    subprocess.run(["setsid", "--fork", "nice", "-n", "-15", *serve], check=True)
    deadline_s = time.monotonic() + WAIT_S
    while not (folder / "port").exists():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the virtual drive {design.serial} does not listen")
        time.sleep(0.1)
    connect(design.subsystem, int((folder / "port").read_text()))


def connect(subsystem: str, port: int) -> None:
    """Have the kernel's driver make a controller of a subsystem.

    It looks for a drive that went away once a second, for ten minutes.
    """
    options = {
        "transport": "tcp",
        "traddr": "127.0.0.1",
        "trsvcid": str(port),
        "nqn": subsystem,
        "hostnqn": f"nqn.2014-08.org.nvmexpress:uuid:{HOST}",
        "hostid": HOST,
        "nr_io_queues": "1",
        "reconnect_delay": "1",
        "ctrl_loss_tmo": "600",
    }
    text = ",".join(f"{key}={value}" for key, value in options.items())
    with Path("/dev/nvme-fabrics").open("r+b", buffering=0) as fabrics:
        fabrics.write(text.encode())


def main() -> int:
    attach_virtual(Path(sys.argv[1]), Design())
    return 0


if __name__ == "__main__":
    sys.exit(main())
