"""The accelerator: how long it computes on a batch, per workload, and where batches are copied."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Device(Enum):
    """Whether batches are copied to a real device."""

    auto = "auto"
    """To a CUDA device where the host has one that PyTorch sees, else nowhere."""
    cuda = "cuda"
    """To a CUDA device; without one the run is refused."""
    none = "none"
    """Nowhere: batches end in host memory, as MLPerf Storage has it."""


@dataclass(slots=True, kw_only=True)
class Accelerator:
    """An accelerator that is emulated by sleeping; a GPU gets its batches and computes nothing.

    ``step_s`` maps a workload's name to the published computation time of one step in seconds
    (MLPerf Storage ``computation_time``); 0 everywhere means unpaced. ``count`` is how many
    accelerators are emulated in all, so each rank drives ``count / world_size``; only 1, the usual
    setting, means one per rank however many ranks there are, as in MLPerf Storage. ``device`` is
    where a workload that loads batches copies them.
    """

    name: str = "h100"
    count: int = 1
    step_s: dict[str, float] = field(default_factory=dict)
    device: Device = Device.auto
