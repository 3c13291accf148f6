"""The rules behind the benchmark table."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import fio
from benchmarks.measure import (
    NotMeasuredError,
    Result,
    best,
    ratios,
    rounds,
    table,
)
from wattload.core.io import IOKind


def result(**changes: object) -> Result:
    facts: dict[str, object] = {
        "name": "direct read ÷ fio",
        "unit": "GB/s",
        "goal": 0.9,
        "sense": "at_least",
        "values": (0.8, 1.0, 1.2),
    }
    return Result(**(facts | changes))  # type: ignore[arg-type]


def test_rounds_interleave_and_the_order_turns() -> None:
    calls: list[str] = []

    def way(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    figures = rounds({"a": lambda: way("a"), "b": lambda: way("b")}, round_count=3)
    assert calls == ["a", "b", "b", "a", "a", "b"]
    assert figures == {"a": [1.0, 4.0, 5.0], "b": [2.0, 3.0, 6.0]}


def test_ratios_compare_within_a_round_only() -> None:
    figures = {"ours 8": [1.0, 6.0], "ours 32": [2.0, 3.0], "theirs": [4.0, 3.0]}
    ours = best(figures, ["ours 8", "ours 32"])
    assert ours == [2.0, 6.0]
    assert ratios(ours, figures["theirs"]) == [0.5, 2.0]


@pytest.mark.parametrize(
    ("goal", "sense", "met"),
    [
        (1.0, "at_least", True),
        (1.01, "at_least", False),
        (1.0, "at_most", True),
        (0.9, "at_most", False),
    ],
)
def test_the_median_is_held_against_the_goal(goal: float, sense: str, met: bool) -> None:
    assert result(goal=goal, sense=sense).is_met is met


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    missing = result(values=(), missing="fio is not installed")
    assert missing.is_met is None
    assert missing.as_json()["median"] is None
    assert "| not measured |" in table([missing])
    assert "fio is not installed" in table([missing])


def test_the_table_shows_median_spread_goal_and_figures() -> None:
    row = table([result(figures={"direct": (1.0, 2.0, 9.0)}, notes=["fio --rw=read"])])
    assert "| 1 x | 0.8 to 1.2 | ≥ 0.9 x | yes | direct 2 GB/s |" in row
    assert row.endswith("- direct read ÷ fio: fio --rw=read")


def test_fio_gets_our_files_and_preallocates_nothing(tmp_path: Path) -> None:
    files = [tmp_path / "0.bin", tmp_path / "1.bin"]
    for path in files:
        path.write_bytes(bytes(4096))
    command = fio.command(IOKind.WRITE, files, depth=32, block_bytes=1 << 20)
    assert f"--filename={files[0]}:{files[1]}" in command
    assert {"--size=8192", "--fallocate=none", "--direct=1", "--end_fsync=1"} <= set(command)


def test_a_missing_fio_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(NotMeasuredError, match="apt-get install fio"):
        fio.rate(["fio"])


def test_an_fio_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = tmp_path / "fio"
    stand_in.write_text("#!/bin/sh\necho 'engine not loadable' >&2\nexit 1\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(NotMeasuredError, match="engine not loadable"):
        fio.rate(["fio", "--name=read", "--rw=read"])


@pytest.mark.parametrize(("free", "is_huge"), [(0, False), (16, False), (17, True)])
def test_fio_gets_huge_pages_where_enough_are_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, is_huge: bool
) -> None:
    monkeypatch.setattr(fio, "huge_pages_free", lambda: free)
    command = fio.command(IOKind.READ, [tmp_path], depth=32, block_bytes=1 << 20)
    assert ("--iomem=shmhuge" in command) is is_huge


def test_the_hosts_huge_pages_are_counted() -> None:
    assert fio.huge_pages_free() >= 0
