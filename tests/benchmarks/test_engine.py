"""Jobs of the engine in processes of their own, and whole runs, give real figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import engine, engine_job, fio, random_write
from benchmarks.child import written_files
from benchmarks.devices import loop_device, watched
from benchmarks.measure import Figures, NotMeasuredError, Verdict
from benchmarks.wattload_run import Run
from wattload.core.io import IOKind
from wattload.core.units import MIB


@pytest.mark.parametrize("is_verified", [False, True])
def test_the_engine_reads_files_end_to_end_and_they_are_removed(
    tmp_path: Path, is_verified: bool
) -> None:
    with written_files(tmp_path, 2, MIB) as files:
        job = engine_job.Job(
            kind=IOKind.READ,
            order=engine.READ.order,
            files=files,
            block_bytes=MIB,
            depth=2,
            seconds=0.1,
            is_verified=is_verified,
        )
        assert engine_job.parsed(job.command()[-1]) == job
        figures = watched(files[0], job)()
    assert figures["bytes_per_s"] == pytest.approx(figures["operations_per_s"] * MIB)
    assert figures["cpu_s_per_byte"] > 0
    assert figures["queue_depth"] >= 0
    assert not any(tmp_path.iterdir())


def test_an_engine_that_fails_is_quoted(tmp_path: Path) -> None:
    (job,) = engine.RANDOM_WRITE.ours([tmp_path / "none"])
    with pytest.raises(NotMeasuredError, match="none"):
        job()


def test_both_sides_are_compared_at_the_depth_at_which_fio_is_fastest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def figures(job: engine_job.Job | fio.Job) -> Figures:
        rate = float(-abs(job.depth - 32)) + 1000
        return {"bytes_per_s": rate, "cpu_s_per_operation": float(job.depth)}

    monkeypatch.setattr(engine_job.Job, "__call__", figures)
    monkeypatch.setattr(fio.Job, "__call__", figures)
    path = tmp_path / "0.bin"
    path.write_bytes(bytes(MIB))
    speed, cpu = engine.against_fio(engine.READ, [path]).measure(6)
    assert cpu.measured == {engine.OURS: [32e6] * 6, engine.FIO: [32e6] * 6}
    assert all(words in speed.notes[0] for words in ('"depth": 32', "--iodepth=32"))


def test_a_device_that_cannot_be_added_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    (comparison,) = random_write._on_device("loop device", lambda: loop_device(tmp_path))
    (result,) = comparison.measure(1)
    assert result.verdict is Verdict.MISSING
    assert result.missing == "losetup is not installed"


@pytest.mark.slow
def test_figures_come_from_the_record_of_a_run(tmp_path: Path) -> None:
    options = ["workload=checkpoint", "scale=demo", "power=none", f"target.path={tmp_path}"]
    figures = Run(options)()
    assert figures["write_bytes_per_s"] > 0
    assert figures["peak_memory_bytes"] > 1e6
    with pytest.raises(NotMeasuredError, match="nowhere"):
        Run(["workload=null", f"target.path={tmp_path / 'nowhere'}"])()
