"""Rows from whole runs: what they run, which figures they take, and what is said without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import checkpoint, engine_child, fio, jobs, unet3d
from benchmarks.measure import NotMeasuredError, Result, Verdict, rounds
from benchmarks.taken import Taken
from wattload.core.units import MIB
from wattload.loaders.data.data_folder import DataFolder

GB_PER_S = 1e9
RATES = {"direct": 8.0, "dlio": 2.0, "torch": 4.0, "dali": 4.0, "dcp": 4.0}


def loader_of(options: Sequence[str]) -> str:
    return next(word for word in options if word.startswith("loader=")).partition("=")[2]


def figures_of(options: Sequence[str]) -> jobs.Figures:
    """Figures by loader: direct is the fastest, at a quarter of the others' CPU time."""
    loader = loader_of(options)
    rate = RATES[loader] * GB_PER_S
    return {
        "read_bytes_per_s": rate,
        jobs.LATER_EPOCHS: rate,
        "write_bytes_per_s": rate,
        "read_cpu_s_per_byte": (0.1 if loader == "direct" else 0.4) / 1e9,
        "generator_ceiling_bytes_per_s": 5 * GB_PER_S,
        jobs.PEAK_MEMORY: 100e6,
    }


def missing(name: str) -> Callable[[Sequence[str]], jobs.Figures]:
    """Figures of all loaders but one."""

    def take(options: Sequence[str]) -> jobs.Figures:
        if loader_of(options) == name:
            raise NotMeasuredError(f"install {name}")
        return figures_of(options)

    return take


