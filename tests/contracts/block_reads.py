"""What every loader that reads blocks does alike: whole files, proved where they are delivered."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from tests.context import directory_target
from tests.loaders.block_plans import (
    FILE_BYTES,
    SECTOR,
    Watch,
    change_byte,
    plan_of,
    read,
    stamped_file,
)
from wattload.core.errors import DataError, TargetError
from wattload.core.storage.file_system import DirectIo
from wattload.loaders.block_reads import Ability, BlockReadConfig, ReadPlan


class BlockReadsContract(ABC):
    block_bytes: ClassVar[int] = SECTOR
    gpu: ClassVar[str | None] = None
    """The GPU that blocks are delivered to."""

    @abstractmethod
    def config(self) -> BlockReadConfig:
        """Return the loader's configuration."""

    def plan(self, folder: Path, count: int = 3, size: int = FILE_BYTES) -> ReadPlan:
        """Return a plan over files in a folder."""
        files = [stamped_file(folder / f"{n}", n, size, gpu=self.gpu) for n in range(count)]
        return plan_of(*files, block_bytes=self.block_bytes, requesters=32)

    def test_every_file_is_read_and_what_is_delivered_is_compared(self, tmp_path: Path) -> None:
        plan = self.plan(tmp_path)
        result, watch, path = read(self.config(), plan, tmp_path)
        assert min(result.file_operations) > 0
        assert result.compared_bytes >= plan.block_bytes
        assert (result.bad_blocks, result.wrong_blocks, result.failures) == (0, 0, ())
        assert 0.2 <= result.seconds < 5
        assert result.cpu_s > 0
        assert result.latency is not None
        assert 0 < result.latency.count <= result.operations
        if result.file_latencies is not None:
            counts = [each.count for each in result.file_latencies]
            assert counts == list(result.file_operations)
        if result.drive_bytes is None:
            assert watch.read_bytes == result.operations * plan.read_bytes
        if result.counts is not None:
            assert result.counts.read_bytes == result.counts.reads * plan.read_bytes
            assert result.counts.word != "unverified"
            assert not result.counts.is_contradictory
        assert path.engine

    def test_a_changed_byte_is_found(self, tmp_path: Path) -> None:
        plan = self.plan(tmp_path, 1, 4 * self.block_bytes)
        change_byte(plan.files[0].path, self.block_bytes + 300)
        result = read(self.config(), plan, tmp_path).result
        assert 0 < result.bad_blocks < result.compared_bytes // SECTOR

    def test_files_that_are_not_as_planned_are_refused(self, tmp_path: Path) -> None:
        plan = self.plan(tmp_path, 1)
        (file,) = plan.files
        absent = replace(plan, files=(replace(file, path=tmp_path / "absent"),))
        with pytest.raises(FileNotFoundError, match="absent"):
            read(self.config(), absent, tmp_path)

    def test_reads_behind_the_end_of_a_cut_file_fail_and_others_go_on(self, tmp_path: Path) -> None:
        plan = self.plan(tmp_path, 2)
        with_half = self.config().block_reader(plan, tmp_path)
        os.truncate(plan.files[0].path, FILE_BYTES // 2)
        try:
            result = with_half.run(Watch())
        finally:
            with_half.close()
        assert {each.reason for each in result.failures} == {"fewer bytes than requested"}
        for each in result.failures:
            assert each.file in (0, None)
            assert each.offset_bytes is None or each.offset_bytes >= FILE_BYTES // 2
        assert result.failed == sum(each.count for each in result.failures) > 0
        assert result.file_operations[1] > 0
        assert result.bad_blocks == 0

    def test_a_good_plan_passes_the_check(self, tmp_path: Path) -> None:
        config, plan = self.config(), self.plan(tmp_path)
        needs = DirectIo(memory_align_bytes=4, offset_align_bytes=SECTOR, found_by="test")
        target = replace(directory_target(tmp_path), direct_io=needs)
        assert isinstance(config, BlockReadConfig)
        assert Ability.FILES in config.abilities
        assert (Ability.GPU in config.abilities) == (self.gpu is not None)
        config.check_block_reads(plan, [target])
        assert config.block_read_bytes(plan) > 0


def refuse_a_longer_file(contract: BlockReadsContract, folder: Path) -> None:
    """Check that a file of another size than planned is refused before it is read."""
    plan = contract.plan(folder, 1)
    longer = replace(plan, files=(replace(plan.files[0], size_bytes=2 * FILE_BYTES),))
    with pytest.raises((DataError, TargetError), match="planned"):
        contract.config().block_reader(longer, folder)
