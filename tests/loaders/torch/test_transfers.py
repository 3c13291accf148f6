"""Block transfers by threads through the page cache do what every loader of blocks does."""

from __future__ import annotations

from tests.contracts.block_transfers import LIMITS, BlockTransfersContract
from wattload.loaders.torch.config import Config


class TestTorch(BlockTransfersContract):
    def config(self) -> Config:
        return Config()

    def operations(self, size: int) -> int:
        return 1

    def test_memory_is_that_of_each_threads_longest_extent(self) -> None:
        assert self.config().block_transfer_bytes(LIMITS) == 2 * 4 * LIMITS.largest_bytes
