"""The settings of loader=dcp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wattload.core.errors import ConfigError
from wattload.core.workload import PYTORCH, Requirement, missing_error, require_installed
from wattload.loaders.aligned_io import PAGE_BYTES
from wattload.loaders.checkpoint_store import Shard, ShardStore
from wattload.loaders.factories import make_store


@dataclass(slots=True, kw_only=True)
class Config:
    """``FileSystemWriter`` and ``FileSystemReader``; each rank saves its own checkpoint.

    ``thread_count`` and ``single_file_per_rank`` are the writer's own settings, at its defaults;
    its ``sync_files`` is ``workload.fsync``. Tensors above ``tensor_bytes`` are saved in pieces, so
    that memory holds one of them per thread and not the shard.
    """

    name: ClassVar[str] = "dcp"
    requires: ClassVar[tuple[Requirement, ...]] = (PYTORCH,)

    _target_: str = "wattload.loaders.dcp.config.Config"
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
        """Raise ``MissingExtraError`` if PyTorch is not installed; does not import it."""
        require_installed(self.requires, user="loader=dcp")

    def checkpoint_store(self, shard: Shard, *, seed: int, diskless: bool = False) -> ShardStore:
        """Return the store that saves a rank's shard by ``dcp.save``."""
        try:
            import torch.distributed.checkpoint  # noqa: F401 - to report at once that it is missing
        except ImportError as error:
            raise missing_error(self.requires, user="loader=dcp") from error
        return make_store(self, shard, seed=seed, diskless=diskless)

    def checkpoint_memory_bytes(self, shard: Shard) -> int:
        """Return a bound: a piece per thread to save, and two to load and compare one."""
        return (self.thread_count + 2) * min(self.tensor_bytes, shard.size_bytes + PAGE_BYTES)

    @property
    def checkpoint_path_is_direct(self) -> bool:
        """``False``: the writer goes through the page cache."""
        return False
