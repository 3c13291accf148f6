"""The group gpu_queue: what its peers do, what is compared, and what is said without a GPU."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import gpu_queue
from benchmarks.files import stamped_files
from benchmarks.gpu_queue import CPU, GPU, PAPER, Place, Reading
from benchmarks.measure import NotMeasuredError, Verdict
from benchmarks.taken import Taken
from tests.loaders.gpu.conftest import stub_environment, stub_libraries, stubs
from tests.loaders.random_plans import change_byte, plan_of, stamped_file
from wattload.loaders.direct.config import Config as Direct
from wattload.loaders.mmap.config import Config as Mmap
from wattload.loaders.stamps import bad_blocks

__all__ = ["stub_environment", "stub_libraries", "stubs"]

Stubs = Callable[..., None]
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")


@pytest.fixture(scope="session")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bare ring of the CPU, built."""
    return gpu_queue.build_ring(tmp_path_factory.mktemp("ring"), CPU)


def taken(operations: int) -> Taken:
    return Taken(
        moved_bytes=0, operation_count=operations, seconds=1.0, cpu_s=1.0, process_cpu_s=1.0
    )


@pytest.mark.parametrize(
    "shape",
    [
        PAPER,
        replace(PAPER, requesters=32, queue_pairs=1, queue_size=32),
        replace(PAPER, pollers=3),
    ],
)
def test_a_bare_ring_answers_whole_warps(
    ring: Path, shape: gpu_queue.Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_queue, "SECONDS", 0.1)
    found = gpu_queue.bare_ring(ring, shape)
    assert found.operation_count > 0
    assert found.operation_count % 32 == 0
    assert found.seconds >= 0.1
    assert 0 < found.cpu_s <= found.process_cpu_s


def test_a_ring_that_could_be_full_is_refused(ring: Path) -> None:
    with pytest.raises(NotMeasuredError, match="ring-cpu: an argument is out of range"):
        gpu_queue.bare_ring(ring, replace(PAPER, queue_size=256))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_ring_of_a_gpu_compiles_without_one(tmp_path: Path, architecture: str) -> None:
    program = gpu_queue.build_ring(tmp_path, GPU, architecture)
    assert program.stat().st_size > 0


@pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="there is no NVIDIA GPU")
def test_the_ring_of_a_gpu_answers_whole_warps(tmp_path: Path) -> None:
    program = gpu_queue.build_ring(tmp_path, GPU)
    found = gpu_queue.bare_ring(program, gpu_queue.NULL_OF_GPU)
    assert found.operation_count > 1_000_000
    assert found.operation_count % 32 == 0


def test_files_carry_a_stamp_per_sector(tmp_path: Path) -> None:
    with stamped_files(tmp_path, 2, 1 << 20, unit_bytes=512) as files:
        for path, stamps in files:
            content = np.fromfile(path, dtype=np.uint8)
            assert bad_blocks(content, stamps, unit_bytes=512) == 0


@pytest.mark.parametrize("config", [Direct(), Mmap()])
def test_our_reads_are_counted_and_wrong_blocks_refused(
    tmp_path: Path, config: Direct | Mmap
) -> None:
    file = stamped_file(tmp_path / "file", size=1 << 16)
    reading = Reading(config, plan_of(file, duration_s=0.1))
    found = reading()
    assert found.moved_bytes == found.operation_count * 512 > 0
    assert found.operation_count == reading.results[0].operations
    change_byte(file.path, 1000)
    with pytest.raises(NotMeasuredError, match=rf"loader={config.name}: .* blocks were wrong"):
        reading()


def test_the_queue_is_read_by_threads_of_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_queue, "SECONDS", 0.1)
    place = Place(file=stamped_file(tmp_path / "file"), side=CPU, gpu=None)
    for engine in ("null", "memory", "storage"):
        assert place.queue(engine, PAPER)().operation_count > 0


def test_ratios_are_of_rates_and_judged_against_the_goal() -> None:
    good = gpu_queue.ratio(
        "CPU: storage ÷ fio", lambda: taken(96), lambda: taken(100), 7, goal=0.95
    )
    assert (good.median, good.verdict) == (0.96, Verdict.MET)
    assert set(good.figures) == {"storage", "fio", "fio again"}


@pytest.mark.slow
def test_a_machine_without_a_gpu_measures_the_cpu_and_says_so(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs(STUB_CUDA_NO_DEVICE="1")
    monkeypatch.setattr(gpu_queue, "SECONDS", 0.1)
    monkeypatch.setattr(gpu_queue, "FILE_BYTES", 1 << 20)
    results = {result.name: result for result in gpu_queue.measure(tmp_path, 1)}
    assert list(tmp_path.rglob("*.bin")) == []
    of_cpu = [result for name, result in results.items() if name.startswith("CPU: ")]
    of_gpu = [result for name, result in results.items() if name.startswith("GPU: ")]
    assert len(of_cpu) == 6
    for result in of_cpu:
        assert result.values or "fio is not installed" in (result.missing or "")
    assert len(of_gpu) == 9
    assert all((result.missing or "").startswith("needs a GPU: ") for result in of_gpu)
    notes = results["CPU: mmap random ÷ storage"].notes
    assert any("the page cache served" in note and "read-ahead" in note for note in notes)
    json.dumps([result.as_json() for result in results.values()])


def test_a_program_that_does_not_build_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_queue, "SOURCES", tmp_path)
    with pytest.raises(NotMeasuredError, match=r"cc can't build .*ring\.c"):
        gpu_queue.build_ring(tmp_path, CPU)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(NotMeasuredError, match="nvcc is not installed"):
        gpu_queue.build_ring(tmp_path, GPU)
