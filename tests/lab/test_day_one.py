"""In the guest: every command of docs/day-one.md, in the order of the page, on two virtual drives.

What a command prints is compared with what the page shows: each line shown is among the lines
printed, in this order, with other numbers. The lab differs from the page in these things alone:

- the drives have other names, and are formatted at a hundred times their speed;
- ``SMALL``: each run is as small as an emulated processor and drives of some MB/s need; the part
  ``METER`` goes for calibrations, too.

The transcript comes to ``day-one.txt`` in the lab's ``out``, and the runs to ``day-one``.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.commands import ROOT, Shown, shown_on
from tests.lab.connect import attach_virtual
from tests.lab.virtual_runs import (
    CHECK_FAILED,
    FINISHED,
    OUT,
    PREPARING,
    VIRTUAL,
    VirtualDrive,
    controller,
    find_node,
)
from tests.lab.virtual_ssd.design import GEN4, GEN5
from tests.run.running import call_here

pytestmark = [
    pytest.mark.lab,
    pytest.mark.lab_long,
    pytest.mark.skipif(not VIRTUAL, reason="runs in the guest of `make lab-all`"),
]

PAGE = ROOT / "docs" / "day-one.md"
PAGE_DRIVES = ("nvme0", "nvme1")
METER = ("power.allow_system_drive=true", "power.period_s=0.25")
SMALL = (
    *METER,
    "scale=demo",
    "workload.checkpoint_count=2",
    "power.idle_s=2",
    "power.quiet_s=1",
    "power.rest_max_s=4",
    "power.idle_after_s=6",
)
STATE = "/run/wattload-state-day-one"


@pytest.fixture(scope="module")
def drives(tmp_path_factory: pytest.TempPathFactory) -> tuple[VirtualDrive, ...]:
    """Two drives, connected and empty."""
    made = []
    for design, mount_point in ((GEN5, "/mnt/a"), (GEN4, "/mnt/b")):
        folder = tmp_path_factory.mktemp(design.serial)
        attach_virtual(folder, design)
        made.append(
            VirtualDrive(serial=design.serial, folder=folder, mount_point=Path(mount_point))
        )
    return tuple(made)


def test_every_command_prints_what_the_page_shows(
    drives: tuple[VirtualDrive, ...], tmp_path: Path
) -> None:
    """One test, since later commands need what earlier ones made."""
    names = _lab_names(drives)
    (OUT / "day-one.txt").write_text("")
    for shown in shown_on(PAGE):
        printed = "".join(_typed(command, names, drives, tmp_path) for command in shown.commands)
        _compare(shown, printed)


def _lab_names(drives: tuple[VirtualDrive, ...]) -> dict[str, str]:
    """Return the guest's name of each node and controller that the page names, longest first."""
    nodes = {f"/dev/{page}n1": str(find_node(each.serial)) for page, each in _pairs(drives)}
    return nodes | {page: controller(each.serial) for page, each in _pairs(drives)}


def _pairs(drives: tuple[VirtualDrive, ...]) -> Iterator[tuple[str, VirtualDrive]]:
    return zip(PAGE_DRIVES, drives, strict=True)


def _typed(
    command: str, names: dict[str, str], drives: tuple[VirtualDrive, ...], desk: Path
) -> str:
    """Return what a command of the page prints in the guest, with the page's names of drives."""
    typed = [_renamed(word, names) for word in shlex.split(command)]
    for drive in drives:
        drive.ask("speed", factor=PREPARING if typed[0] == "mkfs.ext4" else 1.0)
    if typed[0] == "wattload":
        done = _wattload(typed[1:], desk)
    else:
        done = subprocess.run(typed, capture_output=True, text=True, check=False)
    printed = done.stdout + done.stderr
    assert done.returncode in (FINISHED, CHECK_FAILED), printed
    with (OUT / "day-one.txt").open("a") as transcript:
        transcript.write(f"$ {shlex.join(typed)}\n{printed}\n")
    return printed


def _wattload(words: list[str], desk: Path) -> subprocess.CompletedProcess[str]:
    """Run within this process: an emulated processor would import for longer than it measures."""
    more: tuple[str, ...] = ()
    if words[0] == "run":
        more = SMALL
    elif words[:2] == ["power", "calibrate"]:
        more = METER
    words = [word for word in words if word not in more]
    done = call_here(desk, *words, *more, WATTLOAD_STATE_DIR=STATE)
    if (desk / "runs").exists():  # what a failed test judged can be looked at
        shutil.copytree(desk / "runs", OUT / "day-one", dirs_exist_ok=True)
    return done


def _renamed(word: str, names: dict[str, str]) -> str:
    for page, lab in names.items():
        if page in word:
            return word.replace(page, lab)
    return word


def _compare(shown: Shown, printed: str) -> None:
    """Each line that the page shows is among the lines printed, in this order."""
    lines = iter(printed.splitlines())
    for line in shown.output:
        assert any(_agree(line, each) for each in lines), f"{line!r} is not in:\n{printed}"


def _agree(line: str, printed: str) -> bool:
    """Whether lines differ in numbers alone, and in rates, which a virtual drive keeps, by 10 %.

    A line that the page ends by ``...`` goes on.
    """
    shown, cut, _ = _masked(line).partition(" ...")
    found = _masked(printed)
    if not (found.startswith(shown) if cut else found == shown):
        return False
    return _rates(line) == pytest.approx(_rates(printed)[: len(_rates(line))], rel=0.1)


def _masked(line: str) -> str:
    """Return a line without its numbers, prefixes of SI, names of devices, and alignment."""
    line = re.sub(r"nvme\d+(n\d+)?", "nvme#", line.replace("\u00a0", " "))
    line = re.sub(r"\d[\d.,:]*( ?[kMGTmµn]?(?=(B|B/s|s|J|W|Wh)\b))?", "#", line)
    return " ".join(line.split())


def _rates(line: str) -> list[float]:
    return [float(rate) for rate in re.findall(r"([\d.]+)\sMB/s", line)]
