"""Extents read past the page cache into memory that keeps them, for weights that are streamed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from wattload.core.io import ByteCounter, Extent, IOKind, IOPlan, IOResult
from wattload.core.storage.targets import Target
from wattload.core.workload import LoaderConfig
from wattload.loaders.aligned_io import HUGE_PAGE_BYTES, aligned_buffer, direct_alignment
from wattload.loaders.engine.engine import IOEngine


class ExtentReads:
    """An engine and its memory, of shape ``(memory_bytes,)``; used by one thread."""

    def __init__(
        self,
        memory_bytes: int,
        target: Target,
        *,
        backend: str,
        block_bytes: int,
        depth: int,
        pollers: int,
    ) -> None:
        self.memory = aligned_buffer(memory_bytes, HUGE_PAGE_BYTES)
        self._unit_bytes = direct_alignment(target.path)
        self._plan = partial(IOPlan, kind=IOKind.READ, block_bytes=block_bytes, depth=depth)
        self._engine = IOEngine(
            backend=backend,
            block_bytes=block_bytes,
            depth=depth,
            pollers=pollers,
            regions=[self.memory],
        )
        self.path, self.close = self._engine.path, self._engine.close

    def read(self, wanted: Sequence[tuple[int, Extent]], moved: ByteCounter) -> IOResult:
        """Read each extent to its offset in the memory; return when all are there.

        They are in flight together, as far as the queue takes them. An extent takes memory in whole
        units of O_DIRECT. Errors are those of ``Ticket.result``.
        """
        extents, places = [extent for _, extent in wanted], [place for place, _ in wanted]
        return self._engine.run(
            self._plan(extents=extents, places=places),
            destination=self.memory,
            moved=moved,
            alignment_bytes=self._unit_bytes,
        )

    def repeat(self, extents: Sequence[Extent], seconds: float, moved: ByteCounter) -> IOResult:
        """Read extents in their order, again and again, with a full queue; keep nothing."""
        plan = self._plan(extents=extents, duration_s=seconds)
        return self._engine.run(plan, moved=moved, alignment_bytes=self._unit_bytes)


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
