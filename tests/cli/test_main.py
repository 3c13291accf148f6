"""The command line itself: errors of the system, and names that others have chosen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.run.running import DEADLINE_S, environment
from tests.second_user import as_other, need_second_user
from wattload.__main__ import main


@pytest.mark.parametrize("words", [["clean", "/"], ["run"], ["report", "runs"], ["settings"]])
def test_a_deleted_current_folder_is_one_sentence(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(words) == 2
    assert capsys.readouterr().err == (
        "wattload: the current folder was deleted; change to one that exists, such as `cd ~`\n"
    )


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        (
            "reprot",
            "unknown command reprot; did you mean report? wattload --help lists the commands",
        ),
        ("bogus", "unknown command bogus; wattload --help lists the commands"),
        ("scale=demo", "scale=demo is a setting, not a command; did you mean wattload run scale="),
    ],
)
def test_an_unknown_command_is_answered_with_the_nearest_and_where_all_are_listed(
    word: str, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word]) == 2
    assert answer in capsys.readouterr().err


def test_without_a_command_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "\n    clean     delete wattload's data" in capsys.readouterr().err


def test_a_list_in_an_error_has_a_line_an_entry(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("wattload: no workload given; add workload=NAME")
    assert lines[1].startswith("  checkpoint ")


def test_an_option_without_its_value_is_answered_with_its_choices(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["run", "workload=null", "--cfg"])
    assert capsys.readouterr().err.endswith("error: --cfg needs job, hydra or all\n")


def test_the_configuration_of_a_sweep_is_that_of_each_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["workload=null", "target.path=/mnt/a,/mnt/b", "interleave=abba", "repeat=2"]
    assert main(["run", "-m", "--cfg", "job", "--resolve", *words]) == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [(each["label"], each["target"]["path"]) for each in documents] == [
        ("a", "/mnt/a"),
        ("b", "/mnt/b"),
    ]


def test_an_error_s_file_name_does_not_control_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "\x1b]0;title\x07\N{RIGHT-TO-LEFT OVERRIDE}"
    folder.mkdir()
    (folder / "record.json").write_text("{")
    assert main(["report", str(folder)]) == 2
    reported = capsys.readouterr().err
    assert "\\x1b]0;title\\x07\\u202e" in reported
    assert reported.removesuffix("\n").isprintable()


def test_a_folder_that_the_user_may_not_enter_is_one_sentence(tmp_path: Path) -> None:
    need_second_user()
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "below").mkdir()

    def clean() -> None:
        assert main(["clean", str(closed / "below")]) == 2

    as_other(clean)


INTERRUPTED_IMPORT = """
import importlib.abc, os, signal, sys

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "{module}":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
sys.argv = ["wattload", *sys.argv[1:]]
from wattload.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("words", [["settings"], ["run", "workload=null"], ["--help"]])
@pytest.mark.parametrize("module", ["wattload.core.interrupts", "wattload.cli.main"])
def test_ctrl_c_while_a_command_is_still_imported_is_one_sentence(
    tmp_path: Path, module: str, words: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT.format(module=module), *words],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "wattload: interrupted\n")
