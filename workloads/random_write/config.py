"""The settings of the random_write workload."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from wattload.core.errors import ConfigError
from wattload.core.settings import check_settings, setting
from wattload.results.random_write.facts import Condition, Draw, Until

STAMP_BYTES = 4096
"""Every block of this size carries a stamp, so smaller writes are not supported."""
MAX_BLOCK_BYTES = 16 << 20
MAX_QUEUE_DEPTH = 1024
MAX_PASSES = 100
WSAT_PASSES = 4
WSAT_S = 24 * 3600.0
"""SNIA PTS 2.0.2, section 9 (Write Saturation): four times the capacity, or 24 hours."""


class Purge(Enum):
    """How all blocks of the drive are freed before it is prepared."""

    none = "none"
    discard = "discard"
    format = "format"


@dataclass(slots=True, kw_only=True)
class Scale:
    """The size of the file on a directory at one scale."""

    range_bytes: int = 4 << 30


@dataclass(slots=True, kw_only=True)
class Config:
    """Random writes of one block size at one queue depth."""

    _target_: str = "wattload.workloads.random_write.workload.RandomWrite"
    block_bytes: int = setting(
        16 << 10,
        "Size of one random write.",
        multiple=STAMP_BYTES,
        least=STAMP_BYTES,
        most=MAX_BLOCK_BYTES,
    )
    queue_depth: int = setting(32, "Writes in flight.", least=1, most=MAX_QUEUE_DEPTH)
    passes: int | None = setting(
        None,
        "Most times that the range is written.",
        least=1,
        most=MAX_PASSES,
        unset="2; with until=wsat 4",
    )
    draw: Draw | None = setting(
        None,
        "Which block is next: each one once per pass, in a new order, or any block at any time.",
        unset="each_once with until=fill, else uniform",
    )
    until: Until = setting(
        Until.fill,
        "End of the writes: after all passes, in a steady state (at the latest after all passes), "
        "or SNIA's write saturation test (four passes or 24 h, on a purged drive).",
    )
    condition: Condition | None = setting(
        None,
        "Preparation: two sequential passes of 128 KiB, or the drive as an earlier run left it, or "
        "none.",
        unset="sequential; with until=wsat none",
    )
    purge: Purge = setting(
        Purge.none,
        "Before the preparation, discard all blocks of the drive or format it; target=block only.",
    )
    range_bytes: int | None = setting(
        None,
        "Bytes from the start of the drive that are written; on a directory the size of the file.",
        least=1 << 20,
        unset="the whole drive; on a directory by scale",
    )
    rate_bytes_per_s: float | None = setting(
        None, "Limit of the rate in bytes per second.", above=0, unset="none"
    )
    scales: dict[str, Scale] = setting(dict, "Sizes of the file on a directory, by scale.")

    def check(self, scale: str) -> None:
        """Raise ``ConfigError`` for a setting outside its range, or settings that do not fit."""
        check_settings(self, "workload")
        if self.draw is Draw.each_once and self.until is not Until.fill:
            raise ConfigError(
                f"workload.until={self.until.value} needs workload.draw=uniform: with each_once "
                "the amplification changes within each pass, so there is no steady state"
            )
        if self.until is Until.steady and self.prepared is Condition.none:
            raise ConfigError(
                "workload.until=steady needs workload.condition=sequential or keep: until all of "
                "a drive has been written, its free blocks take writes without amplification"
            )
        is_purged = self.purge is not Purge.none
        if self.until is Until.wsat and (self.prepared is not Condition.none or not is_purged):
            raise ConfigError(
                "workload.until=wsat starts on a purged drive without preparation; use "
                "target=block with workload.purge=discard or format, and leave "
                f"workload.condition unset; got purge={self.purge.value} and "
                f"condition={self.prepared.value}"
            )
        if self.condition is Condition.keep and is_purged:
            raise ConfigError(
                f"workload.purge={self.purge.value} would undo what workload.condition=keep relies "
                "on; use one of them"
            )

    @property
    def drawn(self) -> Draw:
        return self.draw or (Draw.each_once if self.until is Until.fill else Draw.uniform)

    @property
    def prepared(self) -> Condition:
        is_wsat = self.until is Until.wsat
        return self.condition or (Condition.none if is_wsat else Condition.sequential)

    @property
    def most_passes(self) -> int:
        return self.passes or (WSAT_PASSES if self.until is Until.wsat else 2)
