"""The script that runs every workload by hand: a line for each run, and its exit status."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.records import Scenario, write_run
from tools import every_workload
from wattload.core.host.gpus import list_gpus
from wattload.run.config_groups import options

KILLED = "import os; os.kill(os.getpid(), 9)"
REFUSED = "import sys; print('wattload: it is missing', file=sys.stderr); sys.exit(2)"


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    (_, *found, _) = capsys.readouterr().out.splitlines()
    return found


def test_a_run_has_a_line_with_its_status_and_checks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, runs = tmp_path / "new", tmp_path / "runs"
    with pytest.raises(SystemExit) as refused:
        every_workload.main([str(target)])
    assert refused.value.code == 2
    assert not target.exists()
    target.mkdir()
    capsys.readouterr()
    words = [str(target), "--runs", str(runs), "--workloads", "null", "--gpus", "0"]
    assert every_workload.main([*words, "--repeat", "2"]) == 0
    first, *found, _ = capsys.readouterr().out.splitlines()
    assert re.match(
        rf"target {target} with .*B free, scale demo, 2.runs in about 22 s to 5 min 46 s; 0 GPUs, ",
        first,
    )
    assert len(found) == len(list(runs.glob("*/record.json"))) == 2
    assert all(each.startswith("null ") and "1 process, exit 0" in each for each in found)
    assert all(re.search(r"checks: [0-9]+ passed, [0-9]+ not applicable$", each) for each in found)


def test_the_line_has_the_figures_and_the_checks_that_did_not_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = write_run(tmp_path, Scenario(workload="checkpoint", power="none", virtual=False))
    printed = json.dumps({"record": str(made / "record.json")})
    monkeypatch.setattr(
        every_workload, "WATTLOAD", (sys.executable, "-c", f"print({printed!r}); exit(3)")
    )
    assert every_workload.main([str(tmp_path), "--workloads", "checkpoint", "--gpus", "0"]) == 1
    (found,) = lines(capsys)
    assert "direct     1 process, exit 3" in found
    assert re.search(r"write rate [0-9.]+\sGB/s, read rate", found)
    assert re.search(r"checks: [0-9]+ passed", found)


def test_a_killed_run_has_a_line_and_the_others_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(every_workload, "WATTLOAD", (sys.executable, "-c", KILLED))
    assert every_workload.main([str(tmp_path), "--gpus", "0"]) == 1
    found = lines(capsys)
    assert [each.split()[0] for each in found] == options("workload")
    assert all("exit 137" in each for each in found)


def test_a_workload_refused_where_there_is_no_gpu_is_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without GPUs in its view, wattload itself refuses ``gpu_read``."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    words = [str(tmp_path), "--runs", str(tmp_path / "runs"), "--gpus", "0"]
    assert every_workload.main([*words, "--workloads", "null,gpu_read", "--repeat", "2"]) == 0
    *_, refused, last = capsys.readouterr().out.splitlines()
    assert refused.startswith("gpu_read              refused: 1 process: wattload: ")
    assert last == "2 runs ended with exit status 0, 0 did not, 1 were left out"


@pytest.mark.parametrize(
    ("wrong", "named"), [("null loader=nosuch", "loader=nosuch"), ("nosuch", "workload=nosuch")]
)
def test_where_every_run_was_refused_the_exit_status_is_1(
    wrong: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload, *settings = wrong.split()
    words = [str(tmp_path), *settings, "--workloads", workload, "--gpus", "0"]
    assert every_workload.main(words) == 1
    _, refused, last = capsys.readouterr().out.splitlines()
    assert f"unknown option {named}" in refused
    assert last == "0 runs ended with exit status 0, 0 did not, 1 were left out"


def test_a_refusal_on_one_gpu_is_a_run_that_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(every_workload, "WATTLOAD", (sys.executable, "-c", REFUSED))
    words = [str(tmp_path), "--workloads", "gpu_read", "--gpus", "1"]
    assert every_workload.main(words) == 1
    _, refused, last = capsys.readouterr().out.splitlines()
    assert refused.split(maxsplit=1) == ["gpu_read", "refused: 1 process: wattload: it is missing"]
    assert last == "0 runs ended with exit status 0, 1 did not, 0 were left out"


def test_a_refusal_on_several_gpus_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in runs the workload on one folder, and refuses several."""
    made = write_run(tmp_path, Scenario(workload="checkpoint", power="none", virtual=False))
    printed = json.dumps({"record": str(made / "record.json")})
    stand_in = f"import sys; sys.exit(2) if ',' in ' '.join(sys.argv) else print({printed!r})"
    monkeypatch.setattr(every_workload, "WATTLOAD", (sys.executable, "-c", stand_in))
    monkeypatch.setattr(every_workload, "_mpirun", lambda: None)
    words = [str(tmp_path), "--workloads", "checkpoint", "--gpus", "2"]
    assert every_workload.main(words) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "1 run ended with exit status 0, 0 did not, 1 were left out"


def test_several_gpus_get_a_process_and_a_folder_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for mpirun refuses, as it does for a workload of one process."""
    (tmp_path / "bin").mkdir()
    mpirun = tmp_path / "bin/mpirun"
    mpirun.write_text("#!/bin/sh\necho $* >&2\nexit 2\n")
    mpirun.chmod(0o755)
    monkeypatch.setattr(every_workload, "_mpirun", lambda: str(mpirun))
    target, runs = tmp_path / "drive", tmp_path / "runs"
    target.mkdir()
    words = [str(target), "--runs", str(runs), "--workloads", "null", "--gpus", "3"]
    assert every_workload.main(words) == 0
    assert sorted(folder.name for folder in target.iterdir() if folder.name.isdigit()) == [*"012"]
    alone, together = lines(capsys)
    assert "1 process, exit 0" in alone
    assert "1 process, exit 0" in together


def test_the_host_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every_workload.main([str(tmp_path), "--repeat", "0"])
    first = capsys.readouterr().out.splitlines()[0]
    assert f"; {len(list_gpus())} GPUs, {os.cpu_count()} CPUs, Linux " in first
