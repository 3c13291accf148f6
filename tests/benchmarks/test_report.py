"""The runs that the report is timed on are as valid as those that they were made of."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.measure import LEAST_PAIRS, PAIRS, NotMeasuredError, Verdict
from wattload.reports.runs.load import load_runs
from wattload.reports.stats.subject import make_subject


def test_every_run_is_another_one_and_closes(tmp_path: Path) -> None:
    report.write_runs(tmp_path, 8)
    runs = load_runs([tmp_path])
    subject = make_subject(runs)
    assert len({run.id for run in runs}) == 8
    assert [subject.faults(run) for run in runs] == [()] * 8
    assert {run.seal for run in runs} == {"holds"}
    assert all(run.traces.throughput is not None for run in runs)
    rates = {metric.value for run in runs for metric in run.record.metrics if metric.headline}
    assert len(rates) > 8


def test_the_same_runs_are_made_again(tmp_path: Path) -> None:
    for name in ("first", "second"):
        report.write_runs(tmp_path / name, 3)
    first, second = (load_runs([tmp_path / name]) for name in ("first", "second"))
    assert [run.record for run in first] == [run.record for run in second]


def test_a_call_that_fails_has_no_cost(tmp_path: Path) -> None:
    with pytest.raises(NotMeasuredError, match="status 3"):
        report._cost([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "none")


HELD_BYTES = 100_000_000


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], str]:
    """Return code that holds memory until so many processes were seen to hold as much."""
    go = tmp_path / "go"
    wanted: list[int] = []
    seen: set[int] = set()
    read = report._peak_bytes

    def peak_bytes(pid: int) -> int:
        found = read(pid)
        if found > HELD_BYTES:
            seen.add(pid)
        if len(seen) >= wanted[-1]:
            go.touch()
        return found

    def code(processes: int) -> str:
        wanted.append(processes)
        seen.clear()
        go.unlink(missing_ok=True)
        return (
            f"import os, time; held = bytearray({HELD_BYTES})\n"
            f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        )

    monkeypatch.setattr(report, "_peak_bytes", peak_bytes)
    return code


def test_a_call_costs_memory_and_what_it_writes(tmp_path: Path, held: Callable[[int], str]) -> None:
    output = tmp_path / "page"
    output.write_bytes(bytes(2_000_000))
    cost = report._cost([sys.executable, "-c", held(1)], output)
    assert cost.peak_mb > HELD_BYTES / 1e6
    assert cost.written_mb == 2.0


def watched_bytes(code: str) -> int:
    with subprocess.Popen([sys.executable, "-c", code]) as child:
        return report._watched(child.pid)


def test_memory_of_a_process_and_its_child_is_one_sum(held: Callable[[int], str]) -> None:
    alone = watched_bytes(held(1))
    hold = held(2)
    start = f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {hold!r}])"
    both = watched_bytes(f"{start}\n{hold}child.wait()\n")
    assert alone > HELD_BYTES
    assert both > alone + HELD_BYTES


MET, MISSED, FEW = Verdict.MET, Verdict.MISSED, Verdict.FEW


@pytest.mark.parametrize("form", list(report.FORMS))
@pytest.mark.parametrize(
    ("seconds", "peak_mb", "pairs", "verdicts"),
    [
        (9.9, 499.0, PAIRS, [MET, MET]),
        (10.0, 500.0, PAIRS, [MET, MET]),
        (10.1, 499.0, PAIRS, [MISSED, MET]),
        (9.9, 501.0, PAIRS, [MET, MISSED]),
        (0.1, 1.0, LEAST_PAIRS - 1, [FEW, FEW]),
    ],
)
def test_a_thousand_runs_may_take_ten_seconds_and_half_a_gigabyte(
    form: str, seconds: float, peak_mb: float, pairs: int, verdicts: list[Verdict]
) -> None:
    costs = [report.Cost(seconds, peak_mb, 1.0)] * pairs
    assert [result.verdict for result in report._results(form, costs)] == verdicts


def test_one_slow_call_of_many_is_no_miss_and_half_of_them_are() -> None:
    fast, slow = report.Cost(5.0, 100.0, 1.0), report.Cost(20.0, 100.0, 1.0)
    one, half = [*[fast] * (PAIRS - 1), slow], [*[fast] * (PAIRS // 2), *[slow] * (PAIRS // 2 + 1)]
    assert next(report._results("page", one)).verdict is MET
    assert next(report._results("page", half)).verdict is MISSED
