"""The search for a knee: its plan, its runs on a grid, what decides, and its result."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.context import NoReporter, process_of
from tests.session.curves import figure, record_of
from wattload.cli.outcome import Printer
from wattload.core.errors import ConfigError
from wattload.core.record.file import StoredRecord, write_record
from wattload.core.record.results import Check, Metric
from wattload.core.record.run import Comparison
from wattload.core.units import Unit
from wattload.results.facts import Facts
from wattload.results.knee import Knee
from wattload.results.reading import read_judged
from wattload.results.registry import Results
from wattload.run.process import ProcessContext
from wattload.run.ranks import LocalCommunicator
from wattload.session import knee_search, loop
from wattload.session.knee_search import ORIGIN, plan_knee

SETTING = "workload.interval_s"


def judged(run: Any) -> bool | None:
    """Return whether p99 is at most 0.5 s; a run without it is overloaded, or of no load."""
    p99_s = run.record.metric("made_up_p99_s").value
    return p99_s <= 0.5 if p99_s is not None else None if run.record.label == "idle" else False


RESULTS = Results(
    name="checkpoint",
    facts=Facts,
    knee=Knee(
        setting="interval_s",
        unit="writes/s",
        goal=lambda config: None if config.step_s == 77 else "p99 <= 500 ms",
        goal_setting="workload.step_s",
        holds=judged,
        figure="made_up_p99_s",
        shown=lambda seconds: f"p99 {1e3 * seconds:.4g} ms",
    ),
)
COLD = Check(name="cold_cache", verdict="fail", sentence="It was warm.", mandatory=True)


@dataclass
class Bench:
    """Stands in for the run: its p99 follows a curve over the load."""

    runs: Path
    p99_s: Callable[[float, int], float | None] = lambda load, _: 0.1 + load / 100
    overloads_above: float = 1e9
    faulty: Callable[[float], bool] = lambda _: False
    made: list[tuple[float, int]] = field(default_factory=list)
    stop_at: float | None = None
    label: str = "A"
    figures: dict[Path, tuple[Metric, ...]] = field(default_factory=dict)
    number: Any = field(default_factory=itertools.count)
    reporter: NoReporter = field(default_factory=NoReporter)

    def read(self, folder: Path) -> StoredRecord:
        stored = read_judged(folder)
        record = stored.record.model_copy(update={"metrics": self.figures[folder]})
        return replace(stored, record=record)

    def execute(
        self,
        _process: ProcessContext,
        overrides: Sequence[str],
        comparison: Comparison,
        *,
        calibrates: bool,
    ) -> tuple[Path, int]:
        settings = dict(text.split("=", 1) for text in overrides)
        load, repetition = float(settings[SETTING]), comparison.block
        assert int(settings["seed"]) == 1 + repetition
        assert not any(key.startswith("sweep") for key in settings)
        if load == self.stop_at:
            raise KeyboardInterrupt
        self.made.append((load, repetition))
        number = next(self.number)
        record = record_of(
            1,
            0.9,
            run_id=f"run-{number}",
            started_utc=f"2026-11-20T23:{number:02d}:00.000+00:00",
            checks=(COLD,) if self.faulty(load) else (),
            comparison=comparison,
            label=self.label,
        )
        folder = self.runs / record.run_id
        folder.mkdir(parents=True)
        write_record(record, folder)
        is_overloaded = load > self.overloads_above
        p99_s = None if is_overloaded else self.p99_s(load, repetition)
        self.figures[folder] = (figure("made_up_p99_s", p99_s, Unit.SECONDS),)
        return folder, 0


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path / "runs")
    process = process_of(LocalCommunicator(), made.reporter, samples=False)
    monkeypatch.setattr(loop, "start_process", lambda *_: nullcontext(process))
    monkeypatch.setattr(loop, "execute", made.execute)
    monkeypatch.setattr("wattload.session.accelerator_search.read_judged", made.read)
    monkeypatch.setattr(knee_search, "results_of", lambda _: RESULTS)
    monkeypatch.setattr(knee_search, "preview_run", lambda *_, check: None)
    return made


Search = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def search(bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Search:
    target = tmp_path / "target"
    target.mkdir()

    def run(*overrides: str) -> tuple[int, dict[str, Any]]:
        base = ("workload=checkpoint", "power=none", "sweep=knee", "seed=1")
        bench.made.clear()
        status = loop.run_all(
            [*base, f"target.path={target}", f"runs={bench.runs}", *overrides],
            multirun=False,
            reporter=Printer(as_json=True),
        )
        return status, json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("start", ["1", "8", "40", "300"])
def test_the_largest_load_within_the_limit_is_found_and_confirmed(
    bench: Bench, search: Search, start: str
) -> None:
    status, result = search(f"{SETTING}={start}")  # p99 is 0.5 s at 40
    assert (status, result["verdict"]) == (0, "found")
    holds, fails = result["holds_at"], result["fails_at"]
    assert holds <= 40 < fails < 1.1 * holds
    assert [made for made in bench.made if made[0] in (holds, fails)].count((holds, 1)) == 1
    assert (fails, 1) in bench.made
    assert len(bench.made) < 16
    assert f"holds {holds:g} writes/s (p99 " in result["sentence"]
    assert f"at p99 <= 500 ms; fails at {fails:g} writes/s" in result["sentence"]
    (file,) = bench.runs.glob("search-*/result.json")
    assert json.loads(file.read_text()) == result


def test_a_load_that_fails_is_halved_until_one_holds(bench: Bench, search: Search) -> None:
    assert search(f"{SETTING}=300")[1]["verdict"] == "found"
    assert [load for load, _ in bench.made[:4]] == [300, 150, 75, 37.5]


def test_an_interrupted_search_goes_on_where_it_ended(bench: Bench, search: Search) -> None:
    bench.stop_at = 64.0
    with pytest.raises(KeyboardInterrupt):
        search(f"{SETTING}=16")
    first = list(bench.made)
    assert first == [(16.0, 0), (32.0, 0)]
    bench.stop_at = None
    _, result = search(f"{SETTING}=16")
    assert result["verdict"] == "found"
    assert not set(first) & set(bench.made)
    assert search(f"{SETTING}=16")[1] == result
    assert not bench.made


def test_an_overloaded_run_fails_without_a_figure(bench: Bench, search: Search) -> None:
    bench.overloads_above = 20.0
    status, result = search(f"{SETTING}=16")
    assert (status, result["verdict"]) == (0, "found")
    assert result["holds_at"] <= 20 < result["fails_at"]
    assert "(an epoch of one step has no window)" in result["sentence"]


def test_a_failed_check_lets_no_load_hold(bench: Bench, search: Search) -> None:
    bench.faulty = lambda load: load == 32.0
    status, result = search(f"{SETTING}=16")
    assert (status, result["verdict"], result["holds_at"]) == (3, "invalid", None)
    assert "has no knee" in result["sentence"]
    assert "failed cold_cache: It was warm." in result["notes"][0]
    bench.faulty = lambda load: load > 40  # what fails anyway decides nothing else
    status, result = search(f"{SETTING}=8")
    assert (result["verdict"], result["holds_at"] <= 40 < result["fails_at"]) == ("found", True)


def test_a_run_that_cant_be_judged_ends_the_search(bench: Bench, search: Search) -> None:
    bench.p99_s = lambda load, _: None if load > 20 else 0.1
    bench.label = "idle"
    status, result = search(f"{SETTING}=16")
    assert (status, result["verdict"], result["holds_at"]) == (3, "invalid", None)
    assert (
        "no knee: 32 writes/s (an epoch of one step has no window) can't be" in result["sentence"]
    )


def test_the_ends_of_the_grid_are_named(bench: Bench, search: Search) -> None:
    bench.p99_s = lambda *_: 0.1
    _, result = search(f"{SETTING}=1")
    assert (result["verdict"], result["holds_at"], result["fails_at"]) == ("at_least", 256.0, None)
    assert "holds at least 256 writes/s" in result["sentence"]
    bench.p99_s = lambda *_: 0.7
    _, result = search(f"{SETTING}=1", "label=slow")
    assert (result["verdict"], result["holds_at"]) == ("none_holds", None)
    assert "does not even hold 0.003906 writes/s (p99 700 ms)" in result["sentence"]


def test_disagreeing_runs_are_in_the_notes(bench: Bench, search: Search) -> None:
    bench.p99_s = lambda load, repetition: 0.1 if load + 20 * repetition <= 40 else 0.7
    _, result = search(f"{SETTING}=16")
    assert result["holds_at"] <= 20
    assert any("writes/s disagree: 1 of 2 held" in note for note in result["notes"])


def test_the_terminal_says_it_in_one_sentence(
    bench: Bench, search: Search, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop.run_all(
        [
            "workload=checkpoint",
            "power=none",
            "sweep=knee",
            f"{SETTING}=16",
            f"target.path={tmp_path}",
            f"runs={bench.runs}",
        ],
        multirun=False,
        reporter=Printer(),
    )
    shown = capsys.readouterr()
    assert "checkpoint with loader=direct at scale=quick holds " in shown.out
    assert "result  " in shown.out
    assert "16 writes/s (p99 260 ms), run 1: holds p99 <= 500 ms" in bench.reporter.notes


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ((), f"sweep=knee needs {SETTING}, which is not set; add {SETTING}=VALUE"),
        ((f"{SETTING}=1", "workload.step_s=77"), "sweep=knee needs workload.step_s, which is"),
        (
            (f"{SETTING}=1", "sweep.start=2"),
            "sweep.start belongs to sweep=accelerators; sweep=knee",
        ),
        ((f"{SETTING}=1", "repeat=3"), "sweep.confirmations=2 repeats the result"),
    ],
)
def test_what_cant_be_searched_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, overrides: tuple[str, ...], words: str
) -> None:
    monkeypatch.setattr(knee_search, "results_of", lambda _: RESULTS)
    with pytest.raises(ConfigError) as caught:
        plan_knee(["workload=checkpoint", "target.path=/tmp", "sweep=knee", *overrides])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_workload_without_a_knee_is_refused() -> None:
    with pytest.raises(ConfigError, match="null has none; use workload=kv_cache, or sweep=none"):
        plan_knee(["workload=null", "target.path=/tmp", "sweep=knee"])


def test_a_cache_is_searched_by_its_rate_of_requests() -> None:
    base = ("workload=kv_cache", "target.path=/tmp", "sweep=knee")
    with pytest.raises(ConfigError, match=r"sweep=knee needs workload\.request_rate"):
        plan_knee([*base, "workload.target_p99_ms=500"])
    given = (*base, "workload.arrivals=open", "workload.request_rate=4")
    with pytest.raises(ConfigError, match=r"sweep=knee needs workload\.target_p99_ms"):
        plan_knee(given)
    plan = plan_knee([*given, "workload.target_p99_ms=500"])
    assert plan.goal == "p99 <= 500 ms"
    assert plan.point(ORIGIN + 8)[-2:] == ("workload.request_rate=8.0", "seed=1")
