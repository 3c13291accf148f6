"""The cache by its setting, on an emulated GPU: counts, proofs and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.loaders.gpu_queue.emulated_gpu import ADDRESS, MEMORY_BYTES, install
from tests.loaders.gpu_queue.plans import plan_of, read, stamped_file
from wattload.core.errors import ConfigError
from wattload.core.io import PathCounts
from wattload.loaders.gpu_queue.config import MOST_CACHED_BLOCKS, Config
from wattload.loaders.random_reads import RandomReadPlan

FILE_BYTES = 1 << 16


@pytest.fixture
def plan(tmp_path: Path, emulated: Path, monkeypatch: pytest.MonkeyPatch) -> RandomReadPlan:
    """A plan over two files for the emulated GPU."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(emulated))
    install(monkeypatch)
    files = [
        stamped_file(tmp_path / name, word, FILE_BYTES) for word, name in enumerate("ab", start=1)
    ]
    return plan_of(*files, gpu=ADDRESS, duration_s=0.4)


@pytest.mark.parametrize("engine", ["storage", "memory"])
@pytest.mark.parametrize("cache_bytes", [8192, FILE_BYTES // 2, 8 * FILE_BYTES])
def test_each_request_is_in_one_count(
    plan: RandomReadPlan, tmp_path: Path, engine: str, cache_bytes: int
) -> None:
    result, path = read(
        plan, tmp_path, requester="gpu", engine=engine, cache_bytes=cache_bytes,
        table_bytes=FILE_BYTES,
    )  # fmt: skip
    cache, count = result.cache, result.operations
    assert cache is not None
    assert result.requests == cache.requests == result.delivered
    assert cache.asked == result.taken == result.answered == count == sum(result.file_operations)
    assert cache.hits or cache_bytes < FILE_BYTES, "warps may use all pages of a small cache"
    assert (result.wrong_blocks, result.bad_blocks, result.failures) == (0, 0, ())
    if engine == "memory":
        assert path.counts is None
        return
    assert path.counts == PathCounts(
        reads=count, read_bytes=count * 512, requester="gpu", asked=count, taken=count,
        answered=count, delivered=cache.requests, requests=cache.requests,
        coalesced=cache.coalesced, hits=cache.hits, joined=cache.joined, misses=cache.misses,
        passed=cache.passed,
    )  # fmt: skip
    assert path.counts.word == "gpu_pull"
    assert f"GPU {ADDRESS} with a cache of {cache_bytes} bytes" in path.engine


def test_without_a_cache_nothing_is_counted_at_one(plan: RandomReadPlan, tmp_path: Path) -> None:
    result, path = read(plan, tmp_path, requester="gpu")
    assert result.cache is None
    assert result.requests == result.operations == result.delivered
    assert path.counts is not None
    assert (path.counts.word, path.counts.requests, path.counts.hits) == ("gpu_pull", None, None)
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
    plan: RandomReadPlan, cache_bytes: int, block_bytes: int, following: int
) -> None:
    config = Config(cache_bytes=cache_bytes)
    files = tuple(replace(file, read_bytes=block_bytes) for file in plan.files)
    other = replace(plan, files=files, block_bytes=block_bytes)
    sentence = (
        rf"loader.cache_bytes must be 0 or a power of two that holds 16 blocks of {block_bytes} "
        rf"bytes, got {cache_bytes}; use {following}"
    )
    with pytest.raises(ConfigError, match=sentence):
        config.check_random_reads(other, [])
    Config(cache_bytes=following).check_random_reads(other, [])


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


def test_a_cache_larger_than_the_memory_of_the_gpu(plan: RandomReadPlan) -> None:
    for file in plan.files:
        file.path.unlink()  # it is found out before there is a file
    config = Config(cache_bytes=MEMORY_BYTES)
    sentence = r"has no 1074 MB free for the cache; use fewer .* or a smaller loader.cache_bytes$"
    with pytest.raises(ConfigError, match=sentence):
        config.check_random_reads(plan, [])
    Config(cache_bytes=MEMORY_BYTES // 2).check_random_reads(plan, [])


def test_blocks_that_the_cache_could_not_tell_apart(plan: RandomReadPlan) -> None:
    first, second = plan.files
    most_bytes = MOST_CACHED_BLOCKS * 512
    large = replace(plan, files=(first, replace(second, size_bytes=most_bytes + 512)))
    with pytest.raises(ConfigError, match=rf"at most 35.18 TB with .*, and {second.path} has "):
        Config(cache_bytes=8192).check_random_reads(large, [])
    Config(cache_bytes=8192, engine="memory").check_random_reads(large, [])
    fitting = replace(plan, files=(first, replace(second, size_bytes=most_bytes)))
    Config(cache_bytes=8192).check_random_reads(fitting, [])
