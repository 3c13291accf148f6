"""Interleaved sessions: their schedule, their records, and how they resume."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from tests.context import NoReporter, process_of
from tests.records import Scenario, make_run
from wattload.core.errors import ConfigError
from wattload.core.host.facts import software_facts
from wattload.core.record.file import read_record, write_record
from wattload.core.record.results import Check
from wattload.core.record.run import WARM_UP_BLOCK, Comparison
from wattload.core.storage.targets import Target
from wattload.run.compose import compose, without_session_keys
from wattload.run.process import ProcessContext
from wattload.run.ranks import LocalCommunicator
from wattload.session import interleaving, loop, schedule
from wattload.session.axes import product, read_axes
from wattload.session.forecast import Part
from wattload.session.interleaving import Cooldown, DriveTemperature, Turn, plan_turns
from wattload.session.schedule import Point, SessionJournal

BASE = ("workload=null", "scale=demo")
TWO = "target.path=/mnt/a,/mnt/b"
FOUR = "target.path=/mnt/a,/mnt/b,/mnt/c,/mnt/d"


def turns_of(*overrides: str, multirun: bool = True) -> tuple[Turn, ...]:
    axes = read_axes([*BASE, *overrides], multirun=multirun)
    config, _ = compose(next(product(axes)))
    return plan_turns(axes, config)


def order_of(turns: tuple[Turn, ...]) -> str:
    return " ".join(turn.arm.lower() if turn.is_warm_up else turn.arm.upper() for turn in turns)


def test_arms_take_turns_as_abba_after_a_warm_up_of_each() -> None:
    turns = turns_of(TWO, "interleave=abba", "repeat=4")
    assert order_of(turns) == "a b A B B A A B B A"
    assert [turn.block for turn in turns] == [-1, -1, 0, 0, 1, 1, 2, 2, 3, 3]


def test_more_arms_take_turns_in_order_and_in_reverse() -> None:
    turns = turns_of(FOUR, "interleave=abba", "repeat=4")
    assert order_of(turns) == "a b c d A B C D D C B A A B C D D C B A"
    assert [turn.block for turn in turns[4:]] == [place // 4 for place in range(16)]


@pytest.mark.parametrize("swept", [TWO, FOUR])
def test_a_linear_drift_weighs_equally_on_all_arms(swept: str) -> None:
    turns = turns_of(swept, "interleave=abba", "repeat=6")
    places: Counter[str] = Counter()
    for place, turn in enumerate(turns):
        places[turn.arm] += 0 if turn.is_warm_up else place
    assert len(set(places.values())) == 1


def test_every_block_is_one_run_of_each_arm_equal_in_all_else() -> None:
    turns = turns_of(TWO, "seed=1,2,3", "interleave=abba", "repeat=2")
    blocks: dict[int, list[Turn]] = {}
    for turn in turns:
        if not turn.is_warm_up:
            blocks.setdefault(turn.block, []).append(turn)
    assert sorted(blocks) == list(range(6))
    for pair in blocks.values():
        assert {turn.arm for turn in pair} == {"a", "b"}
        one, other = (
            {text for text in turn.overrides if not text.startswith(("target", "label"))}
            for turn in pair
        )
        assert one == other


def test_points_take_turns_round_by_round_each_with_its_own_warm_ups() -> None:
    turns = turns_of(TWO, "seed=1,2", "interleave=abba", "repeat=4")
    assert [turn.point for turn in turns] == [0] * 6 + [1] * 6 + [0] * 4 + [1] * 4
    assert sum(turn.is_warm_up for turn in turns) == 4


def test_more_repetitions_add_runs_and_move_none() -> None:
    few = turns_of(TWO, "seed=1,2", "interleave=abba", "repeat=2")
    more = turns_of(TWO, "seed=1,2", "interleave=abba", "repeat=6")

    def places(turns: tuple[Turn, ...]) -> list[tuple[str, int, int]]:
        return [(turn.arm, turn.block, turn.point) for turn in turns]

    assert places(more)[: len(few)] == places(few)


def test_one_setting_against_itself_has_two_halves_and_one_warm_up() -> None:
    for multirun in (True, False):
        turns = turns_of("target.path=/mnt/a", "interleave=aa", "repeat=2", multirun=multirun)
        assert [turn.arm for turn in turns] == ["A-1", "A-1", "A-2", "A-2", "A-1"]
        assert len({turn.overrides for turn in turns}) == 1
        assert turns[0].block == WARM_UP_BLOCK


@pytest.mark.parametrize(
    ("swept", "arms"),
    [
        (["power.state=0,1"], {"PS0", "PS1"}),
        (["loader=direct,torch"], {"direct", "torch"}),
        (["seed=1,2"], {"1", "2"}),
        (["accelerator.count=1,2", "power.state=0,1"], {"PS0", "PS1"}),
        (["power.state=0,1", TWO, "interleave_by=power.state"], {"PS0", "PS1"}),
        ([TWO, "label=old,new", "interleave_by=target.path"], {"old", "new"}),
        (["power.state=1,0", TWO, "interleave_by=[target.path,power.state]"], {"a-PS1", "b-PS0"}),
        ([TWO, "label=old,new"], {"old", "new"}),
        (["power.state=0,1,2"], {"PS0", "PS1", "PS2"}),
        ([FOUR, "label=w,x,y,z"], {"w", "x", "y", "z"}),
    ],
)
def test_arms_are_the_values_of_what_is_compared(swept: list[str], arms: set[str]) -> None:
    target = [] if TWO in swept else ["target.path=/mnt/a"]
    turns = turns_of(*swept, *target, "interleave=abba", "repeat=2")
    assert {turn.arm for turn in turns} == arms
    for turn in turns:
        config, _ = compose(turn.overrides)
        assert config.label == turn.arm


def test_an_arm_is_without_a_setting_that_only_the_other_has() -> None:
    fixed = ("target.path=/mnt/a", "loader.mode=auto", "interleave=abba", "repeat=2")
    turns = turns_of("loader=cufile,bounce", *fixed)
    assert {turn.arm: "loader.mode=auto" in turn.overrides for turn in turns} == {
        "cufile": True,
        "bounce": False,
    }


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ([TWO, "repeat=3"], "even number of runs of each arm, got repeat=3"),
        ([TWO], "got repeat=1; use repeat=2 to try it out, at least repeat=6"),
        (["repeat=2"], "no key is swept; e.g. wattload run -m target.path=/mnt/a,/mnt/b"),
        (["power.state=1,0,1", "repeat=2"], r"different values, got power\.state=1,0,1; give each"),
        ([FOUR, "label=w,x", "repeat=2"], r"there are 4 of target\.path and 2 of label; give as"),
        ([TWO, "loader=direct,torch", "repeat=2"], r"choose one, e.g. interleave_by=target\.path"),
        (["seed=1,2", "accelerator.count=1,2", "repeat=2"], "choose one, e.g. interleave_by=seed"),
        ([TWO, "interleave_by=seed", "repeat=2"], r"names seed, which is not swept"),
        ([TWO, "label=mine", "repeat=2"], "label gives all arms the same name"),
        (["label=a,b", "repeat=2"], "use interleave=aa for that"),
        ([TWO, "repeat=2,4"], "repeat applies to a whole session"),
        ([TWO, "repeat=2", "start_wait_max_s=1,2"], "start_wait_max_s applies to a whole session"),
        ([TWO, "repeat=2", "workload=unet3d", "sweep=accelerators"], "use sweep=none"),
    ],
)
def test_what_makes_no_arms_is_refused_in_one_sentence(overrides: list[str], why: str) -> None:
    target = [] if TWO in overrides else ["target.path=/mnt/a"]
    with pytest.raises(ConfigError, match=why):
        turns_of(*target, *overrides, "interleave=abba")


@pytest.mark.parametrize("other", ["{0}/", "{0}/../a", "{1}/link", "'{0}/'"])
def test_one_folder_written_in_two_ways_is_no_two_arms(tmp_path: Path, other: str) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    paths = f"target.path={folder},{other.format(folder, tmp_path)}"
    with pytest.raises(ConfigError, match="are the same folder; give each folder once"):
        turns_of(paths.replace("=", "=/mnt/none,", 1), "interleave=abba", "repeat=2")
    with pytest.raises(ConfigError, match="are the same folder"):
        turns_of("target.path=/mnt/none/a,/mnt/none/a/", "interleave=abba", "repeat=2")


def test_lists_of_folders_are_held_against_each_other_folder_by_folder() -> None:
    same = "target.path=[/mnt/a,/mnt/b],[/mnt/a/,/mnt/b/]"
    with pytest.raises(ConfigError, match="are the same folder"):
        turns_of(same, "interleave=abba", "repeat=2")
    other = "target.path=[/mnt/a,/mnt/b],[/mnt/a,/mnt/c]"
    assert len(turns_of(other, "interleave=abba", "repeat=2")) == 6


def test_one_setting_against_itself_takes_no_swept_key() -> None:
    with pytest.raises(ConfigError, match="with itself, but loader is swept"):
        turns_of("target.path=/mnt/a", "loader=direct,torch", "interleave=aa", "repeat=2")


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("interleave=abab", "one of none, abba, aa, got 'abab'"),
        ("interleave_by=7", r"got 7; e\.g\. interleave_by=power\.state"),
        ("interleave_by=[]", "keys that are swept in"),
        ("start_wait_max_s=-1", "0 to 1000000 s, got -1"),
        ("start_wait_max_s=nan", "a finite number, got nan"),
    ],
)
def test_a_setting_out_of_range_is_refused(override: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        compose([*BASE, "target.path=/mnt/a", override])


def test_several_values_without_a_sweep_say_how_to_sweep() -> None:
    with pytest.raises(ConfigError, match="use wattload run -m to run once with each"):
        compose([*BASE, TWO])


def test_a_run_by_itself_is_no_session() -> None:
    requested = ("workload=null", "interleave=abba", "repeat=6", "interleave_by=x", "label=a")
    assert without_session_keys(requested) == ("workload=null", "label=a")


COLD = Check(name="cold_cache", verdict="fail", sentence="It was warm.", mandatory=True)


@dataclass
class Bench:
    """Runs that are only written down; ``stop_before`` ends the session as a signal would."""

    folder: Path
    made: list[Comparison] = field(default_factory=list)
    calibrating: list[bool] = field(default_factory=list)
    written: list[Path] = field(default_factory=list)
    judged: list[int] = field(default_factory=list)
    stop_before: int | None = None
    fails: set[int] = field(default_factory=set)
    heats: bool = False
    reporter: NoReporter = field(default_factory=NoReporter)

    def execute(
        self,
        _process: ProcessContext,
        overrides: Sequence[str],
        comparison: Comparison,
        *,
        calibrates: bool,
    ) -> tuple[Path, int]:
        self.calibrating.append(calibrates)
        if len(self.made) == self.stop_before:
            raise KeyboardInterrupt
        label = next((text[6:] for text in overrides if text.startswith("label=")), "A")
        run = self.folder / f"{len(self.written):02}-{comparison.arm}"
        record, _ = make_run(Scenario(run_id=run.name, label=label, order=len(self.written)))
        changes: dict[str, object] = {"comparison": comparison}
        if comparison.order in self.fails:
            changes["checks"] = (COLD,)
        run.mkdir(parents=True)
        write_record(record.model_copy(update=changes), run)
        self.made.append(comparison)
        self.written.append(run)
        return run, 3 if comparison.order in self.fails else 0

    def preview_parts(self, _process: ProcessContext, points: Sequence[Point]) -> tuple[Part, ...]:
        self.judged.append(len(points))
        return ()

    def temperatures(self, _targets: Sequence[Target], host: str) -> tuple[DriveTemperature, ...]:
        kelvin = 300 + (len(self.written) if self.heats else 0)
        return (DriveTemperature(host=host, serial="S1", temperature_k=kelvin),)

    def order(self) -> str:
        return " ".join(c.arm.lower() if c.warm_up else c.arm.upper() for c in self.made)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path / "runs")
    process = process_of(LocalCommunicator(), made.reporter)
    monkeypatch.setattr(loop, "start_process", lambda *_: nullcontext(process))
    monkeypatch.setattr(loop, "execute", made.execute)
    monkeypatch.setattr(loop, "preview_parts", made.preview_parts)
    monkeypatch.setattr(interleaving, "Cooldown", partial(Cooldown, read=made.temperatures))
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    return made


def command(bench: Bench, *overrides: str) -> list[str]:
    there = bench.folder.parent
    targets = f"target.path={there / 'a'},{there / 'b'}"
    return ["workload=null", targets, f"runs={bench.folder}", "interleave=abba", *overrides]


def run(bench: Bench, *overrides: str) -> int:
    bench.made.clear()
    return loop.run_all(command(bench, *overrides), multirun=True, reporter=bench.reporter)


def test_every_run_reports_where_it_stands(bench: Bench) -> None:
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


def test_runs_of_a_block_record_its_pauses_without_the_runs_between(bench: Bench) -> None:
    """Written-down runs end at a fixed time long ago: each pause is the same time up to now."""
    there = bench.folder.parent
    (there / "c").mkdir()
    bench.stop_before = 5
    workload, targets, *rest = command(bench, "repeat=2")
    three = [workload, f"{targets},{there / 'c'}", *rest]
    with pytest.raises(KeyboardInterrupt):
        loop.run_all(three, multirun=True, reporter=bench.reporter)
    bench.made.clear()
    bench.stop_before = None
    loop.run_all(three, multirun=True, reporter=bench.reporter)
    assert bench.order() == "a b c C C B A"
    gaps = [record.comparison.pair_gap_s for record in map(read_record, bench.written)]
    block = [gaps[3], gaps[4], gaps[8]]
    assert block[0] is None
    assert block[1] is not None
    assert block[2] == pytest.approx(2 * block[1], rel=1e-3)
    assert any(
        "a, b and c alternate in forward and reverse" in each for each in bench.reporter.notes
    )


@pytest.mark.parametrize(("repeat", "is_called"), [(2, False), (4, False), (6, True), (8, True)])
def test_too_few_pairs_are_said_to_call_nothing(bench: Bench, repeat: int, is_called: bool) -> None:
    assert run(bench, f"repeat={repeat}") == 0
    text = "\n".join(bench.reporter.notes)
    assert ("can't show a difference" not in text) == is_called
    assert "2 warm-ups" in text


def test_meters_are_calibrated_in_warm_ups_alone(bench: Bench) -> None:
    assert run(bench, "repeat=2") == 0
    assert bench.calibrating == [each.warm_up for each in bench.made]


def test_halves_of_one_setting_differ_in_the_arm(bench: Bench) -> None:
    overrides = [
        "workload=null",
        f"target.path={bench.folder.parent / 'a'}",
        f"runs={bench.folder}",
    ]
    status = loop.run_all(
        [*overrides, "interleave=aa", "repeat=2"], multirun=False, reporter=bench.reporter
    )
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
    for file in bench.folder.glob("sweep-*.jsonl"):
        file.unlink()
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
    monkeypatch.setattr(schedule, "software_facts", lambda: facts)
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
    journal = SessionJournal.of_sweep(tmp_path, ["x"])
    journal.path.write_text('{"point": "k1", "folder": "r1"}\n{"point": "k2", "fol')
    journal.add(Point((), 0, "k2"), Path("r2"))
    journal.add(Point((), 0, "k3"), Path("r3"))
    assert journal.path.read_text().splitlines() == [
        '{"point": "k1", "folder": "r1"}',
        '{"point": "k2", "fol',
        '{"point": "k2", "folder": "r2"}',
        '{"point": "k3", "folder": "r3"}',
    ]


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
    with pytest.raises(ConfigError, match="applies to a whole session"):
        loop.run_all(
            [*command(bench)[:-1], "interleave=none,abba", "repeat=2"],
            multirun=True,
            reporter=bench.reporter,
        )
