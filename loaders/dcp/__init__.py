"""The ``dcp`` loader: checkpoints by PyTorch's ``torch.distributed.checkpoint``."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from wattload.core.errors import ConfigError, MissingExtraError
from wattload.loaders.aligned import PAGE_BYTES
from wattload.loaders.checkpoints import Shard, ShardStore

MISSING_TORCH = (
    "loader=dcp needs PyTorch, which is not installed; "
    "install it with: pip install 'wattload[torch]', or use loader=direct"
)


@dataclass(slots=True, kw_only=True)
class Config:
    """``FileSystemWriter`` and ``FileSystemReader``, each rank with a checkpoint of its own.

    ``thread_count`` and ``single_file_per_rank`` are the writer's own settings, at its defaults;
    its ``sync_files`` is ``workload.fsync``. Tensors above ``tensor_bytes`` are saved in pieces, so
    that memory holds one of them per thread and not the shard.
    """

    _target_: str = "wattload.loaders.dcp.Config"
    thread_count: int = 1
    single_file_per_rank: bool = True
    tensor_bytes: int = 64 << 20

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        if self.thread_count < 1:
            raise ConfigError(f"loader.thread_count must be 1 or more, got {self.thread_count}")
        if self.tensor_bytes < PAGE_BYTES or self.tensor_bytes % PAGE_BYTES:
            raise ConfigError(
                f"loader.tensor_bytes must be a multiple of {PAGE_BYTES}, at least {PAGE_BYTES}, "
                f"got {self.tensor_bytes}"
            )

    def require_checkpoint_library(self) -> None:
        """Raise ``MissingExtraError`` where PyTorch is not installed; it is not imported yet."""
        if find_spec("torch") is None:
            raise MissingExtraError(MISSING_TORCH)

    def checkpoint_store(self, shard: Shard, *, seed: int, diskless: bool = False) -> ShardStore:
        """Return the store that saves a rank's shard by ``dcp.save``."""
        try:
            import torch.distributed.checkpoint  # noqa: F401 - to say at once that it is missing
        except ImportError as error:
            raise MissingExtraError(MISSING_TORCH) from error
        from wattload.loaders.dcp.checkpoint import DcpStore

        return DcpStore(self, shard, seed=seed, diskless=diskless)

    def checkpoint_memory_bytes(self, shard: Shard) -> int:
        """Return a bound: a piece per thread to save, and two to load one and to compare it."""
        return (self.thread_count + 2) * min(self.tensor_bytes, shard.size_bytes + PAGE_BYTES)

    @property
    def checkpoint_path_is_direct(self) -> bool:
        """``False``: the writer goes through the page cache."""
        return False
