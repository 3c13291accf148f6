"""The kernels: their own source on an emulated GPU everywhere, and on a GPU where there is one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.loaders.gpu_queue.clock_cache import ClockCache, zipf_rounds
from tests.loaders.gpu_queue.plans import NONCE, UNIT
from wattload.core.io import BlockIdentity
from wattload.loaders.engine import library
from wattload.loaders.engine.library import HANGS
from wattload.loaders.stamps import seal

ROOT = Path(__file__).parents[3]
FILE_BYTES = 1 << 20
HAS_GPU = Path("/dev/nvidiactl").exists()

Run = Callable[..., dict[str, Any]]

on_a_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HAS_GPU, reason="there is no NVIDIA GPU: /dev/nvidiactl is missing"),
]


@pytest.fixture(params=["emulated", pytest.param("gpu", marks=on_a_gpu)])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a small queue with requesters on an emulated GPU, or on a real one."""
    environment = dict(os.environ)
    if request.param == "emulated":
        folder = request.getfixturevalue("emulated")
        environment |= {"LD_LIBRARY_PATH": str(folder), "EMULATED_CUDA": "1"}
    return lambda *targets, **changes: start(environment, *targets, **changes)


def start(
    environment: dict[str, str], *targets: list[Any], prefix: tuple[str, ...] = (), **changes: Any
) -> dict[str, Any]:
    """Return what a queue in a process of its own printed."""
    options = {"targets": targets, **changes}
    module = "tests.loaders.gpu_queue.queue_process"
    done = subprocess.run(
        [*prefix, sys.executable, "-m", module, json.dumps(options)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def stamped_file(path: Path, word: int = 1) -> list[Any]:
    """Write a file with a stamp per 512 bytes; returns it as a target."""
    content = np.random.default_rng(word).integers(0, 256, FILE_BYTES, dtype=np.uint8)
    seal(content, BlockIdentity(NONCE, word), first_block=9, unit_bytes=UNIT)
    path.write_bytes(content.tobytes())
    return [str(path), FILE_BYTES, word, 9]


@pytest.fixture
def file(tmp_path: Path) -> list[Any]:
    return stamped_file(tmp_path / "file")


def assert_right(found: dict[str, Any]) -> None:
    assert found["error"] is None
    assert found["requests"] == found["delivered"] > 0
    assert found["asked"] == found["taken"] == found["answered"] == found["operations"]
    assert found["wrong"] == found["failed"] == found["unanswered"] == found["bad_blocks"] == 0
    assert found["compared_bytes"] > 0


@pytest.mark.parametrize(
    "geometry",
    [
        {"engine": "memory"},
        {"engine": "memory", "block_bytes": 4096, "read_bytes": 4096, "queue_pairs": 3},
        {"requesters": 96, "queue_size": 128, "queue_pairs": 5, "pollers": 3},
        {"read_bytes": 4096, "pattern": "regions"},
        {"requesters": 32, "queue_size": 32, "queue_pairs": 1, "first_number": (1 << 20) - 1},
        {"requesters": 32, "queue_size": 32, "queue_pairs": 1, "first_number": (1 << 27) - 2},
        {"requesters": 32, "queue_size": 32, "queue_pairs": 1, "first_number": (1 << 32) - 2},
    ],
)
def test_every_request_is_answered_once(
    run: Run, file: list[Any], tmp_path: Path, geometry: dict[str, Any]
) -> None:
    other = stamped_file(tmp_path / "other", 2)
    found = run(file, other, duration_s=0.3, sample_every=1, **geometry)
    assert_right(found)
    assert found["asked"] == found["requests"] == found["sampled"]


def test_null_delivers_no_byte_and_ceilings_are_measured_before(run: Run, file: list[Any]) -> None:
    found = run(file, engine="null", ceiling_s=0.05)
    assert found["error"] is None
    assert found["requests"] == found["answered"] > 0
    assert found["delivered"] == found["compared_bytes"] == 0
    assert found["pull_requests"] > 0
    assert found["null_requests"] > 0


@pytest.mark.parametrize("cache", [0, 1 << 16])
def test_a_changed_block_is_named(run: Run, tmp_path: Path, cache: int) -> None:
    target = stamped_file(tmp_path / "file")
    with (tmp_path / "file").open("r+b") as handle:
        for block in range(0, FILE_BYTES // UNIT, 2):
            handle.seek(block * UNIT + 16)
            handle.write(b"changed!")
    found = run(target, cache_bytes=cache)
    assert found["error"] is None
    assert found["requests"] == found["delivered"] + found["wrong"]
    assert found["wrong"] > 0
    assert found["delivered"] > 0
    assert (found["wrong_target"], found["wrong_offset"] // UNIT % 2) == (0, 0)


@pytest.mark.parametrize("cache", [0, 1 << 13, 1 << 16])
def test_failed_reads_are_counted_and_the_others_end(run: Run, file: list[Any], cache: int) -> None:
    found = run(file, truncate=FILE_BYTES // 2, cache_bytes=cache, pattern="zipf", duration_s=0.2)
    assert found["error"] is None
    assert found["requests"] == found["delivered"] + found["failed"]
    assert found["wrong"] == 0
    assert found["asked"] == found["answered"] > found["operations"]
    (failure,) = found["failures"]
    assert failure[:2] == [library.SHORT_READ, 0]
    assert failure[3] == found["answered"] - found["operations"] <= found["failed"]


@pytest.mark.parametrize("cache", [0, 1 << 13])
def test_a_lost_answer_hangs(run: Run, file: list[Any], cache: int) -> None:
    found = run(
        file, fault="lost", hang_s=0.3, duration_s=5, cache_bytes=cache, requesters=256,
        queue_size=256,
    )  # fmt: skip
    code, path, count = found["error"]
    assert (code, path, count) == (HANGS, file[0], found["unanswered"])
    assert found["unanswered"] > 0
    assert found["asked"] == found["answered"] + found["unanswered"]


@pytest.mark.parametrize("cache", [0, 1 << 13])
def test_a_run_is_stopped_in_mid_flight(run: Run, file: list[Any], cache: int) -> None:
    found = run(file, duration_s=600, ceiling_s=600, stop_s=0.3, cache_bytes=cache)
    assert found["error"] is None
    assert found["end_ns"] - found["start_ns"] < 1e9
    assert found["close_s"] < 1


@pytest.mark.parametrize("sets", [1, 2, 8, 64])
def test_cache_counts_of_a_warp_are_those_of_a_model(run: Run, file: list[Any], sets: int) -> None:
    found = run(
        file, requesters=32, queue_size=32, cache_bytes=sets * 16 * UNIT + 1000, pattern="zipf",
        engine="memory", seed=sets, duration_s=0.4,
    )  # fmt: skip
    assert_right(found)
    model = ClockCache(sets)
    for blocks in zipf_rounds(sets, 0, found["requests"] // 32, FILE_BYTES // UNIT):
        model.ask(0, blocks)
    counts = {name: found[name] for name in ("coalesced", "hits", "bypassed")}
    counts["misses"] = found["asked"] - found["bypassed"]
    assert counts == {name: model.counts[name] for name in counts}
    assert found["merged"] == 0
    assert found["hits"] > 0


@pytest.mark.parametrize("engine", ["memory", "storage"])
@pytest.mark.parametrize("sets", [1, 4, 64])
def test_cache_counts_of_many_warps_add_up_to_their_requests(
    run: Run, file: list[Any], tmp_path: Path, engine: str, sets: int
) -> None:
    found = run(
        file, stamped_file(tmp_path / "other", 2), engine=engine, requesters=128, queue_size=128,
        cache_bytes=sets * 16 * UNIT, pattern="zipf", duration_s=0.3, pollers=2,
    )  # fmt: skip
    assert_right(found)
    through = found["coalesced"] + found["hits"] + found["merged"]
    assert found["requests"] == through + found["asked"]
    assert found["bypassed"] <= found["asked"]


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="there is no NVIDIA GPU: /dev/nvidiactl is missing")
@pytest.mark.parametrize("cache", [0, 1 << 16])
def test_the_kernels_touch_no_memory_but_theirs(file: list[Any], cache: int) -> None:
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not installed")
    prefix = (sanitizer, "--error-exitcode", "9", "--log-file", "/dev/stderr")
    found = start(dict(os.environ), file, prefix=prefix, cache_bytes=cache, ceiling_s=0.05)
    assert_right(found)


@pytest.mark.gpu
@pytest.mark.skipif(not Path("/dev/nvidia1").exists(), reason="there are not two NVIDIA GPUs")
def test_each_of_two_gpus_reads_its_own(file: list[Any]) -> None:
    for ordinal in (0, 1):
        found = start(dict(os.environ), file, ordinal=ordinal, requesters=512, queue_size=512)
        assert_right(found)
        assert found["gpus"] == [ordinal]
