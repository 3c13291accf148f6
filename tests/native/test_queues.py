"""Queues between requesters and pollers, with the sanitizers of addresses and of threads."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.native.driver import SANITIZERS, Build
from tests.stamped import stamps_of
from wattload.core.io import BlockIdentity

NULL, MEMORY, STORAGE = 0, 1, 2
LOST, TWICE, SWAPPED = 1, 2, 3
HANGS = -19


@pytest.fixture(scope="session", params=SANITIZERS)
def program(request: pytest.FixtureRequest, build: Build) -> Path:
    """The program, with the sanitizers of addresses or of threads."""
    return build(request.param, "run_queue.c", unusable=("none=0",))


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 1 MiB with a stamp per 512 bytes."""
    content = np.random.default_rng(1).integers(0, 256, 1 << 20, dtype=np.uint8)
    for block, stamp in stamps_of(content, BlockIdentity(7, 1), 0, 0, 512):
        block[: len(stamp)] = np.frombuffer(stamp, np.uint8)
    path = tmp_path_factory.mktemp("file") / "file"
    path.write_bytes(content.tobytes())
    return path


def run(program: Path, *files: Path, **setup: int) -> dict[str, Any]:
    """Return what the program printed."""
    named = [f"{name}={value}" for name, value in setup.items()]
    done = subprocess.run(
        [program, *named, *files], capture_output=True, text=True, timeout=120, check=False
    )
    assert not done.returncode, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


@pytest.mark.parametrize("engine", [NULL, MEMORY, STORAGE])
@pytest.mark.parametrize("numbers", [(1, 1, 1), (2, 2, 2), (5, 3, 2)])
def test_every_request_is_answered_once(
    program: Path, file: Path, engine: int, numbers: tuple[int, int, int]
) -> None:
    pairs, pollers, threads = numbers
    found = run(
        program, file, file, engine=engine, queue_pairs=pairs, pollers=pollers,
        requester_threads=threads, ceiling_ns=50_000_000, trace_every=16,
    )  # fmt: skip
    requests = found["requests"]
    assert found["code"] == found["failed"] == found["wrong"] == found["bad"] == 0
    assert requests == found["taken"] == found["answered"] == found["operations"] > 0
    assert found["delivered"] == (0 if engine == NULL else requests)
    assert found["by_target"] == requests
    assert found["ceiling"] > 0
    assert (found["rows"] > 0) == (engine == STORAGE)


@pytest.mark.parametrize("number", [(1 << 20) - 1, (1 << 20) - 9, (1 << 27) - 9, (1 << 32) - 9])
def test_generations_laps_and_positions_wrap(program: Path, file: Path, number: int) -> None:
    found = run(
        program, file, engine=MEMORY, first_number=number, requesters=32, queue_size=32,
        queue_pairs=1,
    )  # fmt: skip
    assert found["code"] == found["wrong"] == found["bad"] == 0
    assert found["requests"] == found["answered"] == found["delivered"] > 9 * 32


@pytest.mark.parametrize("engine", [NULL, STORAGE])
def test_a_run_is_ended_from_another_thread(program: Path, file: Path, engine: int) -> None:
    found = run(program, file, engine=engine, duration_ns=60 * 10**9, stop_ms=30, pollers=2)
    assert found["code"] == 0
    assert found["requests"] == found["answered"]


@pytest.mark.parametrize("engine", [NULL, STORAGE])
def test_a_stage_may_be_over_before_a_poller_wakes(program: Path, file: Path, engine: int) -> None:
    found = run(
        program, file, engine=engine, duration_ns=1, ceiling_ns=1, queue_pairs=16, pollers=16,
        requesters=32,
    )  # fmt: skip
    assert found["code"] == 0
    assert found["requests"] == found["answered"]


@pytest.mark.parametrize("engine", [NULL, STORAGE])
def test_lost_answers_are_left_behind(program: Path, file: Path, engine: int) -> None:
    found = run(
        program, file, file, engine=engine, fault=LOST, hang_ms=300, pollers=2, duration_ns=10**10
    )
    assert found["code"] == HANGS
    assert found["unanswered"] > 0
    assert found["requests"] == found["answered"] + found["unanswered"]


def test_blocks_without_a_stamp_are_wrong(program: Path, file: Path, tmp_path: Path) -> None:
    half = tmp_path / "half"
    half.write_bytes(file.read_bytes()[: 1 << 19] + bytes(1 << 19))
    found = run(program, half, engine=STORAGE)
    assert found["code"] == 0
    assert found["wrong"] > 0
    assert found["requests"] == found["delivered"] + found["wrong"]


def test_refusals_are_clean(program: Path, file: Path) -> None:
    for wrong in (
        {"requesters": 33},
        {"queue_size": 32},
        {"pollers": 5},
        {"hang_ms": 0},
        {"block_bytes": 256},
        {"block_bytes": 65536, "read_bytes": 65536, "requesters": 4096, "queue_size": 4096,
         "pattern": 1},
        {"read_bytes": 1 << 20, "requesters": 65536, "queue_size": 65536, "engine": STORAGE},
    ):  # fmt: skip
        assert run(program, file, file, **wrong)["code"] == -2
