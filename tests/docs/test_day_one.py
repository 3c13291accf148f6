"""docs/day-one.md shows what its commands print; the lab types them all."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.docs.commands import ROOT, shown_on
from tests.run.running import call_here

PAGE = ROOT / "docs" / "day-one.md"
OF_DRIVES = ("wear", "waits")  # by the capacities and meters of the drives


def test_the_plan_of_the_session_is_as_shown(tmp_path: Path) -> None:
    """For folders here instead of drives, which are compared on purpose, whatever they hold."""
    (shown,) = (each for each in shown_on(PAGE) if "--plan" in each.commands[0])
    words = shlex.split(shown.commands[0].replace("/mnt", str(tmp_path)))[1:]
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    more = ("interleave_by=target.path", "target.max_write_bytes=1000000000000")
    done = call_here(tmp_path, *words, *more)
    assert done.returncode == 0, done.stderr
    lines = {" ".join(line.split()) for line in done.stdout.splitlines()}
    for line in shown.output:
        assert line.split()[0] in OF_DRIVES or " ".join(line.split()) in lines


def test_the_bytes_on_each_drive_are_half_of_the_plan() -> None:
    (shown,) = (each for each in shown_on(PAGE) if "--plan" in each.commands[0])
    (reads,) = (line.split()[1] for line in shown.output if line.split()[0] == "reads")
    told = f"reads and writes {int(reads) // 2} GB on each drive"
    for page in (PAGE, ROOT / "README.md"):
        assert told in " ".join(page.read_text("utf-8").split())
