"""Memory that training takes beside the budget: before the limit, and beyond it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wattload.core.host.memory_group import probe
from wattload.core.record.file import RECORD_FILE, read_record

HERE = probe()

HOG = """
import sys
from tests.workloads.gnn.making import SMALL
from wattload.__main__ import main
from wattload.loaders.graph import synthetic
from wattload.workloads.gnn import run

synthetic.SHAPES["igb_tiny"] = SMALL

gathered, kept = run._Run._gathered, []

def hog(self, result):
    gathered(self, result)
    if (self._memory.limit_bytes is not None) == (sys.argv[1] == "limited") and not kept:
        kept.append(bytearray(int(sys.argv[2])))

run._Run._gathered = hog
sys.exit(main(sys.argv[3:]))
"""


def train(folder: Path, when: str, size_bytes: int) -> subprocess.CompletedProcess[str]:
    """Train in a process that allocates memory in its first step, or in one under the limit."""
    (folder / "target").mkdir()
    words = (
        "run", "workload=gnn", "scale=demo", "workload.profile_steps=0", "workload.steps=1",
        "workload.batch_seeds=20", "workload.hidden=8", "workload.fanouts=[2,2,2]",
        "workload.memory_share=1", "accelerator.device=none", "power=none",
        f"target.path={folder}/target", f"runs={folder}/runs",
    )  # fmt: skip
    return subprocess.run(
        [sys.executable, "-c", HOG, when, str(size_bytes), *words],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.skipif(HERE.place is None, reason=HERE.reason or "")
def test_what_a_first_step_allocates_is_left_to_the_process(tmp_path: Path) -> None:
    done = train(tmp_path, "free", 400 << 20)
    assert done.returncode in (0, 3), done.stderr
    [path] = (tmp_path / "runs").glob(f"2*/{RECORD_FILE}")
    memory = read_record(path).workload.facts["memory"]
    assert memory["own_bytes"] > 400 << 20
    assert memory["limit_bytes"] >= 1.1 * memory["own_bytes"]


def groups() -> set[Path]:
    return set() if HERE.place is None else set(HERE.place.parent.glob("wattload-memory-*"))


@pytest.mark.skipif(HERE.place is None, reason=HERE.reason or "")
def test_a_run_that_its_limit_killed_says_so_in_its_record(tmp_path: Path) -> None:
    before = groups()
    done = train(tmp_path, "limited", 4 << 30)
    assert done.returncode == -signal.SIGKILL, done.stderr
    deadline_s = time.monotonic() + 60
    while not (found := list((tmp_path / "runs").glob(f"2*/{RECORD_FILE}"))) or groups() - before:
        assert time.monotonic() < deadline_s, "the sampler left no record, or the group"
        time.sleep(0.05)
    record = read_record(found[0])
    assert record.status == "aborted"
    assert (record.status_reason or "").startswith("killed by its memory limit: ")
    assert "bytes were allowed, set workload.memory_share" in (record.status_reason or "")
