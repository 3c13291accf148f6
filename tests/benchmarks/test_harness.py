"""What the suite itself costs is measured over whole windows and whole processes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from benchmarks import harness


@pytest.mark.slow
def test_the_samplers_share_is_its_own_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "SAMPLER_WINDOW_S", 0.3)
    shares = harness._sampler_shares(2)
    assert len(shares) == 2
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
    assert len(harness._seconds([str(script)], 3)) == 3
    assert len(log.read_text().splitlines()) == 4
