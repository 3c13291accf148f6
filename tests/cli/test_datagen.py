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
