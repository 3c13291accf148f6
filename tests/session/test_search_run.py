"""Searches and their write guards as real processes, alone and under mpirun."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.run.running import call_here, environment, mpirun
from wattload.core.record.file import read_record

DEADLINE_S = 240.0
TINY = (
    "workload=unet3d",
    "scale=demo",
    "power=none",
    "sweep=accelerators",
    "workload.record_divisor=640",
    "workload.scales.demo.epochs=1",
    "sweep.confirmations=0",
)


def _run(
    folder: Path, *words: str, ranks: int = 1, command: str = "run"
) -> subprocess.CompletedProcess[str]:
    target = folder / "target"
    target.mkdir(exist_ok=True)
    given = [command, f"target.path={target}", f"runs={folder / 'runs'}", *words]
    if ranks == 1:
        return call_here(folder, *given)
    return subprocess.run(
        [mpirun(), "-n", str(ranks), sys.executable, "-m", "wattload", *given],
        env=environment(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def _result(folder: Path) -> dict[str, Any]:
    (file,) = (folder / "runs").glob("search-*/result.json")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_a_search_up_to_its_maximum_and_again_without_a_run(tmp_path: Path) -> None:
    words = (*TINY, "sweep.maximum=2", "accelerator.step_s.unet3d=0.3")
    done = _run(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    result = _result(tmp_path)
    assert (result["verdict"], result["accelerators"]) == ("at_least", 2)
    assert "at least 2 h100 hold AU >= 90 %" in done.stdout
    records = [read_record(tmp_path / "runs" / run["run_id"]) for run in result["runs"]]
    assert [(r.label, r.workload.facts["accelerators"]) for r in records] == [
        ("A-n1", 1),
        ("A-n2", 2),
    ]
    assert {record.comparison.session_id for record in records} == {result["session_id"]}
    assert len({record.workload.data.key for record in records if record.workload.data}) == 1
    again = _run(tmp_path, *words, "--json")
    assert again.stderr.count("not repeated") == 2
    assert json.loads(again.stdout)["runs"] == result["runs"]


def test_a_step_that_no_load_can_hide_behind_holds_none(tmp_path: Path) -> None:
    done = _run(tmp_path, *TINY, "sweep.maximum=2", "accelerator.step_s.unet3d=1e-7")
    assert done.returncode == 0, done.stderr
    result = _result(tmp_path)
    assert (result["verdict"], result["accelerators"]) == ("none_holds", 0)
    assert "not even 1 h100 holds" in done.stdout


def test_two_ranks_search_together(tmp_path: Path) -> None:
    done = _run(
        tmp_path, *TINY, "sweep.maximum=5", "accelerator.step_s.unet3d=0.3", "--json", ranks=2
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["question"]["unit"], result["accelerators"]) == (2, 4)
    assert [run["accelerators"] for run in result["runs"]] == [2, 4]


def test_a_search_that_two_ranks_cant_make_is_refused_once(tmp_path: Path) -> None:
    done = _run(tmp_path, *TINY, "sweep.start=3", ranks=2)
    assert done.returncode == 2
    assert done.stderr.count("wattload: ") == 1


def test_datagen_makes_the_data_of_the_whole_search(tmp_path: Path) -> None:
    words = (*TINY, "sweep.maximum=2", "accelerator.step_s.unet3d=0.3")
    made = _run(tmp_path, *words, command="datagen")
    assert made.returncode == 0, made.stderr
    assert len(list((tmp_path / "target").rglob("img*"))) == 2 * 7 * 4
    done = _run(tmp_path, *words)
    assert "generating" not in done.stderr


def test_searching_and_other_runs_do_not_mix(tmp_path: Path) -> None:
    done = _run(tmp_path, "-m", "workload=unet3d", "power=none", "sweep=none,accelerators")
    assert done.returncode == 2
    assert "give sweep= one value" in done.stderr


CHECKPOINT = (
    "workload=checkpoint",
    "scale=demo",
    "power=none",
    "workload.shrink_bytes=1000000",
    "workload.scales.demo.checkpoint_count=2",
)


def test_data_that_grows_with_the_accelerators_is_charged_for_each_size(tmp_path: Path) -> None:
    words = ("workload=unet3d", "scale=demo", "power=none", "workload.record_divisor=640")
    sizes = ("workload.file_count=null", "accelerator.count=1,2")
    done = _run(tmp_path, "-m", *words, *sizes, "target.max_write_bytes=2000000000")
    assert done.returncode == 2, done.stderr
    assert "the 2 runs write" in done.stderr
    assert not list((tmp_path / "target").rglob("img*"))


def test_repetitions_that_together_wear_too_much_are_refused_before_the_first(
    tmp_path: Path,
) -> None:
    done = _run(tmp_path, *CHECKPOINT, "repeat=3", "target.max_write_bytes=10000000", ranks=2)
    assert done.returncode == 2, done.stderr
    assert "the 3 runs write" in done.stderr
    assert "of it before" not in done.stderr
    assert done.stderr.count("wattload: ") == 1
    assert not list((tmp_path / "runs").glob("*/record.json"))
    alone = _run(tmp_path, *CHECKPOINT, "repeat=2", "target.max_write_bytes=5000000")
    assert alone.returncode == 0
