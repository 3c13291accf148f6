"""The settings of the dlrm workload."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from wattload.core.errors import ConfigError

MIN_BLOCK_BYTES = 64 << 10
MAX_BLOCK_BYTES = 1 << 30


class Compression(Enum):
    """The codec of the Parquet files."""

    none = "none"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"
    gzip = "gzip"


@dataclass(slots=True, kw_only=True)
class Scale:
    """The counts of one scale."""

    day_count: int = 24
    row_count: int = 4_373_472_329
    rounds: int = 1


@dataclass(slots=True, kw_only=True)
class Config:
    """DLRM preprocessing: Criteo TSV to Parquet, then Parquet to packed binary rows.

    ``source`` is a folder of real day files (``day_0``, ``day_1``, ...) or one such file; they are
    only read. Without it, synthetic day files are generated on the target from ``data_seed``, with
    ``row_count`` rows in ``day_count`` files. Each rank has ``workers`` processes; 0 means its
    share of the cores. ``block_bytes`` of TSV are parsed at a time and become one Parquet row
    group. A worker needs 150 MB plus about 8 times that size, however large the files are.
    ``part_bytes`` of TSV become one Parquet file and one binary file; parts are smaller if that
    gives every worker the same number of them. The conversion is repeated ``rounds`` times.
    Afterwards, about ``sample_row_groups`` row groups, drawn anew by each run, are converted again
    by a reference implementation and compared. ``keep_output`` leaves the files of the last round
    on the target.
    """

    _target_: str = "wattload.workloads.dlrm.workload.Dlrm"
    source: str | None = None
    day_count: int = 24
    row_count: int = 4_373_472_329
    rounds: int = 1
    workers: int = 0
    compression: Compression = Compression.snappy
    block_bytes: int = 16 << 20
    part_bytes: int = 256 << 20
    sample_row_groups: int = 4
    keep_output: bool = False
    data_seed: int = 10
    scales: dict[str, Scale] = field(default_factory=dict)

    def check(self, scale: str) -> None:
        """Raise ``ConfigError`` for a setting outside its range, the same at every ``scale``."""
        least = {"day_count": 1, "row_count": 1, "rounds": 1, "workers": 0, "sample_row_groups": 1}
        least["data_seed"] = 0
        for name, minimum in least.items():
            if getattr(self, name) < minimum:
                raise ConfigError(
                    f"workload.{name} must be {minimum} or more, got {getattr(self, name)}"
                )
        if self.row_count < self.day_count:
            raise ConfigError(
                f"workload.row_count must be at least workload.day_count ({self.day_count}), "
                f"got {self.row_count}"
            )
        if not MIN_BLOCK_BYTES <= self.block_bytes <= MAX_BLOCK_BYTES:
            raise ConfigError(
                f"workload.block_bytes must be {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES}, "
                f"got {self.block_bytes}"
            )
        if self.part_bytes < self.block_bytes:
            raise ConfigError(
                f"workload.part_bytes must be at least workload.block_bytes ({self.block_bytes}), "
                f"got {self.part_bytes}"
            )
        if self.source is not None and not Path(self.source).exists():
            raise ConfigError(
                f"workload.source={self.source} does not exist; give a folder of Criteo day files "
                "or one of them, or leave it out to generate synthetic ones"
            )

    def workers_per_rank(self, world_size: int) -> int:
        """Return the number of worker processes of a rank: as set, or its share of the cores."""
        return self.workers or max(len(os.sched_getaffinity(0)) // world_size, 1)

    @property
    def memory_bytes(self) -> int:
        """A bound on the memory of one worker, measured with blocks of 4 to 64 MiB."""
        return 190_000_000 + 10 * self.block_bytes
