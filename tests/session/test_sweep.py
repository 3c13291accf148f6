"""A sweep over power states: its order, its arms, and what is not repeated."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.context import NoReporter
from tests.records import Scenario, make_run
from wattload.core.record.file import write_record
from wattload.core.record.run import Comparison, RunRecord
from wattload.run.process import ProcessContext
from wattload.session import loop


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
        record, _ = make_run(Scenario(run_id=run.name, label=label))
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
