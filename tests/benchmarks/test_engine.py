"""The engine against fio: how settings are chosen, what becomes of figures, and one real row."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import ceilings, engine, engine_child, fio
from benchmarks.files import written_files
from benchmarks.measure import NotMeasuredError, Verdict
from benchmarks.taken import Taken
from wattload.core.io import Allocation, ExtentArrays, IOKind, IOOrder
from wattload.core.units import MIB
from wattload.loaders.engine import library

CASE = replace(engine.CASES[0], depths=(8, 32), batches=(1,))
RANDOM = engine.CASES[2]


def taken(gb_per_s: float, cpu_s_per_gb: float = 0.01) -> Taken:
    """One second of I/O in blocks of 1 MB."""
    moved = round(gb_per_s * 1e9)
    return Taken(
        moved_bytes=moved,
        operation_count=moved // 1_000_000,
        seconds=1.0,
        cpu_s=cpu_s_per_gb * gb_per_s,
        process_cpu_s=1.0,
    )


def fake(
    monkeypatch: pytest.MonkeyPatch, ours: Callable[[int], Taken], fios: Callable[[int], Taken]
) -> None:
    """Have both sides take what functions of the depth return."""
    monkeypatch.setattr(engine_child.Job, "take", lambda job: ours(job.depth))
    monkeypatch.setattr(fio.Job, "take", lambda job: fios(job.depth))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    (tmp_path / "0.bin").write_bytes(bytes(8192))
    return [tmp_path / "0.bin"]


def test_quotients_are_those_of_one_run() -> None:
    once = taken(2.0, 0.25)
    assert (once.gb_per_s(), once.bytes_per_s()) == (2.0, 2e9)
    assert once.million_per_s() == pytest.approx(0.002)
    assert once.cpu_s_per_gb() == pytest.approx(0.25)
    assert once.cpu_s_per_million() == pytest.approx(250.0)
    assert once.million_per_cpu_s() == pytest.approx(0.004)


def test_the_fastest_setting_is_taken_by_its_median() -> None:
    figures = {"QD 8": [taken(1.0), taken(9.0), taken(1.0)]}
    figures["QD 32"] = [taken(2.0), taken(2.0), taken(2.0)]
    assert engine.fastest(figures, figures) == "QD 32"


def test_no_slower_than_a_floor_the_least_cpu_time_is_taken() -> None:
    figures = {"QD 8": [taken(9.0, 0.03)], "QD 32": [taken(8.0, 0.02)], "QD 64": [taken(7.0, 0.01)]}
    assert engine.cheapest(figures, figures, floor=8e9) == "QD 32"


def test_if_all_are_slower_than_a_floor_the_fastest_is_taken() -> None:
    figures = {"QD 8": [taken(9.0, 0.03)], "QD 32": [taken(8.0, 0.02)]}
    assert engine.cheapest(figures, figures, floor=10e9) == "QD 8"


def test_each_side_brings_its_best_depth_and_fio_meets_itself(
    monkeypatch: pytest.MonkeyPatch, files: list[Path]
) -> None:
    fake(monkeypatch, lambda depth: taken(depth / 8, 0.01), lambda depth: taken(16 / depth, 0.02))
    speed, cost = engine.compare(CASE, files, 7)
    assert speed.values == [2.0] * 7  # QD 32 at 4 GB/s against fio's QD 8 at 2
    assert cost.values == pytest.approx([0.5] * 7)
    assert (speed.noise, cost.noise) == ([1.0] * 7, [1.0] * 7)
    assert (speed.verdict, cost.verdict) == (Verdict.MET, Verdict.MET)
    assert speed.order[:2] == [["wattload", "fio", "fio again"], ["fio", "fio again", "wattload"]]
    assert "wattload QD 32 against fio QD 8 batch 1" in speed.notes[0]
    assert len(speed.raw["trials"]["figures"]["wattload QD 8"]) == engine.TRIALS
    assert speed.raw["pairs"]["figures"]["fio"][0]["seconds"] == 1.0


def test_small_blocks_are_counted_in_operations(
    monkeypatch: pytest.MonkeyPatch, files: list[Path]
) -> None:
    fake(monkeypatch, lambda _: taken(1.0), lambda _: taken(1.0))
    speed, cost = engine.compare(RANDOM, files, 7)
    assert (speed.unit, cost.unit) == ("M/s", "CPU s per million")


def test_without_fio_both_rows_say_so(monkeypatch: pytest.MonkeyPatch, files: list[Path]) -> None:
    def absent(_: int) -> Taken:
        raise NotMeasuredError("fio is not installed (apt-get install fio)")

    fake(monkeypatch, lambda _: taken(1.0), absent)
    assert {found.missing for found in engine.compare(CASE, files, 7)} == {
        "fio is not installed (apt-get install fio)"
    }


def test_the_plan_is_what_fio_is_asked_for(files: list[Path]) -> None:
    job = next(iter(replace(CASE, kind=IOKind.WRITE).ours(files).values()))
    assert isinstance(job, engine_child.Job)
    plan = engine_child.job_of(job.command()[-1]).plan()
    assert (plan.kind, plan.order, plan.block_bytes) == (IOKind.WRITE, IOOrder.SEQUENTIAL, MIB)
    assert (plan.duration_s, plan.depth, plan.fsync) == (engine.SECONDS, 8, True)
    assert plan.allocation is Allocation.OVERWRITE
    assert not isinstance(plan.extents, ExtentArrays)
    assert [(extent.path, extent.length_bytes) for extent in plan.extents] == [(files[0], 8192)]


def test_an_engine_that_fails_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "0.bin").write_bytes(bytes(8192))
    (job,) = replace(CASE, depths=(8,)).ours([tmp_path / "0.bin"]).values()
    (tmp_path / "0.bin").unlink()
    with pytest.raises(NotMeasuredError, match=r"the engine failed: .*0\.bin"):
        job.take()


def test_files_are_written_through_and_removed(tmp_path: Path) -> None:
    with written_files(tmp_path, 2, 9 * MIB) as files:
        assert [path.stat().st_size for path in files] == [9 * MIB] * 2
        assert all(path.stat().st_blocks * 512 >= 9 * MIB for path in files)
        assert files[0].read_bytes() != files[1].read_bytes()
    assert not list(tmp_path.rglob("*.bin"))


@pytest.fixture
def hot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "resident_fraction", lambda _: 1.0)


def test_hot_cache_is_judged_by_its_goal_where_that_is_reached(
    monkeypatch: pytest.MonkeyPatch, files: list[Path], hot: None
) -> None:
    # 1 MB blocks at 0.0005 CPU s per GB: 2 million operations per CPU second
    fake(monkeypatch, lambda _: taken(1.0, 0.0005), lambda _: taken(1.0, 0.00025))
    found = ceilings._hot(files, 7)
    assert found.median == pytest.approx(2.0)
    assert found.value_unit == "M/CPU s"
    assert found.verdict is Verdict.MET


def test_hot_cache_is_held_against_fio_where_its_goal_is_not_reached(
    monkeypatch: pytest.MonkeyPatch, files: list[Path], hot: None
) -> None:
    fake(monkeypatch, lambda _: taken(1.0, 0.001), lambda _: taken(1.0, 0.002))
    found = ceilings._hot(files, 7)
    assert found.median == pytest.approx(2.0)
    assert (found.goal, found.value_unit) == (1.0, "x")
    assert found.figures["wattload"] == pytest.approx([1.0] * 7)
    assert found.verdict is Verdict.MET


def test_a_cache_that_did_not_stay_hot_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, files: list[Path]
) -> None:
    fake(monkeypatch, lambda _: taken(1.0), lambda _: taken(1.0))
    monkeypatch.setattr(ceilings, "resident_fraction", lambda _: 0.4)
    assert "resident: 0.4" in (ceilings._hot(files, 7).missing or "")


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_the_engine_really_meets_fio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library_or_skip()
    monkeypatch.setattr(engine, "SECONDS", 0.3)
    monkeypatch.setattr(engine, "TRIALS", 1)
    monkeypatch.setattr(engine, "FILE_BYTES", 4 * MIB)
    monkeypatch.setattr(engine, "CASES", (replace(RANDOM, batches=(1,)),))
    speed, cost, *verified = engine.measure(tmp_path, 1)
    assert [each.missing for each in (speed, cost, *verified)] == [None] * (2 + len(verified))
    assert verified
    assert speed.verdict is Verdict.FEW
    assert set(speed.figures) == {"wattload", "fio", "fio again"}
    assert all(rate > 0 for rates in speed.figures.values() for rate in rates)
    assert not list(tmp_path.rglob("*.bin"))


def test_the_engine_is_measured_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library_or_skip()
    monkeypatch.setattr(engine, "SECONDS", 0.1)
    found = ceilings._alone("null", 1, goal=10.0)
    assert found.missing is None
    assert found.median > 0


def library_or_skip() -> None:
    try:
        library.load()
    except Exception as error:
        pytest.skip(f"the engine's library is not built: {error}")
