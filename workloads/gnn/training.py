"""Training on a gathered batch: by the CPU, by a GPU, or as a sleep."""

from __future__ import annotations

import time

import torch

from wattload.core.errors import ConfigError
from wattload.core.units import NS_PER_S, format_bytes
from wattload.workloads.gnn.model import Trainer
from wattload.workloads.gnn.places import GpuSlot, HostSlot, PinnedSlot
from wattload.workloads.gnn.steps import Drawn, Trained


class CpuTraining:
    """The CPU trains on the rows where they were gathered."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def train(self, drawn: Drawn, slot: HostSlot) -> Trained:
        start_ns = time.monotonic_ns()
        features = slot.features(len(drawn.rows))
        loss = float(self._trainer.step(features, drawn.batch, drawn.labels))
        seconds = (time.monotonic_ns() - start_ns) / NS_PER_S
        return Trained(transfer_s=None, training_s=seconds, loss=loss)


class GpuTraining:
    """A GPU trains; rows that were gathered into pinned memory are copied to it first."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def train(self, drawn: Drawn, slot: GpuSlot | PinnedSlot) -> Trained:
        """Copy, wait, train, wait; CUDA events time both as the GPU sees them."""
        count, device = len(drawn.rows), self._trainer.device
        transfer_s = transfer_gpu_s = None
        start_ns = time.monotonic_ns()
        features = slot.features(count)
        if isinstance(slot, PinnedSlot):
            with _Timed(device) as timed:
                host = torch.from_numpy(slot.host.values(count))
                features.copy_(host, non_blocking=True)
            transfer_s, transfer_gpu_s = timed.seconds, timed.gpu_s
            start_ns = time.monotonic_ns()
        try:
            with _Timed(device) as timed:
                loss = self._trainer.step(features, drawn.batch, drawn.labels)
        except torch.OutOfMemoryError as error:
            free_bytes, whole_bytes = torch.cuda.mem_get_info(device)
            raise ConfigError(
                f"training on a batch of {count} rows does not fit the GPU, which has "
                f"{format_bytes(free_bytes)} of {format_bytes(whole_bytes)} free; use fewer "
                "workload.batch_seeds or a smaller workload.hidden"
            ) from error
        seconds = (time.monotonic_ns() - start_ns) / NS_PER_S
        return Trained(
            transfer_s=transfer_s,
            training_s=seconds,
            transfer_gpu_s=transfer_gpu_s,
            training_gpu_s=timed.gpu_s,
            loss=float(loss),
        )


class _Timed:
    """Times a block until the GPU has done its work, by the host's clock and by CUDA events."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.current_stream(device)
        self._start, self._end = (
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch
            for _ in range(2)
        )
        self.seconds = self.gpu_s = 0.0

    def __enter__(self) -> _Timed:
        self._start_ns = time.monotonic_ns()
        self._start.record(self._stream)
        return self

    def __exit__(self, *exception: object) -> None:
        self._end.record(self._stream)
        self._end.synchronize()
        self.seconds = (time.monotonic_ns() - self._start_ns) / NS_PER_S
        self.gpu_s = float(self._start.elapsed_time(self._end)) / 1e3
