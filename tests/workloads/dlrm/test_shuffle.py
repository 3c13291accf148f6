"""Runs that shuffle rows: the same rows in another order, which workers do not change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.context import Context, ThreadCommunicator, context_at, directory_target, run_ranks
from tests.workloads.dlrm.facts import peak_bytes
from tests.workloads.dlrm.test_numbers import lived
from tests.workloads.dlrm.test_resume import failed, kept, kill
from wattload.core.errors import ConfigError
from wattload.core.record.results import Check
from wattload.core.workload import Accelerator, Outcome
from wattload.loaders.arrow import Config as ArrowConfig
from wattload.loaders.converters import ConverterConfig
from wattload.loaders.data.criteo_day_files import ROW_BYTES
from wattload.loaders.data.target_folder import clean, foreign_paths
from wattload.loaders.native.config import Config as NativeConfig
from wattload.loaders.native.shuffle import bucket_of_rows
from wattload.workloads.dlrm.config import Config, Dense, Pack
from wattload.workloads.dlrm.workload import Dlrm

ROWS = 126_000
SETTINGS: dict[str, Any] = {
    "row_count": ROWS,
    "day_count": 3,
    "part_bytes": 4_000_000,
    "columnar": False,
    "shuffle": True,
    # Room for fewer rows than two days have, so that there are several buckets.
    "worker_memory_bytes": 241_000_000,
}
SPLIT: dict[str, Any] = {"dense": Dense.log, "pack": Pack.split_binary, "frequency_threshold": 2}
BUCKETS = 2
NAMES = ("label", "numerical", *(f"cat_{number}" for number in range(26)))


def dlrm(loader: ConverterConfig | None = None, **changed: Any) -> Dlrm:
    own = {"rounds": 1, "workers": 1, "block_bytes": 1 << 16, "keep_output": True}
    return Dlrm(Config(**{**own, **SETTINGS, **changed}), loader or NativeConfig(), Accelerator())


def content(target: Path, pattern: str) -> bytes:
    """Return files one after another, as users do: by name."""
    return b"".join(path.read_bytes() for path in sorted(target.rglob(pattern)))


def rows_of(target: Path, pattern: str) -> list[bytes]:
    whole = content(target, pattern)
    return [whole[first : first + ROW_BYTES] for first in range(0, len(whole), ROW_BYTES)]


def split_rows_of(target: Path, pattern: str) -> list[bytes]:
    """Return the rows of files of columns; ``pattern`` is that of their parts."""
    columns = [content(target, f"{pattern}.{name}.bin") for name in NAMES]
    row_count = len(columns[0])
    widths = [len(column) // row_count for column in columns]
    return [
        b"".join(
            column[row * width : (row + 1) * width]
            for column, width in zip(columns, widths, strict=True)
        )
        for row in range(row_count)
    ]


def converted(target: Path, **changed: Any) -> dict[str, Check]:
    target.mkdir(exist_ok=True)
    _, checks = lived(dlrm(**changed), context_at(target))
    assert failed(checks) == set()
    return checks


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a run of one worker."""
    target = tmp_path_factory.mktemp("whole")
    checks = converted(target)
    assert checks["dlrm_shuffle"].figures["packed_row_count"] == ROWS * 2 // 3
    return target


