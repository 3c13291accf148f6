"""Extents read by the engine, past the page cache, into memory that keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from wattload.core.io import ByteCounter, Extent, IOKind, IOPlan, IOResult
from wattload.core.storage.targets import Target
from wattload.loaders.aligned_io import HUGE_PAGE_BYTES, aligned_buffer, direct_alignment
from wattload.loaders.engine.engine import IOEngine


class EngineReads:
    """An engine and its memory; see ``loaders.extent_reads.ExtentReads``."""

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
        extents, places = [extent for _, extent in wanted], [place for place, _ in wanted]
        return self._engine.run(
            self._plan(extents=extents, places=places),
            destination=self.memory,
            moved=moved,
            alignment_bytes=self._unit_bytes,
        )

    def repeat(self, extents: Sequence[Extent], seconds: float, moved: ByteCounter) -> IOResult:
        plan = self._plan(extents=extents, duration_s=seconds)
        return self._engine.run(plan, moved=moved, alignment_bytes=self._unit_bytes)
