"""Extents read into memory that keeps them, for weights that are streamed: the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import ByteCounter, DataPath, Extent, IOResult
from wattload.core.storage.targets import Target
from wattload.core.workload import LoaderConfig


class ExtentReads(Protocol):
    """Reads past the page cache into memory of its own; used by one thread."""

    @property
    def memory(self) -> NDArray[np.uint8]:
        """Of shape ``(memory_bytes,)``."""
        ...

    def read(self, wanted: Sequence[tuple[int, Extent]], moved: ByteCounter) -> IOResult:
        """Read each extent to its offset in the memory; return when all are there.

        They are in flight together, as far as the queue takes them. An extent takes memory in whole
        units of O_DIRECT. Errors are those of ``Ticket.result``.
        """
        ...

    def repeat(self, extents: Sequence[Extent], seconds: float, moved: ByteCounter) -> IOResult:
        """Read extents in their order, again and again, with a full queue; keep nothing."""
        ...

    def path(self) -> DataPath:
        """Return the path of the bytes."""
        ...

    def close(self) -> None:
        """End threads and release the memory; safe to call twice."""
        ...


@runtime_checkable
class ExtentReadConfig(LoaderConfig, Protocol):
    """The configuration of a loader that reads extents."""

    def check_extent_reads(self, target: Target) -> None:
        """Raise ``ConfigError`` or ``TargetError`` for what will not work; creates nothing."""
        ...

    def extent_reads(
        self, memory_bytes: int, target: Target, *, diskless: bool = False
    ) -> ExtentReads:
        """Return reads into so much memory; with ``diskless`` they read nothing, for ceilings."""
        ...
