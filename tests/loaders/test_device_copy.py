"""Copies of batches to a device, and what a CUDA device needs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.devicebuffers import ThreadBuffer
from wattload.core.errors import ConfigError, MissingExtraError
from wattload.loaders import device_copy
from wattload.loaders.device_copy import DeviceCopier, cuda_copier, require_cuda

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


def has_cuda() -> bool:
    try:
        require_cuda()
    except (ConfigError, MissingExtraError):
        return False
    return True


needs_cuda = pytest.mark.skipif(not has_cuda(), reason="no CUDA device that PyTorch sees")


def test_without_a_driver_there_is_no_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_copy, "DRIVER", tmp_path / "nvidiactl")
    monkeypatch.setitem(sys.modules, "torch", None)  # it is not imported before
    with pytest.raises(ConfigError, match=r"nvidiactl is missing.*accelerator\.device=none"):
        require_cuda()


def test_without_pytorch_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_copy, "DRIVER", tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"\[torch\]"):
        require_cuda()


def test_a_pytorch_that_sees_no_device_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(device_copy, "DRIVER", tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=f"PyTorch {torch.__version__.split('+')[0]}"):
        require_cuda()


@needs_cuda
def test_rows_come_back_from_the_device_as_they_went() -> None:
    shape = (7, 1 << 21)
    random = np.random.default_rng(1)
    copier = cuda_copier(shape, accelerators=1, local_rank=0)
    sent, came = {}, {}
    for number in range(5):
        tensor = random.integers(0, 256, shape, dtype=np.uint8)
        for arrived in copier.make_room():
            came.update({key: row.tobytes() for key, row in arrived.rows.items()})
            assert arrived.copied_bytes == tensor.nbytes
            assert arrived.device_s > 0
        copier.copy(tensor, {number: number})
        sent[number] = tensor[number].tobytes()
        tensor[:] = 0
    for arrived in copier.finish():
        came.update({key: row.tobytes() for key, row in arrived.rows.items()})
    copier.close()
    copier.close()
    assert came == sent


def test_a_device_that_has_no_room_left_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")

    def full(_: object) -> None:
        raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later")

    monkeypatch.setattr(device_copy, "require_cuda", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"GPU {number}")
    monkeypatch.setattr(torch.cuda, "device", full)
    with pytest.raises(ConfigError) as caught:
        cuda_copier((7, 4096), accelerators=1, local_rank=3)
    assert str(caught.value) == (
        "GPU 1 number 1 can't be used: CUDA error: out of memory; use accelerator.device=none"
    )
