"""A soak finds what the sampler loses, and nothing where it loses nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import soak
from wattload.core.power import Channel
from wattload.core.record.energy import SamplerRecord
from wattload.power.energy.trace import Trace, TraceKey

STEP_NS = 10_000_000


@pytest.mark.slow
def test_a_short_soak_loses_nothing(tmp_path: Path) -> None:
    outcome = soak.soak(tmp_path, 1.0)
    assert outcome.lost_count == 0
    assert outcome.found_count == outcome.due_count >= 90
    assert outcome.energy_error < 1e-9
    assert outcome.cost.sample_count == outcome.found_count


def cost() -> SamplerRecord:
    return SamplerRecord(
        host="h",
        period_s=0.01,
        seconds=1.0,
        tick_count=1,
        missed_tick_count=0,
        sample_count=1,
        lost_sample_count=0,
        cpu_s=0.0,
        cpu_share=0.0,
        tick_mean_s=0.0,
        tick_max_s=0.0,
        admin_command_count=0,
        admin_commands_per_s=0.0,
        admin_mean_s=None,
        admin_max_s=None,
        missing={"admin_mean_s": "none", "admin_max_s": "none"},
    )


def trace(rows: list[int]) -> Trace:
    times = np.array([row * STEP_NS for row in rows], dtype=np.int64)
    return Trace(
        key=TraceKey("replay", soak.DEVICE, Channel.POWER_W),
        time_ns=times,
        spread_ns=np.zeros_like(times),
        value=np.array([soak.power_w(row) for row in rows]),
        evidence_rank=np.zeros(len(rows), dtype=np.int8),
    )


def test_a_reading_that_is_missing_is_found() -> None:
    outcome = soak._compared(trace([0, 1, 2, 4, 5]), cost())
    assert (outcome.due_count, outcome.lost_count) == (6, 1)
    assert not outcome.is_good


def test_a_reading_that_came_twice_stands_for_no_other() -> None:
    outcome = soak._compared(trace([0, 1, 1, 3]), cost())
    assert (outcome.found_count, outcome.lost_count) == (4, 1)


def test_all_readings_are_good() -> None:
    outcome = soak._compared(trace(list(range(100))), cost())
    assert outcome.is_good
