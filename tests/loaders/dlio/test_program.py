from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.loaders.dlio.job import processes_that_say
from wattload.core.errors import RunError
from wattload.loaders.dlio import program as module
from wattload.loaders.dlio.program import STDERR, STDOUT, Program
from wattload.loaders.samples import ProcessCounts


def program(folder: Path, code: str) -> Program:
    return Program([sys.executable, "-c", code], folder, os.environ)


def wait_for(path: Path) -> None:
    give_up_s = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < give_up_s
        time.sleep(0.01)


def test_output_and_status_are_kept(tmp_path: Path) -> None:
    started = program(
        tmp_path, "import sys; print('said'); sys.stderr.write('a\\nb\\nc'); sys.exit(3)"
    )
    assert list(started.lines()) == ["a", "b"]
    assert started.status() == 3
    assert (tmp_path / STDERR).read_text() == "a\nb\nc"
    started.end()
    started.end()
    assert (tmp_path / STDOUT).read_text() == "said\n"
    assert started.last_error_line() == "c"


def test_lines_come_as_they_are_written(tmp_path: Path) -> None:
    started = program(
        tmp_path,
        "import pathlib, sys, time\n"
        "for name in 'ab':\n"
        "    print(name, file=sys.stderr, flush=True)\n"
        "    while not pathlib.Path(name).exists(): time.sleep(0.01)",
    )
    for line in started.lines():
        (tmp_path / line).touch()
    assert started.status() == 0
    started.end()


RANK = """
import subprocess, sys
data, code = sys.argv[1], sys.argv[2]
open(data, "rb", buffering=0).read()
print("ready", file=sys.stderr, flush=True)
sys.stdin = open("go")
workers = [subprocess.Popen([sys.executable, "-c", code, data, stay]) for stay in ("0", "600")]
workers[0].wait()
print("done", file=sys.stderr, flush=True)
open("go").read()
workers[1].kill()
"""
WORKER = """
import sys, time
data = bytearray(64 << 20)
sum(range(3_000_000))
open(sys.argv[1], "rb", buffering=0).read()
time.sleep(int(sys.argv[2]))
"""


def counts_from_ready(started: Program, folder: Path) -> ProcessCounts:
    """Return the counts from the line ``ready`` to the next; after each, it waits for ``go``."""
    for line in started.lines():
        if line == "ready":
            started.mark()
        else:
            counts = started.counts()
        (folder / "go").write_text("")
    assert started.status() == 0
    started.end()
    return counts


def test_counts_are_of_the_time_between_and_of_ended_children_too(tmp_path: Path) -> None:
    size_bytes = 5 << 20
    (tmp_path / "data").write_bytes(bytes(size_bytes))
    os.mkfifo(tmp_path / "go")
    command = [sys.executable, "-c", RANK, str(tmp_path / "data"), WORKER]
    counts = counts_from_ready(Program(command, tmp_path, os.environ), tmp_path)
    assert 0.05 < counts.cpu_s < 60
    assert counts.called_bytes is not None
    # What it read before is not counted, what its workers read is.
    assert size_bytes <= counts.called_bytes < 2.9 * size_bytes
    assert counts.storage_bytes is not None
    assert counts.peak_bytes is not None
    assert counts.peak_bytes > 5 << 20


UNREAPED = """
import subprocess, sys
print("ready", file=sys.stderr, flush=True)
sys.stdin = open("go")
child = subprocess.Popen([sys.executable, "-c", 'open("data", "rb", buffering=0).read()'])
while open(f"/proc/{child.pid}/stat").read().rpartition(")")[2].split()[0] != "Z":
    pass
print("ended", file=sys.stderr, flush=True)
open("go").read()
child.wait()
"""


def test_what_a_worker_read_that_nobody_has_waited_for_counts(tmp_path: Path) -> None:
    size_bytes = 5 << 20
    (tmp_path / "data").write_bytes(bytes(size_bytes))
    os.mkfifo(tmp_path / "go")
    counts = counts_from_ready(program(tmp_path, UNREAPED), tmp_path)
    assert counts.called_bytes is not None
    assert size_bytes <= counts.called_bytes < 1.9 * size_bytes


