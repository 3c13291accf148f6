"""The settings of the checkpoint workload."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from wattload.core.errors import ConfigError
from wattload.core.mlperf import CHECKPOINT_INTERVAL_S
from wattload.workloads.checkpoint.models import SERVER_NAME, model_named


@dataclass(slots=True, kw_only=True)
class Scale:
    """The counts of one scale; see ``Config``."""

    checkpoint_count: int = 10
    slice_bytes: int | None = None
    shrink_bytes: int | None = None


MODES = ("sync", "async")
PROTOCOLS = ("plain", "mlperf")


@dataclass(slots=True, kw_only=True)
class Config:
    """Checkpoints of a Llama-3 model, one shard per rank, written and read back.

    ``mode`` is ``sync``, where training stands still until a checkpoint is durable, or ``async``,
    where it stands still for a snapshot only and goes on while the bytes drain. ``interval_s`` is
    the time of training between two checkpoints, in whole steps of ``step_s``; without a value it
    is 0, for ``async`` 5 s (``time_between_checkpoints`` of MLPerf Storage). ``step_s`` without a
    value is the emulated accelerator's.

    ``checkpoint_count`` are written; the last ``keep`` of them stay while the next is written, and
    each is read back before it goes: with ``keep`` equal to the count, all are written before the
    first is read, as in MLPerf Storage. Without a value it is 1, for ``async`` 2, so that a
    checkpoint can meet the drain of the one before. ``slice_bytes`` bounds a rank's shard: only the
    first tensors of its list are written, whole. ``shrink_bytes`` scales the tensors themselves so
    that a rank has exactly that many; ``demo`` alone may. ``fsync`` makes files durable in the
    window. With ``protocol=mlperf`` the run is held against MLPerf Storage's rules by checks.
    """

    _target_: str = "wattload.workloads.checkpoint.Checkpoint"
    model: str = SERVER_NAME
    mode: str = "sync"
    protocol: str = "plain"
    checkpoint_count: int = 10
    keep: int | None = None
    interval_s: float | None = None
    step_s: float | None = None
    fsync: bool = True
    slice_bytes: int | None = None
    shrink_bytes: int | None = None
    scales: dict[str, Scale] = field(default_factory=dict)

    @property
    def is_async(self) -> bool:
        """Whether training goes on while bytes drain."""
        return self.mode == "async"

    @property
    def kept(self) -> int:
        """How many checkpoints stay while the next is written."""
        return self.keep if self.keep is not None else (2 if self.is_async else 1)

    @property
    def training_s(self) -> float:
        """The time of training between two checkpoints."""
        if self.interval_s is not None:
            return self.interval_s
        return CHECKPOINT_INTERVAL_S if self.is_async else 0.0

    def check(self, scale: str) -> None:
        """Raise ``ConfigError`` for a setting outside its range, or one that the scale forbids."""
        model_named(self.model)
        for name, allowed in (("mode", MODES), ("protocol", PROTOCOLS)):
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"workload.{name} must be {' or '.join(allowed)}, got {getattr(self, name)!r}"
                )
        for name in ("checkpoint_count", "keep"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"workload.{name} must be 1 or more, got {value}")
        for name in ("interval_s", "step_s"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ConfigError(f"workload.{name} must be 0 or more seconds, got {value}")
        if self.is_async and not self.training_s:
            raise ConfigError(
                "workload.interval_s must be above 0 for workload.mode=async, which drains a "
                "checkpoint while training goes on; got 0"
            )
        if self.shrink_bytes is not None and scale != "demo":
            raise ConfigError(
                f"workload.shrink_bytes is {self.shrink_bytes}; tensors keep their size, so it "
                f"must be null at scale={scale}; scale=demo alone may shrink them"
            )
