"""The settings of the checkpoint workload."""

from __future__ import annotations

from dataclasses import dataclass, field

from wattload.core.errors import ConfigError
from wattload.workloads.checkpoint.models import NAMES, SERVER_NAME


@dataclass(slots=True, kw_only=True)
class Scale:
    """The counts of one scale; see ``Config``."""

    checkpoint_count: int = 10
    slice_bytes: int | None = None
    shrink_bytes: int | None = None


@dataclass(slots=True, kw_only=True)
class Config:
    """Checkpoints of a Llama-3 model, one shard per rank, written and read back.

    ``checkpoint_count`` are written; the last ``keep`` of them stay while the next is written, and
    each is read back before it goes: with ``keep`` equal to the count, all are written before the
    first is read, as in MLPerf Storage. ``slice_bytes`` bounds a rank's shard: only the first
    tensors of its list are written, whole. ``shrink_bytes`` scales the tensors themselves so that a
    rank has exactly that many; ``demo`` alone may. ``fsync`` makes files durable in the window.
    """

    _target_: str = "wattload.workloads.checkpoint.Checkpoint"
    model: str = SERVER_NAME
    checkpoint_count: int = 10
    keep: int = 1
    fsync: bool = True
    slice_bytes: int | None = None
    shrink_bytes: int | None = None
    scales: dict[str, Scale] = field(default_factory=dict)

    def check(self, scale: str) -> None:
        """Raise ``ConfigError`` for a setting outside its range, or one that the scale forbids."""
        if self.model not in NAMES:
            raise ConfigError(
                f"workload.model must be one of {', '.join(NAMES)}, got {self.model!r}"
            )
        for name in ("checkpoint_count", "keep"):
            if getattr(self, name) < 1:
                raise ConfigError(f"workload.{name} must be 1 or more, got {getattr(self, name)}")
        if self.shrink_bytes is not None and scale != "demo":
            raise ConfigError(
                f"workload.shrink_bytes is {self.shrink_bytes}; tensors keep their size, so it "
                f"must be null at scale={scale}; scale=demo alone may shrink them"
            )
