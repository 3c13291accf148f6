"""A shard in one file: tensors back to back, preallocated, many operations in flight."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wattload.core.histogram import Histogram
from wattload.core.io import (
    BlockIdentity,
    ByteCounter,
    DataPath,
    Extent,
    IOKind,
    IOPlan,
    IOResult,
    Stamps,
    TracedOperations,
)
from wattload.loaders.aligned_io import PAGE_BYTES, direct_alignment
from wattload.loaders.checkpoint_store import Loaded, Saved, Shard, ShardFile
from wattload.loaders.direct.config import Config, open_engine
from wattload.loaders.operation_log import OperationLog


def make_store(config: Config, shard: Shard, *, seed: int, diskless: bool) -> DirectStore:
    """Return the store that saves a shard in one file by O_DIRECT."""
    return DirectStore(config, shard, seed=seed, diskless=diskless)


class DirectStore:
    """Saves a shard as one file by O_DIRECT, and loads it the same way.

    Tensors are stored back to back, so the file has exactly their bytes; blocks cross tensor
    borders. One engine saves and loads, so its slots are all the memory needed, whatever the
    shard's size. The engine stamps, checks and sums the blocks (see ``stamps``). A good load leaves
    in the slots what was saved, as random as before. After a bad load they are filled again, so
    that no save writes compressible bytes. With ``diskless`` the same loops move nothing.
    """

    overhead_limit_bytes = 0

    def __init__(self, config: Config, shard: Shard, *, seed: int, diskless: bool = False) -> None:
        self._config = config
        self._size_bytes = shard.size_bytes
        self._name = f"rank-{shard.rank:05d}.bin"
        self._seed, self._rank = seed, shard.rank
        self._diskless = diskless
        self._engine = open_engine(config, diskless=diskless)
        self._latencies = {kind: Histogram.of(()) for kind in IOKind}
        self._alignment_bytes = PAGE_BYTES if diskless else None
        limit = 0 if diskless else config.trace_operations
        self._logs = {kind: OperationLog(limit) for kind in IOKind}
        self._fill()

    @property
    def file_names(self) -> Sequence[str]:
        return (self._name,)

    def save(
        self, folder: Path, identity: BlockIdentity, moved: ByteCounter, *, fsync: bool
    ) -> Saved:
        """Write the shard's file and cut it to size; with ``fsync`` sync it and its folder."""
        result = self._run(IOKind.WRITE, folder, identity, moved, fsync=fsync)
        file = ShardFile(name=self._name, payload_bytes=result.moved_bytes)
        return Saved(files=(file,), cpu_s=result.cpu_s, synced_count=result.synced_files)

    def load(
        self, folder: Path, files: Sequence[ShardFile], identity: BlockIdentity, moved: ByteCounter
    ) -> Loaded:
        """Read the file and check the stamp and the sum of every block."""
        good = False
        try:
            result = self._run(IOKind.READ, folder, identity, moved, fsync=False)
            good = not result.bad_blocks
        finally:
            if not good and not self._diskless:
                self._fill()
        return Loaded(
            payload_bytes=result.moved_bytes,
            bad_blocks=result.bad_blocks,
            bad_files=() if good else (self._name,),
            cpu_s=result.cpu_s,
        )

    @property
    def operation_bytes(self) -> int:
        """The size of one operation, ``loader.block_bytes``."""
        return self._config.block_bytes

    def latency(self, kind: IOKind) -> Histogram:
        """Return the latencies of all saves (``WRITE``) or loads so far."""
        return self._latencies[kind]

    def traced(self, kind: IOKind, phase: str) -> Sequence[TracedOperations]:
        """Return the sample of the operations of all saves (``WRITE``) or loads so far."""
        return self._logs[kind].traced(kind, phase)

    def path(self) -> DataPath:
        """Return the requested path of the bytes, and the allocation mode of the writes."""
        path = self._engine.path()
        mode = "preallocated" if self._engine.preallocates else "extending"
        return path.model_copy(update={"data_path": f"{path.data_path}, {mode} writes"})

    def close(self) -> None:
        self._engine.close()

    def _fill(self) -> None:
        self._engine.fill(seed=self._seed, rank=self._rank)

    def _run(
        self,
        kind: IOKind,
        folder: Path,
        identity: BlockIdentity,
        moved: ByteCounter,
        *,
        fsync: bool,
    ) -> IOResult:
        path, block_bytes = folder / self._name, self._config.block_bytes
        size_bytes = self._size_bytes
        if self._alignment_bytes is None:  # the same for all folders of the target
            self._alignment_bytes = direct_alignment(folder)
        operations = self._logs[kind].begin(-(-size_bytes // block_bytes))
        plan = IOPlan(
            kind=kind,
            extents=(Extent(path, 0, size_bytes),),
            block_bytes=block_bytes,
            depth=self._config.queue_depth,
            fsync=fsync,
            stamps=Stamps(identity.nonce, identity.word),
            trace_every=operations.trace_every,
        )
        result = self._engine.run(plan, moved=moved, alignment_bytes=self._alignment_bytes)
        if result.latency is not None:
            self._latencies[kind] = self._latencies[kind].merged(result.latency)
        self._logs[kind].add(
            operations, result.trace, extents=plan.extents, block_bytes=block_bytes
        )
        return result
