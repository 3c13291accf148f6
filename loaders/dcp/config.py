"""The settings of loader=dcp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wattload.core.settings import check_settings, setting
from wattload.core.workload import PYTORCH, Requirement, missing_error, require_installed
from wattload.loaders.aligned_io import PAGE_BYTES
from wattload.loaders.checkpoint_store import Shard, ShardStore, make_store

THREAD_LIMIT = 1024


@dataclass(slots=True, kw_only=True)
class Config:
    """``FileSystemWriter`` and ``FileSystemReader``; each rank saves its own checkpoint.

    ``thread_count`` and ``single_file_per_rank`` are the writer's own settings, at its defaults;
    its ``sync_files`` is ``workload.fsync``.
    """

    name: ClassVar[str] = "dcp"
    requires: ClassVar[tuple[Requirement, ...]] = (PYTORCH,)

    _target_: str = "wattload.loaders.dcp.config.Config"
    thread_count: int = setting(1, "Threads that write, per rank.", least=1, most=THREAD_LIMIT)
    single_file_per_rank: bool = setting(True, "Write one file per rank, not one per tensor.")
    tensor_bytes: int = setting(
        64 << 20,
        "Larger tensors are saved in pieces of this size; memory holds one piece per thread.",
        multiple=PAGE_BYTES,
        least=PAGE_BYTES,
    )

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        check_settings(self, "loader")

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
