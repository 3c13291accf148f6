"""Block transfers by threads through the page cache do what every loader of blocks does."""

from __future__ import annotations

from pathlib import Path

from tests.contracts.block_transfers import (
    LIMITS,
    BlockTransfersContract,
    block_files,
    long_store,
    restore,
    store,
)
from wattload.loaders.torch.config import Config


class TestTorch(BlockTransfersContract):
    def config(self) -> Config:
        return Config()

    def operations(self, size: int) -> int:
        return 1

    def test_reads_go_before_writes_that_came_first(self, tmp_path: Path) -> None:
        transfers = self.make(tmp_path)
        plan = store(block_files(tmp_path, 3))
        transfers.submit(plan).result()
        (tmp_path / "more").mkdir()
        under_way = transfers.submit(long_store(tmp_path / "more"))
        assert transfers.submit(restore(plan)).result().bad_blocks == 0
        assert not under_way.wait(0)
        transfers.close()

    def test_memory_is_that_of_each_threads_longest_read_and_write(self) -> None:
        assert self.config().block_transfer_bytes(LIMITS) == 2 * 4 * LIMITS.largest_bytes
