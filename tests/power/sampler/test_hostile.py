"""A sampler that runs as root, with traps in the folders of hostile users.

It survives, serves the next client, and reads and writes nothing that the users could not.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.power.nobody import (
    NOBODY,
    folder_for_all,
    give,
    lines_of,
    needs_root,
    run_of_nobody,
)
from tests.power.sampler.hostile import as_nobody, connect, hello, is_served
from tests.power.sampler_bench import ROOT, Bench, wait_for
from wattload.core.record.file import RECORD_FILE


@pytest.fixture
def bench() -> Iterator[Bench]:
    with folder_for_all() as folder:
        bench = Bench(folder)
        bench.set_up()
        yield bench
        bench.clean()


BECOME = """
import os, sys
from pathlib import Path
from wattload.power.sampler.helper import become
os.setgroups([0, 6])
become(65534, 65534, [65533])
print(os.getgroups(), os.getresuid(), os.getresgid())
Path(sys.argv[1], "made").touch()
for attempt in (lambda: Path(sys.argv[2]).read_text(), lambda: os.setuid(0)):
    try:
        attempt()
    except PermissionError:
        print("closed")
"""


@needs_root
def test_root_s_rights_are_left_behind_for_good() -> None:
    with folder_for_all() as folder:
        give(folder)
        secret = folder / "secret"
        secret.write_text("of root's group")
        secret.chmod(0o640)
        reported = subprocess.run(
            [sys.executable, "-c", BECOME, str(folder), str(secret)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ).stdout.splitlines()
        nobody = (NOBODY, NOBODY, NOBODY)
        assert reported == [f"[65533] {nobody} {nobody}", "closed", "closed"]
        made = (folder / "made").stat()
        assert (made.st_uid, made.st_gid) == (NOBODY, NOBODY)


def pipe_as_draft(run: Path) -> None:
    (run / "draft.json").unlink()
    os.mkfifo(run / "draft.json")


def pipe_as_record(run: Path) -> None:
    os.mkfifo(run / (RECORD_FILE + ".tmp"))


def link_as_record(run: Path) -> None:
    (run / (RECORD_FILE + ".tmp")).symlink_to("/etc/motd")


def endless_draft(run: Path) -> None:
    (run / "draft.json").unlink()
    (run / "draft.json").symlink_to("/dev/zero")


def huge_draft(run: Path) -> None:
    os.truncate(run / "draft.json", 1 << 40)


def deep_draft(run: Path) -> None:
    (run / "draft.json").write_text('{"a":' * 100_000)


def draft_of_half_letters(run: Path) -> None:
    draft = json.loads((run / "draft.json").read_text())
    draft["comparison"]["arm"] = "\ud800"
    (run / "draft.json").write_text(json.dumps(draft))


def pipe_as_journal(run: Path) -> None:
    os.mkfifo(run / "journal-0.jsonl")


def endless_journal(run: Path) -> None:
    (run / "journal-0.jsonl").symlink_to("/dev/zero")


def huge_journal(run: Path) -> None:
    (run / "journal-0.jsonl").touch()
    os.truncate(run / "journal-0.jsonl", 1 << 40)


def deep_journal(run: Path) -> None:
    (run / "journal-0.jsonl").write_text("[" * 100_000 + "\n" + '{"event":' * 100_000 + "\n")


def failure_of_half_letters(run: Path) -> None:
    event = {"event": "failed", "status": "failed", "reason": "\ud800"}
    (run / "journal-0.jsonl").write_text(json.dumps(event) + "\n")


def journal_of_many_beginnings(run: Path) -> None:
    events = [{"event": "begin", "name": f"phase {number}"} for number in range(20_000)]
    (run / "journal-0.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))


def journal_of_newlines(run: Path) -> None:
    (run / "journal-0.jsonl").write_bytes(b"\n" * (14 << 20))


def longer_journal_of_newlines(run: Path) -> None:
    (run / "journal-0.jsonl").write_bytes(b"\n" * (64 << 20))


def journal_without_lines(run: Path) -> None:
    (run / "journal-0.jsonl").write_bytes(b"[" * (64 << 20))


def journal_of_bytes(run: Path) -> None:
    lines = (b"\0" * 100, b"\xff\xfe", b'{"event":"failed","reason":"\0","time_ns":1}')
    (run / "journal-0.jsonl").write_bytes(b"\n".join(lines) + b"\n")


def journal_of_huge_numbers(run: Path) -> None:
    number = "9" * 5000
    (run / "journal-0.jsonl").write_text(f'{{"event":"begin","time_ns":{number}}}\n{number}\n')


def many_journals(run: Path) -> None:
    for rank in range(5000):
        (run / f"journal-{rank}.jsonl").touch()


PLANTED = [
    pipe_as_draft, pipe_as_record, link_as_record, endless_draft, huge_draft, deep_draft,
    draft_of_half_letters, pipe_as_journal, endless_journal, huge_journal, deep_journal,
    failure_of_half_letters, journal_of_many_beginnings, journal_of_newlines,
    longer_journal_of_newlines, journal_without_lines, journal_of_bytes, journal_of_huge_numbers,
    many_journals,
]  # fmt: skip


@pytest.fixture(scope="module")
def trapped() -> Iterator[tuple[Bench, Path]]:
    """A service that meets one trap after another and must survive the last one."""
    with folder_for_all() as folder:
        bench = Bench(folder)
        bench.set_up()
        yield bench, bench.service("--user", str(NOBODY))
        bench.clean()


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_no_file_in_a_run_s_folder_stops_the_sampler(
    trapped: tuple[Bench, Path], plant: Callable[[Path], None]
) -> None:
    bench, path = trapped
    run = bench.add_run(f"run-{plant.__name__}")
    plant(run)
    if os.geteuid() == 0:
        give(run, *run.iterdir())
        as_nobody(path, hello(run.name), {"command": "abort", "status": "failed", "reason": "r"})
    else:
        client = connect(bench, path)
        client.hello(run.name)
        client.abort("failed", "r")
    is_served(bench, path)
    record = run / RECORD_FILE
    if record.exists():
        assert stat.S_ISREG(record.lstat().st_mode)
        assert record.stat().st_size < 1 << 20
    status = Path(f"/proc/{bench.processes[0].pid}/status").read_text()
    (highest,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    assert int(highest.split()[1]) < 300 << 10, "KiB of the service, whatever its clients plant"


@needs_root
def test_link_to_root_s_file_is_neither_read_nor_written(bench: Bench) -> None:
    path = bench.service("--user", str(NOBODY))
    secret = bench.add_run("of-root")
    (secret / "draft.json").chmod(0o600)
    run = run_of_nobody(bench, "mine")
    (run / "draft.json").unlink()
    os.link(secret / "draft.json", run / "draft.json")
    victim = bench.folder / "victim"
    victim.write_text("root's")
    (run / "samples-host-1.jsonl").symlink_to(victim)
    opened: dict[str, object] = {
        "command": "open", "request": {"source": "none"}, "devices": [], "block_devices": [],
    }  # fmt: skip
    answers = as_nobody(path, hello("mine"), opened, {"command": "start"})
    assert [answer["ok"] for answer in answers] == [True, True, False]
    wait_for(lambda: any("has no record" in line for line in lines_of(bench)))
    assert not (run / RECORD_FILE).exists()
    assert victim.read_text() == "root's"


@needs_root
def test_run_folder_that_its_user_may_not_enter_is_a_refusal(bench: Bench) -> None:
    path = bench.service("--user", str(NOBODY))
    run_of_nobody(bench, "mine")
    bench.runs.chmod(0o700)
    (answer,) = as_nobody(path, hello("mine"))
    assert "is not available (Permission denied)" in str(answer["error"])
    is_served(bench, path)


TRACE = "# evidence: measured\ntime_s,power_w\n0,10\n3600,10\n"


@needs_root
def test_replayed_trace_is_read_with_the_rights_of_the_run_s_user(bench: Bench) -> None:
    path = bench.service("--user", str(NOBODY))
    run = run_of_nobody(bench, "mine")
    secret, own = run / "secret", run / "own"
    for each in (secret, own):
        each.write_text(TRACE)
        each.chmod(0o600)
    give(own)
    opened: dict[str, object] = {
        "command": "open",
        "request": {"source": "replay", "replay": {"path": "replay-own.csv"}},
        "devices": ["nvme0"],
        "block_devices": [],
    }
    secret.rename(run / "replay-own.csv")
    _, answer = as_nobody(path, hello("mine"), opened)
    assert "can't be replayed: Permission denied" in str(answer["error"])
    (run / "record.json").unlink(missing_ok=True)
    own.rename(run / "replay-own.csv")
    wait_for(lambda: as_nobody(path, hello("mine"), opened)[1]["ok"] is True)
