"""Connections for tests of a sampler among hostile users."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

from tests.power.nobody import (
    need_nobody,
    told_by_nobody,
)
from tests.power.sampler_bench import RUN_ID, Bench
from wattload.power.config import PowerConfig
from wattload.power.sampler.client import SamplerClient
from wattload.power.sampler.protocol import PROTOCOL_VERSION

SAY = """
import json, socket, sys
stream = socket.socket(socket.AF_UNIX)
stream.connect(sys.argv[1])
answers = stream.makefile()
for message in sys.argv[2:]:
    stream.sendall(message.encode() + b"\\n")
    sys.stdout.write(answers.readline())
"""


def hello(run_id: str = RUN_ID) -> dict[str, object]:
    return {"command": "hello", "protocol": PROTOCOL_VERSION, "run_id": run_id}


def connect(bench: Bench, path: Path) -> SamplerClient:
    client = SamplerClient.connect(path)
    bench.clients.append(client)
    return client


def as_nobody(path: Path, *messages: dict[str, object]) -> list[dict[str, object]]:
    need_nobody()
    reported = told_by_nobody(SAY, str(path), *(json.dumps(each) for each in messages))
    return [json.loads(line) for line in reported.splitlines()]


def is_served(bench: Bench, path: Path) -> None:
    """Complete a whole run, as the next user would."""
    run_id = f"after-{time.monotonic_ns()}"
    bench.add_run(run_id)
    client = connect(bench, path)
    client.hello(run_id)
    client.open(PowerConfig(state=1), devices=["nvme0"], block_devices=[])
    client.start()
    assert client.finish().states[0].restored == 0
    client.close()


def raw(path: Path) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(30)
    stream.connect(str(path))
    return stream
