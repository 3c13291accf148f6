"""What doctor detail of the I/O engine, on this machine and in a process of fewer rights."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from wattload.cli import doctor
from wattload.cli.findings import Verdict
from wattload.core.errors import MissingExtraError
from wattload.core.host.memory_traffic import NEEDS_PERMISSION, FoundMeter, find_meter
from wattload.core.sysfs import Roots

WITHOUT_RIGHTS = """
import json, os, resource
from dataclasses import asdict
from wattload.cli.doctor import io_findings
list(io_findings())  # with everything imported, a user who may not read this Python's folder does
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
if os.geteuid() == 0:
    os.setuid(65534)
print(json.dumps([asdict(finding) for finding in io_findings()]))
"""


def test_a_refused_ring_reports_why_and_what_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "backend_unavailable", lambda name: f"{name} is switched off")
    (finding,) = doctor.io_findings()
    assert finding.verdict is Verdict.PARTLY
    assert "io_uring is switched off" in finding.detail
    assert "pread" in finding.detail


def test_an_engine_that_is_not_built_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str | None:
        raise MissingExtraError("the I/O engine is not built")

    monkeypatch.setattr(doctor, "backend_unavailable", missing)
    (finding,) = doctor.io_findings()
    assert finding.verdict is Verdict.NO
    assert finding.fix == "make setup"


def test_a_process_of_few_rights_is_shown_how_much_it_may_pin() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RIGHTS], capture_output=True, text=True, check=True
    )
    by_name = {entry["name"]: entry for entry in json.loads(done.stdout)}
    if "locked memory" not in by_name:
        pytest.skip(f"io_uring may not be used here: {by_name['I/O engine']['detail']}")
    assert by_name["locked memory"]["verdict"] == "partly"
    assert "65.54 kB can be pinned" in by_name["locked memory"]["detail"]


def test_without_a_limit_everything_may_be_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(doctor, "backend_unavailable", lambda name: None)
    monkeypatch.setattr(resource, "getrlimit", lambda what: unlimited)
    assert [f.verdict for f in doctor.io_findings()] == [Verdict.YES, Verdict.YES]


def test_the_meter_of_memory_traffic_is_named_with_what_refuses_it() -> None:
    assert doctor.memory_traffic(FoundMeter(None, (NEEDS_PERMISSION,))) == (
        Verdict.PARTLY,
        f"{NEEDS_PERMISSION}; a load counts its own copies",
        "sudo sysctl kernel.perf_event_paranoid=0",
    )
    _, detail, fix = doctor.memory_traffic(FoundMeter(None))
    assert detail.startswith("no counters of the memory controllers")
    assert fix == ""


def test_a_meter_that_counts_is_named(tmp_path: Path) -> None:
    file = tmp_path / "fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes"
    file.parent.mkdir(parents=True)
    file.write_text("1000\n")
    found = find_meter(Roots(sys=tmp_path, proc=tmp_path))
    verdict, detail, _ = doctor.memory_traffic(found)
    assert (verdict, detail.partition(" ")[0]) == (Verdict.YES, "resctrl")
