"""The steady-state criteria that real fio states, recomputed from the series that it prints."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wattload.core.steady import WINDOW_ROUNDS, measurement_window

pytestmark = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")

RUNTIME_S = 7


def command(folder: Path, criterion: str) -> list[str]:
    """Write a file of its own at a rate that varies by the second."""
    name = criterion.split(":", maxsplit=1)[0]
    return [
        "fio",
        f"--name={name}",
        f"--filename={folder / name}",
        "--size=32M",
        "--rw=randwrite",
        "--bs=16k",
        "--ioengine=psync",
        "--rate=50m",
        "--rate_process=poisson",
        "--time_based",
        f"--runtime={RUNTIME_S}",
        f"--steadystate={criterion}",
        f"--steadystate_duration={WINDOW_ROUNDS}",
        "--output-format=json",
    ]


def percent(text: str) -> float:
    return float(text.removesuffix("%"))


@pytest.fixture(scope="module")
def stated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What fio states by criterion: two that no run reaches, and two that each run reaches."""
    folder = tmp_path_factory.mktemp("fio")
    criteria = ("bw_slope:0%", "bw:0%", "iops_slope:1000%", "iops:1000%")
    running = {
        each: subprocess.Popen(command(folder, each), stdout=subprocess.PIPE, text=True)
        for each in criteria
    }
    found = {}
    for criterion, process in running.items():
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 0, printed
        found[criterion] = json.loads(printed[printed.index("{") :])["jobs"][0]["steadystate"]
    return found


def test_fio_s_slope_is_the_slope_of_our_window(stated: dict[str, dict[str, Any]]) -> None:
    for criterion, channel in (("bw_slope:0%", "bw"), ("iops_slope:1000%", "iops")):
        fio = stated[criterion]
        series = fio["data"][channel]
        window = measurement_window(series)
        assert window is not None
        line = np.polynomial.polynomial.polyfit(np.arange(WINDOW_ROUNDS), series, 1)
        assert fio["slope"] == pytest.approx(line[1], rel=1e-6, abs=1e-5)
        assert fio["slope"] == pytest.approx(window.slope_per_round, rel=1e-6, abs=1e-5)
        share = window.slope_per_round / window.average
        # fio divides by its mean without the fraction.
        assert percent(fio["criterion"]) == pytest.approx(100 * share, rel=2e-3, abs=1e-5)


def test_fio_s_deviation_is_the_largest_distance_from_the_mean(
    stated: dict[str, dict[str, Any]],
) -> None:
    for criterion, channel in (("bw:0%", "bw"), ("iops:1000%", "iops")):
        fio = stated[criterion]
        series = np.array(fio["data"][channel], dtype=np.float64)
        deviation = np.abs(series - series.mean()).max()
        assert fio["max_deviation"] == pytest.approx(deviation, rel=1e-6, abs=1e-5)
        expected = 100 * deviation / series.mean()
        assert percent(fio["criterion"]) == pytest.approx(expected, rel=1e-6, abs=1e-5)


def test_fio_stops_at_its_criterion_alone(stated: dict[str, dict[str, Any]]) -> None:
    attained = {criterion: fio["attained"] for criterion, fio in stated.items()}
    assert attained == {
        "bw_slope:0%": 0,
        "bw:0%": 0,
        "iops_slope:1000%": 1,
        "iops:1000%": 1,
    }
