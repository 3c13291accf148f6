"""The DLRM benchmark on few rows: both libraries do the same work, and its absence is told."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import dlrm, limited_drive
from benchmarks.measure import NotMeasuredError
from wattload.loaders.data.criteo_day_files import ROW_BYTES, pack_row, parse_line
from wattload.loaders.data.criteo_synthetic import SyntheticDay

ROWS = 3000


def day(folder: Path) -> bytes:
    text = SyntheticDay(0, 0, ROWS).readall()
    (folder / "day_0").write_bytes(text)
    return text


def test_our_ways_pack_the_rows(tmp_path: Path) -> None:
    text = day(tmp_path)
    dlrm.arrow_to_parquet(tmp_path)
    dlrm.arrow_to_binary(tmp_path)
    dlrm.native_to_parquet(tmp_path)
    dlrm.native_to_binary(tmp_path)
    dlrm.arrow_to_rows(tmp_path)
    dlrm.native_to_rows(tmp_path)
    rows = b"".join(pack_row(parse_line(line)) for line in text.splitlines())
    assert (tmp_path / "arrow.bin").read_bytes() == rows
    assert (tmp_path / "native.bin").read_bytes() == rows
    assert (tmp_path / "arrow.rows").read_bytes() == rows
    assert (tmp_path / "native.rows").read_bytes() == rows


def test_without_checksums_the_rows_are_the_same(tmp_path: Path) -> None:
    day(tmp_path)
    for way in ("arrow", "unchecked"):
        for step in ("to_parquet", "to_binary"):
            for _ in range(2):  # an output of the round before is replaced
                assert dlrm._rate(f"{way}_{step}", tmp_path) > 0
    ours, unchecked = (tmp_path / f"{way}.bin" for way in ("arrow", "unchecked"))
    assert ours.read_bytes() == unchecked.read_bytes()


def test_polars_packs_the_same_rows(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    day(tmp_path)
    for way in ("arrow", "polars"):
        for step in dlrm.RATIOS:
            assert dlrm._rate(f"{way}_{step}", tmp_path) > 0
    for suffix in ("bin", "rows"):
        ours, theirs = (tmp_path / f"{way}.{suffix}" for way in ("arrow", "polars"))
        assert ours.read_bytes() == theirs.read_bytes()
    ours, theirs = (
        pq.read_table(tmp_path / f"{way}.numeric.parquet") for way in ("arrow", "polars")
    )
    assert ours.equals(theirs)


def test_a_benchmark_leaves_nothing_on_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dlrm, "ROW_COUNT", ROWS)
    monkeypatch.setattr(dlrm, "_rate", lambda way, _: len(way))
    monkeypatch.setattr(limited_drive, "limited_group", nullcontext)
    monkeypatch.setattr(limited_drive, "rate", lambda way, *_: len(way))
    results = list(dlrm.measure(tmp_path, 7))
    assert [len(result.values) for result in results] == [7] * 17
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_both_ways_move_the_same_on_a_limited_drive(tmp_path: Path) -> None:
    text = day(tmp_path)
    wanted = len(text) + ROWS * ROW_BYTES
    for way, prepare in limited_drive.WAYS.items():
        assert abs(prepare(tmp_path)() - wanted) < 2 * 4096  # whole blocks
        assert (tmp_path / limited_drive.NAMES[way]).stat().st_size == ROWS * ROW_BYTES


def test_a_limited_drive_is_no_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    day(tmp_path)
    monkeypatch.setattr(limited_drive, "RATE_BYTES_PER_S", 1_000_000)
    try:
        with limited_drive.limited_group(tmp_path) as procs:
            assert limited_drive.rate("engine", tmp_path, procs) < 3e6
    except NotMeasuredError as error:
        pytest.skip(str(error))
    assert not procs.exists()


def test_a_drive_that_cannot_be_limited_gives_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_drive, "CONTROL_GROUPS", tmp_path / "absent")
    assert "the drive can't be limited" in (dlrm._limited(tmp_path, 7).missing or "")


def test_without_polars_there_is_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> float:
        raise NotMeasuredError("polars is not installed (pip install polars)")

    monkeypatch.setattr(dlrm, "_rate", absent)
    for result in dlrm._compare("to_parquet", tmp_path, 7):
        assert "not installed" in (result.missing or "")


def test_a_way_that_fails_is_told_by_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(NotMeasuredError, match=r"arrow_to_binary failed: .*No such file"):
        dlrm._rate("arrow_to_binary", tmp_path)


def test_a_library_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = tmp_path / "hidden" / "polars"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'polars'\")")
    path = os.pathsep.join([str(hidden.parent), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    with pytest.raises(NotMeasuredError, match="polars is not installed"):
        dlrm._rate("polars_to_parquet", tmp_path)
