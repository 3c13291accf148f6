"""The accelerator search: its plan, its strategy on any curve, its runs and its result."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.context import process_of
from tests.session.curves import Curve, drive, record_of, result_of, trials
from wattload.cli.outcome import Printer
from wattload.core.errors import ConfigError
from wattload.core.mlperf.rules import DataSetRule
from wattload.core.record.file import StoredRecord, write_record
from wattload.core.record.results import Check, Metric
from wattload.core.record.run import Comparison
from wattload.results.reading import read_judged
from wattload.run.compose import compose
from wattload.run.process import ProcessContext
from wattload.run.ranks import LocalCommunicator
from wattload.session import accelerator_search, loop
from wattload.session.accelerator_search import SearchPlan, largest_held, plan_search
from wattload.session.search_result import doubts
from wattload.workloads.training.config import Config, search_settings

COLD = Check(name="cold_cache", verdict="fail", sentence="It was warm.", mandatory=True)
Search = Callable[..., tuple[int, dict[str, Any]]]


class Bench:
    """Stands in for the run: writes the record that a drive of that curve would leave."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.curve: Curve = drive(1e9)
        self.checks: dict[int, tuple[Check, ...]] = {}
        self.made: list[tuple[int, int]] = []
        self.calibrating: list[bool] = []
        self.stop_at: int | None = None
        self.number = itertools.count()
        self.figures: dict[Path, tuple[Metric, ...]] = {}

    def read(self, folder: Path) -> StoredRecord:
        """Return a run's record with its made-up figures, which follow from no facts."""
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
        self.calibrating.append(calibrates)
        settings = dict(text.split("=", 1) for text in overrides)
        count, repetition = int(settings["accelerator.count"]), comparison.block
        if count == self.stop_at:
            raise KeyboardInterrupt
        self.made.append((count, repetition))
        number = next(self.number)
        run_id = f"{number}-{settings['label']}-{repetition}"
        record = record_of(
            count,
            self.curve(count, repetition),
            run_id=run_id,
            started_utc=f"2026-11-20T23:{number:02d}:00.000+00:00",
            checks=self.checks.get(count, ()),
            label=settings["label"],
            comparison=comparison,
        )
        folder = self.runs / run_id
        folder.mkdir(parents=True)
        write_record(record, folder)
        self.figures[folder] = record.metrics
        return folder, 0


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path / "runs")
    process = process_of(LocalCommunicator(), samples=False)
    monkeypatch.setattr(loop, "start_process", lambda *_: nullcontext(process))
    monkeypatch.setattr(loop, "execute", made.execute)
    monkeypatch.setattr(accelerator_search, "read_judged", made.read)
    monkeypatch.setattr(accelerator_search, "preview_run", lambda *_, check: None)
    return made


@pytest.fixture
def search(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, dict[str, Any]]]:
    target = tmp_path / "target"
    target.mkdir()

    def run(*overrides: str) -> tuple[int, dict[str, Any]]:
        base = (
            "workload=unet3d",
            "power=none",
            f"target.path={target}",
            f"runs={bench.runs}",
            "sweep=accelerators",
        )
        bench.made.clear()
        reporter = Printer(as_json=True)
        status = loop.run_all([*base, *overrides], multirun=False, reporter=reporter)
        return status, json.loads(capsys.readouterr().out)

    return run


def test_the_score_of_a_drive_is_found_and_kept(bench: Bench, search: Search) -> None:
    bench.curve = drive(3.0)
    status, result = search()
    assert status == 0
    assert (result["verdict"], result["accelerators"]) == ("found", 3)
    assert [number for number, each in enumerate(bench.calibrating) if each] == [0]
    (file,) = bench.runs.glob("search-*/result.json")
    assert json.loads(file.read_text()) == result
    assert {run["run_id"] for run in result["runs"]} == {
        path.parent.name for path in bench.runs.glob("*/record.json")
    }


def test_an_interrupted_search_goes_on_where_it_ended(bench: Bench, search: Search) -> None:
    bench.curve = drive(5.0)
    bench.stop_at = 6
    with pytest.raises(KeyboardInterrupt):
        search()
    first = list(bench.made)
    bench.stop_at = None
    _, result = search()
    assert result["accelerators"] == 5
    assert first == [(1, 0), (2, 0), (4, 0), (8, 0)]
    assert not set(first) & set(bench.made)
    _, again = search()
    assert not bench.made
    assert again == result


def test_another_threshold_or_more_confirmations_use_the_runs_there_are(
    bench: Bench, search: Search
) -> None:
    bench.curve = drive(4.6)
    assert search()[1]["accelerators"] == 5
    _, result = search("sweep.au_threshold=0.99")
    assert result["accelerators"] == 4
    assert bench.made == [(4, 1)]
    search("sweep.confirmations=2")
    assert sorted(bench.made) == [(5, 2), (6, 2)]


