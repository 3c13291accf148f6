"""Blocks of a cache: both sides move all of them, and neither takes another block for its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import kv_cache, kv_job
from benchmarks.kv_job import DIRECT, ENGINE, OURS, PYTHON, Job, run
from benchmarks.measure import NotMeasuredError
from wattload.core.io import IOKind
from wattload.core.units import MIB

COUNT, BLOCK_BYTES = 3, 2 * MIB


def store(folder: Path, mover: str = OURS) -> Job:
    return Job(folder=folder, kind=IOKind.WRITE, tokens=16, count=COUNT, mover=mover)


def test_stored_blocks_are_restored_by_both(tmp_path: Path) -> None:
    figures = store(tmp_path)()
    assert figures["bytes_per_s"] == pytest.approx(figures["operations_per_s"] * BLOCK_BYTES)
    assert [path.stat().st_size for path in store(tmp_path).files] == [BLOCK_BYTES] * COUNT
    for mover in (OURS, ENGINE):
        restore = replace(store(tmp_path, mover), kind=IOKind.READ, request_blocks=2)
        assert run(restore)["moved_bytes"] == COUNT * BLOCK_BYTES


def test_the_engine_writes_the_same_files(tmp_path: Path) -> None:
    assert run(store(tmp_path, ENGINE))["moved_bytes"] == COUNT * BLOCK_BYTES
    assert [path.stat().st_size for path in store(tmp_path).files] == [BLOCK_BYTES] * COUNT


@pytest.mark.parametrize("mover", [OURS, ENGINE])
def test_a_block_in_the_place_of_another_is_not_measured(tmp_path: Path, mover: str) -> None:
    run(store(tmp_path))
    first, second, _ = store(tmp_path).files
    first.write_bytes(second.read_bytes())
    with pytest.raises(NotMeasuredError, match="not what was stored"):
        run(replace(store(tmp_path, mover), kind=IOKind.READ))


def test_a_missing_environment_of_lmcache_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PYTHON, raising=False)
    with pytest.raises(NotMeasuredError, match=PYTHON):
        store(tmp_path, DIRECT)()


def test_requests_are_served_without_a_drive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_cache, "SOME", 50)
    monkeypatch.setattr(kv_cache, "MANY", 200)
    monkeypatch.setattr(kv_cache, "served", kv_job.serve)
    figures = kv_cache._many()
    assert figures["growth"] >= 1
    assert figures["blocks_per_s"] > 0
