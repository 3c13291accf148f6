"""Blocks by engines: one reads and one writes, so that neither waits for the other.

Many small files cost no more than one large file: while the last blocks of a plan are in flight,
the engine opens the files of the next one and issues its first blocks.
"""

from __future__ import annotations

import os
from dataclasses import replace

from wattload.core.io import DataPath, IOKind, IOPlan
from wattload.loaders.block_transfers import TransferLimits
from wattload.loaders.engine.engine import IOEngine, Ticket


class EngineTransfers:
    """Two engines with registered memory and one event descriptor; implements ``BlockTransfers``.

    Blocks pass through the engines' slots, which hold random bytes. A read overwrites those of its
    own engine only, so what is written stays incompressible, and its sums are known.
    """

    def __init__(
        self,
        limits: TransferLimits,
        *,
        backend: str,
        pollers: int,
        alignment_bytes: int,
        seed: int,
        direct: bool = True,
    ) -> None:
        """Open the engines; ``pollers``, which divide the queue depth, are those of each.

        Without ``direct`` blocks pass through the page cache.

        Raises:
            ConfigError: the engine can't run here.
        """
        self._alignment_bytes = alignment_bytes
        self._block_bytes = limits.request_bytes
        self._depth = limits.queue_depth // pollers
        self._signal = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._engines: dict[IOKind, IOEngine] = {}
        try:
            for kind in IOKind:
                self._engines[kind] = IOEngine(
                    backend=backend,
                    block_bytes=limits.request_bytes,
                    depth=self._depth,
                    pollers=pollers,
                    signal=self._signal,
                    direct=direct,
                )
            self._engines[IOKind.WRITE].fill(seed=seed)
        except BaseException:
            self.close()
            raise

    @property
    def signal(self) -> int:
        return self._signal

    def submit(self, plan: IOPlan) -> Ticket:
        """Queue a plan, in operations of these transfers' size and depth; see the protocol.

        Raises:
            ConfigError: it has an extent that O_DIRECT can't move.
        """
        own = replace(plan, depth=self._depth, block_bytes=self._block_bytes)
        return self._engines[plan.kind].submit(own, alignment_bytes=self._alignment_bytes)

    def path(self) -> DataPath:
        path = self._engines[IOKind.READ].path()
        mode = "preallocated" if self._engines[IOKind.WRITE].preallocates else "extending"
        return path.model_copy(
            update={
                "data_path": f"{path.data_path}, {mode} writes",
                "engine": f"2 engines, for reads and for writes: {path.engine}",
            }
        )

    def close(self) -> None:
        for engine in self._engines.values():
            engine.close()
        if self._signal >= 0:
            os.close(self._signal)
            self._signal = -1
