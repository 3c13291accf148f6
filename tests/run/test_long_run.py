"""A run of 49 hours, on a simulated clock, can be recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MB = 1_000_000
LIMITS = {"meter": 850 * MB, "states": 600 * MB}
"""The aim is 256 MB: the samples and the bytes take 150, the interpreter and its libraries 120."""


def _run(folder: Path, hours: float, sensor: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.run.long_run", str(folder), str(hours), sensor],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _check(found: dict[str, Any], hours: float, watts: float) -> None:
    seconds, rate = hours * 3600, 5e9
    assert found["written"]["random_write"] == rate * seconds
    assert found["host_written"]["random_write"] == pytest.approx(rate * seconds, rel=1e-6)
    assert found["energy_j"]["random_write"] == pytest.approx(watts * seconds, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("sensor", "watts"), [("meter", 18.0), ("states", 25.0)])
def test_an_hour_of_traffic_and_samples_adds_up(tmp_path: Path, sensor: str, watts: float) -> None:
    found = _run(tmp_path, 1, sensor)
    _check(found, 1, watts)
    assert found["peak_bytes"] < 256 * MB


@pytest.mark.thorough
@pytest.mark.parametrize(("sensor", "watts"), [("meter", 18.0), ("states", 25.0)])
def test_49_hours_stay_within_their_memory(tmp_path: Path, sensor: str, watts: float) -> None:
    """The fit of a sensor to 1.8 million readings needs the largest part of it."""
    found = _run(tmp_path, 49, sensor)
    _check(found, 49, watts)
    assert found["counted_bytes"] < 200 * MB
    assert found["peak_bytes"] < LIMITS[sensor]
