"""Clients can't disturb each other: they stall, flood, die, and compete for one drive."""

from __future__ import annotations

import dataclasses
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.model_host.drive import Model, load, store
from tests.power.nobody import (
    folder_for_all,
    lines_of,
)
from tests.power.sampler.hostile import connect, hello, is_served, raw
from tests.power.sampler_bench import RUN_ID, Bench, wait_for
from wattload.core.errors import PowerError
from wattload.core.record.file import RECORD_FILE
from wattload.power.config import PowerConfig
from wattload.power.sampler.client import SamplerClient
from wattload.power.sampler.protocol import encode
from wattload.power.sampler.service import OneLineFormatter


@pytest.fixture
def bench() -> Iterator[Bench]:
    with folder_for_all() as folder:
        bench = Bench(folder)
        bench.set_up()
        yield bench
        bench.clean()


def sampled(bench: Bench, path: Path) -> SamplerClient:
    client = connect(bench, path)
    client.hello(RUN_ID)
    client.open(PowerConfig(period_s=0.02), devices=["nvme0"], block_devices=[])
    client.start()
    return client


def goes_on(client: SamplerClient) -> None:
    """Return when the run has more samples, without a long series of missed deadlines."""
    before = client.status().tick_count
    wait_for(lambda: client.status().tick_count > before + 20)


def test_client_that_reads_no_answer_is_sampled_on_and_holds_nobody_up(bench: Bench) -> None:
    path = bench.service()
    opening = {"request": {"period_s": 0.02}, "devices": ["nvme0"], "block_devices": []}
    with raw(path) as deaf:
        for message in (hello(), {"command": "open", **opening}, {"command": "start"}):
            deaf.sendall(encode(message))
        samples = bench.run / "samples-host-1.jsonl"
        wait_for(samples.exists)
        deaf.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                deaf.send(encode({"command": "status"}) * 100)
        size_bytes = samples.stat().st_size
        wait_for(lambda: samples.stat().st_size > size_bytes + 10_000)
        with pytest.raises(PowerError, match="busy with run run-1"):
            connect(bench, path).hello(RUN_ID)
    wait_for((bench.run / RECORD_FILE).exists)
    is_served(bench, path)


def test_client_that_stalls_during_a_line_holds_up_itself_alone(bench: Bench) -> None:
    path = bench.service()
    with raw(path) as stalled:
        stalled.sendall(b'{"command": "hel')
        client = sampled(bench, path)
        goes_on(client)
        client.finish()
        stalled.sendall(b'lo"}\n')
        assert json.loads(stalled.makefile().readline())["ok"] is False


def test_client_that_is_refused_for_ever_is_given_up(bench: Bench) -> None:
    path = bench.service()
    with raw(path) as stream:
        with suppress(BrokenPipeError):
            for _ in range(200):
                stream.sendall(b"{}\n")
        with suppress(ConnectionResetError):
            answers = stream.makefile().read().splitlines()
            assert len(answers) == 100
    is_served(bench, path)


def test_child_of_a_dead_run_cannot_keep_the_sampler(bench: Bench) -> None:
    """Its parent is dead but it keeps sending: only a limit ends its flood."""
    path = bench.service()
    talker = """
import os, socket, sys
stream = socket.socket(socket.AF_UNIX)
stream.connect(sys.argv[1])
stream.sendall(b'%s\\n')
stream.recv(4096)
if os.fork() == 0:
    try:
        while True:
            stream.sendall(b'{"command":"status"}\\n' * 500)
            stream.setblocking(False)
            try:
                stream.recv(1 << 20)
            except BlockingIOError:
                pass
            stream.setblocking(True)
    except OSError:
        os._exit(0)
os._exit(0)
"""
    message = json.dumps(hello())
    subprocess.run(
        [sys.executable, "-c", talker.replace("%s", message), str(path)],
        check=True,
    )
    wait_for((bench.run / RECORD_FILE).exists)
    is_served(bench, path)


@pytest.mark.parametrize("when", ["open", "sampling"])
def test_bug_that_one_run_meets_ends_that_run_alone(bench: Bench, when: str) -> None:
    path = bench.service()
    client = connect(bench, path)
    client.hello(RUN_ID)
    healthy = load(bench.models / "nvme0.json")
    broken = dataclasses.replace(healthy, crashes=(0x02,))
    if when == "sampling":
        client.open(PowerConfig(state=1, period_s=0.02), devices=["nvme0"], block_devices=[])
        client.start()
        store(bench.models / "nvme0.json", dataclasses.replace(broken, state=1))
    else:
        store(bench.models / "nvme0.json", broken)
        with pytest.raises(PowerError, match="the sampler failed at this command; see its log"):
            client.open(PowerConfig(state=1), devices=["nvme0"], block_devices=[])
    wait_for((bench.run / RECORD_FILE).exists)
    assert bench.state() == 0
    store(bench.models / "nvme0.json", healthy)
    wait_for(lambda: any("| ZeroDivisionError: a bug" in line for line in lines_of(bench)))
    is_served(bench, path)


def test_second_run_on_one_drive_is_refused_by_any_sampler(bench: Bench) -> None:
    """Two services with two sockets share only the drive and the journal's folder."""
    client = connect(bench, bench.service())
    client.hello(RUN_ID)
    client.open(PowerConfig(), devices=["nvme0"], block_devices=[])
    bench.add_run("run-2")
    second = bench.spawn()
    second.hello("run-2")
    with pytest.raises(PowerError, match="in use by another run"):
        second.open(PowerConfig(), devices=["nvme0"], block_devices=[])
    client.start()
    assert client.finish().states


def test_two_controllers_of_one_drive_are_one_run_s(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.set_up(nvme0=Model(serial="TWIN"), nvme1=Model(serial="TWIN"))
    try:
        client = bench.spawn()
        client.hello(RUN_ID)
        client.open(PowerConfig(), devices=["nvme0", "nvme1"], block_devices=[])
    finally:
        bench.clean()


def test_log_keeps_to_one_line_of_letters() -> None:
    record = logging.LogRecord(
        "x",
        logging.ERROR,
        "f",
        1,
        "run %s: %s",
        ("r", "a\nERROR b\x1b[2J\u202e" + "x" * 9000),
        None,
    )
    line = OneLineFormatter("%(levelname)s %(message)s").format(record)
    assert line.startswith("ERROR run r: a\\nERROR b\\x1b[2J\\u202exxx")
    assert line.isprintable()
    assert len(line) < 2100
