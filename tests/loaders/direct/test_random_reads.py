"""loader=direct: random reads of sectors, many in flight, each compared with its stamp."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.context import directory_target
from tests.contracts.block_reads import BlockReadsContract
from tests.loaders.block_plans import (
    FILE_BYTES,
    SECTOR,
    plan_of,
    read,
    read_beside_a_broken_drive,
    stamped_file,
)
from wattload.core.errors import ConfigError, TargetError
from wattload.core.storage.file_system import DirectIo
from wattload.loaders.aligned_io import direct_alignment
from wattload.loaders.block_reads import Ability, BlockReadConfig
from wattload.loaders.data.cold_cache import evict, resident_fraction
from wattload.loaders.direct.config import Config


class TestReads(BlockReadsContract):
    def config(self) -> BlockReadConfig:
        return Config()


@pytest.fixture(autouse=True)
def _sectors(tmp_path: Path) -> None:
    if direct_alignment(tmp_path, SECTOR) > SECTOR:
        pytest.skip("O_DIRECT does not move single sectors on the drive of the tests")


@pytest.mark.parametrize("pollers", [1, 2])
def test_every_file_is_read_past_the_page_cache_and_every_block_compared(
    tmp_path: Path, pollers: int
) -> None:
    files = [stamped_file(tmp_path / f"{i}", word=i) for i in range(3)]
    evict(file.path for file in files)
    result, watch, _ = read(Config(pollers=pollers), plan_of(*files), tmp_path)
    assert min(result.file_operations) > 64
    assert watch.read_bytes == result.operations * SECTOR
    assert result.compared_bytes == result.operations * SECTOR
    assert (result.bad_blocks, result.wrong_blocks, result.failures) == (0, 0, ())
    assert resident_fraction([file.path for file in files]) == 0
    assert 0.2 <= result.seconds < 5
    assert result.cpu_s > 0


def test_latencies_are_those_of_all_reads_by_file(tmp_path: Path) -> None:
    files = [stamped_file(tmp_path / f"{i}", word=i) for i in range(2)]
    result = read(Config(), plan_of(*files), tmp_path).result
    assert result.latency is not None
    assert result.file_latencies is not None
    assert [each.count for each in result.file_latencies] == list(result.file_operations)
    assert result.latency.count == result.operations
    in_flight = result.latency.sum_ns / 1e9 / result.seconds
    assert 0.5 * 128 < in_flight <= 128


def test_the_trace_covers_all_files_and_is_as_short_as_asked(tmp_path: Path) -> None:
    files = [stamped_file(tmp_path / f"{i}", word=i) for i in range(2)]
    rows = read(Config(), plan_of(*files, duration_s=0.5), tmp_path).result.trace
    assert set(rows["file"]) == {0, 1}
    assert (np.diff(rows["submit_ns"].astype(np.int64)) >= 0).all()
    assert (rows["offset_bytes"] < FILE_BYTES).all()
    assert (rows["offset_bytes"] % SECTOR == 0).all()
    assert len(read(Config(trace_operations=3), plan_of(*files), tmp_path).result.trace) <= 3
    assert len(read(Config(trace_operations=0), plan_of(*files), tmp_path).result.trace) == 0


def test_on_drives_of_4096_bytes_whole_pages_are_read(tmp_path: Path) -> None:
    file = stamped_file(tmp_path / "file", size=FILE_BYTES + SECTOR)
    result, watch, _ = read(Config(), plan_of(file, read_bytes=4096), tmp_path)
    assert watch.read_bytes == result.operations * 4096 == result.compared_bytes
    assert result.bad_blocks == 0


def test_a_read_that_fails_is_named_and_other_files_go_on(tmp_path: Path) -> None:
    files = [stamped_file(tmp_path / f"{i}", word=i) for i in range(2)]
    os.truncate(files[0].path, FILE_BYTES // 2)
    result = read(Config(), plan_of(*files), tmp_path).result
    (failure,) = result.failures
    assert (failure.file, failure.reason, failure.count) == (0, "fewer bytes than requested", 1)
    assert (failure.offset_bytes or 0) >= FILE_BYTES // 2
    assert result.failed == 1
    assert result.file_operations[1] > 64
    assert result.compared_bytes == result.file_operations[1] * SECTOR


def test_the_path_ends_in_host_memory_and_names_the_engines(tmp_path: Path) -> None:
    files = [stamped_file(tmp_path / f"{i}", word=i) for i in range(2)]
    reader = Config(pollers=2).block_reader(plan_of(*files), tmp_path)
    path = reader.path()
    reader.close()
    assert (path.initiator, path.path_requested, path.counts) == ("cpu", "o_direct", None)
    assert path.engine.startswith("2 engines, one per file: io_uring, 2 pollers of depth 32")
    assert path.engine.endswith("; into host memory")


def test_what_can_not_work_is_refused_beforehand(tmp_path: Path) -> None:
    config = Config()
    assert isinstance(config, BlockReadConfig)
    assert config.abilities == Ability.FILES
    plan = plan_of(stamped_file(tmp_path / "file"))
    sectors = DirectIo(memory_align_bytes=4, offset_align_bytes=512, found_by="statx")
    target = replace(directory_target(tmp_path), direct_io=sectors)
    config.check_block_reads(plan, [target])
    pages = DirectIo(memory_align_bytes=4, offset_align_bytes=4096, found_by="statx")
    with pytest.raises(ConfigError, match=r"multiples of 4096 .*workload\.block_bytes.* got 512"):
        config.check_block_reads(plan, [replace(target, direct_io=pages)])
    none = replace(target, direct_io=None, direct_io_missing="it has none")
    with pytest.raises(TargetError, match="has no O_DIRECT"):
        config.check_block_reads(plan, [none])
    with pytest.raises(ConfigError, match=r"loader\.pollers must divide .*, got 3"):
        Config(pollers=3).check_block_reads(plan, [target])
    with pytest.raises(ConfigError, match="up to 4096"):
        config.check_block_reads(replace(plan, in_flight=8192), [target])


def test_an_error_of_the_drive_is_named_and_other_files_go_on(tmp_path: Path) -> None:
    result = read_beside_a_broken_drive(Config(), tmp_path)
    (failure,) = result.failures
    assert (failure.file, failure.reason) == (0, "Input/output error (EIO)")
    assert failure.count == 1
    assert result.file_operations[1] > 0
    assert result.bad_blocks == 0
