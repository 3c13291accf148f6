"""A sweep over power states: its order, its arms, and what is not repeated."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.context import NoReporter, ThreadCommunicator, process_of, run_ranks
from tests.records import Scenario, make_run, write_made_run
from tests.second_user import OTHER, need_second_user
from wattload.core.errors import ForeignFileError, RunError
from wattload.core.record.energy import PowerSection
from wattload.core.record.file import RECORD_FILE, read_record, write_record
from wattload.core.record.run import Comparison, RunRecord
from wattload.power.control.calibrations import SessionCalibrations
from wattload.run.process import ProcessContext
from wattload.run.ranks import LocalCommunicator
from wattload.session import loop
from wattload.session.schedule import Pace, Point, keyed_on_all_hosts, names_of


@dataclass
class Runs:
    """Runs that are only written down."""

    folder: Path
    made: list[tuple[str, int, int]] = field(default_factory=list)
    fails: set[str] = field(default_factory=set)
    calibrating: list[bool] = field(default_factory=list)

    def execute(
        self,
        _process: ProcessContext,
        overrides: tuple[str, ...],
        comparison: Comparison,
        *,
        calibrates: bool,
    ) -> tuple[Path | None, int]:
        self.calibrating.append(calibrates)
        settings = dict(text.split("=", 1) for text in overrides)
        label = settings["label"]
        self.made.append((label, comparison.block, comparison.order))
        run = self.folder / f"{len(self.made):02}-{label}"
        # At another moment each: two runs of equal windows are one run and its copy.
        record, traces = make_run(Scenario(run_id=run.name, label=label, order=len(self.made)))
        write_made_run(run, self._judged(record, label), traces)
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
    # The machine may have no drive with power states, and the real preview would refuse them.
    monkeypatch.setattr(loop, "preview_parts", lambda *_: ())
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
    assert not any(runs.calibrating)


def test_first_of_equal_runs_calibrates(runs: Runs, tmp_path: Path) -> None:
    words = [*command(runs, tmp_path)[:3], "label=A", "repeat=3"]
    assert loop.run_all(words, multirun=False, reporter=NoReporter()) == 0
    assert runs.calibrating == [True, False, False]


def test_states_that_are_done_are_not_run_again(runs: Runs, tmp_path: Path) -> None:
    runs.fails.add("PS1")
    loop.run_all(command(runs, tmp_path), multirun=True, reporter=NoReporter())
    runs.fails.clear()
    loop.run_all(command(runs, tmp_path), multirun=True, reporter=NoReporter())
    assert [label for label, _, _ in runs.made[6:]] == ["PS1", "PS1"]


def test_resumed_session_takes_the_calibrations_of_its_finished_runs(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recalled: list[PowerSection] = []
    monkeypatch.setattr(SessionCalibrations, "recall", lambda _, section: recalled.append(section))
    loop.run_all(command(runs, tmp_path), multirun=True, reporter=NoReporter())
    assert recalled == []
    loop.run_all(command(runs, tmp_path), multirun=True, reporter=NoReporter())
    assert recalled == [read_record(run).power for run in sorted(runs.folder.glob("*-PS*"))]


def test_every_run_says_where_it_stands_and_the_end_compares_all(
    runs: Runs, tmp_path: Path
) -> None:
    reporter = NoReporter()
    loop.run_all(command(runs, tmp_path), multirun=True, reporter=reporter)
    assert [(position.number, position.count) for position in reporter.positions] == [
        (number, 6) for number in range(1, 7)
    ]
    assert [position.name for position in reporter.positions[:3]] == ["PS0", "PS1", "PS2"]
    assert reporter.positions[0].left_s is None
    assert all(position.left_s is not None for position in reporter.positions[1:])
    assert [len(compared) for compared in reporter.compared] == [6]
    loop.run_all(command(runs, tmp_path), multirun=True, reporter=reporter)
    assert "6 of 6 runs are not repeated" in reporter.notes
    assert [len(compared) for compared in reporter.compared] == [6, 6]
    assert len(reporter.positions) == 6


def test_a_session_that_breaks_off_says_how_it_goes_on(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(*given: Any, calibrates: bool) -> tuple[Path | None, int]:
        if len(runs.made) == 4:
            raise RunError("the drive is gone")
        return runs.execute(*given, calibrates=calibrates)

    monkeypatch.setattr(loop, "execute", execute)
    with pytest.raises(RunError) as caught:
        loop.run_all(command(runs, tmp_path), multirun=True, reporter=NoReporter())
    (note,) = caught.value.__notes__
    assert "4 of 6 runs finished; the same command resumes it" in note


def test_an_interruption_before_the_run_says_that_there_is_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(*_: Any, calibrates: bool) -> tuple[Path | None, int]:
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "execute", execute)
    words = ["workload=null", f"target.path={tmp_path}", f"runs={tmp_path / 'runs'}"]
    with pytest.raises(KeyboardInterrupt) as caught:
        loop.run_all(words, multirun=False, reporter=NoReporter())
    assert "record      none: the run had not begun" in caught.value.__notes__[0]


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


def _edit_without_sealing(run: Path, other: Path) -> None:
    file = run / RECORD_FILE
    file.write_text(file.read_text().replace('"label": "PS1"', '"label": "PS2"'))


def _copy_another_run(run: Path, other: Path) -> None:
    shutil.rmtree(run)
    shutil.copytree(other, run)


def _copy_another_run_and_rename_it(run: Path, other: Path) -> None:
    _copy_another_run(run, other)
    write_record(read_record(run).model_copy(update={"run_id": run.name}), run)


def _swap_a_trace(run: Path, other: Path) -> None:
    shutil.copy(other / "throughput.parquet", run / "throughput.parquet")


def _cut_short(run: Path, other: Path) -> None:
    file = run / RECORD_FILE
    file.write_bytes(file.read_bytes()[:1000])


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (_edit_without_sealing, "seal failed: The record was edited after the run"),
        (_copy_another_run, "its record is of the run 01-PS0"),
        (_copy_another_run_and_rename_it, "is a second record of the run"),
        (_swap_a_trace, "trace_digest_throughput failed"),
        (_cut_short, "can't be read as a record"),
    ],
)
def test_a_resumed_sweep_repeats_a_run_that_was_tampered_with(
    runs: Runs, tmp_path: Path, tamper: Callable[[Path, Path], None], reason: str
) -> None:
    loop.run_all(command(runs, tmp_path), multirun=True, reporter=NoReporter())
    tampered = runs.folder / "02-PS1"
    tamper(tampered, runs.folder / "01-PS0")
    content = (tampered / RECORD_FILE).read_bytes()
    reporter = NoReporter()
    loop.run_all(command(runs, tmp_path), multirun=True, reporter=reporter)
    assert runs.made[6:] == [("PS1", 0, 1)]
    (note,) = (note for note in reporter.notes if "is not reused" in note)
    assert str(tampered) in note
    assert reason in note
    assert (tampered / RECORD_FILE).read_bytes() == content


def test_the_journal_of_another_user_names_no_run_as_done(runs: Runs, tmp_path: Path) -> None:
    """In a shared folder, anybody can write a journal of made-up runs under the sweep's name."""
    need_second_user()
    loop.run_all(command(runs, tmp_path), multirun=True, reporter=NoReporter())
    made = len(runs.made)
    (journal,) = runs.folder.glob("sweep-*.jsonl")
    os.chown(journal, OTHER, OTHER)
    with pytest.raises(ForeignFileError, match="belongs to nobody"):
        loop.run_all(command(runs, tmp_path), multirun=True, reporter=NoReporter())
    assert len(runs.made) == made


def test_a_run_over_hosts_has_a_key_of_its_own() -> None:
    """The hosts may have equal drives, and one of them may have run alone before."""
    point, alone = Point((), 0, "key"), process_of(LocalCommunicator())
    assert keyed_on_all_hosts([point], alone) == [point]
    ranks = ThreadCommunicator.world(2)
    hosts = [replace(process_of(rank), hosts=("a", "b"), host="ab"[rank.rank]) for rank in ranks]
    first, second = run_ranks(hosts, lambda process: keyed_on_all_hosts([point], process))
    assert first == second != [point]
