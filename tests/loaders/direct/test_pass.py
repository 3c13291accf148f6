from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.contracts.loader import BATCH, make_samples
from wattload.core.io import DataPath, IOResult
from wattload.loaders.direct.loader import Arrival, Pass
from wattload.loaders.samples import SampleSet

DONE = IOResult(
    moved_bytes=0,
    operation_count=0,
    start_ns=0,
    end_ns=0,
    cpu_s=0.0,
    path=DataPath(data_path="o_direct", path_requested="o_direct"),
    open_s=0.6,
)


@dataclass
class Fetches:
    """Files that were asked for and have not come; ``come`` brings one."""

    samples: SampleSet
    asked: list[int] = field(default_factory=list)
    _open: dict[int, tuple[Sequence[int], NDArray[np.uint8], Arrival]] = field(default_factory=dict)

    def __call__(self, indices: Sequence[int], slots: NDArray[np.uint8], then: Arrival) -> None:
        self.asked += indices
        self._open[indices[0]] = (indices, slots, then)

    def come(self, index: int) -> None:
        indices, slots, then = self._open.pop(index)
        for each, slot in zip(indices, slots, strict=False):
            content = np.fromfile(self.samples.paths[each], dtype=np.uint8)
            slot[: len(content)] = content
        ticket: Future[IOResult] = Future()
        ticket.set_result(DONE)
        then(ticket)

    def fail(self, index: int) -> None:
        *_, then = self._open.pop(index)
        ticket: Future[IOResult] = Future()
        ticket.set_exception(OSError("the drive is gone"))
        then(ticket)


def started(
    folder: Path,
    *,
    queued_bytes: int,
    slots: int = 9,
    order: Sequence[int] = range(9),
    together: int = 1,
) -> tuple[Pass, Fetches]:
    samples = make_samples(folder)
    fetches = Fetches(samples)
    made = Pass(
        samples,
        order,
        [np.zeros((together, max(samples.file_bytes)), dtype=np.uint8) for _ in range(slots)],
        [np.zeros((BATCH, samples.resize_bytes), dtype=np.uint8) for _ in range(3)],
        fetches,
        spare=lambda call: call(),
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
    first = fetches._open[0][1]
    fetches.come(0)  # file 2 was asked for before this slot was free
    fetches.come(1)
    assert fetches._open[3][1] is first
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


def test_files_of_a_group_are_read_together_and_share_the_time_of_opening(tmp_path: Path) -> None:
    order = [*range(9), 8, 7, 6]
    subject, fetches = started(tmp_path, queued_bytes=1, together=4, order=order)
    assert fetches.asked == list(range(8))
    fetches.come(0)
    batches = subject.batches()
    first = next(batches)
    assert first.indices == (0, 1, 2)
    assert first.open_s == pytest.approx(3 * 0.6 / 4)
    expected = [np.fromfile(fetches.samples.paths[index], dtype=np.uint8) for index in range(3)]
    assert first.read_bytes == sum(map(len, expected))


def test_a_group_waits_until_all_its_batches_have_tensors(tmp_path: Path) -> None:
    subject, fetches = started(tmp_path, queued_bytes=1 << 30, together=4, order=[*range(9)] * 2)
    assert fetches.asked == list(range(8))  # the third group would begin the fourth batch
    for index in (0, 4):
        fetches.come(index)
    batches = subject.batches()
    assert [next(batches).indices for _ in range(2)] == [(0, 1, 2), (3, 4, 5)]
    assert len(fetches.asked) == 12