def test_a_run_with_a_failed_check_ends_the_search_without_a_score(
    bench: Bench, search: Search
) -> None:
    bench.checks[4] = (COLD,)
    status, result = search()
    assert status == 3
    assert (result["verdict"], result["accelerators"]) == ("invalid", None)
    assert any("cold_cache: It was warm." in note for note in result["notes"])
    bench.checks.clear()
    status, result = search()
    assert (status, bench.made[0]) == (0, (4, 0))


def test_a_run_without_utilisation_ends_the_search_without_a_score(
    bench: Bench, search: Search
) -> None:
    bench.curve = lambda count, _: None  # type: ignore[assignment,return-value]  # none is made
    status, result = search()
    assert (status, result["verdict"]) == (3, "invalid")


def test_noise_is_in_the_notes(bench: Bench, search: Search) -> None:
    bench.curve = lambda count, repetition: 0.95 if count + repetition < 4 else 0.5
    _, result = search()
    assert result["accelerators"] == 2
    assert "3 accelerators disagree: 1 of 2 held" in result["notes"][0]


def test_a_data_set_that_does_not_fit_names_the_setting(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_process: ProcessContext, _overrides: Sequence[str], check: bool) -> None:
        raise ConfigError("the target has 1 GB free")

    monkeypatch.setattr(accelerator_search, "preview_run", refuse)
    with pytest.raises(
        ConfigError, match=r"sweep\.maximum=3, is refused: the target has 1 GB free"
    ):
        search("sweep.maximum=3")


BASE = ("workload=unet3d", "target.path=/tmp", "power=none", "sweep=accelerators")
GIB = 1 << 30


def plan(*overrides: str) -> SearchPlan:
    return plan_search([*BASE, *overrides], 1, 8 * GIB)


def refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(*overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_run_is_an_ordinary_one_with_its_count_in_its_label() -> None:
    found = plan("sweep.maximum=6", "label=B", "seed=7")
    config, _ = compose(found.point(3, 2))
    assert (config.accelerator.count, config.label, config.seed) == (3, "B-n3", 9)
    assert config.sweep.name == "none"
    assert config.workload.steps_per_epoch == 4


def test_all_counts_read_one_data_set_that_fits_the_most() -> None:
    found = plan("sweep.maximum=6")
    files = {of["file_count"] for of in found.settings.values()}
    assert files == {6 * 7 * 4}
    assert {of["steps_per_epoch"] for of in found.settings.values()} == {4}


def test_requested_files_are_divided_into_steps() -> None:
    found = plan("sweep.maximum=4", "workload.file_count=300")
    assert found.settings[1] == {"file_count": 300, "steps_per_epoch": 10}


def test_too_few_files_for_the_maximum_name_both_ways_out() -> None:
    text = refusal("sweep.maximum=4", "workload.file_count=100")
    assert "need 112 files; use 112 or more" in text
    assert "sweep.maximum=3" in text
    assert "sweep.maximum=" not in refusal("sweep.maximum=4", "workload.file_count=20")


def test_requested_steps_are_kept() -> None:
    found = plan("sweep.maximum=2", "workload.steps_per_epoch=9")
    assert found.settings[2] == {"file_count": 2 * 7 * 9, "steps_per_epoch": 9}


@pytest.mark.parametrize("memory_gib", [8, 377])
def test_at_full_each_count_has_the_steps_of_mlperfs_rule(memory_gib: int) -> None:
    config = Config()
    found = search_settings(
        config,
        scale="full",
        accelerators=range(1, 5),
        memory_bytes=memory_gib * GIB,
        file_count=None,
    )
    for count, of in found.items():
        rule = DataSetRule(
            accelerators=count,
            batch_samples=7,
            record_bytes=config.record_mean_bytes,
            memory_bytes=memory_gib * GIB,
        )
        assert of["steps_per_epoch"] * count * 7 >= rule.files
        assert of["steps_per_epoch"] * count * 7 <= of["file_count"]


def test_the_threshold_is_the_workloads_own_until_another_is_named() -> None:
    assert plan().question.threshold == 0.9
    assert plan("sweep.au_threshold=0.75").question.threshold == 0.75


def test_ranks_search_their_multiples() -> None:
    found = plan_search([*BASE, "sweep.maximum=7"], 2, 8 * GIB)
    assert list(found.settings) == [2, 4, 6]
    assert (found.question.start, found.question.maximum, found.question.unit) == (2, 6, 2)
    with pytest.raises(ConfigError, match="2 ranks emulate a multiple of 2 accelerators"):
        plan_search([*BASE, "sweep.start=3"], 2, 8 * GIB)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("accelerator.count=4",), "limit it with sweep.start and sweep.maximum"),
        (("repeat=3",), "sweep.confirmations=2"),
        (("accelerator=unpaced",), "use accelerator=a100, h100 or b200"),
        (("workload=null",), "use workload=unet3d, or sweep=none"),
        (
            ("sweep.start=9", "sweep.maximum=3"),
            "sweep.start must be at most sweep.maximum (3), got 9",
        ),
        (("sweep.maximum=2000",), "1 to 1024, got 2000"),
        (("sweep.name=power",), "one of none, accelerators"),
        (("sweep.au_threshold=90",), "more than 0 and at most 1, got 90"),
        (("sweep.confirmations=-1",), "0 to 10000, got -1"),
        ((f"label={'a' * 199}",), "1 to 200"),
    ],
)
def test_what_cant_be_searched_is_refused_in_one_sentence(
    overrides: tuple[str, ...], words: str
) -> None:
    given = [
        text for text in BASE if text.split("=")[0] not in {o.split("=")[0] for o in overrides}
    ]
    with pytest.raises(ConfigError) as caught:
        plan_search([*given, *overrides], 1, 8 * GIB)
    assert words in str(caught.value)


