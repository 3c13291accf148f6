"""A session of turns from its command: its records, and how it goes on where it was cut off."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from tests.context import LocalCommunicator
from tests.records import Scenario, make_run
from wattload import sweep, turns
from wattload.core.errors import ConfigError
from wattload.core.host import software_facts
from wattload.core.record.check import Check
from wattload.core.record.run import Comparison, read_record, write_record
from wattload.core.target import Target
from wattload.life.life import Session
from wattload.life.warmth import Reading
from wattload.sweep import Journal, Point

if TYPE_CHECKING:
    from wattload.life.sampling import Sampling

COLD = Check(name="cold_cache", verdict="fail", sentence="It was warm.", mandatory=True)


@dataclass
class Bench:
    """Runs that are only written down; ``stop_before`` ends the session as a signal would."""

    folder: Path
    made: list[Comparison] = field(default_factory=list)
    written: list[Path] = field(default_factory=list)
    judged: list[int] = field(default_factory=list)
    stop_before: int | None = None
    fails: set[int] = field(default_factory=set)
    heats: bool = False

    def execute(self, overrides: Sequence[str], comparison: Comparison) -> tuple[Path, int]:
        if len(self.made) == self.stop_before:
            raise KeyboardInterrupt
        label = next((text[6:] for text in overrides if text.startswith("label=")), "A")
        run = self.folder / f"{len(self.written):02}-{comparison.arm}"
        record, _ = make_run(Scenario(run_id=run.name, label=label, order=len(self.written)))
        changes = {"comparison": comparison}
        if comparison.order in self.fails:
            changes["checks"] = (COLD,)  # type: ignore[assignment]
        run.mkdir(parents=True)
        write_record(record.model_copy(update=changes), run)
        self.made.append(comparison)
        self.written.append(run)
        return run, 3 if comparison.order in self.fails else 0

    def refuse_wear(self, _here: Session, points: Sequence[Point]) -> None:
        self.judged.append(len(points))

    def temperatures(self, _targets: Sequence[Target], host: str) -> tuple[Reading, ...]:
        kelvin = 300 + (len(self.written) if self.heats else 0)
        return (Reading(host=host, serial="S1", temperature_k=kelvin),)

    def order(self) -> str:
        return " ".join(c.arm.lower() if c.warm_up else c.arm.upper() for c in self.made)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path / "runs")
    leads = cast("Sampling", object())  # the host's leader is the one that has a sampler
    here = Session(communicator=LocalCommunicator(), sampling=leads, host="box")
    facts = software_facts()  # once: a commit while this runs is another program to a journal
    monkeypatch.setattr(sweep, "software_facts", lambda: facts)
    monkeypatch.setattr(turns, "session", lambda _config: here)
    monkeypatch.setattr(turns, "execute", made.execute)
    monkeypatch.setattr(turns, "refuse_wear", made.refuse_wear)
    monkeypatch.setattr(turns, "read_temperatures", made.temperatures)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    return made


def command(bench: Bench, *overrides: str) -> list[str]:
    there = bench.folder.parent
    targets = f"target.path={there / 'a'},{there / 'b'}"
    return ["workload=null", targets, f"runs={bench.folder}", "interleave=abba", *overrides]


def run(bench: Bench, *overrides: str) -> int:
    bench.made.clear()
    return sweep.run_all(command(bench, *overrides), multirun=True, as_json=True)


def test_every_run_says_where_it_stands(bench: Bench) -> None:
    assert run(bench, "repeat=2") == 0
    assert bench.order() == "a b A B B A"
    assert [each.block for each in bench.made] == [-1, -1, 0, 0, 1, 1]
    assert [each.order for each in bench.made] == list(range(6))
    assert [each.pair_gap_s is None for each in bench.made] == [
        True,
        True,
        True,
        False,
        True,
        False,
    ]
    assert [each.start is None for each in bench.made] == [True, True, False, False, False, False]
    assert {each.interleave for each in bench.made} == {"abba"}
    assert {each.command for each in bench.made} == {
        ("wattload", "run", "-m", *command(bench, "repeat=2"))
    }
    (session_id,) = {each.session_id for each in bench.made}
    assert session_id


def test_halves_of_one_setting_are_told_apart_in_the_arm(bench: Bench) -> None:
    overrides = [
        "workload=null",
        f"target.path={bench.folder.parent / 'a'}",
        f"runs={bench.folder}",
    ]
    status = sweep.run_all([*overrides, "interleave=aa", "repeat=2"], multirun=False, as_json=True)
    assert status == 0
    assert bench.order() == "a-1 A-1 A-2 A-2 A-1"
    assert {each.command[:2] for each in bench.made} == {("wattload", "run")}
    assert {each.interleave for each in bench.made} == {"aa"}


@pytest.mark.parametrize("stop_before", range(1, 6))
def test_a_session_goes_on_where_it_was_cut_off(bench: Bench, stop_before: int) -> None:
    bench.stop_before = stop_before
    with pytest.raises(KeyboardInterrupt):
        run(bench, "repeat=2")
    before = list(bench.made)
    bench.stop_before = None
    run(bench, "repeat=2")
    after = [each for each in bench.made if not each.warm_up]
    compared = [*(each for each in before if not each.warm_up), *after]
    assert [(each.order, each.block, each.arm) for each in compared] == [
        (2, 0, "a"),
        (3, 0, "b"),
        (4, 1, "b"),
        (5, 1, "a"),
    ]
    assert len({each.session_id for each in (*before, *after)}) == 1
    assert [each.order for each in bench.made if each.warm_up] == [0, 1]


def test_a_session_that_is_done_runs_nothing(bench: Bench) -> None:
    run(bench, "repeat=2")
    assert run(bench, "repeat=2") == 0
    assert bench.made == []


def test_a_larger_repeat_adds_pairs_to_the_session(bench: Bench) -> None:
    run(bench, "repeat=2")
    first = bench.made[0].session_id
    run(bench, "repeat=4")
    assert bench.order() == "a b A B B A"
    assert [each.block for each in bench.made if not each.warm_up] == [2, 2, 3, 3]
    assert {each.session_id for each in bench.made} == {first}


def test_a_session_without_its_journal_is_another_one(bench: Bench) -> None:
    run(bench, "repeat=2")
    first = bench.made[0].session_id
    for journal in bench.folder.glob("sweep-*.jsonl"):
        journal.unlink()
    run(bench, "repeat=2")
    assert len(bench.made) == 6
    assert first not in {each.session_id for each in bench.made}


def test_a_run_that_failed_a_check_is_made_again_in_its_place(bench: Bench) -> None:
    bench.fails = {3}
    assert run(bench, "repeat=2") == 3
    bench.fails = set()
    assert run(bench, "repeat=2") == 0
    assert bench.order() == "a b B"
    again = bench.made[-1]
    assert (again.order, again.block) == (3, 0)
    assert again.pair_gap_s is not None


def test_drives_that_changed_are_another_session(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(bench, "repeat=2")
    first = bench.made[0].session_id
    facts = software_facts().model_copy(update={"wattload": "9.9.9"})
    monkeypatch.setattr(sweep, "software_facts", lambda: facts)
    run(bench, "repeat=2")
    assert len(bench.made) == 6
    assert bench.made[0].session_id != first


def torn(bench: Bench, line: int) -> str:
    """Tear a line of the journal, the last with its end; return what stood there before."""
    (journal,) = bench.folder.glob("sweep-*.jsonl")
    text = journal.read_text()
    lines = text.splitlines(keepends=True)
    end = "\n" if line >= 0 else ""
    lines[line] = lines[line][: len(lines[line]) // 2] + end
    journal.write_text("".join(lines))
    return text


def test_a_journal_torn_by_a_crash_costs_the_torn_run_alone(bench: Bench) -> None:
    run(bench, "repeat=2")
    text = torn(bench, -1)
    run(bench, "repeat=2")
    assert bench.order() == "a b A"
    session = json.loads(text.splitlines()[0])["session"]
    assert {each.session_id for each in bench.made} == {session}
    run(bench, "repeat=2")
    assert bench.made == []


def test_a_sweep_s_journal_torn_by_a_crash_takes_no_later_line_with_it(tmp_path: Path) -> None:
    journal = Journal.of_sweep(tmp_path, ["x"])
    journal.path.write_text('{"point": "k1", "folder": "r1"}\n{"point": "k2", "fol')
    journal.add(Point((), 0, "k2"), Path("r2"))
    journal.add(Point((), 0, "k3"), Path("r3"))
    assert journal.path.read_text().splitlines() == [
        '{"point": "k1", "folder": "r1"}',
        '{"point": "k2", "fol',
        '{"point": "k2", "folder": "r2"}',
        '{"point": "k3", "folder": "r3"}',
    ]


def test_a_session_whose_first_line_is_torn_has_the_name_that_its_runs_have(bench: Bench) -> None:
    bench.stop_before = 3
    with pytest.raises(KeyboardInterrupt):
        run(bench, "repeat=2")
    bench.stop_before = None
    first = bench.made[0].session_id
    torn(bench, 0)
    run(bench, "repeat=2")
    assert bench.order() == "a b B B A"
    assert {each.session_id for each in bench.made} == {first}
    run(bench, "repeat=4")
    assert {each.session_id for each in bench.made} == {first}


def test_a_session_whose_name_is_lost_says_so_once_and_keeps_its_next(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.stop_before = 0
    with pytest.raises(KeyboardInterrupt):
        run(bench, "repeat=2")
    torn(bench, -1)
    capsys.readouterr()
    bench.stop_before = 4
    with pytest.raises(KeyboardInterrupt):
        run(bench, "repeat=2")
    said = capsys.readouterr().err
    (name,) = {each.session_id for each in bench.made}
    assert f"begins afresh as {name}" in said
    bench.stop_before = None
    run(bench, "repeat=2")
    assert {each.session_id for each in bench.made} == {name}
    assert "afresh as" not in capsys.readouterr().err


def test_the_guard_against_wear_sees_what_is_left_to_run(bench: Bench) -> None:
    run(bench, "repeat=2")
    run(bench, "repeat=4")
    assert bench.judged == [6, 6]


def test_start_temperatures_stand_in_the_records_and_outlive_an_interruption(
    bench: Bench,
) -> None:
    bench.heats = True
    bench.stop_before = 4
    with pytest.raises(KeyboardInterrupt):
        run(bench, "repeat=2", "start_wait_max_s=0")
    bench.stop_before = None
    run(bench, "repeat=2", "start_wait_max_s=0")
    starts = [record.comparison.start for record in map(read_record, bench.written)]
    drives = [each.drives[0] for each in starts if each is not None]
    assert [each.temperature_k for each in drives] == [302, 303, 306, 307]
    assert {each.reference_k for each in drives} == {302}


def test_an_odd_count_is_refused_before_the_first_run(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="even number"):
        run(bench, "repeat=3")
    assert bench.made == []
    assert not bench.folder.exists()


def test_a_sweep_over_ways_to_take_turns_is_refused(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="holds for a whole session"):
        sweep.run_all(
            [*command(bench)[:-1], "interleave=none,abba", "repeat=2"], multirun=True, as_json=True
        )
