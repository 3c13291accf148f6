"""``make bench``: groups are chosen, the time is told before, everything is kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import run
from benchmarks.measure import Result


def group(*results: Result) -> run.Group:
    def measure(target: Path, pairs: int) -> Iterator[Result]:
        assert target.is_dir()
        assert pairs == 7
        yield from results

    return run.Group(measure, lambda pairs: 60.0 * pairs)


def bench(monkeypatch: pytest.MonkeyPatch, folder: Path, only: str, **groups: run.Group) -> int:
    monkeypatch.setattr(run, "GROUPS", groups)
    command = ["run", "--target", str(folder / "target"), "--runs", str(folder / "runs")]
    monkeypatch.setattr(sys, "argv", [*command, "--only", only, "--pairs", "7"])
    return run.main()


GOOD = Result(name="good", unit="s", goal=1.0, values=[1.0] * 7, figures={"a": [1.0] * 7})
BAD = Result(name="bad", unit="s", goal=1.0, values=[0.5] * 7)
NOISY = Result(name="noisy", unit="s", goal=1.0, values=[0.5] * 7, noise=[0.9] + [1.0] * 6)
ABSENT = Result(name="absent", unit="s", goal=1.0, missing="not installed")


def test_the_expected_time_is_told_before_and_the_rest_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(monkeypatch, tmp_path, "", a=group(GOOD), b=group(NOISY, ABSENT)) == 0
    said = capsys.readouterr().out
    assert said.startswith("a, b: about 14 minutes, 7 pairs each")
    assert "absent: not installed" in said
    (path,) = (tmp_path / "runs").glob("bench-*.json")
    kept = json.loads(path.read_text())
    assert [result["name"] for result in kept["results"]] == ["good", "noisy", "absent"]
    assert kept["results"][0]["figures"] == {"a": [1.0] * 7}
    assert (kept["pairs"], len(kept["load_averages"])) == (7, 3)


def test_a_missed_goal_is_the_exit_status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert bench(monkeypatch, tmp_path, "b", a=group(GOOD), b=group(BAD)) == 1


def test_groups_are_chosen_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert bench(monkeypatch, tmp_path, "a", a=group(GOOD), b=group(BAD)) == 0


def test_an_unknown_group_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bench(monkeypatch, tmp_path, "c", a=group(GOOD))
    assert "there is no group 'c'; there are a" in capsys.readouterr().err


@pytest.mark.parametrize("name", run.GROUPS)
def test_every_group_knows_how_long_it_takes(name: str) -> None:
    assert 0 < run.GROUPS[name].seconds(7) < run.GROUPS[name].seconds(9) < 1800