ENDING = """
import subprocess, sys
code = "open('go').read(); open('data', 'rb', buffering=0).read()"
child = subprocess.Popen([sys.executable, "-c", code])
print("ready", file=sys.stderr, flush=True)
child.wait()
print("ended", file=sys.stderr, flush=True)
open("go").read()
"""


def test_what_an_earlier_worker_read_before_its_end_counts(tmp_path: Path) -> None:
    size_bytes = 5 << 20
    (tmp_path / "data").write_bytes(bytes(size_bytes))
    os.mkfifo(tmp_path / "go")
    counts = counts_from_ready(program(tmp_path, ENDING), tmp_path)
    assert counts.called_bytes is not None
    assert size_bytes <= counts.called_bytes < 1.9 * size_bytes


def test_counts_of_a_rank_that_has_ended_are_unknown(tmp_path: Path) -> None:
    started = program(tmp_path, "import pathlib, time; pathlib.Path('up').touch(); time.sleep(600)")
    wait_for(tmp_path / "up")
    started.mark()
    started.end()
    with pytest.raises(RunError, match="ended before their CPU time was read"):
        started.counts()


def test_a_signal_is_a_negative_status(tmp_path: Path) -> None:
    started = program(tmp_path, "import os; os.kill(os.getpid(), 9)")
    assert started.status() == -signal.SIGKILL
    started.end()


def test_ending_it_ends_what_it_started(tmp_path: Path) -> None:
    started = program(
        tmp_path,
        "import subprocess, sys, pathlib, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "pathlib.Path('up').touch(); time.sleep(600)",
    )
    wait_for(tmp_path / "up")
    assert len(processes_that_say(str(tmp_path))) == 3  # with its launcher
    started.end()
    assert processes_that_say(str(tmp_path)) == []


def test_what_outlives_the_program_ends_with_it(tmp_path: Path) -> None:
    started = program(
        tmp_path,
        "import subprocess, sys\n"
        "command = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "subprocess.Popen(command, start_new_session=True)",
    )
    assert started.status() == 0
    assert processes_that_say(str(tmp_path)) == []
    started.end()


def test_what_ignores_a_polite_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_END_TIMEOUT_S", 0.2)
    started = program(
        tmp_path,
        "import signal, pathlib, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "pathlib.Path('up').touch(); time.sleep(600)",
    )
    wait_for(tmp_path / "up")
    started.end()
    assert started.status() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("text", "last"),
    [
        (
            "[INFO] begin\nTraceback (most recent call last):\n  here\n"
            "zipfile.BadZipFile: Bad CRC-32\n\n[INFO] later\nSystemExit: 1\n",
            "zipfile.BadZipFile: Bad CRC-32",
        ),
        ("one\ntwo\n \n", "two"),
        ('out of memory\n  File "x"\n    ^^^^\n^^^^\n', "out of memory"),
    ],
    ids=["exception", "last line", "underlined"],
)
def test_last_words_are_the_exception_or_the_last_line_of_text(
    tmp_path: Path, text: str, last: str
) -> None:
    started = program(tmp_path, f"import sys; sys.stderr.write({text!r})")
    list(started.lines())
    started.end()
    assert started.last_error_line() == last


@pytest.mark.parametrize(
    "order", ["AAAAABBBBB", "ABABABABAB", "AAAABBBBAB", "AAAABBBBBA", "AABBAABBAB", "BAAAABBBBA"]
)
def test_last_words_survive_two_processes_that_write_at_once(tmp_path: Path, order: str) -> None:
    lines = {
        name: iter(
            [
                "Traceback (most recent call last):",
                '  File "/site/zipfile.py", line 1, in read',
                "    raise BadZipFile",
                "    ^^^^^^^^^^^^^^^^",
                "zipfile.BadZipFile: Bad CRC-32",
            ]
        )
        for name in "AB"
    }
    text = "\n".join([*(next(lines[name]) for name in order), "", "    ^^^^^^^^^", "^^^^^^^^", ""])
    started = program(tmp_path, f"import sys; sys.stderr.write({text!r})")
    list(started.lines())
    started.end()
    assert started.last_error_line() == "zipfile.BadZipFile: Bad CRC-32"
