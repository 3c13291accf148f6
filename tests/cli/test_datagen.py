"""``wattload datagen``: only the data, and only its bytes are announced."""

from __future__ import annotations

from pathlib import Path

import pytest

from wattload.__main__ import main


def test_a_workload_without_data_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["workload=checkpoint", "scale=demo", f"target.path={tmp_path}"]
    assert main(["datagen", *words]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith(": writes nothing")
    assert lines[-1] == "this workload needs no data before a run"


def test_a_file_of_a_lab_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "workload").mkdir()
    (tmp_path / "workload" / "own.yaml").write_text("defaults: ['null', _self_]\n")
    words = ["--config-dir", str(tmp_path), f"target.path={tmp_path}"]
    assert main(["datagen", "workload=own", *words]) == 0
    assert main(["plan", "own", *words]) == 0
    assert capsys.readouterr().out.startswith("run     own, ")
