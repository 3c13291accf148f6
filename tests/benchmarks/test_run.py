"""``make bench``: groups are chosen, what cannot be measured is reported, everything is kept."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import run
from benchmarks.measure import LEAST_PAIRS, Comparison, NotMeasuredError, Row, interval


def group(value: float) -> run.Group:
    def comparisons(target: Path) -> Iterator[Comparison]:
        assert target.is_dir()
        row = Row(name=f"row {value}", figure="a", unit="s", goal=1.0)
        yield Comparison(rows=(row,), ways={"way": lambda: {"a": value}})

    return comparisons


def without_space(target: Path) -> Iterator[Comparison]:
    raise NotMeasuredError(f"no space in {target.name}")
    yield


def interrupted(target: Path) -> Iterator[Comparison]:
    yield from group(2.0)(target)
    signal.raise_signal(signal.SIGINT)
    yield from group(3.0)(target)


def bench(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    only: str,
    pairs: str = "7",
    **groups: run.Group,
) -> int:
    monkeypatch.setattr(run, "GROUPS", groups)
    command = ["run", "--target", str(folder / "target"), "--runs", str(folder / "runs")]
    monkeypatch.setattr(sys, "argv", [*command, "--only", only, "--pairs", pairs])
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


def test_too_few_rounds_are_refused_before_any_is_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bench(monkeypatch, tmp_path, "", pairs="5", a=group(1.0))
    assert capsys.readouterr().err == (
        "python -m benchmarks.run: error: argument --pairs: 5 rounds can't be judged: a median of "
        "fewer than 6 has no 95 % interval; use --pairs 6 or more, or make bench PAIRS=6 (the "
        "default is 9)\n"
    )
    assert not list(tmp_path.iterdir())
    assert interval([1.0] * LEAST_PAIRS).coverage >= 0.95 > interval([1.0] * 5).coverage


def test_an_interrupt_keeps_the_rows_that_are_finished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        status = bench(monkeypatch, tmp_path, "a,b", a=group(1.0), b=interrupted)
    finally:
        signal.signal(signal.SIGINT, before)
    (path,) = (tmp_path / "runs").iterdir()
    kept = json.loads(path.read_text())
    assert [result["row"]["name"] for result in kept["results"]] == ["row 1.0", "row 2.0"]
    assert (status, kept["is_complete"]) == (130, False)
    assert "| row 2.0 | 2 s |" in capsys.readouterr().out


def test_rows_are_kept_before_the_next_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found: list[str] = []

    def look(target: Path) -> Iterator[Comparison]:
        yield from group(1.0)(target)
        (path,) = (tmp_path / "runs").iterdir()
        found.extend(result["row"]["name"] for result in json.loads(path.read_text())["results"])

    assert bench(monkeypatch, tmp_path, "", a=look) == 0
    assert found == ["row 1.0"]