def test_all_days_but_the_last_are_shuffled(whole: Path, tmp_path: Path) -> None:
    shuffled, last = rows_of(whole, "shuffled.*.bin"), rows_of(whole, "day_*.bin")
    assert len(list(whole.rglob("shuffled.*"))) == BUCKETS
    assert list(whole.rglob("*.scattered")) == []
    assert foreign_paths(whole) == ()
    converted(tmp_path, shuffle=False)
    before = rows_of(tmp_path, "day_[01].*.bin")
    assert last == rows_of(tmp_path, "day_2.*.bin")
    assert Counter(shuffled) == Counter(before)
    places = {row: place for place, row in enumerate(before)}
    found = np.array([places[row] for row in shuffled])
    # As many rows of the first day are in the first half as a fair draw would have.
    assert abs((found[: len(found) // 2] < len(found) // 2).mean() - 0.5) < 0.01
    assert abs(np.corrcoef(found, np.arange(len(found)))[0, 1]) < 0.02


def test_other_workers_and_parts_give_the_same_order(whole: Path, tmp_path: Path) -> None:
    converted(tmp_path, workers=3, part_bytes=100 << 20)
    assert content(tmp_path, "shuffled.*.bin") == content(whole, "shuffled.*.bin")
    clean(tmp_path)
    assert list(tmp_path.rglob("shuffled.*")) == []


def test_columns_stay_rows(tmp_path: Path) -> None:
    small = {"row_count": 30_000, "part_bytes": 700_000}
    converted(tmp_path / "shuffled", **SPLIT, **small)
    converted(tmp_path / "plain", **SPLIT, **small, shuffle=False)
    after = split_rows_of(tmp_path / "shuffled", "shuffled.*")
    before = split_rows_of(tmp_path / "plain", "day_[01].*")
    assert Counter(after) == Counter(before)
    assert after != before
    last = split_rows_of(tmp_path / "shuffled", "day_2.*")
    assert last == split_rows_of(tmp_path / "plain", "day_2.*")
    assert list(tmp_path.rglob("*.id_*")) == []


def test_ranks_share_parts_and_buckets(whole: Path, tmp_path: Path) -> None:
    ranks = [
        Context(targets=(directory_target(tmp_path),), communicator=communicator)
        for communicator in ThreadCommunicator.world(2)
    ]
    checks = [check for _, found in run_ranks(ranks, lived_in) for check in found.values()]
    assert {check.verdict for check in checks} == {"pass"}
    assert content(tmp_path, "shuffled.*.bin") == content(whole, "shuffled.*.bin")


def lived_in(context: Context) -> tuple[Outcome, dict[str, Check]]:
    return lived(dlrm(), context)


def test_buckets_finished_before_a_kill_are_kept(whole: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    part_count = 9
    kill(target, NativeConfig(), after=part_count + 6 + 1, **SETTINGS)
    assert foreign_paths(target) == ()
    outcome, checks = lived(dlrm(), context_at(target))
    assert kept(outcome) == {"tsv_to_binary": part_count, "scatter_rows": 6, "shuffle_rows": 1}
    assert failed(checks) == {"dlrm_tsv_bytes"}
    assert content(target, "shuffled.*.bin") == content(whole, "shuffled.*.bin")


def repeat(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:ROW_BYTES] + whole[: len(whole) - ROW_BYTES])


def exchange(path: Path) -> None:
    rows = np.fromfile(path, "<i4").reshape(-1, ROW_BYTES // 4)
    rows[:2, 20:] = rows[1::-1, 20:].copy()
    rows.tofile(path)


@pytest.mark.parametrize("spoil", [repeat, exchange, Path.unlink])
def test_other_rows_fail_the_checks(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    workload, context = dlrm(row_count=20_000), context_at(tmp_path)
    workload.plan(context)
    workload.prepare(context)
    workload.run(context)
    spoil(next(tmp_path.rglob("shuffled.*.bin")))
    checks = {check.name: check for check in workload.verify(context)}
    assert failed(checks) == {"dlrm_content", "dlrm_shuffle"}


def test_phases_count_the_bytes_of_the_shuffle(tmp_path: Path) -> None:
    workload, context = dlrm(rounds=2), context_at(tmp_path)
    plan = workload.plan(context)
    outcome, _ = lived(workload, context)
    moved = {phase.name: phase for phase in context.phases}
    size_bytes = ROWS * 2 // 3 * ROW_BYTES
    for name in ("scatter_rows", "shuffle_rows"):
        for count in (moved[name].read_bytes, moved[name].written_bytes):
            assert size_bytes <= count < 1.2 * size_bytes  # O_DIRECT moves whole blocks
    assert sum(each.written_bytes for each in context.phases if each.timed) <= plan.run_bytes
    assert peak_bytes(outcome) <= plan.memory_bytes_per_rank <= SETTINGS["worker_memory_bytes"]


def test_each_bucket_is_as_likely_as_the_others_and_seeds_differ() -> None:
    buckets = bucket_of_rows(7, 1000, 100_000, 10)
    assert np.abs(np.bincount(buckets, minlength=10) - 10_000).max() < 500
    assert (bucket_of_rows(7, 51_000, 50_000, 10) == buckets[50_000:]).all()
    assert (bucket_of_rows(8, 1000, 100_000, 10) == buckets).mean() < 0.11


@pytest.mark.parametrize(
    ("loader", "changed", "reason"),
    [
        (ArrowConfig(), {}, "workload.shuffle=true needs loader=native; loader=arrow can't"),
        (NativeConfig(), {"day_count": 1}, "needs at least 2 day files, got 1"),
        (NativeConfig(), {"worker_memory_bytes": 230_000_000}, "bytes per worker, more than"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    tmp_path: Path, loader: ConverterConfig, changed: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        dlrm(loader, **changed).plan(context_at(tmp_path))
