"""The steps of training: sample, gather, transfer, train, compare; in turn, or ahead of each other.

Stages are timed by CLOCK_MONOTONIC, each until its work has ended: a GPU is waited for at the end
of transfer and of training. CUDA events time both once more, by the GPU's own clock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from math import isfinite
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import RunError, WattloadError
from wattload.core.units import NS_PER_S
from wattload.loaders.feature_rows import GatherResult, Memory, RowGatherer
from wattload.loaders.graph.sampler import Batch

PREFETCHED = 2
"""Batches that are sampled beyond those that a gatherer wants to hear of, with overlap=ahead."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drawn:
    """A sampled batch: its rows in the order of memory, the classes of its seeds, and its time."""

    number: int
    batch: Batch
    rows: NDArray[np.uint64]
    labels: NDArray[np.int64]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What training one batch took, by the host's clock and by the GPU's; ``None`` without a GPU.

    ``transfer_s`` is ``None`` where nothing is transferred.
    """

    transfer_s: float | None
    training_s: float
    transfer_gpu_s: float | None = None
    training_gpu_s: float | None = None
    loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step. With overlap=ahead its stages ran beside those of other steps."""

    number: int
    start_ns: int
    end_ns: int
    sampling_s: float
    aggregation_s: float
    verification_s: float
    eviction_s: float
    trained: Trained
    gathered: GatherResult
    compared_rows: int


class BatchSlot(Protocol):
    """Memory for the rows of one batch, and how a model takes them."""

    def memory(self, count: int) -> Memory:
        """Return where ``count`` rows are gathered.

        Raises:
            RunError: there is less room.
        """
        ...

    def not_finite(self, drawn: Drawn) -> WattloadError:
        """Return the error of a batch whose loss is no number."""
        ...

    def compare(self, drawn: Drawn) -> int:
        """Compare rows where the model takes them; return how many.

        Raises:
            DataError: a row has other bytes.
        """
        ...


P = TypeVar("P", bound=BatchSlot)
P_contra = TypeVar("P_contra", bound=BatchSlot, contravariant=True)


class Training(Protocol[P_contra]):
    """What happens to a gathered batch."""

    def train(self, drawn: Drawn, slot: P_contra) -> Trained:
        """Transfer the rows where they have to go, and train."""
        ...


