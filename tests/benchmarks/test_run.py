"""``make bench``: groups are chosen, what cannot be measured is reported, everything is kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import run
from benchmarks.measure import Comparison, NotMeasuredError, Row


def group(value: float) -> run.Group:
    def comparisons(target: Path) -> Iterator[Comparison]:
        assert target.is_dir()
        row = Row(name=f"row {value}", figure="a", unit="s", goal=1.0)
        yield Comparison(rows=(row,), ways={"way": lambda: {"a": value}})

    return comparisons


def without_space(target: Path) -> Iterator[Comparison]:
    raise NotMeasuredError(f"no space in {target.name}")
    yield


def bench(monkeypatch: pytest.MonkeyPatch, folder: Path, only: str, **groups: run.Group) -> int:
    monkeypatch.setattr(run, "GROUPS", groups)
    command = ["run", "--target", str(folder / "target"), "--runs", str(folder / "runs")]
    monkeypatch.setattr(sys, "argv", [*command, "--only", only, "--pairs", "7"])
    return run.main()


def test_all_groups_run_and_everything_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(monkeypatch, tmp_path, "", a=group(1.0), b=without_space) == 0
    assert "b: no space in target" in capsys.readouterr().out
    (path,) = (tmp_path / "runs").glob("bench-*.json")
    kept = json.loads(path.read_text())
    assert [result["row"]["name"] for result in kept["results"]] == ["row 1.0", "b"]
    assert kept["results"][0]["runs"] == {"way": [{"a": 1.0}] * 7}
    assert (kept["pairs"], len(kept["load_averages"])) == (7, 3)


def test_a_missed_goal_is_the_exit_status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert bench(monkeypatch, tmp_path, "b", a=group(1.0), b=group(0.5)) == 1
    assert bench(monkeypatch, tmp_path, "a", a=group(1.0), b=group(0.5)) == 0


def test_an_unknown_group_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bench(monkeypatch, tmp_path, "c", a=group(1.0))
    assert "unknown group 'c'; choose from a" in capsys.readouterr().err
