"""Clients that connect by the thousand, stay half open, or send descriptors."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.power.nobody import folder_for_all, needs_root
from tests.power.sampler.hostile import connect, is_served, raw
from tests.power.sampler_bench import RUN_ID, Bench, wait_for
from wattload.power.config import PowerConfig
from wattload.power.sampler.client import SamplerClient

CONNECTIONS = 10_000

FLOOD = """
import os, resource, socket, sys
path, user, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(user); os.setuid(user)
streams = []
for _ in range(count):
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(path)
    try:
        stream.send(b'{"command": "hel')
        if len(streams) % 2:
            stream.shutdown(socket.SHUT_RD)
    except OSError:
        pass
    streams.append(stream)
print(len(streams), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def bench() -> Iterator[Bench]:
    with folder_for_all() as folder:
        bench = Bench(folder)
        bench.set_up()
        yield bench
        bench.clean()


def flooded(bench: Bench, path: Path, user: int, count: int) -> None:
    """Let a user open half a conversation often, and keep all sockets."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", FLOOD, str(path), str(user), str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    bench.processes.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == f"{count}\n"


def sampled(bench: Bench, path: Path) -> SamplerClient:
    client = connect(bench, path)
    client.hello(RUN_ID)
    client.open(PowerConfig(state=1, period_s=0.02), devices=["nvme0"], block_devices=[])
    client.start()
    return client


def highest_memory_bytes(service: subprocess.Popen[str]) -> int:
    (line,) = [
        line
        for line in Path(f"/proc/{service.pid}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    ]
    return int(line.split()[1]) * 1024


@needs_root
def test_ten_thousand_connections_disturb_no_run(bench: Bench) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(CONNECTIONS, most - 100)
    path = bench.service("--user", "65534")
    client = sampled(bench, path)
    before = client.status().tick_count
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        flooded(bench, path, 65534, count)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    wait_for(lambda: client.status().tick_count > before + 20)
    assert client.finish().states[0].restored == 0
    is_served(bench, path)
    assert highest_memory_bytes(bench.processes[0]) < 300 << 20


@needs_root
def test_half_open_connections_of_two_users_keep_no_third_out(bench: Bench) -> None:
    path = bench.service("--user", "65534", "--user", "65533")
    for user in (65534, 65533):
        flooded(bench, path, user, 16)
    is_served(bench, path)


def test_client_that_sends_descriptors_is_dropped_or_stopped_by_the_kernel(bench: Bench) -> None:
    path = bench.service()
    with raw(path) as stream:
        reader, writer = os.pipe()
        with suppress(PermissionError):  # Linux 6.16 and later
            socket.send_fds(stream, [b"x"], [reader] * 100)
            assert b"may not send descriptors" in stream.recv(4096)
        os.close(reader)
        os.close(writer)
    is_served(bench, path)


def test_descriptors_are_taken_and_closed_where_the_kernel_lets_them_through(
    bench: Bench,
) -> None:
    from wattload.power.control.journal import ChangeJournal
    from wattload.power.sampler.access import SamplerHost, peer_of
    from wattload.power.sampler.connection import Connection, Runs

    ours, theirs = socket.socketpair(socket.AF_UNIX)
    host = SamplerHost(runs=bench.runs, journal=ChangeJournal(bench.models / "state"))
    connection = Connection(host, ours, peer_of(ours), Runs())
    reader, writer = os.pipe()
    socket.send_fds(theirs, [b"x"], [writer])
    os.close(writer)
    receive = [step for *_, step in connection.watched()][-1]
    assert receive() is False
    assert b"may not send descriptors" in theirs.recv(4096)
    connection.close()
    theirs.close()
    assert os.read(reader, 1) == b"", "no writer is left"
    os.close(reader)
