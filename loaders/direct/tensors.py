"""Tensors by planned I/O: contiguous parts straight into their memory, others by way of staging.

Parts that are neighbours in a file are read together, and are in memory as they are in the file.
Of a part that is not contiguous all rows are read into staging memory of fixed size, and the needed
columns are copied out while the next pieces are read. For a GPU all pieces pass through staging
memory, which is pinned.
"""

from __future__ import annotations

import mmap
import time
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.core.io import ByteCounter, DataPath, Extent, IOKind, IOPlan
from wattload.loaders.aligned_io import (
    HUGE_PAGE_BYTES,
    PAGE_BYTES,
    direct_alignment,
    reserve,
    round_down,
    round_up,
)
from wattload.loaders.data.safetensors_files import read_header
from wattload.loaders.engine.engine import IOEngine, Ticket
from wattload.loaders.gpu_tensors import ReadBack, gpu_memory_shortage
from wattload.loaders.tensor_loads import Loaded, LoadPlan

PIECE_BYTES = 64 << 20
"""Most bytes that are read straight into memory by one plan of the engine."""
SLOT_BYTES, LEAST_SLOTS = 16 << 20, 8
"""Size of a slot of staging memory, unless blocks or rows are larger. A plan of the engine and the
copy after it cost about 0.3 ms of the CPU, so that 4 MiB would be too little for fast drives."""

ALLOCATING_THREADS = 4
"""The kernel clears fresh pages at 4 to 8 GB/s in one thread, and drives are faster."""


@dataclass(slots=True)
class Piece:
    """Bytes ``start`` up to ``end`` of file number ``file``, from an aligned offset.

    They go to ``place`` in memory; without one, their rows of part number ``part`` are copied.
    ``ends`` are the parts whose last byte is among them.
    """

    file: int
    start: int
    end: int
    place: int | None
    part: int
    ends: list[int] = field(default_factory=list)


