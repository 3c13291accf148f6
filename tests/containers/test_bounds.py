"""What bounds a run in a container is in its record, on the console, on the page and in doctor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.containers.engine import IMAGE, ORDINARY_USER, docker
from wattload.core.record.file import read_record

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("images")]

LIMITS = ("--cpu-period=5000", "--cpu-quota=1000", "--memory=512m")
"""The quota of 1 ms is less than a process gets at once, so that it counts on a busy host, too."""


def limited(host: Path, *command: str, limits: tuple[str, ...] = LIMITS) -> str:
    """Return what wattload prints in a container with limits, which must not refuse to run."""
    done = docker(
        *("run", "--rm", "--network=none", f"--user={ORDINARY_USER}", *limits),
        *("--volume", f"{host / 'target'}:/target", "--volume", f"{host / 'runs'}:/wattload/runs"),
        *(IMAGE, *command),
    )
    assert done.returncode in (0, 3), done.stdout + done.stderr
    return done.stdout


def test_limits_bound_the_workers_and_are_named_where_they_matter(host: Path) -> None:
    said = limited(host, "run", "workload=dlrm", "scale=demo", "label=limited")
    assert "a quota of 0.2 CPUs" in said
    (folder,) = (host / "runs").glob("*-dlrm-limited-*")
    record = read_record(folder)
    assert record.workload.facts["workers"] == 1
    (machine,) = record.hosts
    assert machine.facts.container == "docker"
    assert machine.facts.cgroup_cpu_limit == 0.2
    assert machine.facts.cgroup_memory_limit_bytes == 512 << 20
    assert machine.after is not None
    before_s, after_s = machine.before.group.throttled_s, machine.after.group.throttled_s
    assert before_s is not None
    assert after_s is not None
    (check,) = [each for each in record.checks if each.name == "cpu_throttled"]
    # The kernel counts it for the whole container, and each process in its phases.
    assert 0 < float(check.figures["throttled_s"] or 0) <= after_s - before_s
    assert machine.before.group.memory_bytes
    limited(host, "report", f"runs/{folder.name}", "-o", "runs/limited.html")
    text = (host / "runs" / "limited.html").read_text()
    assert "CPU quota" in text
    assert "memory limit" in text


def test_doctor_names_a_quota(host: Path) -> None:
    said = limited(host, "doctor", "--json", limits=("--cpus=0.8",))
    found = {each["name"]: each for each in json.loads(said)}
    assert found["CPU quota"]["verdict"] == "partly"
    assert found["CPU quota"]["detail"].startswith("0.8 of ")
    assert found["CPU quota"]["detail"].endswith("workers=0 starts 1")
