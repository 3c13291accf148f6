"""The facts of random writes over a range of a drive or of a file, and their trace tables."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from wattload.core.base_models import Frozen
from wattload.core.steady import SteadyVerdict
from wattload.results.facts import Facts, Settings, fact
from wattload.results.facts import Run as AnyRun
from wattload.results.tables import Column, TraceTable

PHASE = "random_write"
STEADY = "steady"
"""The part of the phase that is its steady window."""


class Draw(Enum):
    """Which block an operation writes."""

    each_once = "each_once"
    uniform = "uniform"


class Until(Enum):
    """When the writes end."""

    fill = "fill"
    steady = "steady"
    wsat = "wsat"


class Condition(Enum):
    """How the drive is prepared for the random writes."""

    sequential = "sequential"
    keep = "keep"
    none = "none"


class WriteSettings(Settings):
    """The settings of the workload that are read here."""

    block_bytes: int
    queue_depth: int
    until: Until
    rate_bytes_per_s: float | None


class Pass(Frozen):
    """What was written up to the end of a pass, since the first write."""

    end_s: float = fact("its end", "s", gt=0)
    written_bytes: int = fact("bytes, those of earlier passes included", "B", ge=0)
    operations: int = fact("writes, those of earlier passes included", ge=0)


class SteadyVerdicts(Frozen):
    """Verdicts on a steady state; their seconds are those since the first write."""

    five_minutes: SteadyVerdict = fact("SNIA's: by rounds of a minute")
    drive: SteadyVerdict = fact("by rounds of a minute and a twentieth of the range")
    headline: SteadyVerdict = fact("by both")


class WriteFacts(Facts):
    """The facts of one run of random writes."""

    settings: WriteSettings = fact("of the workload", exclude=True)
    range_bytes: int = fact("the range that is written", "B", ge=1)
    drive_bytes: int | None = fact("the size of the drive; None for a file", "B", ge=1)
    draw: Draw = fact("which block was next, in effect")
    draw_seed: str = fact("what the order of each pass follows from, in hex")
    condition: Condition = fact("how the range was prepared, in effect")
    rest_s: float | None = fact("since the range was last written; None if that is unknown", "s")
    purged: Mapping[str, Any] = fact("what a purge before the preparation did; empty without one")
    ended_by: str = fact("what ended the writes, in words")
    passes: tuple[Pass, ...] = fact("passes that were begun, in order", min_length=1)
    first_round_bytes_per_s: float = fact("the rate of the first minute", "B/s", ge=0)
    slowest_second_bytes_per_s: float | None = fact(
        "the lowest rate of a second; None if the writes took less", "B/s"
    )
    steady: SteadyVerdicts | None = fact("None where there is no rule of a steady state")

    @property
    def total(self) -> Pass:
        """What was written in all."""
        return self.passes[-1]

    @property
    def is_file(self) -> bool:
        """Whether a file was written and not a raw drive."""
        return self.drive_bytes is None

    @property
    def covers_drive(self) -> bool:
        """Whether all whole blocks of the drive are in the range."""
        return (
            self.drive_bytes is not None
            and self.drive_bytes - self.range_bytes < self.settings.block_bytes
        )


Run = AnyRun[WriteFacts]


def measured_phase(run: Run) -> str:
    """Return the phase that figures are of: the steady window, or else all random writes."""
    return STEADY if run.windows(STEADY) else PHASE


def written_bytes(run: Run, phase: str) -> int:
    return sum(window.written_bytes for window in run.windows(phase))


PERCENTILES: Mapping[str, float] = {"p50_s": 0.5, "p99_s": 0.99, "p9999_s": 0.9999}
"""The percentiles of each second and of each round, null where nothing was written."""


def _series(name: str, row: str) -> TraceTable:
    return TraceTable(
        name=name,
        row=row,
        columns=(
            Column("start_ns", "int64", "CLOCK_MONOTONIC"),
            Column("end_ns", "int64", "CLOCK_MONOTONIC"),
            Column("written_bytes", "int64", "bytes written"),
            Column("operations", "int64", "writes"),
            *(
                Column(
                    column, "float64", f"latency that {share * 100:g} % of the writes do not exceed"
                )
                for column, share in PERCENTILES.items()
            ),
            Column("max_s", "float64", "longest latency"),
        ),
        drawn=("start_ns", "end_ns", "written_bytes", *PERCENTILES),
        interval=("start_ns", "end_ns"),
        is_gapless=True,
    )


SECONDS = _series("seconds", "about a second; the last may be shorter")
ROUNDS = _series("rounds", "a minute; the last may be shorter")
