"""The record of many hosts, made of one real run's results by the code that the root calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.run.many_hosts import AHEAD_NS, EPOCHS, PHASE, ROWS
from wattload.core.record.file import RECORD_FILE, read_record

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
GB = 1_000_000_000


def _do(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "WATTLOAD_STATE_DIR": str(folder / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hosts")
    _do(folder, "-m", "tests.run.many_hosts", "capture", str(folder))
    return folder


def _concluded(folder: Path, hosts: int, ranks: int) -> dict[str, Any]:
    words = ["conclude", str(folder), str(hosts), str(ranks)]
    found: dict[str, Any] = json.loads(_do(folder, "-m", "tests.run.many_hosts", *words))
    (single,) = (folder / "runs").glob(f"*/{RECORD_FILE}")
    of_one = read_record(single)
    count = hosts * ranks
    assert (found["ranks"], len(found["hosts"])) == (count, hosts)
    assert found["read_bytes"] == count * sum(span.read_bytes for span in of_one.spans)
    assert found["phases"] >= EPOCHS
    assert found["rows"]["operations"] == count * ROWS
    assert found["latencies"] == count * sum(row.count for row in of_one.latencies)
    (read,) = (window for window in of_one.windows if window.name == PHASE)
    ahead_ns = (hosts - 1) * AHEAD_NS
    assert found["read_ns"] == read.end_ns - read.start_ns + ahead_ns
    energies = {each.phase: each.energy_j for each in of_one.power.energy}
    assert found["energy_j"] == pytest.approx(hosts * (energies["read"] or 0), rel=1e-9)
    return found


@pytest.mark.slow
def test_the_record_of_several_hosts_is_theirs_together(captured: Path) -> None:
    _concluded(captured, 4, 4)
    text = _do(captured, "-m", "wattload", "check", str(captured / "4x4"))
    assert "node003" in text


@pytest.mark.thorough
def test_1024_ranks_stay_within_their_memory(captured: Path) -> None:
    assert _concluded(captured, 64, 16)["peak_bytes"] < 2 * GB
