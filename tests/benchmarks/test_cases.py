"""Every benchmark really runs, on very little; its figures mean nothing here."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from benchmarks import blockio, harness, jobs, measure
from wattload.core.units import MIB

pytestmark = pytest.mark.slow


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_direct_io_is_compared_with_fio_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blockio, "FILE_BYTES", 4 * MIB)
    results = list(blockio.measure(tmp_path))
    assert [result.name for result in results] == ["direct read ÷ fio", "direct write ÷ fio"]
    assert [result.missing for result in results] == [None, None]
    assert [len(result.values) for result in results] == [measure.ROUND_COUNT] * 2
    assert not list(tmp_path.rglob("*.bin"))


def test_without_fio_the_table_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blockio, "FILE_BYTES", MIB)
    monkeypatch.setenv("PATH", "/nonexistent")
    missing = {result.missing for result in blockio.measure(tmp_path)}
    assert missing == {"fio is not installed (apt-get install fio)"}


def test_a_figure_comes_from_the_runs_own_record(tmp_path: Path) -> None:
    options = ["workload=checkpoint", "scale=demo", "power=none"]
    options += [f"target.path={tmp_path}", f"runs={tmp_path / 'runs'}"]
    assert jobs._figure(options, "write_bytes_per_s") > 0


def test_a_run_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(measure.NotMeasuredError, match="nowhere"):
        jobs._figure(["workload=null", f"target.path={tmp_path / 'nowhere'}"], "x")


def test_a_record_without_the_figure_is_named(tmp_path: Path) -> None:
    options = ["workload=null", f"target.path={tmp_path}", f"runs={tmp_path / 'runs'}"]
    with pytest.raises(measure.NotMeasuredError, match="has no samples_per_s"):
        jobs._figure([*options, "power=none"], "samples_per_s")


def test_the_samplers_share_is_its_own_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "SAMPLER_WINDOW_S", 0.3)
    shares = harness._sampler_shares()
    assert len(shares) == measure.ROUND_COUNT
    assert all(0 < share < 100 for share in shares)


def test_cpu_time_grows_with_work() -> None:
    before_ns = harness._cpu_ns(os.getpid())
    deadline_s = time.process_time() + 0.05
    while time.process_time() < deadline_s:
        pass
    assert harness._cpu_ns(os.getpid()) - before_ns >= 40_000_000


def test_the_first_start_is_not_counted(tmp_path: Path) -> None:
    log = tmp_path / "starts"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\necho started >> {log}\n")
    script.chmod(0o755)
    assert len(harness._seconds([str(script)])) == measure.ROUND_COUNT
    assert len(log.read_text().splitlines()) == measure.ROUND_COUNT + 1
