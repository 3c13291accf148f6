"""Memory for the rows of a batch, where a model takes them, and the comparison of rows there.

Host memory is anonymous and our own, so that a memory cgroup counts it; for a GPU it is pinned
once. A row of a synthetic graph is recomputed from its number, bit by bit. Of a real graph some
rows are kept, and compared with their file when time is over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, DataError, RunError, WattloadError
from wattload.core.io import MemoryRegion
from wattload.core.units import compared_bytes, format_bytes
from wattload.loaders.aligned_io import aligned_buffer
from wattload.loaders.feature_rows import FeatureFile, FeaturePlan, Memory
from wattload.loaders.graph.files import ROW_BYTES
from wattload.loaders.graph.synthetic import WIDTH, GraphShape, SyntheticGraph
from wattload.workloads.gnn.steps import Drawn

if TYPE_CHECKING:
    import torch

KEPT_ROWS = 4096
"""Rows of a real graph that are kept from all steps."""
_PORTABLE = 1  # cudaHostRegisterPortable


class Comparer:
    """Compares rows that have arrived with what they should be."""

    def __init__(
        self,
        shape: GraphShape,
        files: Sequence[FeatureFile],
        graph: SyntheticGraph | None,
        *,
        every: int,
        threads: int,
        steps: int,
        remedy: str,
    ) -> None:
        """Recompute rows of ``graph``, or without one keep some of those of all ``steps``."""
        self.every = every
        self._shape = shape
        self._plan = FeaturePlan(
            files=tuple(files),
            row_count=shape.row_count,
            row_bytes=ROW_BYTES,
            outstanding=1,
            batch_rows=0,
        )
        self._graph = graph
        self._threads = threads
        self._kept_rows = max(KEPT_ROWS // steps, 1)
        self._remedy = remedy
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="compare")
        self._kept: list[tuple[NDArray[np.uint64], NDArray[np.float32]]] = []

    def compare(self, rows: NDArray[np.uint64], values: NDArray[np.float32]) -> int:
        """Compare one row in ``every``; ``values`` has shape ``(len(rows), 1024)``.

        Raises:
            DataError: a row has other bytes.
        """
        return self._compare(rows, values, self.every)

    def compare_all(self, rows: NDArray[np.uint64], values: NDArray[np.float32]) -> int:
        return self._compare(rows, values, 1)

    def chosen(self, drawn: Drawn) -> slice:
        """Return which rows of a batch are compared; they shift from batch to batch."""
        return slice(drawn.number % self.every, None, self.every)

    def finish(self) -> None:
        """Compare the rows that were kept with their files.

        Raises:
            DataError: a row has other bytes.
            OSError: a file can't be read.
        """
        for rows, values in self._kept:
            files, places = self._plan.places(rows)
            for row, file, place, value in zip(rows, files, places, values, strict=True):
                found = self._plan.files[file]
                offset = found.offset_bytes + int(place) * ROW_BYTES
                if _read(found.path, offset) != value.tobytes():
                    raise self.wrong(int(row), "other bytes than its file has")
        self._kept = []

    def close(self) -> None:
        self._pool.shutdown()

    def _compare(self, rows: NDArray[np.uint64], values: NDArray[np.float32], every: int) -> int:
        if self._graph is None:
            step = every * max(len(rows) // every // self._kept_rows, 1)
            if sum(len(kept) for kept, _ in self._kept) >= KEPT_ROWS:
                return 0
            self._kept.append((rows[::step].copy(), values[::step].copy()))
            return len(self._kept[-1][0])
        graph, part = self._graph, every * max(-(-len(rows) // (every * self._threads)), 1)

        def wrong_in(first: int) -> int | None:
            place = graph.wrong_row(
                rows[first : first + part], values[first : first + part], every=every
            )
            return None if place is None else first + place

        for wrong in self._pool.map(wrong_in, range(0, len(rows), part)):
            if wrong is not None:
                raise self.wrong(int(rows[wrong]), "other bytes than its number has")
        return -(-len(rows) // every)

    def wrong(self, row: int, what: str) -> DataError:
        """Return the error of a row that arrived with ``what``: its node, file and offset."""
        files, places = self._plan.places(np.array([row], dtype=np.uint64))
        file = self._plan.files[int(files[0])]
        offset = file.offset_bytes + int(places[0]) * ROW_BYTES
        node_type, node = node_of(self._shape, row)
        return DataError(
            f"node {node} of type {node_type} arrived with {what} (row {row}, {file.path} at byte "
            f"{offset}); {self._remedy}; if it happens once more, suspect the drive or the memory"
        )

    def not_finite(self, drawn: Drawn, features: torch.Tensor) -> WattloadError:
        """Return the error of a batch whose loss is no number: the first row with such a value."""
        import torch

        bad = torch.nonzero(~torch.isfinite(features).all(dim=1))
        if len(bad):
            return self.wrong(int(drawn.rows[int(bad[0])]), "a value that is not finite")
        return RunError(
            f"the loss of batch {drawn.number} is not finite, though all its features are; use a "
            "smaller workload.learning_rate"
        )


def node_of(shape: GraphShape, row: int) -> tuple[str, int]:
    """Return the type and number of the node that a row belongs to."""
    for number in reversed(range(len(shape.node_types))):
        first = shape.first_row(number)
        if row >= first and shape.node_types[number].count:
            return shape.node_types[number].name, row - first
    raise ValueError(f"row {row}")


def _read(path: Path, offset: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, ROW_BYTES, offset)
    finally:
        os.close(descriptor)


class HostSlot:
    """Rows in host memory, where the CPU trains on them."""

    def __init__(self, rows: int, comparer: Comparer) -> None:
        self.buffer = aligned_buffer(rows * ROW_BYTES)
        self._comparer = comparer

    def memory(self, count: int) -> NDArray[np.uint8]:
        """Return where ``count`` rows are gathered."""
        _require_room(count, len(self.buffer) // ROW_BYTES)
        return self.buffer[: count * ROW_BYTES]

    def values(self, count: int) -> NDArray[np.float32]:
        """Return the rows, shape ``(count, 1024)``."""
        return self.memory(count).view(np.float32).reshape(count, WIDTH)

    def features(self, count: int) -> torch.Tensor:
        import torch

        return torch.from_numpy(self.values(count))

    def not_finite(self, drawn: Drawn) -> WattloadError:
        """Return the error of a batch whose loss is no number."""
        return self._comparer.not_finite(drawn, self.features(len(drawn.rows)))

    def compare(self, drawn: Drawn) -> int:
        first = self._comparer.chosen(drawn).start
        values = self.values(len(drawn.rows))
        return self._comparer.compare(drawn.rows[first:], values[first:])


class GpuSlot:
    """Rows in the memory of a GPU, gathered there or transferred from pinned host memory."""

    def __init__(self, rows: int, device: torch.device, comparer: Comparer) -> None:
        """Allocate room for rows.

        Raises:
            ConfigError: the GPU has too little free memory.
        """
        import torch

        self.device = device
        self._comparer = comparer
        try:
            self._rows = torch.empty((rows, WIDTH), dtype=torch.float32, device=device)
        except torch.cuda.OutOfMemoryError as error:
            free_bytes, _ = torch.cuda.mem_get_info(device)
            raise _no_room(rows, free_bytes, f"GPU {torch.cuda.get_device_name(device)}") from error
        compared = rows // comparer.every + 1
        self._back = torch.empty((compared, WIDTH), dtype=torch.float32, pin_memory=True)

    def memory(self, count: int) -> Memory:
        """Return where ``count`` rows are gathered."""
        _require_room(count, len(self._rows))
        return self._region(count)

    def region(self) -> MemoryRegion:
        return self._region(len(self._rows))

    def features(self, count: int) -> torch.Tensor:
        return self._rows[:count]

    def not_finite(self, drawn: Drawn) -> WattloadError:
        """Return the error of a batch whose loss is no number."""
        return self._comparer.not_finite(drawn, self.features(len(drawn.rows)))

    def compare(self, drawn: Drawn) -> int:
        """Copy one row in so many back, and compare them."""
        chosen = self._comparer.chosen(drawn)
        rows = np.ascontiguousarray(drawn.rows[chosen])
        back = self._back[: len(rows)]
        back.copy_(self._rows[: len(drawn.rows)][chosen])
        return self._comparer.compare_all(rows, back.numpy())

    def _region(self, count: int) -> MemoryRegion:
        return MemoryRegion(
            address=self._rows.data_ptr(), size_bytes=count * ROW_BYTES, owner=self._rows
        )


class PinnedSlot:
    """Rows in pinned host memory, and room for them in the memory of the GPU that trains."""

    def __init__(self, rows: int, gpu: GpuSlot, comparer: Comparer) -> None:
        self.host = HostSlot(rows, comparer)
        self.gpu = gpu

    def memory(self, count: int) -> NDArray[np.uint8]:
        """Return where ``count`` rows are gathered."""
        return self.host.memory(count)

    def features(self, count: int) -> torch.Tensor:
        return self.gpu.features(count)

    def not_finite(self, drawn: Drawn) -> WattloadError:
        """Return the error of a batch whose loss is no number."""
        return self.gpu.not_finite(drawn)

    def compare(self, drawn: Drawn) -> int:
        return self.gpu.compare(drawn)


@contextmanager
def pinned(memories: Sequence[NDArray[np.uint8]], device: torch.device) -> Iterator[None]:
    """Pin host memory for copies to a GPU.

    Raises:
        ConfigError: the driver pins no more.
    """
    import torch

    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # torch
    done: list[int] = []
    with torch.cuda.device(device):
        try:
            for memory in memories:
                address = memory.ctypes.data
                code = int(runtime.cudaHostRegister(address, memory.nbytes, _PORTABLE))
                if code:
                    raise ConfigError(
                        f"the driver does not pin {format_bytes(memory.nbytes)} of host memory "
                        f"for a batch (CUDA error {code}); use fewer workload.batch_seeds or "
                        "smaller workload.fanouts"
                    )
                done.append(address)
            yield
        finally:
            for address in done:
                runtime.cudaHostUnregister(address)


def _require_room(count: int, room: int) -> None:
    if count > room:
        raise RunError(
            f"a batch has {count} rows, and there is memory for {room}, by the batches sampled "
            "beforehand; use more workload.batch_seeds, whose numbers of rows differ less"
        )


def _no_room(rows: int, free_bytes: int, where: str) -> ConfigError:
    fitting = free_bytes // ROW_BYTES
    needed, free = compared_bytes(rows * ROW_BYTES, free_bytes)
    return ConfigError(
        f"a batch of {rows} rows needs {needed} on {where}, and {free} are free, enough for "
        f"{fitting} rows: use fewer workload.batch_seeds, in proportion"
    )
