"""``wattload plan``: the size of a checkpoint, and its time, energy and drives by arithmetic."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.record_power import PowerKind
from tests.records import Scenario, WorkloadName, write_run
from wattload.__main__ import main
from wattload.core.host.gpus import Connection, connect
from wattload.core.record.file import RECORD_FILE
from wattload.core.storage.targets import Target
from wattload.core.sysfs import Roots

Captured = pytest.CaptureFixture[str]


def said(capsys: Captured, *words: str) -> str:
    assert main(["plan", "checkpoint", *words]) == 0
    return capsys.readouterr().out


def document(capsys: Captured, *words: str) -> dict[str, Any]:
    found = json.loads(said(capsys, *words, "--json"))
    assert isinstance(found, dict)
    return found


def refused(capsys: Captured, *words: str) -> str:
    assert main(["plan", "checkpoint", *words]) == 2
    return capsys.readouterr().err


def run_of(
    path: Path, power: PowerKind = "measured", workload: WorkloadName = "checkpoint"
) -> Path:
    scenario = Scenario(workload=workload, power=power)
    return write_run(path, scenario)


def test_the_worked_example(capsys: Captured) -> None:
    text = said(capsys, "model=405b", "rate=6.3", "power_w=18", "interval_s=600")
    assert "all 512 ranks, 9.51 GB to 13.23 GB each" in text
    assert "1,544 as DLIO lays them out; 512 with loader=direct" in text
    assert "5.68 TB = 5,292.249 GiB" in text
    assert "15 min 02 s on one drive" in text
    assert "4.510\u00a0Wh per checkpoint" in text
    assert "31 drives, as n >= bytes / (rate x overhead x interval)" in text
    assert "2 drives, as n >= bytes / (rate x interval)" in text
    assert "1 drive, as n" in said(capsys, "model=8b", "rate=6.3", "interval_s=600")


def test_a_size_needs_no_rate(capsys: Captured) -> None:
    text = said(capsys, "model=8b", "ranks=2")
    assert "the first 2 of 8 ranks, 14.05 GB each" in text
    assert "not given; add rate=GB/s of one drive, or record=RUN" in text
    assert "energy" not in text


def test_power_that_is_not_given_is_missing_not_zero(capsys: Captured) -> None:
    assert "energy  unknown: power is not given" in said(capsys, "model=8b", "rate=5")
    assert document(capsys, "model=8b", "rate=5")["energy_j"] is None


def test_a_record_gives_rate_and_power_with_their_evidence(
    tmp_path: Path, capsys: Captured
) -> None:
    folder = run_of(tmp_path)
    record = json.loads((folder / RECORD_FILE).read_text())
    rate = record["summary"]["metrics"]["write_bytes_per_s"]["value"]
    (energy,) = (e for e in record["power"]["energy"] if e["phase"] == "write" and e["chosen"])
    found = document(capsys, "model=8b", f"record={folder}")
    assert found["rate_bytes_per_s"] == rate
    assert found["rate_source"] == record["run_id"]
    assert found["power_w"]["mean"] == energy["mean_w"]
    text = said(capsys, "model=8b", f"record={folder / RECORD_FILE}")
    assert f"measured, {record['run_id']}" in text


def test_bounds_of_a_record_stay_bounds(tmp_path: Path, capsys: Captured) -> None:
    text = said(capsys, "model=8b", f"record={run_of(tmp_path / 'both', 'bounds')}")
    (energy,) = (line for line in text.splitlines() if line.startswith("energy"))
    assert " to " in energy
    text = said(capsys, "model=8b", f"record={run_of(tmp_path / 'upper', 'upper')}")
    (energy,) = (line for line in text.splitlines() if line.startswith("energy"))
    assert "≤ " in energy


def test_a_record_without_power_reports_it_and_takes_what_is_given(
    tmp_path: Path, capsys: Captured
) -> None:
    folder = run_of(tmp_path, "none")
    text = said(capsys, "model=8b", f"record={folder}")
    assert "has no power of all its drives" in text
    assert "add power_w=" in text
    assert document(capsys, "model=8b", f"record={folder}")["energy_j"] is None
    assert "20.00\u00a0W of one drive, given" in said(
        capsys, "model=8b", f"record={folder}", "power_w=20"
    )


def on_two_drives(folder: Path) -> Path:
    """Have the run's targets lie on two drives that are no NVMe controllers."""
    path = folder / RECORD_FILE
    record = json.loads(path.read_text())
    (target,) = record["targets"]
    other = json.loads(json.dumps(target))
    target["facts"]["devices"], other["facts"]["devices"] = ["vda"], ["vdb"]
    record["targets"] = [target, other]
    path.write_text(json.dumps(record))
    return folder


