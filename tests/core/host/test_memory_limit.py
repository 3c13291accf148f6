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
from wattload.core.host.memory_group import (
    LimitPlace,
    LimitProbe,
    limit_that_killed,
    memory_group,
    probe,
    remove_left_groups,
)
from wattload.core.sysfs import Roots
from wattload.core.units import MIB
from wattload.loaders.data.cold_cache import evict

LIMIT = 32 * MIB
HERE = probe()
real = pytest.mark.skipif(HERE.place is None, reason=HERE.reason or "")

START = f"""
import json, os, subprocess, sys
from wattload.core.host.memory_group import memory_group
from wattload.core.interrupts import interruptible

LIMIT = {LIMIT}

def groups(pid="self"):
    return open(f"/proc/{{pid}}/cgroup").read()

def say(**facts):
    print(json.dumps(facts), flush=True)

outside, before = groups(), subprocess.Popen(["cat"], stdin=subprocess.PIPE)
with interruptible():
    with memory_group() as memory:
"""

READ = """
kept = bytearray(2 * LIMIT)
within = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
own = memory.own_bytes()
memory.limit(own + LIMIT)
hits = memory.hits()
with open(sys.argv[1], "rb", buffering=0) as file:
    while file.read(1 << 20):
        pass
say(method=memory.method, is_inside=groups() != outside, own=own, own_after=memory.own_bytes(),
    hits=hits, hits_after=memory.hits(), stalled_s=memory.stalled_s(),
    has_earlier_child=groups(before.pid) != outside, has_later_child=groups(within.pid) == groups())
memory.lift()
more = bytearray(4 * LIMIT)
say(peak=memory.peak_bytes())
"""
AFTER = """
say(is_back=groups() == outside == groups(within.pid))
for child in (before, within):
    child.communicate()
"""
KILLED = "say()\nmemory.limit(memory.own_bytes() + LIMIT)\nkept = bytearray(2 * LIMIT)"


def start(within: str, after: str = "", *arguments: str) -> subprocess.Popen[str]:
    """Start a process that runs ``within`` in a group, then ``after``."""
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
    killed = start(KILLED)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert groups_of(killed, found)
    allowed = limit_that_killed(killed.pid)
    assert allowed is not None
    assert LIMIT <= allowed < 3 * LIMIT
    remove_left_groups()
    assert not groups_of(killed, found)
    assert limit_that_killed(killed.pid) is None
    process = start(READ, AFTER, str(path))
    within, peak, after = said_by(process)
    own, own_after = within.pop("own"), within.pop("own_after")
    assert 2 * LIMIT <= own < 3 * LIMIT
    assert own_after == pytest.approx(own, abs=LIMIT // 2)  # the page cache is not its own
    hits, hits_after, stalled_s = (within.pop(name) for name in ("hits", "hits_after", "stalled_s"))
    if found.place.method == "cgroup1":
        assert (hits, hits_after, stalled_s) == (None, None, None)
    else:
        assert hits_after > hits
        assert stalled_s is not None
    assert within == {
        "method": found.place.method,
        "is_inside": True,
        "has_earlier_child": False,
        "has_later_child": True,
    }
    assert peak["peak"] > own + 4 * LIMIT
    assert after["is_back"]
    assert not groups_of(process, found)


@real
def test_the_page_cache_stays_under_the_limit_and_what_the_process_has_is_not_counted(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 * LIMIT))
    evict([path])
    check_limit(HERE, path)


@real
def test_the_next_command_removes_the_group_of_a_killed_run(tmp_path: Path) -> None:
    killed = start(KILLED)
    killed.communicate(timeout=60)
    assert groups_of(killed)
    words = [sys.executable, "-m", "wattload", "clean", "."]
    subprocess.run(words, cwd=tmp_path, capture_output=True, check=False, timeout=60)
    assert not groups_of(killed)


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
    ],
)
def test_the_reason_says_what_is_missing_and_how_to_get_it(
    tmp_path: Path, files: Mapping[str, str], reason: str
) -> None:
    roots = tree(tmp_path, "0::/\n", files)
    with memory_group(roots) as memory:
        memory.limit(LIMIT)
        assert memory.method is None
        assert memory.limit_bytes is None
        assert memory.peak_bytes() is None
        assert memory.own_bytes() is None
    assert re.search(reason, memory.reason or "")


@pytest.mark.parametrize(("oom", "limit_bytes"), [(1, LIMIT), (0, None)])
def test_a_kill_at_the_limit_of_an_outer_group_is_none_of_ours(
    tmp_path: Path, oom: int, limit_bytes: int | None
) -> None:
    files = {
        "cgroup.subtree_control": "memory\n",
        "wattload-memory-77-1/memory.max": f"{LIMIT}\n",
        "wattload-memory-77-1/memory.events": f"max 3\noom {oom}\noom_kill 1\n",
    }
    assert limit_that_killed(77, tree(tmp_path, "0::/\n", files)) == limit_bytes


NESTED = """
memory.limit(memory.own_bytes() + LIMIT)
with memory_group() as inner:
    inner.limit(1 << 40)
    say(method=inner.method, reason=inner.reason, limit=inner.limit_bytes)
"""


@real
@pytest.mark.skipif(
    HERE.place is not None and HERE.place.method == "cgroup2",
    reason="version 2 has no group below one with processes",
)
def test_a_lower_limit_outside_leaves_none_and_says_so() -> None:
    [said] = said_by(start(NESTED))
    assert (said["method"], said["limit"]) == (None, None)
    assert re.search(r"limited to .*, less than the 1.10 TB of the run; raise", said["reason"])