class Steps(Generic[P]):
    """Runs steps by the number of their batch, in rising order without gaps."""

    def __init__(
        self,
        *,
        draw: Callable[[int], Drawn],
        gatherer: RowGatherer,
        window: int,
        slots: Sequence[P],
        training: Training[P],
        evict: Callable[[], float],
        gathered: Callable[[GatherResult], None],
        first: int,
    ) -> None:
        """Use one slot for steps in turn, or two for steps ahead.

        ``evict`` empties the page cache before a gather where nothing limits it, and returns the
        seconds that it took. ``gathered`` hears of each gather's result.
        """
        self._draw = draw
        self._gatherer = gatherer
        self._window = window
        self._slots = slots
        self._training = training
        self._evict = evict
        self._gathered = gathered
        self._waiting: deque[Drawn] = deque()
        self._next = first
        self._opened = ExitStack()
        if len(slots) > 1:
            self._draw = self._opened.enter_context(_Prefetch(draw, PREFETCHED))
            self._pool = self._opened.enter_context(
                ThreadPoolExecutor(1, thread_name_prefix="gather")
            )

    def prime(self) -> None:
        """Sample the batches that the gatherer hears of before the first one."""
        while len(self._waiting) < self._window:
            self._expect_next()

    def run(self, numbers: range) -> Iterator[Step]:
        """Yield steps as they end.

        Raises:
            DataError: a file is short, or a row has other bytes than it should.
            OSError: a read failed.
        """
        if len(self._slots) > 1:
            yield from self._ahead(numbers)
        else:
            for number in numbers:
                yield self._in_turn(number)

    def close(self) -> None:
        """End the threads; a gather in flight is waited for."""
        self._opened.close()

    def _in_turn(self, number: int) -> Step:
        start_ns = time.monotonic_ns()
        drawn = self._take()
        sampling_s = (time.monotonic_ns() - start_ns) / NS_PER_S
        filled = self._fill(drawn, self._slots[0])
        return self._finish(number, filled, start_ns, sampling_s)

    def _ahead(self, numbers: range) -> Iterator[Step]:
        start_ns = time.monotonic_ns()
        pending: Future[_Filled[P]] | None = None
        try:
            for number in numbers:
                filling = pending or self._pool.submit(self._fill_next, number)
                filled = filling.result()
                pending = None
                if number + 1 < numbers.stop:
                    pending = self._pool.submit(self._fill_next, number + 1)
                step = self._finish(number, filled, start_ns, filled.drawn.seconds)
                yield step
                start_ns = step.end_ns
        finally:
            if pending is not None:
                pending.cancel()

    def _fill_next(self, number: int) -> _Filled[P]:
        return self._fill(self._take(), self._slots[number % len(self._slots)])

    def _take(self) -> Drawn:
        """Return the next batch, once the gatherer has heard of those after it."""
        while len(self._waiting) <= self._window:
            self._expect_next()
        return self._waiting.popleft()

    def _expect_next(self) -> None:
        drawn = self._draw(self._next)
        self._next += 1
        self._gatherer.expect(drawn.rows)
        self._waiting.append(drawn)

    def _fill(self, drawn: Drawn, slot: P) -> _Filled[P]:
        eviction_s = self._evict()
        start_ns = time.monotonic_ns()
        result = self._gatherer.gather(drawn.rows, slot.memory(len(drawn.rows)))
        seconds = (time.monotonic_ns() - start_ns) / NS_PER_S
        self._gathered(result)
        return _Filled(drawn, slot, result, seconds, eviction_s)

    def _finish(self, number: int, filled: _Filled[P], start_ns: int, sampling_s: float) -> Step:
        drawn = filled.drawn
        if drawn.number != number:
            raise RunError(f"step {number} was given batch {drawn.number}")
        trained = self._training.train(drawn, filled.slot)
        if trained.loss is not None and not isfinite(trained.loss):
            raise filled.slot.not_finite(drawn)
        trained_ns = time.monotonic_ns()
        compared = filled.slot.compare(drawn)
        end_ns = time.monotonic_ns()
        return Step(
            number=number,
            start_ns=start_ns,
            end_ns=end_ns,
            sampling_s=sampling_s,
            aggregation_s=filled.seconds,
            verification_s=(end_ns - trained_ns) / NS_PER_S,
            eviction_s=filled.eviction_s,
            trained=trained,
            gathered=filled.result,
            compared_rows=compared,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Filled(Generic[P]):
    """A batch whose rows are in memory."""

    drawn: Drawn
    slot: P
    result: GatherResult
    seconds: float
    eviction_s: float


class _Prefetch:
    """Calls a function ahead of its use, in a thread of its own, with rising numbers."""

    def __init__(self, draw: Callable[[int], Drawn], ahead: int) -> None:
        self._draw = draw
        self._ahead = ahead
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="sample")
        self._futures: dict[int, Future[Drawn]] = {}
        self._next: int | None = None

    def __enter__(self) -> _Prefetch:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def __call__(self, number: int) -> Drawn:
        if self._next is None:
            self._next = number
        while self._next <= number + self._ahead:
            self._futures[self._next] = self._pool.submit(self._draw, self._next)
            self._next += 1
        return self._futures.pop(number).result()


class Sleeping:
    """Emulated training: a sleep of the published seconds of a step."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s

    def train(self, drawn: Drawn, slot: BatchSlot) -> Trained:
        start_ns = time.monotonic_ns()
        time.sleep(self._step_s)
        seconds = (time.monotonic_ns() - start_ns) / NS_PER_S
        return Trained(transfer_s=None, training_s=seconds)
