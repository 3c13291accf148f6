"""The order of stages, by stand-ins whose parts only note when they were called."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from wattload.core.errors import DataError, RunError
from wattload.loaders.aligned_io import aligned_buffer
from wattload.loaders.feature_rows import GatherResult
from wattload.workloads.gnn.steps import Drawn, Sleeping, Steps

ROW = 4096


class Gatherer:
    """Notes what it hears and gathers; a gather takes ``seconds`` of sleep."""

    def __init__(self, seconds: float = 0.0, fails_at: int | None = None) -> None:
        self.heard: list[int] = []
        self.gathered: list[tuple[int, int]] = []
        self._seconds = seconds
        self._fails_at = fails_at
        self._lock = threading.Lock()

    def expect(self, rows: NDArray[np.uint64]) -> None:
        assert self._lock.acquire(blocking=False), "one thread at a time"
        self.heard.append(int(rows[0]))
        self._lock.release()

    def gather(self, rows: NDArray[np.uint64], into: Any) -> GatherResult:
        assert self._lock.acquire(blocking=False), "one thread at a time"
        number = int(rows[0])
        if number == self._fails_at:
            raise OSError(5, "Input/output error")
        start_ns = time.monotonic_ns()
        time.sleep(self._seconds)
        self.gathered.append((number, self.heard[-1]))
        self._lock.release()
        return GatherResult(
            rows=len(rows), storage_rows=len(rows), host_rows=0, cache_rows=0, merged_rows=0,
            storage_bytes=len(rows) * ROW, start_ns=start_ns, end_ns=time.monotonic_ns(), cpu_s=0.0,
        )  # fmt: skip

    def count_anew(self) -> None:
        raise NotImplementedError

    def release_pages(self) -> None:
        raise NotImplementedError

    def path(self) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        pass


class BatchSlot:
    """Memory that must not be filled again before it was trained on."""

    def __init__(self) -> None:
        self.is_filled = False

    def memory(self, count: int) -> NDArray[np.uint8]:
        assert not self.is_filled
        self.is_filled = True
        return aligned_buffer(count * ROW)

    def not_finite(self, drawn: Drawn) -> DataError:
        return DataError(f"batch {drawn.number} is not finite")

    def compare(self, drawn: Drawn) -> int:
        self.is_filled = False
        return 1


def draw(number: int) -> Drawn:
    rows = np.full(2, number, dtype=np.uint64)
    none: Any = None
    return Drawn(number=number, batch=none, rows=rows, labels=none, seconds=0.0)


@contextmanager
def steps_of(
    gatherer: Gatherer, slots: int, window: int = 0, step_s: float = 0.0
) -> Iterator[Steps[BatchSlot]]:
    made = Steps(
        draw=draw,
        gatherer=gatherer,
        window=window,
        slots=[BatchSlot() for _ in range(slots)],
        training=Sleeping(step_s),
        evict=lambda: 0.0,
        gathered=lambda result: None,
        first=0,
    )
    with closing(made):
        yield made


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("window", [0, 3])
def test_gatherers_hear_of_every_batch_once_before_it(slots: int, window: int) -> None:
    gatherer = Gatherer()
    with steps_of(gatherer, slots, window) as steps:
        steps.prime()
        assert gatherer.heard == list(range(window))
        numbers = [step.number for step in steps.run(range(4))]
        numbers += [step.number for step in steps.run(range(4, 7))]
    assert numbers == list(range(7))
    assert gatherer.heard == list(range(7 + window))
    assert gatherer.gathered == [(number, number + window) for number in range(7)]


@pytest.mark.parametrize("slots", [1, 2])
def test_only_steps_ahead_gather_while_another_one_trains(slots: int) -> None:
    with steps_of(Gatherer(0.01), slots, step_s=0.03) as steps:
        found = list(steps.run(range(6)))
    for one, other in pairwise(found):
        assert one.end_ns <= other.start_ns
        assert (other.gathered.start_ns < one.end_ns) == (slots == 2)
    for step in found:
        assert step.aggregation_s >= 0.01
        assert step.trained.training_s >= 0.03


@pytest.mark.parametrize("slots", [1, 2])
def test_a_failed_gather_ends_the_steps_before_training(slots: int) -> None:
    gatherer, trained = Gatherer(fails_at=2), []
    with steps_of(gatherer, slots) as steps, pytest.raises(OSError, match="Input/output"):
        trained += [step.number for step in steps.run(range(5))]
    assert [number for number, _ in gatherer.gathered] == [0, 1]


def test_a_batch_out_of_turn_is_refused() -> None:
    with (
        steps_of(Gatherer(), 1) as steps,
        pytest.raises(RunError, match="step 3 was given batch 0"),
    ):
        list(steps.run(range(3, 5)))
