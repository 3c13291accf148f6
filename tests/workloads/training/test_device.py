"""Runs whose batches go to a device: here a thread and ordinary memory, on a GPU host a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.context import context_at
from tests.devicebuffers import ThreadBuffer
from tests.unet3d import BATCH, EPOCHS, FILES, checks_of, facts_of, live, named, torch, verdict
from wattload.core.errors import ConfigError, MissingExtraError
from wattload.core.workload import Accelerator, Device
from wattload.loaders import device_copy
from wattload.loaders.device_copy import DeviceCopier
from wattload.loaders.samples import SampleLoaderConfig
from wattload.workloads.training import loop
from wattload.workloads.training.config import Config
from wattload.workloads.training.workload import Unet3d

pytestmark = pytest.mark.usefixtures("short_ceiling")

STEPS = FILES // BATCH


def workload(where: Device, *, loader: SampleLoaderConfig | None = None, count: int = 1) -> Unet3d:
    config = Config(record_divisor=640, file_count=FILES, batch_samples=BATCH, epochs=EPOCHS)
    accelerator = Accelerator(name="test", count=count, step_s={"unet3d": 0.002}, device=where)
    return Unet3d(config, loader or torch(), accelerator)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ThreadBuffer]]:
    """Let this host have a device; yields the buffers that are made for it."""
    buffers: list[ThreadBuffer] = []

    def copier(shape: tuple[int, int], *, accelerators: int, local_rank: int) -> DeviceCopier:
        assert local_rank == 0
        mine = [ThreadBuffer(shape) for _ in range(2 * accelerators)]
        buffers.extend(mine)
        return DeviceCopier(mine, "a thread")

    monkeypatch.setattr(loop, "require_cuda", lambda: None)
    monkeypatch.setattr(loop, "cuda_copier", copier)
    yield buffers
    assert all(buffer.closed for buffer in buffers)


@pytest.mark.parametrize("count", [1, 2])
def test_every_batch_is_copied_and_proved_on_the_device(
    tmp_path: Path, made: list[ThreadBuffer], count: int
) -> None:
    outcome, checks = live(workload(Device.auto, count=count), context_at(tmp_path))
    metrics = named(outcome)
    batches = EPOCHS * (FILES // (BATCH * count)) * count
    assert metrics["copied_bytes"].value == batches * BATCH * (2_097_152 // 640)
    assert metrics["device_copy_bytes_per_s"].value
    assert metrics["copy_wait_s"].value
    assert facts_of(outcome).device == "a thread"
    assert len(made) == 2 * count
    (check,) = checks
    assert check.verdict == "pass"
    assert check.figures["altered_device_rows"] == 0
    assert "and so do these rows read back from the device" in check.sentence
    assert verdict(checks_of(outcome), "step_times_close") == "pass"


def test_bytes_that_change_on_the_way_to_the_device_fail_the_run(
    tmp_path: Path, made: list[ThreadBuffer], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = ThreadBuffer.begin

    def flip(self: ThreadBuffer, returned_rows: Sequence[int]) -> None:
        self.staging[:, 5] ^= 1
        begin(self, returned_rows)

    monkeypatch.setattr(ThreadBuffer, "begin", flip)
    _, (check,) = live(workload(Device.auto), context_at(tmp_path))
    assert made
    assert check.verdict == "fail"
    assert check.figures["altered_rows"] == 0
    assert check.figures["altered_device_rows"] == check.figures["expected_samples"] != 0
    assert "rows read back from the device differ" in check.sentence


def test_rows_that_do_not_come_back_fail_the_run(
    tmp_path: Path, made: list[ThreadBuffer], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = ThreadBuffer.begin
    monkeypatch.setattr(ThreadBuffer, "begin", lambda self, _: begin(self, ()))
    _, (check,) = live(workload(Device.auto), context_at(tmp_path))
    assert made
    assert check.verdict == "fail"


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        (Device.none, "accelerator.device is none, so batches stay in host memory"),
        (Device.auto, "nvidiactl is missing, so no NVIDIA driver is loaded"),
    ],
)
def test_without_a_device_no_copy_is_pretended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Device, reason: str
) -> None:
    monkeypatch.setattr(device_copy, "DRIVER", tmp_path / "nvidiactl")
    outcome, checks = live(workload(where), context_at(tmp_path))
    metrics = named(outcome)
    for name in ("copied_bytes", "device_copy_s", "device_copy_bytes_per_s", "copy_wait_s"):
        assert metrics[name].value is None
        assert reason in metrics[name].missing["value"]
    assert facts_of(outcome).device is None
    assert checks[0].figures["altered_device_rows"] is None
    assert verdict(checks, "delivered_bytes") == "pass"


def test_a_device_that_was_asked_for_and_is_not_there_is_refused_by_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_copy, "DRIVER", tmp_path / "nvidiactl")
    with pytest.raises(ConfigError, match="no CUDA device"):
        workload(Device.cuda).plan(context_at(tmp_path))


def test_a_host_with_a_driver_and_no_pytorch_copies_nothing_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_copy, "DRIVER", tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    choice = loop.choose_device(Device.auto)
    assert not choice.copies
    assert "PyTorch" in choice.reason
    with pytest.raises(MissingExtraError):
        loop.choose_device(Device.cuda)


def test_pinned_memory_is_in_the_plan(tmp_path: Path, made: list[ThreadBuffer]) -> None:
    context = context_at(tmp_path)
    subject = workload(Device.none)
    subject.plan(context)
    subject.prepare(context)  # what generating needs is no more in the way
    without = workload(Device.none).plan(context).memory_bytes_per_rank
    assert workload(Device.cuda).plan(context).memory_bytes_per_rank > without
    assert not made