def moved(gb_per_s: float) -> Taken:
    return Taken(
        moved_bytes=round(gb_per_s * 1e9),
        operation_count=1000,
        seconds=1.0,
        cpu_s=0.1,
        process_cpu_s=0.2,
    )


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Runs, fio and the engine answer at once; data is a folder that a run made."""
    monkeypatch.setattr(jobs, "take", figures_of)
    monkeypatch.setattr(engine_child.Job, "take", lambda _: moved(8.0))
    monkeypatch.setattr(fio.Job, "take", lambda _: moved(8.0))
    monkeypatch.setattr(checkpoint, "FILE_BYTES", MIB)
    monkeypatch.setattr(jobs, "run", lambda _: record_of(tmp_path, reused=False))


def record_of(target: Path, *, reused: bool) -> SimpleNamespace:
    """What the benchmarks read of a record, and the data that it tells of."""
    folder = DataFolder.claim(target, "unet3d", {}, seed=0)
    folder.reserve("0.npz")
    (folder.path / "0.npz").write_bytes(bytes(4096))
    folder.record("0.npz", 4096, None)
    data = SimpleNamespace(folder=str(folder.path), key=folder.key, reused=reused)
    work = SimpleNamespace(data=data, block_bytes_asked=4096, queue_depth_asked=8)
    return SimpleNamespace(workload=work, run_id="r")


@pytest.mark.usefixtures("stand_ins")
def test_unet3d_is_compared_with_the_engine_dlio_torch_and_dali(tmp_path: Path) -> None:
    results = list(unet3d.measure(tmp_path, 7))
    assert [result.median for result in results] == pytest.approx([1.0, 1.0, 4.0, 0.25, 2.0, 2.0])
    assert [result.goal for result in results] == [0.95, None, 2.0, pytest.approx(1 / 3), 1.5, None]
    assert {result.verdict for result in results} == {Verdict.MET, Verdict.NONE}
    assert not list(tmp_path.rglob("*.npz"))


@pytest.mark.usefixtures("stand_ins")
def test_data_that_was_there_before_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "run", lambda _: record_of(tmp_path, reused=True))
    list(unet3d.measure(tmp_path, 7))
    assert len(list(tmp_path.rglob("*.npz"))) == 1


@pytest.mark.usefixtures("stand_ins")
def test_both_sides_compute_the_same_crc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[str]] = []

    def take(options: Sequence[str]) -> jobs.Figures:
        asked.append(options)
        return figures_of(options)

    monkeypatch.setattr(jobs, "take", take)
    unet3d._against_dlio(tmp_path, 1)
    assert {loader_of(options) for options in asked} == {"direct", "dlio"}
    common = {tuple(w for w in options if not w.startswith("loader=")) for options in asked}
    assert len(common) == 1
    assert "workload.check_crc=true" in common.pop()


@pytest.mark.usefixtures("stand_ins")
def test_a_loader_that_is_absent_misses_its_rows_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "take", missing("dlio"))
    found = [result.missing for result in unet3d.measure(tmp_path, 7)]
    assert found == [None, None, "install dlio", "install dlio", None, None]


def test_without_any_run_every_row_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Sequence[str]) -> None:
        raise NotMeasuredError("no space")

    monkeypatch.setattr(jobs, "take", fail)
    monkeypatch.setattr(jobs, "run", fail)
    assert {result.missing for result in unet3d.measure(tmp_path, 7)} == {"no space"}


@pytest.mark.usefixtures("stand_ins")
def test_checkpoints_are_compared_with_fio_torch_and_dcp(tmp_path: Path) -> None:
    results = list(checkpoint.measure(tmp_path, 7))
    assert [result.median for result in results] == pytest.approx([1.0, 100, 5.0, 2.0, 2.0])
    assert [result.goal for result in results] == [0.95, 256, 4.0, 3.0, None]
    assert results[3].verdict is Verdict.MISSED
    assert not list(tmp_path.rglob("*.bin"))


@pytest.mark.usefixtures("stand_ins")
def test_without_runs_checkpoints_have_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "take", missing("direct"))
    assert {result.missing for result in checkpoint.measure(tmp_path, 7)} == {"install direct"}


def test_a_figure_that_a_record_lacks_is_named() -> None:
    with pytest.raises(NotMeasuredError, match="the record has no samples_per_s"):
        jobs.of("samples_per_s")({"read_bytes_per_s": 1.0})


def test_the_rate_of_later_epochs_leaves_the_first_out() -> None:
    rate = SimpleNamespace(name="read_bytes_per_s", value=100.0)
    work = SimpleNamespace(details={"epoch_s": [4.0, 1.0, 1.0]})
    record: Any = SimpleNamespace(metrics=[rate], ranks=[], workload=work)
    found = jobs.figures(record)
    assert found == {"read_bytes_per_s": 100.0, jobs.LATER_EPOCHS: pytest.approx(200.0)}


def test_a_ratio_keeps_what_was_asked_of_it() -> None:
    empty = Result(name="a ÷ b", unit="GB/s", goal=3.0, sense="at_most", notes=["`a`"])
    ways: dict[str, jobs.Take] = {"a": lambda: {"x": 2.0}, "b": lambda: {"x": 4.0}}
    taken = rounds(ways, 1)
    found = jobs.ratio(taken, jobs.of("x"), ("a", "b"), empty)
    assert (found.name, found.goal, found.sense, found.notes) == ("a ÷ b", 3.0, "at_most", ["`a`"])
    assert found.values == [0.5]
    assert found.raw["figures"] == {"a": [{"x": 2.0}], "b": [{"x": 4.0}]}


@pytest.mark.slow
def test_figures_come_from_the_runs_own_record(tmp_path: Path) -> None:
    options = ["workload=checkpoint", "scale=demo", "power=none", f"target.path={tmp_path}"]
    found = jobs.take(options)
    assert checkpoint.WRITE_RATE(found) > 0
    assert checkpoint.GENERATOR_RATE(found) > 0
    assert checkpoint.PEAK_MB(found) > 1


@pytest.mark.slow
def test_a_run_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(NotMeasuredError, match="nowhere"):
        jobs.take(["workload=null", f"target.path={tmp_path / 'nowhere'}"])
