"""The settings of the dlrm workload."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from wattload.core.errors import ConfigError
from wattload.core.host.cgroups import usable_cpus
from wattload.core.settings import check_settings, setting

MIN_BLOCK_BYTES = 64 << 10
MAX_BLOCK_BYTES = 1 << 30
MAX_DAYS = 100_000
MAX_WORKERS = 4096
MAX_THRESHOLD = (1 << 32) - 1
MAX_ROUNDS = 10_000
"""What moved in each round is kept in memory until it is verified."""


class Compression(Enum):
    """The codec of the Parquet files."""

    none = "none"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"
    gzip = "gzip"


class Ids(Enum):
    """How Parquet files hold categorical ids."""

    string = "string"
    int32 = "int32"


class Dense(Enum):
    """How packed rows hold the integers, DLRM's dense features."""

    count = "count"
    log = "log"


class Pack(Enum):
    """The files of packed rows."""

    rows = "rows"
    split_binary = "split_binary"


class BadRows(Enum):
    """What becomes of lines that are not rows."""

    refuse = "refuse"
    drop = "drop"


@dataclass(slots=True, kw_only=True)
class Scale:
    """The counts of one scale."""

    day_count: int = 24
    row_count: int = 4_373_472_329
    rounds: int = 1


@dataclass(slots=True, kw_only=True)
class Config:
    """DLRM preprocessing: Criteo TSV to Parquet to packed binary rows, or to these at once.

    What a worker needs of memory depends on ``block_bytes``, however large the files are.
    """

    _target_: str = "wattload.workloads.dlrm.workload.Dlrm"
    source: str | None = setting(
        None,
        "Folder of real Criteo day files (day_0 or day_0.gz, day_1, ...), or one such file; only "
        "read.",
        unset="generates synthetic day files on the target",
    )
    day_count: int = setting(24, "Synthetic day files.", least=1, most=MAX_DAYS)
    row_count: int = setting(4_373_472_329, "Rows in all synthetic day files together.", least=1)
    rounds: int = setting(1, "How often the conversion is repeated.", least=1, most=MAX_ROUNDS)
    workers: int = setting(
        0, "Worker processes per rank; 0: the rank's share of the cores.", least=0, most=MAX_WORKERS
    )
    columnar: bool = setting(
        True, "Convert by way of Parquet files; false: TSV becomes packed rows at once."
    )
    compression: Compression = setting(Compression.snappy, "Codec of the Parquet files.")
    ids: Ids = setting(
        Ids.string,
        "Categorical ids in the Parquet files: their 8 hex digits, or the number modulo "
        "40,000,000.",
    )
    dense: Dense = setting(
        Dense.count,
        "Dense features in the packed rows: the counts as int32, or log(x + 1) as float32.",
    )
    pack: Pack = setting(
        Pack.rows,
        "Packed files of each part: one of rows, or NVIDIA's files of columns (label, numerical, "
        "cat_0 to cat_25), which need dense=log.",
    )
    frequency_threshold: int | None = setting(
        None,
        "Numbers the ids of each column in the order of first appearance; ids that appear less "
        "often than this become 1. Needs loader=native and pack=split_binary.",
        unset="leaves ids modulo 40,000,000",
        least=1,
        most=MAX_THRESHOLD,
    )
    shuffle: bool = setting(
        False,
        "Shuffle the packed rows of all days but the last; needs loader=native. The same seed and "
        "memory give the same order, whatever the number of workers.",
    )
    bad_rows: BadRows = setting(
        BadRows.refuse, "Whether a line that is not a row ends the run or is left out and counted."
    )
    block_bytes: int = setting(
        16 << 20,
        "TSV parsed at a time; becomes one Parquet row group.",
        least=MIN_BLOCK_BYTES,
        most=MAX_BLOCK_BYTES,
    )
    part_bytes: int = setting(
        256 << 20,
        "TSV that becomes one Parquet and one binary file; at least block_bytes. Parts are smaller "
        "if that gives every worker the same number of them; a gz file is one part.",
        least=MIN_BLOCK_BYTES,
    )
    worker_memory_bytes: int = setting(
        512_000_000,
        "Memory of a worker that the run may need, by a bound that grows with block_bytes.",
        least=1,
    )
    sample_row_groups: int = setting(
        4,
        "Row groups, drawn anew by each run, that a reference implementation converts again and "
        "compares after the run.",
        least=1,
    )
    keep_output: bool = setting(
        False,
        "Leave the files of the last round on the target; with rounds=1, a conversion that was cut "
        "off then goes on with the files that it had finished.",
    )
    data_seed: int = setting(10, "Seed of the synthetic day files.", least=0)
    scales: dict[str, Scale] = field(default_factory=dict)

    def check(self, scale: str) -> None:
        """Raise ``ConfigError`` for a setting outside its range, the same at every ``scale``."""
        check_settings(self, "workload")
        if self.row_count < self.day_count:
            raise ConfigError(
                f"workload.row_count must be at least workload.day_count ({self.day_count}), "
                f"got {self.row_count}"
            )
        if self.part_bytes < self.block_bytes:
            raise ConfigError(
                f"workload.part_bytes must be at least workload.block_bytes ({self.block_bytes}), "
                f"got {self.part_bytes}"
            )
        if self.pack is Pack.split_binary and self.dense is not Dense.log:
            raise ConfigError(
                "workload.pack=split_binary has dense features as float16, which can't hold large "
                "counts; set workload.dense=log"
            )
        if self.frequency_threshold is not None and self.pack is not Pack.split_binary:
            raise ConfigError(
                "workload.frequency_threshold numbers ids column by column; set "
                "workload.pack=split_binary and workload.dense=log"
            )
        if self.frequency_threshold is not None and self.columnar and self.ids is Ids.int32:
            raise ConfigError(
                "workload.frequency_threshold numbers whole ids, and workload.ids=int32 takes them "
                "modulo 40,000,000; set workload.ids=string or workload.columnar=false"
            )
        if self.source is not None and not Path(self.source).exists():
            raise ConfigError(
                f"workload.source={self.source} does not exist; give a folder of Criteo day files "
                "or one of them, or leave it out to generate synthetic ones"
            )

    def workers_per_rank(self, world_size: int) -> int:
        """Return the number of worker processes of a rank: as set, or its share of the cores."""
        return self.workers or max(usable_cpus() // world_size, 1)
