"""loader=mmap: page faults read the blocks of a queue's requesters; every byte is compared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.context import directory_target
from tests.contracts.block_reads import BlockReadsContract, refuse_a_longer_file
from tests.loaders.block_plans import (
    FILE_BYTES,
    SECTOR,
    change_byte,
    plan_of,
    read,
    read_beside_a_broken_drive,
    stamped_file,
)
from wattload.core.errors import ConfigError
from wattload.core.sysfs import Roots
from wattload.loaders.block_reads import Ability, BlockReadConfig, Pattern, ReadFile
from wattload.loaders.data.cold_cache import evict, read_ahead_remarks, residency
from wattload.loaders.gpu.native import block_numbers
from wattload.loaders.mmap import config as module
from wattload.loaders.mmap.config import Config
from wattload.loaders.mmap.reader import storage_read_bytes

PAGE = 4096


class TestReads(BlockReadsContract):
    def config(self) -> BlockReadConfig:
        return Config(threads=4)

    def test_a_longer_file_is_refused(self, tmp_path: Path) -> None:
        refuse_a_longer_file(self, tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> ReadFile:
    return stamped_file(tmp_path / "file")


@pytest.mark.parametrize("advice", ["normal", "random"])
@pytest.mark.parametrize("threads", [None, 1, 7])
def test_every_file_is_read_and_every_block_compared(
    tmp_path: Path, threads: int | None, advice: str
) -> None:
    files = [stamped_file(tmp_path / f"{i}", word=i) for i in range(3)]
    result = read(Config(threads=threads, advice=advice), plan_of(*files), tmp_path).result
    assert min(result.file_operations) > 0
    assert result.compared_bytes == result.operations * SECTOR
    assert (result.bad_blocks, result.wrong_blocks, result.failures) == (0, 0, ())
    assert 0.2 <= result.seconds < 5
    assert result.cpu_s > 0
    assert result.latency is not None
    assert result.latency.count >= result.operations // 64
    assert result.file_latencies is None


def test_without_read_ahead_each_page_is_read_once(tmp_path: Path, file: ReadFile) -> None:
    """The page cache is cold, and a page that was read stays there."""
    evict([file.path])
    result, watch, _ = read(Config(advice="random"), plan_of(file, duration_s=1.0), tmp_path)
    assert result.drive_bytes == watch.read_bytes
    fraction = residency([file.path]).fraction
    assert fraction  # 1, unless the drive is slow
    read_bytes = fraction * FILE_BYTES
    assert result.drive_bytes == pytest.approx(read_bytes, rel=0.05)
    assert result.major_faults == pytest.approx(read_bytes / PAGE, rel=0.1)
    assert result.touched_pages == result.operations


def test_the_path_says_what_is_advised_and_read_ahead(tmp_path: Path, file: ReadFile) -> None:
    config = Config(threads=3, advice="random")
    reader = config.block_reader(plan_of(file), tmp_path)
    path = reader.path()
    assert (path.initiator, path.data_path, path.path_requested) == ("cpu", *["page_cache"] * 2)
    assert path.engine == "page faults of 3 threads, madvise MADV_RANDOM; into host memory"
    assert any("read-ahead" in remark for remark in path.remarks)
    reader.close()


@pytest.mark.parametrize("pattern", Pattern)
def test_the_blocks_are_those_of_the_requesters(tmp_path: Path, pattern: Pattern) -> None:
    """One thread reads the first block of each requester in turn: the trace begins with them."""
    file = stamped_file(tmp_path / "file")
    plan = plan_of(file, pattern=pattern, requesters=128, duration_s=0.05)
    trace = read(Config(threads=1), plan, tmp_path).result.trace
    warps = 4 if pattern is Pattern.REGIONS else 1
    blocks = FILE_BYTES // SECTOR // warps
    step = np.arange(len(trace), dtype=np.uint64) * np.uint64(1024)
    for row, number in zip(trace[:50], step[:50], strict=True):
        slot, lap = int(number) % 128, int(number) // 128
        block = int(block_numbers(plan.seed, slot, np.array([lap], dtype=np.uint64), blocks)[0])
        first = slot // 32 * blocks if pattern is Pattern.REGIONS else 0
        assert row["offset_bytes"] == (first + block) * SECTOR


@pytest.mark.parametrize(("byte", "is_wrong"), [(0, True), (16, True), (24, False), (300, False)])
def test_a_changed_byte_is_a_bad_block_and_another_stamp_a_wrong_one(
    tmp_path: Path, byte: int, is_wrong: bool
) -> None:
    file = stamped_file(tmp_path / "file", size=16 * SECTOR)
    change_byte(file.path, 3 * SECTOR + byte)
    result = read(Config(), plan_of(file), tmp_path).result
    assert result.bad_blocks / result.operations == pytest.approx(1 / 16, rel=0.5)
    assert result.wrong_blocks == (result.bad_blocks if is_wrong else 0)
    assert result.first_wrong == ((0, 3 * SECTOR) if is_wrong else None)


def test_faults_of_others_are_signals_again_afterwards(tmp_path: Path, file: ReadFile) -> None:
    program = f"""
