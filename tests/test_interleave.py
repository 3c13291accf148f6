from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from wattload.axes import product, read_axes
from wattload.compose import compose
from wattload.core.errors import ConfigError
from wattload.core.record.run import WARM_UP_BLOCK
from wattload.interleave import Turn, announcement, session_less, take_turns

BASE = ("workload=null", "scale=demo")
TWO = "target.path=/mnt/a,/mnt/b"


def turns_of(*overrides: str, multirun: bool = True) -> tuple[Turn, ...]:
    axes = read_axes([*BASE, *overrides], multirun=multirun)
    config, _ = compose(next(product(axes)))
    return take_turns(axes, config)


def order_of(turns: tuple[Turn, ...]) -> str:
    return " ".join(turn.arm.lower() if turn.is_warm_up else turn.arm.upper() for turn in turns)


def test_arms_take_turns_as_abba_after_a_warm_up_of_each() -> None:
    turns = turns_of(TWO, "interleave=abba", "repeat=4")
    assert order_of(turns) == "a b A B B A A B B A"
    assert [turn.block for turn in turns] == [-1, -1, 0, 0, 1, 1, 2, 2, 3, 3]


def test_a_linear_drift_weighs_alike_on_both_arms() -> None:
    turns = turns_of(TWO, "interleave=abba", "repeat=6")
    places: Counter[str] = Counter()
    for place, turn in enumerate(turns):
        places[turn.arm] += 0 if turn.is_warm_up else place
    assert places["a"] == places["b"]


def test_every_block_is_one_run_of_each_arm_alike_in_all_else() -> None:
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
        (["power.state=1,0", TWO, "interleave_by=[target.path,power.state]"], {"a-PS1", "b-PS0"}),
        ([TWO, "label=old,new"], {"old", "new"}),
    ],
)
def test_arms_are_the_values_of_what_is_compared(swept: list[str], arms: set[str]) -> None:
    target = [] if TWO in swept else ["target.path=/mnt/a"]
    turns = turns_of(*swept, *target, "interleave=abba", "repeat=2")
    assert {turn.arm for turn in turns} == arms
    for turn in turns:
        config, _ = compose(turn.overrides)
        assert config.label == turn.arm


def test_a_drive_and_its_state_can_be_one_arm() -> None:
    turns = turns_of(
        TWO,
        "power.state=1,0",
        "interleave=abba",
        "repeat=2",
        "interleave_by=[target.path,power.state]",
    )
    sides = {turn.arm: {*turn.overrides} for turn in turns}
    assert {"target.path=/mnt/a", "power.state=1"} <= sides["a-PS1"]
    assert {"target.path=/mnt/b", "power.state=0"} <= sides["b-PS0"]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ([TWO, "repeat=3"], "even number of runs of each arm, got repeat=3"),
        ([TWO], "got repeat=1; give repeat=2 to try it, repeat=6 at least"),
        (["repeat=2"], "none is swept; e.g. wattload run -m target.path=/mnt/a,/mnt/b"),
        (["power.state=0,1,2", "repeat=2"], r"two values that differ, got power\.state=0,1,2"),
        (["power.state=1,1", "repeat=2"], "two values that differ"),
        ([TWO, "loader=direct,torch", "repeat=2"], r"name it, as in interleave_by=target\.path"),
        (["seed=1,2", "accelerator.count=1,2", "repeat=2"], "name it, as in interleave_by=seed"),
        ([TWO, "interleave_by=seed", "repeat=2"], r"names seed, which is not swept"),
        ([TWO, "label=mine", "repeat=2"], "label gives both arms one name"),
        (["label=a,b", "repeat=2"], "that is interleave=aa"),
        ([TWO, "repeat=2,4"], "repeat holds for a whole session"),
        ([TWO, "repeat=2", "start_wait_max_s=1,2"], "start_wait_max_s holds for a whole session"),
        ([TWO, "repeat=2", "workload=unet3d", "sweep=accelerators"], "use sweep=none"),
    ],
)
def test_what_makes_no_two_arms_is_refused_in_one_sentence(overrides: list[str], says: str) -> None:
    target = [] if TWO in overrides else ["target.path=/mnt/a"]
    with pytest.raises(ConfigError, match=says):
        turns_of(*target, *overrides, "interleave=abba")


@pytest.mark.parametrize("other", ["{0}/", "{0}/../a", "{1}/link", "'{0}/'"])
def test_one_folder_written_in_two_ways_is_no_two_arms(tmp_path: Path, other: str) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    paths = f"target.path={folder},{other.format(folder, tmp_path)}"
    with pytest.raises(ConfigError, match="are one folder; give two"):
        turns_of(paths, "interleave=abba", "repeat=2")
    with pytest.raises(ConfigError, match="are one folder"):
        turns_of("target.path=/mnt/none/a,/mnt/none/a/", "interleave=abba", "repeat=2")


def test_lists_of_folders_are_held_against_each_other_folder_by_folder() -> None:
    same = "target.path=[/mnt/a,/mnt/b],[/mnt/a/,/mnt/b/]"
    with pytest.raises(ConfigError, match="are one folder"):
        turns_of(same, "interleave=abba", "repeat=2")
    other = "target.path=[/mnt/a,/mnt/b],[/mnt/a,/mnt/c]"
    assert len(turns_of(other, "interleave=abba", "repeat=2")) == 6


def test_one_setting_against_itself_takes_no_swept_key() -> None:
    with pytest.raises(ConfigError, match="against itself, and loader is swept"):
        turns_of("target.path=/mnt/a", "loader=direct,torch", "interleave=aa", "repeat=2")


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("interleave=abab", "one of none, abba, aa, got 'abab'"),
        ("interleave_by=7", r"got 7; e\.g\. interleave_by=power\.state"),
        ("interleave_by=[]", "several that go together"),
        ("start_wait_max_s=-1", "0 s or more, got -1"),
        ("start_wait_max_s=nan", "0 s or more, got nan"),
    ],
)
def test_a_setting_out_of_range_is_refused(override: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        compose([*BASE, "target.path=/mnt/a", override])


def test_several_values_without_a_sweep_say_how_to_sweep() -> None:
    with pytest.raises(ConfigError, match="wattload run -m runs once with each"):
        compose([*BASE, TWO])


@pytest.mark.parametrize(("repeat", "is_called"), [(2, False), (4, False), (6, True), (8, True)])
def test_too_few_pairs_are_said_to_call_nothing(repeat: int, is_called: bool) -> None:
    turns = turns_of(TWO, "interleave=abba", f"repeat={repeat}")
    text = "\n".join(announcement(turns, repeat))
    assert ("nothing will be called" not in text) == is_called
    assert "2 warm-ups" in text


def test_a_run_by_itself_is_no_session() -> None:
    asked = ("workload=null", "interleave=abba", "repeat=6", "interleave_by=x", "label=a")
    assert session_less(asked) == ("workload=null", "label=a")
