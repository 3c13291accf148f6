"""In the guest: serve a model drive over NVMe/TCP and have the kernel connect to it."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from tests.lab.nvme_tcp import SUBSYSTEM, serve
from tests.power.model_drive import Model, ModelDrive, store

NAME = "tcp"
SERIAL = "MODEL0001"
PORT = 4420
HOST = "6e7a6b1e-0d3c-4e63-9f4d-3f3f5a1f7c01"


def main() -> int:
    folder = Path(sys.argv[1])
    store(folder / f"{NAME}.json", Model(serial=SERIAL))
    with socket.create_server(("127.0.0.1", PORT)) as listener:
        if os.fork() == 0:
            os.setsid()
            serve(listener, ModelDrive(folder, NAME))
    options = {
        "transport": "tcp",
        "traddr": "127.0.0.1",
        "trsvcid": str(PORT),
        "nqn": SUBSYSTEM,
        "hostnqn": f"nqn.2014-08.org.nvmexpress:uuid:{HOST}",
        "hostid": HOST,
        "nr_io_queues": "1",
    }
    text = ",".join(f"{key}={value}" for key, value in options.items())
    with Path("/dev/nvme-fabrics").open("r+b", buffering=0) as fabrics:
        fabrics.write(text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
