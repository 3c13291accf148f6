"""A sweep over power states: its order, its arms, and what is not repeated."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.context import NoReporter
from tests.records import Scenario, make_run
from wattload.core.errors import RunError
from wattload.core.record.file import write_record
from wattload.core.record.run import Comparison, RunRecord
from wattload.run.process import ProcessContext
from wattload.session import loop
from wattload.session.schedule import Pace, names_of


@dataclass
class Runs:
    """Runs that are only written down."""

    folder: Path
    made: list[tuple[str, int, int]] = field(default_factory=list)
    fails: set[str] = field(default_factory=set)

    def execute(
        self, _process: ProcessContext, overrides: tuple[str, ...], comparison: Comparison
    ) -> tuple[Path | None, int]:
        settings = dict(text.split("=", 1) for text in overrides)
        label = settings["label"]
        self.made.append((label, comparison.block, comparison.order))
        run = self.folder / f"{len(self.made):02}-{label}"
        run.mkdir(parents=True)
        record, _ = make_run(Scenario(run_id=run.name, label=label, order=len(self.made)))
        write_record(self._judged(record, label), run)
        return run, 0

    def _judged(self, record: RunRecord, label: str) -> RunRecord:
        checks = tuple(
            check.model_copy(update={"verdict": "fail"}) if label in self.fails else check
            for check in record.checks
        )
        return record.model_copy(update={"checks": checks})


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs(tmp_path / "runs")
    monkeypatch.setattr(loop, "execute", made.execute)
    return made


def command(runs: Runs, tmp_path: Path) -> list[str]:
    target = tmp_path / "target"
    target.mkdir(exist_ok=True)
    return [
        "workload=null",
        f"target.path={target}",
        f"runs={runs.folder}",
        "power.state=0,1,2",
        "repeat=2",
    ]


def test_states_take_turns_in_every_block(runs: Runs, tmp_path: Path) -> None:
    assert loop.run_all(command(runs, tmp_path), multirun=True, reporter=NoReporter()) == 0
    assert runs.made == [
        ("PS0", 0, 0),
        ("PS1", 0, 1),
        ("PS2", 0, 2),
        ("PS0", 1, 3),
        ("PS1", 1, 4),
        ("PS2", 1, 5),
    ]


def test_states_that_are_done_are_not_run_again(runs: Runs, tmp_path: Path) -> None:
    runs.fails.add("PS1")
    loop.run_all(command(runs, tmp_path), multirun=True, reporter=NoReporter())
    runs.fails.clear()
    loop.run_all(command(runs, tmp_path), multirun=True, reporter=NoReporter())
    assert [label for label, _, _ in runs.made[6:]] == ["PS1", "PS1"]


def test_every_run_says_where_it_stands_and_the_end_compares_all(
    runs: Runs, tmp_path: Path
) -> None:
    reporter = NoReporter()
    loop.run_all(command(runs, tmp_path), multirun=True, reporter=reporter)
    assert [(place.number, place.count) for place in reporter.places] == [
        (number, 6) for number in range(1, 7)
    ]
    assert [place.name for place in reporter.places[:3]] == ["PS0", "PS1", "PS2"]
    assert reporter.places[0].left_s is None
    assert all(place.left_s is not None for place in reporter.places[1:])
    assert [len(compared) for compared in reporter.compared] == [6]
    loop.run_all(command(runs, tmp_path), multirun=True, reporter=reporter)
    assert "6 of 6 runs are not repeated" in reporter.notes
    assert [len(compared) for compared in reporter.compared] == [6, 6]
    assert len(reporter.places) == 6


def test_a_session_that_breaks_off_says_how_it_goes_on(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(*given: object) -> tuple[Path | None, int]:
        if len(runs.made) == 4:
            raise RunError("the drive is gone")
        return runs.execute(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "execute", execute)
    with pytest.raises(RunError) as caught:
        loop.run_all(command(runs, tmp_path), multirun=True, reporter=NoReporter())
    (note,) = caught.value.__notes__
    assert "4 of 6 runs finished; the same command resumes it" in note


def test_the_pace_is_of_this_commands_runs_if_there_are_any() -> None:
    pace = Pace([10.0, 20.0])
    pace.begin()
    assert pace.left_s(4) == 60.0
    assert Pace().left_s(4) is None
    pace.begin()
    left_s = pace.left_s(4)
    assert left_s is not None
    assert left_s < 10.0


def test_a_single_setting_needs_no_name() -> None:
    assert names_of([("a=1",), ("a=1",)]) == {("a=1",): ""}
    names = names_of([("a=1", "power.state=0", "label=PS0"), ("a=2", "power.state=1", "label=PS1")])
    assert [*names.values()] == ["PS0, a=1", "PS1, a=2"]
