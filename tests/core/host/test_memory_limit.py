"""A memory limit of our own: for real where this machine allows it, else on made-up trees."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.data.sysfs.tree import write
from wattload.core.host.cgroups import LimitPlace, LimitProbe, limited_memory, probe
from wattload.core.sysfs import Roots
from wattload.core.units import MIB
from wattload.loaders.data.cold_cache import evict

LIMIT = 32 * MIB
HERE = probe()
real = pytest.mark.skipif(HERE.place is None, reason=HERE.reason or "")

START = f"""
import json, os, subprocess, sys
from wattload.core.host.cgroups import limited_memory
from wattload.core.interrupts import interruptible

def groups(pid="self"):
    return open(f"/proc/{{pid}}/cgroup").read()

def say(**facts):
    print(json.dumps(facts), flush=True)

outside, before = groups(), subprocess.Popen(["cat"], stdin=subprocess.PIPE)
with interruptible():
    with limited_memory({LIMIT}) as memory:
"""

READ = """
say(remarks=memory.remarks)
within = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
free = memory.available_bytes()
with open(sys.argv[1], "rb", buffering=0) as file:
    while file.read(1 << 20):
        pass
say(method=memory.method, is_inside=groups() != outside, free=free, oom_kills=memory.oom_kills(),
    free_after=memory.available_bytes(), has_earlier_child=groups(before.pid) != outside,
    has_later_child=groups(within.pid) == groups())
"""
AFTER = """
say(peak=memory.peak_bytes(), is_back=groups() == outside == groups(within.pid))
for child in (before, within):
    child.communicate()
"""


def start(within: str, after: str = "", *arguments: str) -> subprocess.Popen[str]:
    """Start a process that runs ``within`` under the limit, then ``after``."""
    inside = "".join(f"        {line}\n" for line in within.splitlines())
    return subprocess.Popen(
        [sys.executable, "-c", START + inside + after, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def groups_of(process: subprocess.Popen[str], found: LimitProbe = HERE) -> list[Path]:
    assert found.place is not None
    return list(found.place.parent.glob(f"wattload-memory-{process.pid}-*"))


def said_by(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return [json.loads(line) for line in said.splitlines()]


def check_limit(found: LimitProbe, path: Path) -> None:
    """Read a file larger than the limit under it, after a run that the kernel has killed."""
    assert found.place is not None, found.reason
    killed = start("say()\nmemory = bytearray(4 * memory.limit_bytes)")
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert groups_of(killed, found)
    process = start(READ, AFTER, str(path))
    first, within, after = said_by(process)
    assert not groups_of(killed, found)
    assert any(f"process {killed.pid}, was killed" in remark for remark in first["remarks"])
    free, free_after = within.pop("free"), within.pop("free_after")
    assert LIMIT // 2 < free <= LIMIT
    assert LIMIT // 2 < free_after <= LIMIT  # the page cache gives way
    assert within == {
        "method": found.place.method,
        "is_inside": True,
        "oom_kills": 0,
        "has_earlier_child": False,
        "has_later_child": True,
    }
    assert after["is_back"]
    assert LIMIT // 2 < after["peak"] <= LIMIT
    assert not groups_of(process, found)


@real
def test_page_cache_stays_under_the_limit_and_the_end_of_a_killed_run_is_told(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 * LIMIT))
    evict([path])
    check_limit(HERE, path)


@real
def test_the_group_goes_at_an_interruption_and_an_error() -> None:
    process = start("say()\nwhile True: pass")
    assert process.stdout is not None
    process.stdout.readline()
    assert groups_of(process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert not groups_of(process)
    failed = start("raise OSError(5, 'made up')")
    assert "made up" in failed.communicate(timeout=60)[1]
    assert not groups_of(failed)


V2 = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
OWN = "0::/user.slice/run.scope\n"
CONTROLLERS = {"cgroup.controllers": "cpu memory\n"}


def tree(folder: Path, groups: str, files: Mapping[str, str], own: str = "") -> Roots:
    """Return version 2 where ``own`` has this process and each group lists its members."""
    write(folder / "proc/self/mountinfo", V2)
    write(folder / "proc/self/cgroup", groups)
    write(folder / f"sys/fs/cgroup/{own}/cgroup.procs", f"1\n{os.getpid()}\n")
    for path, text in (CONTROLLERS | dict(files)).items():
        write(folder / "sys/fs/cgroup" / path, text)
    return Roots(sys=folder / "sys", proc=folder / "proc")


def test_version_2_goes_beside_the_own_group_where_the_controller_is_on(tmp_path: Path) -> None:
    files = {
        "user.slice/cgroup.subtree_control": "cpu memory\n",
        "user.slice/cgroup.procs": "",
        "user.slice/run.scope/cgroup.subtree_control": "",
        "cgroup.subtree_control": "cpu memory\n",
    }
    roots = tree(tmp_path, OWN, files, "user.slice/run.scope")
    parent = roots.sys / "fs/cgroup/user.slice"
    place = LimitPlace(method="cgroup2", own=parent / "run.scope", parent=parent)
    assert probe(roots).place == place


def test_version_2_enables_the_controller_at_the_root_alone(tmp_path: Path) -> None:
    roots = tree(tmp_path, "0::/\n", {"cgroup.subtree_control": ""})
    top = roots.sys / "fs/cgroup"
    place = LimitPlace(method="cgroup2", own=top, parent=top, enables=True)
    assert probe(roots).place == place


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"cgroup.controllers": "cpu\n"}, "no control groups with the memory controller .*Docker"),
        ({"cgroup.type": "domain\n"}, "none below this container's own.*--cgroupns=host"),
        ({"cgroup.procs": "1\n"}, "is not this process's control group.*--cgroupns=host"),
        (
            {"cgroup.subtree_control": "memory\n", "memory.max": "1048576\n"},
            "limited to 1.05 MB, less than the 33.55 MB of the run; raise that limit",
        ),
    ],
)
def test_the_reason_says_what_is_missing_and_how_to_get_it(
    tmp_path: Path, files: Mapping[str, str], reason: str
) -> None:
    roots = tree(tmp_path, "0::/\n", files)
    with limited_memory(LIMIT, roots) as memory:
        assert memory.method is None
        assert memory.peak_bytes() is None
        assert memory.available_bytes() is None
    assert re.search(reason, memory.reason or "")
