"""The settings of loader=native."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wattload.core.io import DataPath
from wattload.core.settings import check_settings, setting
from wattload.core.workload import Requirement
from wattload.loaders.aligned_io import PAGE_BYTES
from wattload.loaders.converters import Converter
from wattload.loaders.direct.config import BLOCK_BYTES_LIMIT, ENGINES, QUEUE_DEPTH_LIMIT
from wattload.loaders.engine.library import AUTO, choose_backend


@dataclass(slots=True, kw_only=True)
class Config:
    """Conversion in C between O_DIRECT reads and writes; each worker has an engine of its own."""

    name: ClassVar[str] = "native"
    requires: ClassVar[tuple[Requirement, ...]] = ()

    _target_: str = "wattload.loaders.native.config.Config"
    engine: str = setting(
        AUTO, "What issues the I/O; auto: io_uring where the kernel allows it.", choices=ENGINES
    )
    block_bytes: int = setting(
        1 << 20,
        "Size of one I/O.",
        multiple=PAGE_BYTES,
        least=PAGE_BYTES,
        most=BLOCK_BYTES_LIMIT,
    )
    queue_depth: int = setting(8, "I/Os in flight per worker.", least=1, most=QUEUE_DEPTH_LIMIT)

    def check(self) -> None:
        """Raise ``ConfigError`` for an unknown engine, or a setting outside its range."""
        check_settings(self, "loader")

    @property
    def conversion_path(self) -> DataPath:
        choice = choose_backend(self.engine)
        return DataPath(
            data_path="o_direct",
            path_requested="o_direct",
            engine=f"{choice.name}, depth {self.queue_depth} per worker",
            remarks=choice.remarks,
        )

    @property
    def conversion_is_direct(self) -> bool:
        """``True``: nothing passes through the page cache."""
        return True

    def converter(self) -> Converter:
        from wattload.loaders.native.conversion import NativeConverter

        return NativeConverter(
            engine=self.engine, block_bytes=self.block_bytes, queue_depth=self.queue_depth
        )

    def conversion_memory_bytes(self, block_bytes: int) -> int:
        """Return a bound on the memory of one worker: its libraries, and buffers of blocks."""
        return 200_000_000 + 6 * block_bytes + self.block_bytes * self.queue_depth
