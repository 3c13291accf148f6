"""The settings of the unet3d workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from wattload.core import mlperf
from wattload.core.errors import ConfigError
from wattload.loaders.formats import record_format
from wattload.workloads.unet3d.sizes import Distribution

if TYPE_CHECKING:
    from wattload.core.workload import Communicator

PUBLISHED_SETTINGS = (
    "record_mean_bytes",
    "record_stdev_bytes",
    "resize_bytes",
    "batch_samples",
)
"""Settings whose defaults are those of MLPerf Storage v1.0 to v3.0; other values, another job."""

PUBLISHED_STEP_S = mlperf.UNET3D.step_s
"""The step times of MLPerf Storage's unet3d, in seconds (``computation_time``)."""


class Sizes(Enum):
    """How record sizes are drawn."""

    matched = "matched"
    """Mean and stdev of the files are those configured."""
    dlio = "dlio"
    """As DLIO draws them: stdev 48.9 MB where 68.3 is configured."""


@dataclass(slots=True, kw_only=True)
class Scale:
    """The counts of one scale; ``file_count`` ``None`` is MLPerf's rule.

    ``record_divisor`` divides record mean, stdev and resize length; above 1 in ``demo`` alone.
    """

    file_count: int | None = None
    epochs: int = 5
    record_divisor: int = 1


@dataclass(slots=True, kw_only=True)
class Config:
    """MLPerf Storage unet3d: whole records, one per file, batches of the resized front of each.

    Sizes are payload bytes (DLIO's ``record_length_bytes``); files are larger by their header.
    ``data_seed`` makes the data; the run's own seed shuffles it and chooses what is hashed, so that
    runs with different seeds share their data. ``verify_data`` hashes reused files before the run.
    ``steps_per_epoch`` bounds an epoch: where there are more files than it needs it reads a part of
    them, another in each epoch; ``None``: all.
    """

    au_threshold: ClassVar[float] = mlperf.UNET3D.au_threshold
    """The utilisation that an accelerator must be held at to count."""

    _target_: str = "wattload.workloads.unet3d.Unet3d"
    record_format: str = "npz"
    sizes: Sizes = Sizes.matched
    record_mean_bytes: int = 146_600_628
    record_stdev_bytes: int = 68_341_808
    resize_bytes: int = 2_097_152
    batch_samples: int = 7
    check_crc: bool = False
    data_seed: int = 10
    verify_data: bool = False
    file_count: int | None = None
    epochs: int = 5
    steps_per_epoch: int | None = None
    record_divisor: int = 1
    scales: dict[str, Scale] = field(default_factory=dict)

    def check(self, scale: str) -> None:
        """Raise ``ConfigError`` for a setting outside its range, or one that the scale forbids."""
        record_format(self.record_format)
        for name in ("batch_samples", "epochs", "record_divisor", "resize_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"workload.{name} must be 1 or more, got {getattr(self, name)}")
        if self.data_seed < 0:
            raise ConfigError(f"workload.data_seed must be 0 or more, got {self.data_seed}")
        for name in ("file_count", "steps_per_epoch"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise ConfigError(f"workload.{name} must be 1 or more, got {count}")
        if self.record_divisor > 1 and scale != "demo":
            raise ConfigError(
                f"workload.record_divisor is {self.record_divisor}; records keep their size, so it "
                f"must be 1 at scale={scale}; scale=demo alone may shrink them"
            )
        self.distribution().check()

    def search_settings(
        self, *, scale: str, accelerators: Sequence[int], communicator: Communicator, given: bool
    ) -> Mapping[int, Mapping[str, int]]:
        """Return the settings of a search's runs by accelerators; every rank must call it.

        ``given`` says that ``file_count`` is the user's, not the scale's. See ``search.py``.
        """
        from wattload.workloads.unet3d.job import hosts_memory_bytes
        from wattload.workloads.unet3d.search import search_settings

        return search_settings(
            self,
            scale=scale,
            accelerators=accelerators,
            memory_bytes=hosts_memory_bytes(communicator),
            file_count=self.file_count if given else None,
        )

    def distribution(self) -> Distribution:
        """Return the record sizes asked for; the resize length is the least a record may have."""
        return Distribution(
            mean_bytes=self.record_mean_bytes / self.record_divisor,
            stdev_bytes=self.record_stdev_bytes / self.record_divisor,
            minimum_bytes=self.row_bytes,
        )

    @property
    def row_bytes(self) -> int:
        """The bytes of each record that reach the accelerator."""
        return max(self.resize_bytes // self.record_divisor, 1)
