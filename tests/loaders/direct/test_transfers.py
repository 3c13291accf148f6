"""Block transfers by O_DIRECT do what every loader of blocks does, and share the queue depth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.context import directory_target
from tests.contracts.block_transfers import LIMITS, BlockTransfersContract
from wattload.core.errors import ConfigError, TargetError
from wattload.core.storage.file_system import DirectIo
from wattload.loaders.direct.config import Config


class TestUring(BlockTransfersContract):
    def config(self) -> Config:
        return Config()

    def operations(self, size: int) -> int:
        return -(-size // LIMITS.request_bytes)


class TestPread(TestUring):
    def config(self) -> Config:
        return Config(engine="pread")


class TestSeveralPollers(TestUring):
    def config(self) -> Config:
        return Config(pollers=2)


def test_what_direct_io_cannot_do_is_refused_before_there_is_a_file(tmp_path: Path) -> None:
    target = directory_target(tmp_path)
    with pytest.raises(TargetError, match="has no O_DIRECT"):
        Config().check_block_transfers(LIMITS, [replace(target, direct_io=None)])
    needs = DirectIo(memory_align_bytes=4096, offset_align_bytes=1 << 20, found_by="test")
    coarse = replace(target, direct_io=needs)
    with pytest.raises(ConfigError, match=r"workload.request_bytes must be one of them, got 65536"):
        Config().check_block_transfers(LIMITS, [coarse])
    with pytest.raises(ConfigError, match=r"workload.queue_depth=4; loader.pollers must divide"):
        Config(pollers=3).check_block_transfers(LIMITS, [target])
    assert Config(pollers=2).block_transfer_bytes(LIMITS) == 2 * 4 * (64 << 10)