def test_power_that_is_given_is_of_each_drive_of_the_record(
    tmp_path: Path, capsys: Captured
) -> None:
    folder = on_two_drives(run_of(tmp_path, "none"))
    found = document(capsys, "model=8b", f"record={folder}", "power_w=20")
    assert found["drive_count"] == 2
    assert found["power_w"] == {"mean": 40.0, "lower": None, "upper": None}
    text = said(capsys, "model=8b", f"record={folder}", "power_w=20", "interval_s=60")
    assert "40.00\u00a0W of one target of 2 drives, given" in text
    assert "targets of 2 drives each" in text


def test_power_of_one_of_two_drives_is_not_that_of_both(tmp_path: Path, capsys: Captured) -> None:
    folder = on_two_drives(run_of(tmp_path))
    assert document(capsys, "model=8b", f"record={folder}")["energy_j"] is None


def test_warnings_of_the_run_are_named(tmp_path: Path, capsys: Captured) -> None:
    folder = run_of(tmp_path)
    path = folder / RECORD_FILE
    record = json.loads(path.read_text())
    warned = {"name": "rule_of_last_year", "verdict": "warn", "sentence": "Under 30 s."}
    path.write_text(json.dumps(record | {"checks": [*record["checks"], warned]}))
    text = said(capsys, "model=8b", f"record={folder}")
    (line,) = (line for line in text.splitlines() if "had warnings: " in line)
    assert "rule_of_last_year" in line


def test_remarks_of_a_part_are_caveats(tmp_path: Path, capsys: Captured) -> None:
    folder = run_of(tmp_path)
    path = folder / RECORD_FILE
    record = json.loads(path.read_text())
    parts = ["shrunken for a demonstration: x.", "sliced: 5 of 9 bytes.", "Of no concern."]
    workload = record["workload"] | {"remarks": parts}
    path.write_text(json.dumps(record | {"workload": workload}))
    text = said(capsys, "model=8b", f"record={folder}")
    assert "caveat  that run was shrunken for a demonstration" in text
    assert "caveat  that run was sliced: 5 of 9 bytes" in text
    assert "Of no concern" not in text
    assert document(capsys, "model=8b", f"record={folder}")["remarks"] == parts[:2]


def test_a_model_that_dlio_does_not_know_has_no_file_count(capsys: Captured) -> None:
    text = said(capsys, "model=405b_server")
    assert "as DLIO lays them out" not in text
    assert "DLIO has no layout for 405b_server" in text
    assert document(capsys, "model=405b_server")["file_count"] is None


def test_a_record_of_another_workload_is_refused(tmp_path: Path, capsys: Captured) -> None:
    folder = run_of(tmp_path, workload="unet3d")
    assert "a plan needs a run of workload=checkpoint" in refused(
        capsys, "model=8b", f"record={folder}"
    )


def test_an_unfinished_or_missing_record_is_refused(tmp_path: Path, capsys: Captured) -> None:
    folder = run_of(tmp_path)
    path = folder / RECORD_FILE
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"status": "aborted", "status_reason": "power cut"}))
    assert "is aborted; a plan needs" in refused(capsys, "model=8b", f"record={folder}")
    assert refused(capsys, "model=8b", f"record={tmp_path / 'none'}")


def test_failed_checks_of_the_run_are_named(tmp_path: Path, capsys: Captured) -> None:
    folder = run_of(tmp_path)
    path = folder / RECORD_FILE
    record = json.loads(path.read_text())
    failed = {"name": "cold_cache", "verdict": "fail", "sentence": "It was warm."}
    path.write_text(json.dumps(record | {"checks": [*record["checks"], failed]}))
    assert "that run failed cold_cache" in said(capsys, "model=8b", f"record={folder}")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "model has no value"),
        (["model=404b"], "did you mean 405b"),
        (["modle=8b"], "unknown setting modle"),
        (["8b"], "malformed override '8b'"),
        (["model="], "settings are KEY=VALUE"),
        (["model=8b", "model=70b"], "model is given twice, as 8b and 70b"),
        (["model=8b", "ranks=9"], "ranks must be 1 to 8"),
        (["model=8b", "ranks=1.5"], "ranks must be a whole number, got 1.5"),
        (["model=8b", "rate=fast"], "rate must be a number, got 'fast'"),
        (["model=8b", "rate=0"], "rate must be from 1e-06 to 1e+12, got 0"),
        (["model=8b", "rate=inf"], "rate must be from 1e-06 to 1e+12, got inf"),
        (["model=8b", "rate=1e-300", "interval_s=1e-300"], "rate must be from 1e-06"),
        (["model=8b", "rate=nan"], "rate must be from 1e-06 to 1e+12, got nan"),
        (["model=8b", "rate=1", "record=runs/x"], "give either rate= or record="),
        (["model=8b", "interval_s=60"], "add rate= or record="),
        (["model=8b", "rate=1", "overhead=0.1"], "add interval_s="),
        (["model=8b", "rate=1", "interval_s=60", "overhead=1"], "below 1, got 1"),
    ],
)
def test_settings_that_make_no_plan_are_one_sentence(
    capsys: Captured, words: list[str], expected: str
) -> None:
    message = refused(capsys, *words)
    assert expected in message
    assert message.count("\n") == 1


