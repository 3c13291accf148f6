from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.contracts.loader import BATCH, make_samples
from wattload.loaders.direct.loader import Arrival, Pass
from wattload.loaders.samples import SampleSet


@dataclass
class Fetches:
    """Files that were asked for and have not come; ``come`` brings one."""

    samples: SampleSet
    asked: list[int] = field(default_factory=list)
    _open: dict[int, tuple[NDArray[np.uint8], Arrival]] = field(default_factory=dict)

    def __call__(self, index: int, slot: NDArray[np.uint8], then: Arrival) -> None:
        self.asked.append(index)
        self._open[index] = (slot, then)

    def come(self, index: int) -> None:
        slot, then = self._open.pop(index)
        content = np.fromfile(self.samples.paths[index], dtype=np.uint8)
        slot[: len(content)] = content
        ticket: Future[int] = Future()
        ticket.set_result(len(content))
        then(ticket)

    def fail(self, index: int) -> None:
        _, then = self._open.pop(index)
        ticket: Future[int] = Future()
        ticket.set_exception(OSError("the drive is gone"))
        then(ticket)


def started(
    folder: Path, *, queued_bytes: int, slots: int = 9, order: Sequence[int] = range(9)
) -> tuple[Pass, Fetches]:
    samples = make_samples(folder)
    fetches = Fetches(samples)
    made = Pass(
        samples,
        order,
        [np.zeros(max(samples.file_bytes), dtype=np.uint8) for _ in range(slots)],
        [np.zeros((BATCH, samples.resize_bytes), dtype=np.uint8) for _ in range(3)],
        fetches,
        queued_bytes=queued_bytes,
    )
    made._advance()
    return made, fetches


def test_behind_the_file_that_is_read_the_queue_is_kept_full_and_no_more(tmp_path: Path) -> None:
    sizes = make_samples(tmp_path).file_bytes
    _, fetches = started(tmp_path, queued_bytes=sizes[1] + sizes[2] + 1)
    assert fetches.asked == [0, 1, 2, 3]
    fetches.come(0)
    assert fetches.asked == [0, 1, 2, 3]  # behind file 1 there is enough yet
    fetches.come(1)
    assert fetches.asked == [0, 1, 2, 3, 4]


def test_one_file_waits_behind_another_however_small_the_queue(tmp_path: Path) -> None:
    _, fetches = started(tmp_path, queued_bytes=1)
    assert fetches.asked == [0, 1]
    fetches.come(0)
    assert fetches.asked == [0, 1, 2]


def test_the_next_file_is_asked_for_before_one_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the queue is full while a CRC is computed."""
    subject, fetches = started(tmp_path, queued_bytes=1)
    asked: list[list[int]] = []
    monkeypatch.setattr(subject, "_decode", lambda *_: asked.append(list(fetches.asked)))
    fetches.come(0)
    assert asked == [[0, 1, 2]]


def test_a_slot_that_was_used_last_is_taken_first(tmp_path: Path) -> None:
    subject, fetches = started(tmp_path, queued_bytes=1)
    first = fetches._open[0][0]
    fetches.come(0)  # file 2 was asked for before this slot was free
    fetches.come(1)
    assert fetches._open[3][0] is first
    for index in (2, 3):
        fetches.come(index)
    assert next(subject.batches()).indices == (0, 1, 2)


def test_after_a_failure_no_more_is_asked_for(tmp_path: Path) -> None:
    subject, fetches = started(tmp_path, queued_bytes=1)
    fetches.fail(0)
    count = len(fetches.asked)
    fetches.come(1)
    with pytest.raises(OSError, match="the drive is gone"):
        next(subject.batches())
    assert len(fetches.asked) == count
