"""The bare rings that the queue is compared with."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import gpu_queue
from benchmarks.gpu_queue import CPU, GPU, PAPER
from benchmarks.measure import NotMeasuredError


def test_a_bare_ring_answers_whole_warps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_queue, "SECONDS", 0.1)
    ring = gpu_queue.build_ring(tmp_path, CPU)
    small = replace(PAPER, requesters=32, queue_pairs=1, queue_size=32)
    for shape in (PAPER, small, replace(PAPER, pollers=3)):
        assert gpu_queue.bare_ring(ring, shape)["reads_per_s"] > 0
    with pytest.raises(NotMeasuredError, match="an argument is out of range"):
        gpu_queue.bare_ring(ring, replace(PAPER, queue_size=256))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("architecture", ["sm_75", "sm_100"])
def test_the_ring_of_a_gpu_compiles_without_one(tmp_path: Path, architecture: str) -> None:
    program = gpu_queue.build_ring(tmp_path, GPU, architecture)
    assert program.stat().st_size > 0


@pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="there is no NVIDIA GPU")
def test_the_ring_of_a_gpu_answers(tmp_path: Path) -> None:
    program = gpu_queue.build_ring(tmp_path, GPU)
    assert gpu_queue.bare_ring(program, gpu_queue.NULL[GPU])["reads_per_s"] > 1_000_000


def test_a_program_that_does_not_build_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_queue, "SOURCES", tmp_path)
    with pytest.raises(NotMeasuredError, match="compilation terminated"):
        gpu_queue.build_ring(tmp_path, CPU)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(NotMeasuredError, match="nvcc is not installed"):
        gpu_queue.build_ring(tmp_path, GPU)
