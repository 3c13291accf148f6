from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.devicebuffers import ThreadBuffer
from wattload.loaders.device_copy import DeviceCopier

SHAPE = (3, 5000)


def batch(number: int) -> NDArray[np.uint8]:
    return np.full(SHAPE, number, dtype=np.uint8)


def copier(buffers: Sequence[ThreadBuffer]) -> DeviceCopier:
    return DeviceCopier(buffers, "a thread")


def test_a_batch_is_staged_at_once_so_that_the_loader_may_use_its_memory_again() -> None:
    may_copy = threading.Event()
    buffer = ThreadBuffer(SHAPE, may_copy)
    subject, tensor = copier([buffer]), batch(7)
    assert subject.make_room() == []
    subject.copy(tensor, {1: 10})
    tensor[:] = 9
    may_copy.set()
    (arrived,) = subject.finish()
    assert (buffer.device == 7).all()
    assert arrived.copied_bytes == tensor.nbytes
    assert arrived.device_s > 0
    assert arrived.rows.keys() == {10}
    assert (arrived.rows[10] == 7).all()


def test_batches_are_under_way_side_by_side_until_a_buffer_is_needed_again() -> None:
    may_copy = threading.Event()
    subject = copier([ThreadBuffer(SHAPE, may_copy) for _ in range(2)])
    for number in range(2):
        assert subject.make_room() == []  # returns, though nothing could be copied yet
        subject.copy(batch(number), {0: number})
    waiting, room = threading.Event(), []

    def take() -> None:
        waiting.set()
        room.extend(subject.make_room())

    thread = threading.Thread(target=take)
    thread.start()
    waiting.wait()
    assert thread.is_alive()
    assert room == []
    may_copy.set()
    thread.join()
    assert [set(arrived.rows) for arrived in room] == [{0}]
    assert [set(arrived.rows) for arrived in subject.finish()] == [{1}]


def test_all_that_is_under_way_comes_back_once_the_oldest_first() -> None:
    subject = copier([ThreadBuffer(SHAPE) for _ in range(3)])
    keys = []
    for number in range(4):
        keys += [key for arrived in subject.make_room() for key in arrived.rows]
        subject.copy(batch(number), {2: number})
    keys += [key for arrived in subject.finish() for key in arrived.rows]
    assert keys == [0, 1, 2, 3]
    assert subject.finish() == []


def test_closing_gives_every_buffer_back() -> None:
    buffers = [ThreadBuffer(SHAPE) for _ in range(2)]
    subject = copier(buffers)
    subject.close()
    assert [buffer.closed for buffer in buffers] == [1, 1]
    assert subject.device == "a thread"
