"""Nothing that others have named controls the terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run.running import call_here, environment
from wattload.cli.escapes import escaped, printable

EVIL = "\x1b]0;title\x07\x9b31m\N{RIGHT-TO-LEFT OVERRIDE}x"
SHOWN = ("\\x1b]0;title", "\\x9b31m\\u202e")
"""Some texts pass through rich, which drops BEL."""


def on_terminal(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run a command on a terminal; return its status and all that it wrote there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "wattload", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env={**environment(folder), "TERM": "xterm", "COLUMNS": "200"},
        start_new_session=True,
    )
    os.close(theirs)
    output = b""
    try:
        while more := os.read(ours, 1 << 16):
            output += more
    except OSError:  # how the end of a terminal is read
        pass
    os.close(ours)
    return process.wait(), output.decode()


def check(words: str) -> None:
    for shown in SHOWN:
        assert shown in words
    for sign in ("\x1b]", "\x07", "\x9b", "\N{RIGHT-TO-LEFT OVERRIDE}"):
        assert sign not in words


def test_a_path_and_a_label_do_not_control_the_terminal(tmp_path: Path) -> None:
    target = tmp_path / EVIL
    target.mkdir()
    given = ["workload=null", "power=none", "scale=demo", f"target.path={target}", f"label={EVIL}"]
    status, words = on_terminal(tmp_path, "run", *given)
    assert status == 0, words
    check(words)
    assert "\x1b[1m" in words  # our own colours stay
    for command in ("devices", "clean"):
        check(on_terminal(tmp_path, command, str(target))[1])


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "workload=null", f"target.path=/no/{EVIL}"],
        ["run", f"workload={EVIL}"],
        ["run", f"--{EVIL}"],
        ["run", "--debug", "workload=null", f"target.path=/no/{EVIL}"],
        ["clean", f"/no/{EVIL}"],
    ],
)
def test_an_error_does_not_control_the_terminal(tmp_path: Path, arguments: list[str]) -> None:
    status, words = on_terminal(tmp_path, *arguments)
    assert status in (1, 2)
    check(words)


def test_json_stays_json(tmp_path: Path) -> None:
    runs = tmp_path / EVIL
    given = ["workload=null", "power=none", "scale=demo", f"target.path={tmp_path}", f"runs={runs}"]
    done = call_here(tmp_path, "run", "--json", *given)
    assert Path(json.loads(done.stdout)["record"]).is_relative_to(runs)


def test_visible_text_stays_and_lines_only_where_they_are_meant() -> None:
    for text in ("ü 日本 שלום", "👩\u200d👩\u200d👧", "1\u202f000 MB", "a\tb"):
        assert printable(text) == escaped(text) == text
    assert printable("a\nb\r") == "a\\nb\\r"
    assert escaped("a\nb\r\n") == "a\nb\\r\n"
