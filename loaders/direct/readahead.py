"""One pass over samples that are read ahead: slots for files, tensors for batches, all reused."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import Batch
from wattload.core.units import NS_PER_S
from wattload.loaders.formats import record_format
from wattload.loaders.samples import SampleSet, copy_resized

Arrival = Callable[[Future[int]], None]
"""Called with the ticket of a file that is there or has failed; its result is the bytes read."""

Fetch = Callable[[int, NDArray[np.uint8], Arrival], None]
"""Begins to bring the file of a sample into a slot."""


class _Assembly:
    """A batch under way: which rows are still missing, and what has come so far."""

    def __init__(self, tensor: NDArray[np.uint8], indices: Sequence[int]) -> None:
        self.tensor = tensor
        self.indices = tuple(indices)
        self.rows_left = len(indices)
        self.payload_bytes = 0
        self.read_bytes = 0
        self.hash_cpu_s = 0.0
        self.decode_ns = 0
        self.digests: dict[int, str] = {}

    def finished(self) -> Batch:
        """Return the batch as it is handed over."""
        return Batch(
            tensor=self.tensor,
            indices=self.indices,
            payload_bytes=self.payload_bytes,
            read_bytes=self.read_bytes,
            digests=self.digests,
            hash_cpu_s=self.hash_cpu_s,
            decode_s=self.decode_ns / NS_PER_S,
        )


@dataclass(frozen=True, slots=True)
class _Row:
    """A sample under way: its place in the order, its file's slot, and its row in the batch."""

    index: int
    position: int
    number: int
    slot: NDArray[np.uint8]
    assembly: _Assembly


class Pass:
    """One pass over an order of samples: files are begun as slots, tensors and the queue allow.

    ``fetch`` begins to bring a sample's file into a slot and calls back, on any other thread, when
    it is there or has failed. What was called back decodes it and begins the next. With ``held``,
    the files' bytes by sample, those are decoded in place of what is in the slot.

    Behind the file that is read now, no more than ``queued_bytes`` are asked for, and at least one
    file: enough to keep the reader's queue full over the border between two files. Beyond that, it
    is better to take the slot again that was used last, while the caches still know it.
    """

    def __init__(
        self,
        samples: SampleSet,
        order: Sequence[int],
        slots: Sequence[NDArray[np.uint8]],
        tensors: Sequence[NDArray[np.uint8]],
        fetch: Fetch,
        *,
        queued_bytes: int,
        held: Sequence[NDArray[np.uint8]] | None = None,
    ) -> None:
        self._samples = samples
        self._layout = record_format(samples.record_format)
        self._size = samples.batch_samples
        self._order = order[: len(order) // self._size * self._size]
        self._tensors = tensors
        self._fetch = fetch
        self._queued_bytes = queued_bytes
        self._held = held
        self._reading: dict[int, int] = {}
        self._free = list(slots)
        self._slot_count = len(slots)
        self._begun = 0
        self._taken_back = 0
        self._assemblies: dict[int, _Assembly] = {}
        self._failure: BaseException | None = None
        self._stopped = False
        self._changed = threading.Condition()

    def batches(self) -> Iterator[Batch]:
        """Yield the batches in order; each tensor is taken back when the next one is asked for."""
        for number in range(len(self._order) // self._size):
            self._advance()
            with self._changed:
                self._changed.wait_for(partial(self._is_settled, number))
                if self._failure is not None:
                    raise self._failure
                if self._stopped:
                    raise RuntimeError("this epoch was ended before its last batch was taken")
                assembly = self._assemblies.pop(number)
            yield assembly.finished()
            with self._changed:
                self._taken_back += 1

    def stop(self) -> None:
        """Begin no more files, and wait until those in flight have left their slots."""
        with self._changed:
            self._stopped = True
            self._changed.wait_for(lambda: len(self._free) == self._slot_count)

    def _is_settled(self, number: int) -> bool:
        assembly = self._assemblies.get(number)
        return self._stopped or (assembly is not None and not assembly.rows_left)

    def _advance(self) -> None:
        """Begin to read as many files as there are free slots and batch tensors."""
        while True:
            with self._changed:
                position = self._begun
                batch, number = divmod(position, self._size)
                if not self._may_begin(batch, position):
                    return
                self._begun += 1
                assembly = self._assemblies.get(batch) or self._assemble(batch)
                index = self._order[position]
                self._reading[position] = self._samples.file_bytes[index]
                row = _Row(index, position, number, self._free.pop(), assembly)
            self._begin(row)

    def _may_begin(self, batch: int, position: int) -> bool:
        return (
            bool(self._free)
            and not self._stopped
            and position < len(self._order)
            and batch < self._taken_back + len(self._tensors)
            and self._may_queue()
        )

    def _may_queue(self) -> bool:
        """Whether the reader's queue could run dry before the file that is read now is there."""
        behind = list(self._reading.values())[1:]
        return sum(behind) < self._queued_bytes

    def _assemble(self, number: int) -> _Assembly:
        first = number * self._size
        tensor = self._tensors[number % len(self._tensors)]
        assembly = _Assembly(tensor, self._order[first : first + self._size])
        self._assemblies[number] = assembly
        return assembly

    def _begin(self, row: _Row) -> None:
        try:
            self._fetch(row.index, row.slot, partial(self._come, row))
        except BaseException as error:  # the slot must come back, whatever happens
            self._settle(row.slot, error)

    def _come(self, row: _Row, ticket: Future[int]) -> None:
        """Begin the next file, then decode this one; called on a decoding thread."""
        failure: BaseException | None = None
        with self._changed:
            del self._reading[row.position]
        self._advance()
        try:
            read_bytes = ticket.result()
            content = row.slot if self._held is None else self._held[row.index]
            self._decode(row, content[:read_bytes])
        except BaseException as error:  # handed to whoever waits for the batch
            failure = error
        self._settle(row.slot, failure)
        self._advance()

    def _settle(self, slot: NDArray[np.uint8], failure: BaseException | None) -> None:
        with self._changed:
            self._free.append(slot)
            if failure is not None:
                self._failure = self._failure or failure
                self._stopped = True
            self._changed.notify_all()

    def _decode(self, row: _Row, raw: NDArray[np.uint8]) -> None:
        samples, assembly = self._samples, row.assembly
        name = str(samples.paths[row.index])
        start_ns = time.monotonic_ns()
        payload = self._layout.payload(raw, name, check_crc=samples.check_crc)
        copy_resized(payload, assembly.tensor[row.number])
        decode_ns = time.monotonic_ns() - start_ns
        digest, hash_cpu_s = "", 0.0
        if row.index in samples.hashed:
            start_s = time.thread_time()
            digest = hashlib.sha256(payload.data).hexdigest()
            hash_cpu_s = time.thread_time() - start_s
        with self._changed:
            assembly.rows_left -= 1
            assembly.payload_bytes += len(payload)
            assembly.read_bytes += len(raw)
            assembly.hash_cpu_s += hash_cpu_s
            assembly.decode_ns += decode_ns
            if digest:
                assembly.digests[row.index] = digest
