"""The step of a GPU's clock, by an emulated GPU: latencies of few steps are not reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.loaders.block_plans import plan_of, stamped_file
from tests.loaders.gpu_queue.emulated_gpu import ADDRESS, install
from tests.loaders.gpu_queue.plans import read
from wattload.loaders.block_reads import ReadResult

STEP_NS = 10**7
Made = Callable[..., ReadResult]


@pytest.fixture
def made(tmp_path: Path, emulated: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Makes reads by the emulated GPU, whose clock may have steps."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(emulated))
    install(monkeypatch)
    plan = plan_of(stamped_file(tmp_path / "file", gpu=ADDRESS))

    def run(step_ns: int, **settings: Any) -> ReadResult:
        monkeypatch.setenv("EMULATED_CLOCK_STEP_NS", str(step_ns))
        return read(plan, tmp_path, requester="gpu", **settings)[0]

    return run


@pytest.mark.parametrize("settings", [{}, {"engine": "memory"}, {"cache_bytes": 1 << 18}])
def test_latencies_of_few_steps_are_not_known(made: Made, settings: dict[str, Any]) -> None:
    result = made(STEP_NS, **settings)
    assert result.operations > 0
    assert result.clock_step_ns is not None
    assert result.clock_step_ns % STEP_NS == 0
    assert result.latency is None
    assert "the GPU's clock has steps of 10000000 ns: fewer than 20" in result.latency_missing


def test_latencies_of_many_steps_are_known(made: Made) -> None:
    result = made(1)
    assert result.latency is not None
    assert result.latency_missing == ""
    assert 0 < (result.clock_step_ns or 0) < 10**5


def test_without_a_gpu_there_is_no_step(tmp_path: Path) -> None:
    result, _ = read(plan_of(stamped_file(tmp_path / "file")), tmp_path)
    assert result.clock_step_ns is None
    assert result.latency is not None
