"""A run of 49 hours, on a simulated clock, can be recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MB = 1_000_000
LIMITS = {"meter": 850 * MB, "states": 600 * MB}
"""The aim is 256 MB: the samples and the bytes take 150, the interpreter and its libraries 120."""


@pytest.mark.parametrize(("sensor", "watts"), [("meter", 18.0), ("states", 25.0)])
def test_49_hours_add_up_and_stay_within_their_memory(
    tmp_path: Path, sensor: str, watts: float
) -> None:
    """The fit of a sensor to 1.8 million readings needs the largest part of the memory."""
    hours, rate = 49, 5e9
    done = subprocess.run(
        [sys.executable, "-m", "tests.run.long_run", str(tmp_path), str(hours), sensor],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    seconds = hours * 3600
    assert found["written"]["random_write"] == rate * seconds
    assert found["host_written"]["random_write"] == pytest.approx(rate * seconds, rel=1e-6)
    assert found["energy_j"]["random_write"] == pytest.approx(watts * seconds, rel=1e-3)
    assert found["counted_bytes"] < 200 * MB
    assert found["peak_bytes"] < LIMITS[sensor]
