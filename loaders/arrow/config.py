"""The settings of loader=arrow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wattload.core.io import DataPath
from wattload.core.workload import Requirement
from wattload.loaders.converters import Converter


@dataclass(slots=True, kw_only=True)
class Config:
    """pyarrow's CSV parser and Parquet writer, one core per worker, through the page cache."""

    name: ClassVar[str] = "arrow"
    requires: ClassVar[tuple[Requirement, ...]] = ()

    _target_: str = "wattload.loaders.arrow.config.Config"

    def check(self) -> None:
        """Accept it: there is nothing to set."""

    @property
    def conversion_path(self) -> DataPath:
        return DataPath(data_path="page_cache", path_requested="page_cache")

    @property
    def conversion_is_direct(self) -> bool:
        """``False``: any file system will do."""
        return False

    def converter(self) -> Converter:
        from wattload.loaders.arrow.conversion import ArrowConverter

        return ArrowConverter()

    def conversion_memory_bytes(self, block_bytes: int) -> int:
        """Return a bound on the memory of one worker, measured while bad rows are dropped."""
        return 200_000_000 + 12 * block_bytes
