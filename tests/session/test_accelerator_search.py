"""Whole searches on made-up drives: each run leaves a record, and nothing is run twice."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.context import LocalCommunicator, process_of
from tests.session.curves import Curve, drive, record_of
from wattload.cli.outcome import Printer
from wattload.core.errors import ConfigError
from wattload.core.record.file import StoredRecord, write_record
from wattload.core.record.results import Check, Metric
from wattload.core.record.run import Comparison
from wattload.results.reading import read_judged
from wattload.run.process import ProcessContext
from wattload.session import accelerator_search, loop

COLD = Check(name="cold_cache", verdict="fail", sentence="It was warm.", mandatory=True)
Search = Callable[..., tuple[int, dict[str, Any]]]


class Bench:
    """Stands in for the run: writes the record that a drive of that curve would leave."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.curve: Curve = drive(1e9)
        self.checks: dict[int, tuple[Check, ...]] = {}
        self.made: list[tuple[int, int]] = []
        self.stop_at: int | None = None
        self.number = itertools.count()
        self.figures: dict[Path, tuple[Metric, ...]] = {}

    def read(self, folder: Path) -> StoredRecord:
        """Return a run's record with its made-up figures, which follow from no facts."""
        stored = read_judged(folder)
        record = stored.record.model_copy(update={"metrics": self.figures[folder]})
        return replace(stored, record=record)

    def execute(
        self, _process: ProcessContext, overrides: Sequence[str], comparison: Comparison
    ) -> tuple[Path, int]:
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