def test_the_data_of_a_search_is_that_of_its_widest_run() -> None:
    config, _ = compose(plan("sweep.maximum=5").widest())
    assert (config.accelerator.count, config.workload.file_count) == (5, 140)


def found(curve: Curve, *, start: int = 1, maximum: int = 64, confirmations: int = 1) -> int:
    return result_of(
        largest_held(trials(curve), start=start, maximum=maximum, confirmations=confirmations)
    )


def test_a_curve_that_fails_at_one_gives_none() -> None:
    made = trials(drive(0.5))
    assert result_of(largest_held(made, start=4, maximum=64)) == 0
    assert set(made.held) == {4, 2, 1}
    assert made.held[1] == [False, False]


def test_a_curve_that_never_fails_gives_the_maximum() -> None:
    made = trials(drive(1e9))
    assert result_of(largest_held(made, start=1, maximum=24)) == 24
    assert list(made.held) == [1, 2, 4, 8, 16, 24]
    assert made.held[24] == [True, True]


def test_the_result_and_the_next_count_are_confirmed() -> None:
    made = trials(drive(5.0))
    assert result_of(largest_held(made, start=1, maximum=64, confirmations=2)) == 5
    assert made.held[5] == [True] * 3
    assert made.held[6] == [False] * 3
    assert {count: len(runs) for count, runs in made.held.items() if count not in {5, 6}} == {
        1: 1,
        2: 1,
        4: 1,
        8: 1,
    }
    assert not list(doubts(made.held))


def test_without_confirmations_each_count_is_run_once() -> None:
    made = trials(drive(5.0))
    assert result_of(largest_held(made, start=1, maximum=64, confirmations=0)) == 5
    assert {len(runs) for runs in made.held.values()} == {1}


def test_a_count_that_holds_once_and_fails_once_does_not_count() -> None:
    def edge(count: int, repetition: int) -> float:
        return 0.95 if count < 6 or (count == 6 and repetition == 0) else 0.5

    made = trials(edge)
    assert result_of(largest_held(made, start=1, maximum=64)) == 5
    (said,) = doubts(made.held)
    assert "with 6 accelerators disagree: 1 of 2 held" in said


def test_a_smaller_count_that_fails_below_a_larger_one_is_reported() -> None:
    def dip(count: int, repetition: int) -> float:
        if count == 7:
            return 0.95 if repetition == 0 else 0.5
        return 0.5 if count == 5 or count > 7 else 0.95

    made = trials(dip)
    assert result_of(largest_held(made, start=6, maximum=64)) == 6
    result_of(made.holds(5))
    said = list(doubts(made.held))
    assert any("7 accelerators disagree" in text for text in said)
    assert any("Not monotone: 5 accelerators failed although 6 held" in text for text in said)


@given(
    answers=st.lists(st.booleans(), min_size=64, max_size=64),
    start=st.integers(1, 32),
    confirmations=st.integers(0, 3),
)
def test_on_any_noise_it_ends_and_every_run_of_the_result_held(
    answers: list[bool], start: int, confirmations: int
) -> None:
    def noise(count: int, repetition: int) -> float:
        return float(answers[(count * 7 + repetition * 13) % 64])

    made = trials(noise)
    result = result_of(largest_held(made, start=start, maximum=32, confirmations=confirmations))
    assert 0 <= result <= 32
    if result:
        assert made.held[result][: 1 + confirmations] == [True] * (1 + confirmations)
    if result < 32:
        assert not all(made.held[result + 1])
    assert all(1 <= count <= 32 for count in made.held)


@given(limit=st.floats(0.01, 200.0), start=st.integers(1, 64))
def test_on_any_falling_curve_the_result_is_exact(limit: float, start: int) -> None:
    curve = drive(limit)
    exact = max((n for n in range(1, 65) if curve(n, 0) >= 0.9), default=0)
    assert found(curve, start=start) == exact
