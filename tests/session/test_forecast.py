"""What a session says before its first run: what it takes, what it decides, why it is refused."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from wattload.__main__ import main
from wattload.core.storage.targets import resolve_targets
from wattload.core.sysfs import SECTOR_BYTES

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two folders of one file system, as the words of a command."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    paths = f"target.path={tmp_path}/a,{tmp_path}/b"
    return ["run", "-m", "workload=null", paths, "scale=demo", "power=none", "start_wait_max_s=0"]


def test_folders_of_one_file_system_are_not_compared_as_drives(
    folders: list[str], capsys: Captured
) -> None:
    assert main([*folders, "interleave=abba", "repeat=6"]) == 2
    refusal = capsys.readouterr().err
    assert "a and b are on one " in refusal
    assert "mount the other drive" in refusal
    assert not list(Path("runs").glob("*/record.json"))


def test_what_the_last_run_would_be_refused_for_is_said_before_the_first(
    folders: list[str], capsys: Captured
) -> None:
    words = [f"{word},/sys/kernel" if word.startswith("target") else word for word in folders]
    assert main(words) == 2
    assert "/sys/kernel" in capsys.readouterr().err
    assert not list(Path("runs").glob("*/record.json"))


def test_a_target_that_is_unlike_the_others_is_named_before_the_first_run(
    folders: list[str], capsys: Captured
) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        words = [f"{word},{memory}" if word.startswith("target") else word for word in folders]
        assert main([*words, "--plan"]) == 0
        assert (
            f"warning     {memory}: the target is tmpfs, which is memory" in capsys.readouterr().out
        )


def test_a_plan_has_the_order_the_bytes_and_whether_a_verdict_is_possible(
    folders: list[str], capsys: Captured
) -> None:
    words = [*folders, "workload=unet3d", "interleave=abba", "interleave_by=target.path"]
    assert main([*words, "repeat=2", "--plan"]) == 0
    few = capsys.readouterr().out
    assert "6 runs of unet3d, scale demo" in few
    assert "(a) (b) a b b a" in few
    assert "no: 2 pairs can't show a difference" in few
    assert main([*words, "repeat=6", "--plan", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["verdict"]["can_decide"]
    assert plan["runs"][:4] == ["a, warm-up", "b, warm-up", "a", "b"]
    assert plan["data_bytes"] * 3 * 7 == plan["read_bytes"]  # epochs, and runs of each folder
    assert not list(Path().glob("[ab]/*"))


@pytest.mark.parametrize(
    ("words", "runs"), [(["interleave=abba", "repeat=6"], "14 runs"), (["repeat=6"], "12 runs")]
)
def test_a_plan_of_a_session_that_is_refused_says_both(
    folders: list[str], capsys: Captured, words: list[str], runs: str
) -> None:
    assert main([*folders, *words, "--plan"]) == 2
    captured = capsys.readouterr()
    assert runs in captured.out
    assert "no: a and b are on one " in captured.out
    assert "interleave_by=target.path" in captured.err


def test_too_many_writes_are_refused_once_for_two_folders_of_a_drive(
    folders: list[str], capsys: Captured
) -> None:
    words = [*folders, "workload=checkpoint", "interleave=abba", "interleave_by=target.path"]
    assert main([*words, "repeat=6", "target.max_write_bytes=1000", "--plan"]) == 2
    captured = capsys.readouterr()
    assert "no: these runs are refused" in captured.out
    assert captured.err.count("more than target.max_write_bytes=1000") == 1


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["repeat=3"], "no: 3 runs of each arm can't show a difference: that takes at least 5"),
        (["label=x"], "no: one arm at 2 points, which a report draws as a curve"),
        (["loader=direct,mmap"], "no: a verdict is between two arms, and these runs are 4 arms"),
        (
            ["loader=direct,mmap", "repeat=5", "target.path=a"],
            "possible: 5 runs of each arm; taken",
        ),
        (["interleave=aa", "repeat=6", "target.path=a"], "no: 6 pairs of one setting with itself"),
    ],
)
def test_a_plan_of_a_sweep_says_what_its_runs_decide(
    folders: list[str], capsys: Captured, words: list[str], answer: str
) -> None:
    given = {word.partition("=")[0]: word for word in [*folders, *words]}
    assert main([*given.values(), "--plan"]) == 0
    assert answer in capsys.readouterr().out


def test_the_wear_of_a_drive_is_in_capacities_of_the_drive(
    folders: list[str], capsys: Captured
) -> None:
    (target,) = resolve_targets([Path("a")], host="box", try_direct_io=False)
    if len(target.facts.devices) != 1 or target.facts.controllers:
        pytest.skip("the folders are not on a single drive whose capacity sysfs alone has")
    (device,) = target.facts.devices
    size_bytes = int(Path(f"/sys/class/block/{device}/size").read_text()) * SECTOR_BYTES
    assert main([*folders, "workload=unet3d", "--plan", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["wear"] == {
        device: {"drive_writes": plan["data_bytes"] / size_bytes, "rated_share": None}
    }


def test_a_plan_that_takes_seconds_says_what_it_does(
    folders: list[str], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattload.session.forecast.NOTED_S", 0)
    assert main([*folders, "--plan", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["runs"] == ["a", "b"]
    notes = captured.err.splitlines()
    assert notes[:2] == ["reading the settings of 2 runs", "planning 2 runs"]


def test_a_search_has_no_plan(folders: list[str], capsys: Captured) -> None:
    words = [*folders, "workload=unet3d", "sweep=accelerators", "--plan"]
    assert main(words) == 2
    assert "wattload plan WORKLOAD" in capsys.readouterr().err