def test_the_example_in_the_documentation_is_what_is_printed(capsys: Captured) -> None:
    """A line of the page that is ``...`` stands for lines that are left out."""
    page = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text()
    command, _, shown = page.split("$ wattload plan checkpoint ")[1].split("```")[0].partition("\n")
    lines = [line for line in shown.splitlines() if line != "..."]
    assert [line for line in said(capsys, *command.split()).splitlines() if line in lines] == lines


RUN = ("scale=demo", "rate=2")


@pytest.mark.parametrize("workload", ["unet3d", "dlrm", "checkpoint", "null"])
def test_a_run_of_any_workload_is_planned_and_nothing_is_written(
    tmp_path: Path, capsys: Captured, workload: str
) -> None:
    assert main(["plan", workload, f"target.path={tmp_path}", *RUN]) == 0
    text = capsys.readouterr().out
    for name in ("target", "data", "reads", "writes", "space", "memory", "time"):
        assert f"\n{name} " in text
    generates = "must be generated first" in text
    assert generates is (workload in ("unet3d", "dlrm"))
    assert generates is not ("\ndata    none is needed before the run\n" in text)
    assert list(tmp_path.iterdir()) == []


def test_a_runs_time_and_energy_follow_from_rate_and_power(
    tmp_path: Path, capsys: Captured
) -> None:
    words = [f"target.path={tmp_path}", "scale=demo", "workload.interval_s=2"]
    assert main(["plan", "checkpoint", *words, "rate=0.096", "power_w=10", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run_bytes"] == found["read_bytes"] == 4 * 24_000_000
    assert found["time"] == {"generate_s": 0.0, "io_s": 2.0, "computing_s": 6.0}
    assert main(["plan", "checkpoint", *words, "rate=0.096", "power_w=10"]) == 0
    text = capsys.readouterr().out
    assert "time    6.00 s to 8.00 s = " in text
    assert "energy  60.00 J to 80.00 J at 10 W" in text.replace("\u00a0", " ")


def test_a_run_that_would_be_refused_is_planned_then_refused(
    tmp_path: Path, capsys: Captured
) -> None:
    words = [f"target.path={tmp_path}", "scale=demo", "target.max_write_bytes=1000"]
    assert main(["plan", "checkpoint", *words]) == 2
    captured = capsys.readouterr()
    assert "writes  96.00 MB" in captured.out
    assert "target.max_write_bytes=1000" in captured.err


def test_a_target_that_is_too_small_is_named_whatever_else_refuses_the_run(
    tmp_path: Path, capsys: Captured
) -> None:
    words = ["dlrm", f"target.path={tmp_path}", f"workload.row_count={10**13}"]
    assert main(["plan", *words]) == 2
    captured = capsys.readouterr()
    assert re.search(r"\ntarget .*; too small by [\d.]+ TB, as 5 % must stay free\n", captured.out)
    assert main(["plan", *words, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["lacking_bytes"][str(tmp_path)] > 10**15


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "no workload given; use wattload plan WORKLOAD with one of checkpoint, "),
        (["target.path=/mnt"], "the workload comes first, before target.path="),
        (["unet3d", "ratee=3"], "unknown setting ratee; did you mean rate?"),
        (["unet3d", "path=/mnt"], "unknown setting path; did you mean target.path?"),
    ],
)
def test_a_run_that_is_not_named_is_one_sentence(
    capsys: Captured, words: list[str], expected: str
) -> None:
    assert main(["plan", *words]) == 2
    assert capsys.readouterr().err.startswith(f"wattload: {expected}")


def test_an_unknown_workload_is_one_sentence(capsys: Captured) -> None:
    assert main(["plan", "unet4d", "target.path=/mnt"]) == 2
    assert "unknown option workload=unet4d; did you mean unet3d?" in capsys.readouterr().err


def test_gpu_reads_are_planned_without_a_gpu_and_refused_when_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def found(targets: Sequence[Target], named: Sequence[str]) -> tuple[Connection, ...]:
        return connect(targets, named, Roots(sys=tmp_path, proc=tmp_path))

    monkeypatch.setattr("wattload.workloads.gpu_read.workload.connect", found)
    target = tmp_path / "target"
    target.mkdir()
    settings = ["scale=demo", "power=none", f"target.path={target}", f"runs={tmp_path / 'runs'}"]
    assert main(["plan", "gpu_read", *settings]) == 0
    shown = capsys.readouterr().out
    assert "gpu     unknown: no NVIDIA GPU with its driver here, which a run needs" in shown
    assert "\ndata " in shown
    assert "\nspace " in shown
    assert main(["run", "workload=gpu_read", *settings]) == 2
    assert "no NVIDIA GPU in" in capsys.readouterr().err
    assert not list(target.rglob("*.bin"))
