"""A shard in one file by the direct engine: tensors back to back, preallocated, many in flight."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import ByteCounter, DataPath, Extent, IOKind, IOPlan, IOResult
from wattload.loaders.aligned import PAGE_BYTES
from wattload.loaders.checkpoints import Identity, Loaded, Saved, Shard, ShardFile
from wattload.loaders.direct import Config, DirectEngine
from wattload.loaders.stamps import Stamper, bad_blocks, checksum, join_checksums


class DirectStore:
    """Saves a shard as one file by O_DIRECT, and loads it the same way.

    Tensors lie back to back in the file, so it has exactly their bytes; blocks are taken across
    their borders. Saving and loading each have an engine of their own, whose memory does not grow
    with the shard. With ``diskless`` the same loops move nothing.
    """

    overhead_limit_bytes = 0

    def __init__(self, config: Config, shard: Shard, *, seed: int, diskless: bool = False) -> None:
        self._config = config
        self._size_bytes = shard.size_bytes
        self._name = f"rank-{shard.rank:05d}.bin"
        self._writer = DirectEngine(config, diskless=diskless)
        self._reader = DirectEngine(config, diskless=diskless)
        self._stamper = Stamper(self._writer.buffers, seed=seed, rank=shard.rank)
        self._total = _Total()

    @property
    def file_names(self) -> Sequence[str]:
        """One file per rank."""
        return (self._name,)

    def save(self, folder: Path, identity: Identity, moved: ByteCounter, *, fsync: bool) -> Saved:
        """Write the shard's file, cut it to size, and fsync it and its folder if asked to."""

        def stamp(block: NDArray[np.uint8], extent: Extent, offset_bytes: int) -> None:
            self._total.add(self._stamper.stamp(block, identity, offset_bytes // PAGE_BYTES), 0)

        plan = self._plan(IOKind.WRITE, folder, fsync=fsync)
        result, total, _ = self._run(self._writer, plan, stamp, moved)
        file = ShardFile(name=self._name, payload_bytes=result.moved_bytes, checksum=total)
        return Saved(files=(file,), cpu_s=result.cpu_s)

    def load(
        self, folder: Path, files: Sequence[ShardFile], identity: Identity, moved: ByteCounter
    ) -> Loaded:
        """Read the file, looking at each block while the next ones are under way."""

        def check(block: NDArray[np.uint8], extent: Extent, offset_bytes: int) -> None:
            bad = bad_blocks(block, identity, offset_bytes // PAGE_BYTES)
            self._total.add(checksum(block), bad)

        plan = self._plan(IOKind.READ, folder, fsync=False)
        result, total, bad = self._run(self._reader, plan, check, moved)
        wrong = tuple(file.name for file in files if file.checksum != total)
        return Loaded(
            payload_bytes=result.moved_bytes, bad_blocks=bad, bad_files=wrong, cpu_s=result.cpu_s
        )

    def path(self) -> DataPath:
        """Return the way the bytes were asked to take, and the mode of the writes."""
        path = self._writer.path()
        mode = "preallocated" if self._writer.preallocates else "extending"
        return path.model_copy(update={"data_path": f"{path.data_path}, {mode} writes"})

    def close(self) -> None:
        """End both engines."""
        self._writer.close()
        self._reader.close()

    def _plan(self, kind: IOKind, folder: Path, *, fsync: bool) -> IOPlan:
        return IOPlan(
            kind=kind,
            extents=(Extent(folder / self._name, 0, self._size_bytes),),
            block_bytes=self._config.block_bytes,
            depth=self._config.queue_depth,
            fsync=fsync,
        )

    def _run(
        self,
        engine: DirectEngine,
        plan: IOPlan,
        visit: Callable[[NDArray[np.uint8], Extent, int], None],
        moved: ByteCounter,
    ) -> tuple[IOResult, int, int]:
        """Run a plan through an engine; returns the result, the checksum and the bad blocks."""
        self._total = _Total()
        result = engine.run(plan, visit=visit, moved=moved)
        return result, self._total.checksum, self._total.bad_blocks


class _Total:
    """A checksum and a count that several threads add to."""

    def __init__(self) -> None:
        self.checksum = 0
        self.bad_blocks = 0
        self._lock = threading.Lock()

    def add(self, part: int, bad: int) -> None:
        with self._lock:
            self.checksum = join_checksums(self.checksum, part)
            self.bad_blocks += bad