import mmap, os
from pathlib import Path
from tests.loaders.block_plans import plan_of, read, stamped_file
from wattload.loaders.mmap.config import Config
folder = Path({str(tmp_path)!r})
read(Config(), plan_of(stamped_file(folder / "own")), folder)
print("read", flush=True)
with open({str(file.path)!r}, "r+b") as opened:
    memory = mmap.mmap(opened.fileno(), 0)
    opened.truncate(0)
    memory[0]
"""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=root
    )
    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "read\n")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threads": 0}, r"loader\.threads must be 1 to 1024, got 0"),
        ({"advice": "sequential"}, r"loader\.advice must be one of normal, random"),
    ],
)
def test_a_setting_out_of_range_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config(**settings).check()


def test_what_can_not_work_is_refused_beforehand(
    tmp_path: Path, file: ReadFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, targets = Config(), [directory_target(tmp_path)]
    assert isinstance(config, BlockReadConfig)
    assert config.abilities == Ability.FILES
    config.check_block_reads(plan_of(file), targets)
    with pytest.raises(ConfigError, match="at most 64 targets per process, got 65"):
        config.check_block_reads(plan_of(*[file] * 65), targets)

    def refuse() -> int:
        raise FileNotFoundError(2, "No such file or directory", "/proc/self/io")

    monkeypatch.setattr(module, "storage_read_bytes", refuse)
    with pytest.raises(ConfigError, match=r"read_bytes in /proc/self/io: .*; use loader=direct"):
        config.check_block_reads(plan_of(file), targets)


def test_the_read_ahead_is_that_of_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    device = path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    roots = Roots(sys=tmp_path / "sys", proc=tmp_path / "proc")
    (unknown,) = read_ahead_remarks([path], roots)
    assert unknown.startswith(f"The read-ahead of device {number} is unknown: ")
    partition = tmp_path / "sys/devices/nvme9n1/nvme9n1p1"
    partition.mkdir(parents=True)
    (partition.parent / "queue").mkdir()
    (partition.parent / "queue/read_ahead_kb").write_text("128\n")
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / "sys/dev/block" / number).symlink_to(partition)
    assert read_ahead_remarks([path, path], roots) == (
        "The read-ahead of nvme9n1 is 128 KiB (read_ahead_kb).",
    )


def test_bytes_from_storage_are_the_kernels_count(tmp_path: Path) -> None:
    roots = Roots(proc=tmp_path)
    (tmp_path / "self").mkdir()
    (tmp_path / "self/io").write_text("rchar: 1\nread_bytes: 4096\nwrite_bytes: 7\n")
    assert storage_read_bytes(roots) == 4096
    (tmp_path / "self/io").write_text("rchar: 1\n")
    with pytest.raises(ValueError, match="has no read_bytes"):
        storage_read_bytes(roots)


def test_an_error_of_the_drive_is_named_and_other_files_go_on(tmp_path: Path) -> None:
    result = read_beside_a_broken_drive(Config(threads=4), tmp_path)
    (failure,) = result.failures
    assert (failure.file, failure.reason) == (0, "Input/output error (EIO)")
    assert failure.count > 1
    assert result.file_operations[1] > 0
    assert result.bad_blocks == 0
