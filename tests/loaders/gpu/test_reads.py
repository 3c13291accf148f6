"""Reads through the process: figures, counts, and the comparison of what was delivered."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.contracts.block_reads import BlockReadsContract
from tests.loaders.block_plans import SECTOR
from tests.loaders.gpu.plans import BLOCK, FILE_BYTES, GPU, plan_of, read, stamped_file
from wattload.core.errors import ConfigError, TargetError
from wattload.core.io import PathCounts
from wattload.loaders.block_reads import BlockReadConfig, ReadResult
from wattload.loaders.bounce import Config as Bounce
from wattload.loaders.cufile import Config as CuFile
from wattload.loaders.engine import library
from wattload.loaders.gpu import native

pytestmark = pytest.mark.usefixtures("stubs")


class TestByThreads(BlockReadsContract):
    block_bytes, gpu = BLOCK, GPU

    def config(self) -> BlockReadConfig:
        return Bounce()


class TestByRing(TestByThreads):
    def config(self) -> BlockReadConfig:
        return Bounce(submit="ring")


class TestByCufile(TestByThreads):
    def config(self) -> BlockReadConfig:
        return CuFile(mode="auto")


CONFIGS: dict[str, Bounce | CuFile] = {
    "thread": Bounce(),
    "ring": Bounce(submit="ring"),
    "ring of pollers": Bounce(submit="ring", pollers=3),
    "cufile": CuFile(mode="auto"),
}
Stubs = Callable[..., None]


def counts_of(result: ReadResult) -> PathCounts:
    """Return the counts of a reader that has some."""
    assert result.counts is not None
    return result.counts


@pytest.mark.parametrize("way", CONFIGS)
def test_each_way_delivers_every_file_and_counts_exactly(way: str, tmp_path: Path) -> None:
    files = [stamped_file(tmp_path / f"{i}", word=i) for i in range(3)]
    plan = plan_of(*files, threads=8, checked_reads=2)
    result = read(CONFIGS[way], plan, tmp_path)
    checked = 8 * (2 + 2)
    assert result.operations > 0
    assert counts_of(result).read_bytes == counts_of(result).reads * BLOCK
    # A read may end after the deadline: it is counted, but in no other figure.
    assert 0 <= counts_of(result).reads - checked - result.operations <= 8
    assert result.latency is not None
    assert result.latency.count == result.operations == sum(result.file_operations)
    assert min(result.file_operations) > 0
    assert (result.bad_blocks, result.failures) == (0, ())
    # The last timed read of a thread is compared too, if it got a core in that time.
    assert BLOCK * checked <= result.compared_bytes <= BLOCK * (checked + 8)
    assert result.seconds == pytest.approx(plan.duration_s)
    busy_s = result.latency.sum_ns / 1e9
    assert busy_s <= 8 * result.seconds
    assert result.cpu_s > 0


def test_the_pinned_copies_prove_a_bounce(tmp_path: Path) -> None:
    plan = plan_of(stamped_file(tmp_path / "file"))
    by_thread = counts_of(read(Bounce(), plan, tmp_path))
    by_ring = counts_of(read(Bounce(submit="ring"), plan, tmp_path))
    assert by_thread.word == by_ring.word == "host_bounce"
    assert by_thread.pinned_copies == by_thread.reads
    assert by_ring.pinned_copies is not None
    assert by_ring.pinned_copies <= by_ring.reads
    assert by_ring.pinned_bytes == by_ring.read_bytes


@pytest.mark.parametrize("version", ["1150", "1200"])
@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("posix", "posix_bounce"),
        ("p2p", "p2p_pci"),
        ("peer", "p2p_via_peer_gpu"),
        ("mixed", "mixed"),
        ("none", "unverified"),
        ("nvfs", "p2p_nvfs"),
    ],
)
def test_the_statistics_of_cufile_are_the_path(
    path: str, word: str, version: str, stubs: Stubs, tmp_path: Path
) -> None:
    stubs(STUB_CUFILE_PATH=path, STUB_CUFILE_VERSION=version)
    result = read(CuFile(mode="auto"), plan_of(stamped_file(tmp_path / "file")), tmp_path)
    assert counts_of(result).word == word
    assert counts_of(result).library_reads == (0 if path == "none" else counts_of(result).reads)
    assert result.software["cufile"] == {"1150": "1.15", "1200": "1.20"}[version]


@pytest.mark.parametrize("version", ["1140", "1160", "1300"])
def test_statistics_of_an_unknown_layout_are_missing(
    version: str, stubs: Stubs, tmp_path: Path
) -> None:
    stubs(STUB_CUFILE_VERSION=version)
    plan = plan_of(stamped_file(tmp_path / "file"))
    counts = counts_of(read(CuFile(mode="auto"), plan, tmp_path))
    assert counts == PathCounts(reads=counts.reads, read_bytes=counts.read_bytes)
    assert counts.word == "unverified"


def test_zeros_of_a_library_are_bad_blocks(stubs: Stubs, tmp_path: Path) -> None:
    stubs(STUB_CUFILE_ZEROS="1")
    result = read(CuFile(mode="auto"), plan_of(stamped_file(tmp_path / "file")), tmp_path)
    assert result.bad_blocks == result.compared_bytes // SECTOR == 4 * 3 * BLOCK // SECTOR


@pytest.mark.parametrize("way", CONFIGS)
def test_readers_begin_with_the_documented_blocks(way: str, tmp_path: Path) -> None:
    """A reader's checked reads are its first ones: it reads bad blocks where numpy says so."""
    file = stamped_file(tmp_path / "file")
    plan = plan_of(file, threads=6, checked_reads=3, duration_s=0.0)
    numbers = np.arange(2 * plan.checked_reads, dtype=np.uint64)
    blocks = [native.block_numbers(plan.seed, t, numbers, FILE_BYTES // BLOCK) for t in range(6)]
    bad = int(blocks[4][1])
    with file.path.open("r+b") as opened:
        opened.seek(bad * BLOCK + 100)
        opened.write(b"changed")
    result = read(CONFIGS[way], plan, tmp_path)
    assert result.operations == 0
    assert result.bad_blocks == sum(int((each == bad).sum()) for each in blocks) > 0


def test_the_formula_is_that_of_the_library() -> None:
    numbers = np.arange(200, dtype=np.uint64)
    for seed, reader, blocks in ((0, 0, 1), (11, 3, 64), ((1 << 64) - 1, 2047, 1_220_703)):
        own = [library.load().wl_gpu_block(seed, reader, int(n), blocks) for n in numbers]
        assert native.block_numbers(seed, reader, numbers, blocks).tolist() == own
        assert max(own) < blocks


def test_failed_reads_are_counted_and_not_repeated(stubs: Stubs, tmp_path: Path) -> None:
    stubs(STUB_CUFILE_FAIL_EVERY="5", STUB_CUFILE_FAIL_CODE="5030")
    result = read(CuFile(mode="auto"), plan_of(stamped_file(tmp_path / "file")), tmp_path)
    [failure] = result.failures
    assert failure.reason == "cuFile error 5030: an internal error"
    failed = result.failed
    assert (counts_of(result).reads + failed) // 5 == failed
    assert counts_of(result).library_reads == counts_of(result).reads
    assert result.bad_blocks == 0


@pytest.mark.parametrize("way", CONFIGS)
def test_many_threads_on_two_gpus(way: str, stubs: Stubs, tmp_path: Path) -> None:
    stubs(STUB_CUDA_GPUS="2")
    files = [
        replace(stamped_file(tmp_path / f"{i}", word=i), gpu=f"0000:{65 + i}:00.0", node=0)
        for i in range(2)
    ]
    result = read(CONFIGS[way], plan_of(*files, threads=512), tmp_path)
    assert result.bad_blocks == 0
    assert result.compared_bytes >= BLOCK * 512 * 2
    assert counts_of(result).word in ("host_bounce", "posix_bounce")


def test_the_configuration_of_cufile_is_kept(tmp_path: Path) -> None:
    plan = plan_of(stamped_file(tmp_path / "file"), threads=200)
    read(CuFile(mode="auto"), plan, tmp_path)
    kept = json.loads((tmp_path / "cufile.json").read_text())
    assert kept["properties"]["allow_compat_mode"] is True
    assert kept["properties"]["posix_pool_slab_count"] == [200, 64, 64]
    assert kept["properties"]["max_direct_io_size_kb"] == 1024
    assert kept["logging"]["dir"] == str(tmp_path)


def test_a_direct_run_is_refused_where_reads_would_bounce(stubs: Stubs, tmp_path: Path) -> None:
    plan = plan_of(stamped_file(tmp_path / "file"))
    with pytest.raises(ConfigError, match=r"\(5001\).*`wattload doctor`.*loader=cufile_auto"):
        read(CuFile(), plan, tmp_path)
    stubs(STUB_CUFILE_PATH="mixed")
    with pytest.raises(TargetError, match=r"\(5008\).*`wattload doctor`.*use loader=cufile_auto"):
        read(CuFile(), plan, tmp_path)
    stubs(STUB_CUFILE_PATH="p2p")
    assert counts_of(read(CuFile(), plan, tmp_path)).word == "p2p_pci"


def test_the_environment_does_not_change_cufile(stubs: Stubs, tmp_path: Path) -> None:
    stubs(CUFILE_ENV_PATH_JSON="/nowhere.json")
    result = read(CuFile(mode="auto"), plan_of(stamped_file(tmp_path / "file")), tmp_path)
    assert counts_of(result).word == "posix_bounce"
