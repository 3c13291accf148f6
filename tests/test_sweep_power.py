"""A sweep over power states: its order, its arms, and what is not run again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.records import Scenario, make_run
from wattload import sweep
from wattload.core.record.run import Comparison, RunRecord, write_record


@dataclass
class Runs:
    """Runs that are only written down."""

    folder: Path
    made: list[tuple[str, int, int]] = field(default_factory=list)
    fails: set[str] = field(default_factory=set)

    def execute(
        self, overrides: tuple[str, ...], comparison: Comparison
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
    monkeypatch.setattr(sweep, "execute", made.execute)
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
    assert sweep.run_all(command(runs, tmp_path), multirun=True, as_json=True) == 0
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
    sweep.run_all(command(runs, tmp_path), multirun=True, as_json=True)
    runs.fails.clear()
    sweep.run_all(command(runs, tmp_path), multirun=True, as_json=True)
    assert [label for label, _, _ in runs.made[6:]] == ["PS1", "PS1"]
