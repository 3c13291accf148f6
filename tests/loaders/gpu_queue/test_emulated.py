"""Whole readers on an emulated GPU: its cache (counts, proofs, refusals) and its clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.loaders.block_plans import plan_of, stamped_file
from tests.loaders.gpu_queue.emulated_gpu import ADDRESS, MEMORY_BYTES, install
from tests.loaders.gpu_queue.plans import read
from wattload.core.errors import ConfigError
from wattload.loaders.block_reads import LEAST_CLOCK_STEPS, ReadPlan, ReadResult
from wattload.loaders.gpu_queue.config import MOST_CACHED_BLOCKS, Config

FILE_BYTES = 1 << 16
STEP_NS = 10**6
Made = Callable[..., ReadResult]


@pytest.fixture
def plan(tmp_path: Path, emulated: Path, monkeypatch: pytest.MonkeyPatch) -> ReadPlan:
    """A plan over two files for the emulated GPU."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(emulated))
    install(monkeypatch)
    files = [
        stamped_file(tmp_path / name, word, FILE_BYTES, gpu=ADDRESS)
        for word, name in enumerate("ab", start=1)
    ]
    return plan_of(*files, duration_s=0.4)


@pytest.mark.parametrize("engine", ["storage", "memory"])
@pytest.mark.parametrize("cache_bytes", [8192, FILE_BYTES // 2, 8 * FILE_BYTES])
def test_each_request_is_in_one_count(
    plan: ReadPlan, tmp_path: Path, engine: str, cache_bytes: int
) -> None:
    result, path = read(
        plan, tmp_path, requester="gpu", engine=engine, cache_bytes=cache_bytes,
        table_bytes=FILE_BYTES,
    )  # fmt: skip
    counts, count = result.counts, result.operations
    assert counts is not None
    assert result.has_cache
    assert counts.requests == counts.delivered
    assert counts.asked == counts.taken == counts.answered == count == sum(result.file_operations)
    assert counts.hits or cache_bytes < FILE_BYTES, "warps may use all pages of a small cache"
    assert (result.wrong_blocks, result.bad_blocks, result.failures) == (0, 0, ())
    assert (counts.reads, counts.requester, counts.word) == (count, "gpu", "gpu_pull")
    assert f"GPU {ADDRESS} with a cache of {cache_bytes} bytes" in path.engine


def test_without_a_cache_nothing_is_counted_at_one(plan: ReadPlan, tmp_path: Path) -> None:
    result, path = read(plan, tmp_path, requester="gpu")
    counts = result.counts
    assert counts is not None
    assert not result.has_cache
    assert counts.asked == result.operations == counts.delivered
    assert (counts.word, counts.requests, counts.hits) == ("gpu_pull", None, None)
    assert "cache" not in path.engine


@pytest.mark.parametrize(
    ("cache_bytes", "block_bytes", "following"),
    [
        (1, 512, 8192),
        (8191, 512, 8192),
        (8193, 512, 16384),
        (100_000, 512, 131_072),
        (8192, 4096, 65_536),
        (65_537, 4096, 131_072),
    ],
)
def test_other_sizes_name_the_next(
    plan: ReadPlan, cache_bytes: int, block_bytes: int, following: int
) -> None:
    config = Config(cache_bytes=cache_bytes)
    other = replace(plan, read_bytes=block_bytes, block_bytes=block_bytes)
    sentence = (
        rf"loader.cache_bytes must be 0 or a power of two that holds 16 blocks of {block_bytes} "
        rf"bytes, got {cache_bytes}; use {following}"
    )
    with pytest.raises(ConfigError, match=sentence):
        config.check_block_reads(other, [])
    Config(cache_bytes=following).check_block_reads(other, [])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"requester": "cpu"}, r"is 8192 with loader.requester=cpu: a cache is in the memory of a"),
        ({"engine": "null"}, r"is 8192 with loader.engine=null: .*, or loader.cache_bytes=0$"),
        ({"cache_bytes": -1}, r"loader.cache_bytes must be 0 to 274877906944"),
        ({"cache_bytes": 1 << 40}, r"loader.cache_bytes must be 0 to 274877906944"),
    ],
)
def test_a_cache_needs_a_gpu_and_blocks(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config(**{"cache_bytes": 8192, **settings}).check()


def test_a_cache_larger_than_the_memory_of_the_gpu(plan: ReadPlan) -> None:
    for file in plan.files:
        file.path.unlink()  # it is found out before there is a file
    config = Config(cache_bytes=MEMORY_BYTES)
    sentence = r"has no 1.09 GB free for the cache; use fewer .* or loader.cache_bytes, or end"
    with pytest.raises(ConfigError, match=sentence):
        config.check_block_reads(plan, [])
    Config(cache_bytes=MEMORY_BYTES // 2).check_block_reads(plan, [])


def test_blocks_that_the_cache_could_not_tell_apart(plan: ReadPlan) -> None:
    first, second = plan.files
    most_bytes = MOST_CACHED_BLOCKS * 512
    large = replace(plan, files=(first, replace(second, size_bytes=most_bytes + 512)))
    with pytest.raises(
        ConfigError, match=rf"at most 35,184,372,088,320 B with .*, and {second.path} has "
    ):
        Config(cache_bytes=8192).check_block_reads(large, [])
    Config(cache_bytes=8192, engine="memory").check_block_reads(large, [])
    fitting = replace(plan, files=(first, replace(second, size_bytes=most_bytes)))
    Config(cache_bytes=8192).check_block_reads(fitting, [])


@pytest.fixture
def made(plan: ReadPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Makes reads by the emulated GPU, whose clock may have steps."""

    def run(step_ns: int, **settings: Any) -> ReadResult:
        monkeypatch.setenv("EMULATED_CLOCK_STEP_NS", str(step_ns))
        return read(plan, tmp_path, requester="gpu", **settings)[0]

    return run


@pytest.mark.parametrize("settings", [{}, {"engine": "memory"}, {"cache_bytes": 1 << 18}])
def test_latencies_of_few_steps_are_not_known(made: Made, settings: dict[str, Any]) -> None:
    result = made(STEP_NS, **settings)
    assert result.operations > 0
    assert result.clock_step_ns is not None
    assert result.clock_step_ns % STEP_NS == 0
    if result.latency is not None:  # on a machine so busy that reads take 20 steps
        assert (result.latency.quantile_ns(0.5) or 0) >= LEAST_CLOCK_STEPS * result.clock_step_ns
        return
    steps = f"the GPU's clock has steps of {result.clock_step_ns} ns: fewer than 20"
    assert steps in result.latency_missing


def test_latencies_of_many_steps_are_known(made: Made) -> None:
    result = made(1)
    assert result.latency is not None
    assert result.latency_missing == ""
    assert 0 < (result.clock_step_ns or 0) < 10**5


def test_without_a_gpu_there_is_no_step(tmp_path: Path) -> None:
    result, _ = read(plan_of(stamped_file(tmp_path / "file")), tmp_path)
    assert result.clock_step_ns is None
    assert result.latency is not None
