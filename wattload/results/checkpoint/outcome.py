"""What MLPerf Storage's rules make of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.mlperf.edition import LAST_EDITION
from wattload.core.units import Unit
from wattload.results.checkpoint.facts import READ_PHASE, WRITE_PHASE, Run
from wattload.results.checkpoint.figures import slowest_rank
from wattload.results.mlperf import submission_text
from wattload.results.quantity import quantity

WORDS = {
    "sound_run": "an invalid run",
    "whole_checkpoint": "a part of each checkpoint",
    "processes": "{differences}",
    "checkpoint_count": "{got} checkpoints instead of {asked}",
    "checkpoint_interval": "{got} s between checkpoints instead of {asked} s",
    "writes_before_reads": "reads before the last write",
    "read_start": "reads that began too late",
    "synchronous": "checkpoints during training",
    "fsync": "files without fsync",
    "cache_rule": "a warm cache",
}
"""What a run is that misses a rule: see ``submission_text``."""


def outcome(runs: Sequence[Run]) -> str:
    """Return the rates by MLPerf's rule, those of the slowest rank, and what a submission lacks.

    MLPerf's checkpoint is complete when each rank has written and fsynced its files. The commit
    that follows, in the rates above, is wattload's own.
    """
    rates = [
        f"{verb} at {quantity(min(known), Unit.BYTES_PER_SECOND)}{without}"
        for verb, phase, without in (
            ("saves", WRITE_PHASE, " without the commit"),
            ("loads", READ_PHASE, ""),
        )
        if (known := [r for run in runs if (r := slowest_rank(run, phase)) is not None])
    ]
    rest = submission_text([run.record for run in runs], WORDS)
    return f"MLPerf Storage {LAST_EDITION}: the slowest rank {' and '.join(rates)}; {rest}"