class Layout:
    """The pieces of a plan, and the place of each part in ``memory_bytes`` of memory.

    Staging memory has ``slots`` of ``slot_bytes``, for pieces without a place and for a GPU. As
    many bytes wait for their turn as are read at once, ``depth_bytes``.
    """

    def __init__(
        self, plan: LoadPlan, *, block_bytes: int, depth_bytes: int, align: int = PAGE_BYTES
    ) -> None:
        self.pieces: list[Piece] = []
        self.places: list[int] = []
        self.memory_bytes = 0
        # Whole rows of any offset fit a slot.
        rows_bytes = max((part.row_bytes for part in plan.parts if part.shape[1:]), default=0)
        staged_bytes = max(block_bytes, SLOT_BYTES)
        self.slot_bytes = max(staged_bytes, round_up(rows_bytes, align) + 2 * align)
        self.slots = max(2 * depth_bytes // self.slot_bytes, LEAST_SLOTS)
        piece_bytes = staged_bytes if plan.device is not None else PIECE_BYTES
        last: Piece | None = None
        for number, part in enumerate(plan.parts):
            rows = part.rows if plan.sliced else (0, part.tensor_bytes // (part.row_bytes or 1))
            start, end = (part.offset_bytes + row * part.row_bytes for row in rows)
            is_run, step = end - start == part.needed_bytes, piece_bytes
            first, place = round_down(start, align), self.memory_bytes + start % align
            joins = False
            if not is_run:
                step = (self.slot_bytes - 2 * align) // part.row_bytes * part.row_bytes
                first, place, last = start, self.memory_bytes, None
            elif last is not None and last.place is not None and last.file == part.file:
                joins = first <= round_up(last.end, align)
                place = last.place + start - last.start if joins else place
            self.places.append(place)
            self.memory_bytes = round_up(place + part.needed_bytes, align)
            if joins and last is not None and end - last.start <= step:
                last.end = end
                last.ends.append(number)
                continue
            for at in range(first, end, step):
                to = place + at - start if is_run else None
                last = Piece(part.file, round_down(at, align), min(at + step, end), to, number)
                self.pieces.append(last)
            if first < end:
                self.pieces[-1].ends.append(number)


class HostLoad:
    """Loads into host memory; implements ``TensorLoad``.

    The addresses of the model are reserved once. A load allocates its pages while it reads, and
    ``release`` frees them.
    """

    def __init__(
        self, plan: LoadPlan, *, backend: str, block_bytes: int, depth: int, pollers: int
    ) -> None:
        self._plan, self._block_bytes, self._depth = plan, block_bytes, depth
        self._files = [path.resolve() for path in plan.files]  # links, in Hugging Face's cache
        self._align = max(map(direct_alignment, self._files))
        self._layout = layout = Layout(
            plan,
            block_bytes=block_bytes,
            depth_bytes=block_bytes * depth * pollers,
            align=self._align,
        )
        self._memory: Any  # an array, or a tensor of PyTorch
        self._memory, self._staging = self._reserve(layout.slots * layout.slot_bytes)
        is_gpu = plan.device is not None
        self._engine = IOEngine(
            backend=backend,
            block_bytes=block_bytes,
            depth=depth,
            pollers=pollers,
            slots=self._staging,
            regions=[] if is_gpu else [self._memory],
            registers=is_gpu,
        )

    def load(self, moved: ByteCounter) -> Loaded:
        """Deliver all parts; see the protocol."""
        start_ns, parts = time.monotonic_ns(), self._plan.parts
        missing = {i for i in self._plan.first_layer if parts[i].needed_bytes}
        delivered = first_layer_ns = 0
        with self._allocated(), closing(self._read(moved)) as pieces:
            for piece, slot in pieces:
                self._deliver(piece, slot)
                delivered += sum(parts[i].needed_bytes for i in piece.ends)
                missing.difference_update(piece.ends)
                if not missing and not first_layer_ns:
                    self._settle()
                    first_layer_ns = time.monotonic_ns()
        self._settle()
        return Loaded(
            start_ns=start_ns,
            first_layer_ns=first_layer_ns,
            end_ns=time.monotonic_ns(),
            delivered_bytes=delivered,
        )

    def content(self, index: int) -> NDArray[np.uint8]:
        return np.asarray(self._view(index))

    def release(self) -> None:
        self._map.madvise(mmap.MADV_DONTNEED)

    def path(self) -> DataPath:
        return self._engine.path()

    def close(self) -> None:
        self._engine.close()
        self._memory = self._staging = np.empty(0, np.uint8)

    def _read(self, moved: ByteCounter) -> Generator[tuple[Piece, int]]:
        """Read all pieces; yield each in order with the number of its slot.

        A slot is free again when its piece was yielded and the next one is requested.
        """
        pending: deque[tuple[Piece, int, Ticket]] = deque()

        def finished() -> tuple[Piece, int]:
            piece, slot, ticket = pending[0]
            ticket.result()
            pending.popleft()
            return piece, slot

        file = None
        try:
            for number, piece in enumerate(self._layout.pieces):
                if piece.file != file:
                    file = piece.file
                    self._require_as_planned(file)
                while pending and (len(pending) == self._layout.slots or pending[0][2].wait(0)):
                    yield finished()
                slot = number % self._layout.slots
                pending.append((piece, slot, self._submit(piece, slot, moved)))
            while pending:
                yield finished()
        finally:
            for _, _, ticket in pending:
                ticket.discard()

    def _require_as_planned(self, file: int) -> None:
        """Raise ``DataError`` if the header of a file has other tensors than the plan.

        A server does not know where tensors are before it has read this, so loads take that time.
        """
        found = [
            (tensor.name, tensor.dtype, tensor.shape, tensor.offset_bytes)
            for tensor in read_header(self._files[file])
            if tensor.size_bytes
        ]
        planned = [
            (part.name, part.dtype, part.shape, part.offset_bytes)
            for part in self._plan.parts
            if part.file == file
        ]
        if found != planned:
            raise DataError(
                f"{self._plan.files[file]} has other tensors by its header than before the run; "
                "leave the files alone while they are measured, and start again"
            )

    def _submit(self, piece: Piece, slot: int, moved: ByteCounter) -> Ticket:
        file, length = self._files[piece.file], piece.end - piece.start
        plan = IOPlan(
            kind=IOKind.READ,
            extents=[Extent(file, piece.start, length)],
            block_bytes=self._block_bytes,
            depth=self._depth,
        )
        to = self._destination(slot)
        return self._engine.submit(plan, destination=to, moved=moved, alignment_bytes=self._align)

    def _staged(self, slot: int) -> slice:
        return slice(slot * self._layout.slot_bytes, (slot + 1) * self._layout.slot_bytes)

    def _view(self, index: int) -> Any:  # noqa: ANN401  # an array, or a tensor of PyTorch
        part, place = self._plan.parts[index], self._layout.places[index]
        width = part.columns[1] - part.columns[0]
        return self._memory[place : place + part.needed_bytes].reshape(-1, width or 1)

    def _copy_rows(self, piece: Piece, staged: Any) -> None:  # noqa: ANN401  # likewise
        """Copy what is needed of the whole rows in a piece; those before it are copied again."""
        part = self._plan.parts[piece.part]
        row = max(-(-(piece.start - part.offset_bytes) // part.row_bytes), 0)
        skipped = part.offset_bytes + row * part.row_bytes - piece.start
        matrix = staged[skipped : piece.end - piece.start].reshape(-1, part.row_bytes)
        first, last = (min(max(i, row), row + len(matrix)) for i in part.rows)
        to = self._view(piece.part)[first - part.rows[0] : last - part.rows[0]]
        to[:] = matrix[first - row : last - row, slice(*part.columns)]

    def _reserve(self, staging_bytes: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return memory for the model, or none yet, and staging memory."""
        self._map, memory = reserve(max(self._layout.memory_bytes, 1), HUGE_PAGE_BYTES)
        return memory, reserve(staging_bytes, HUGE_PAGE_BYTES)[1]

    @contextmanager
    def _allocated(self) -> Iterator[None]:
        """Allocate the pages of pieces in their order, by other threads than that which reads."""
        threads = ThreadPoolExecutor(ALLOCATING_THREADS, thread_name_prefix="allocate")
        self._pages = deque(threads.submit(self._allocate, piece) for piece in self._layout.pieces)
        try:
            yield
        finally:
            threads.shutdown(cancel_futures=True)

    def _allocate(self, piece: Piece) -> NDArray[np.uint8] | None:
        """Allocate the pages of a piece and return them; ``None`` for one without a place."""
        if piece.place is None:
            return None
        length = round_up(piece.end - piece.start, self._align)
        memory: NDArray[np.uint8] = self._memory[piece.place : piece.place + length]
        memory[PAGE_BYTES::PAGE_BYTES] = 0  # the first page may have the end of the piece before
        return memory

    def _destination(self, slot: int) -> NDArray[np.uint8]:
        """Return where the next piece goes."""
        memory = self._pages.popleft().result()
        return self._staging[self._staged(slot)] if memory is None else memory

    def _deliver(self, piece: Piece, slot: int) -> None:
        if piece.place is None:
            self._copy_rows(piece, self._staging[self._staged(slot)])

    def _settle(self) -> None:
        """Wait until what was delivered is there."""


class GpuLoad(HostLoad):
    """Loads into the memory of a GPU; pieces are copied on one stream, in their order."""

    def content(self, index: int) -> NDArray[np.uint8]:
        return self._read_back.content(self._view(index))

    def release(self) -> None:
        import torch

        self._read_back.free()
        self._memory = np.empty(0, np.uint8)
        torch.cuda.empty_cache()

    def _reserve(self, staging_bytes: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        import torch

        with torch.cuda.device(self._plan.device):  # pinned memory belongs to the current device
            self._pinned = torch.empty(staging_bytes, dtype=torch.uint8, pin_memory=True)
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch
        self._copied = [
            torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]  # torch
            for _ in range(self._layout.slots)
        ]
        self._read_back = ReadBack()
        staging: NDArray[np.uint8] = self._pinned.numpy()
        return np.empty(0, np.uint8), staging

    @contextmanager
    def _allocated(self) -> Iterator[None]:
        import torch

        with (
            gpu_memory_shortage(self._plan.device),
            torch.cuda.device(self._plan.device),
            torch.cuda.stream(self._stream),
        ):
            self._memory = torch.empty(self._layout.memory_bytes, dtype=torch.uint8, device="cuda")
        yield

    def _destination(self, slot: int) -> NDArray[np.uint8]:
        self._copied[slot].synchronize()
        return self._staging[self._staged(slot)]

    def _deliver(self, piece: Piece, slot: int) -> None:
        import torch

        length = piece.end - piece.start
        staged = self._pinned[self._staged(slot)][:length]
        with torch.cuda.device(self._plan.device), torch.cuda.stream(self._stream):
            if piece.place is not None:
                self._memory[piece.place :][:length].copy_(staged, non_blocking=True)
            else:  # whole rows: the GPU copies their columns faster than the host
                self._copy_rows(piece, staged.to("cuda", non_blocking=True))
            self._copied[slot].record()

    def _settle(self) -> None:
        self._stream.synchronize()
