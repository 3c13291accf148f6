"""Runs that number ids: the published layout, other workers, a kill, wrong numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.context import Context, ThreadCommunicator, context_at, directory_target, run_ranks
from tests.workloads.dlrm.facts import facts_of, peak_bytes
from tests.workloads.dlrm.test_resume import failed, kept, kill
from wattload.core.errors import ConfigError
from wattload.core.record.results import Check
from wattload.core.workload import Accelerator, Outcome
from wattload.loaders.arrow import Config as ArrowConfig
from wattload.loaders.converters import ConverterConfig
from wattload.loaders.data.target_folder import clean, foreign_paths
from wattload.loaders.native.config import Config as NativeConfig
from wattload.workloads.dlrm.config import Config, Dense, Ids, Pack
from wattload.workloads.dlrm.workload import Dlrm

ROWS = 20_000
THRESHOLD = 3


def dlrm(loader: ConverterConfig | None = None, **changed: Any) -> Dlrm:
    settings = {
        "row_count": ROWS,
        "day_count": 2,
        "rounds": 1,
        "workers": 1,
        "block_bytes": 1 << 16,
        "part_bytes": 700_000,
        "keep_output": True,
        "columnar": False,
        "pack": Pack.split_binary,
        "dense": Dense.log,
        "frequency_threshold": THRESHOLD,
    }
    return Dlrm(Config(**{**settings, **changed}), loader or NativeConfig(), Accelerator())


def lived(workload: Dlrm, context: Context) -> tuple[Outcome, dict[str, Check]]:
    workload.plan(context)
    workload.prepare(context)
    outcome = workload.run(context)
    checks = [*outcome.checks, *workload.verify(context)]
    return outcome, {check.name: check for check in checks}


def torchrec_columns(target: Path, threshold: int = THRESHOLD) -> list[list[int]]:
    """Return the numbers of each column's ids, as torchrec's ``sparse_to_contiguous`` finds them.

    Its example of threshold 2 is a column with iop, iop, lkj, abc: 2, 2, 1, 1.
    """
    days = sorted(target.rglob("day_[01]"))
    lines = [line.split(b"\t") for day in days for line in day.read_bytes().splitlines()]
    columns = []
    for place in range(14, 40):
        ids = [int(line[place] or b"0", 16) for line in lines]
        frequency, numbers, following = Counter(ids), dict[int, int](), count(2)
        for own in ids:
            if own not in numbers:
                numbers[own] = next(following) if frequency[own] >= threshold else 1
        columns.append([numbers[own] for own in ids])
    return columns


def nvidia_columns(target: Path, sizes: Sequence[int]) -> list[list[int]]:
    """Return the columns as NVIDIA's reader finds them: its type depends on the column's size."""
    columns = []
    for number, size in enumerate(sizes):
        kind = next(each for each in (np.int8, np.int16, np.int32) if size < np.iinfo(each).max)
        files = sorted(target.rglob(f"*.cat_{number}.bin"))
        columns.append([value for path in files for value in np.fromfile(path, kind).tolist()])
    return columns


def all_columns(target: Path) -> list[bytes]:
    names = [f"cat_{number}" for number in range(26)]
    return [
        b"".join(path.read_bytes() for path in sorted(target.rglob(f"*.{name}.bin")))
        for name in names
    ]


@pytest.mark.parametrize(("threshold", "columnar"), [(1, True), (THRESHOLD, False)])
def test_ids_have_torchrecs_numbers_in_nvidias_files(
    tmp_path: Path, threshold: int, *, columnar: bool
) -> None:
    workload = dlrm(columnar=columnar, frequency_threshold=threshold)
    outcome, checks = lived(workload, context_at(tmp_path))
    assert {name: check.verdict for name, check in checks.items() if check.verdict != "pass"} == {}
    expected = torchrec_columns(tmp_path, threshold)
    sizes = facts_of(outcome).category_sizes
    assert list(sizes) == [max(2, 1 + max(column)) for column in expected]
    assert nvidia_columns(tmp_path, sizes) == expected
    assert list(tmp_path.rglob("*.id_*")) == []
    assert foreign_paths(tmp_path) == ()
    assert checks["dlrm_numbers"].figures["column_count"] == 1
    clean(tmp_path)
    assert list(tmp_path.rglob("*.bin")) == []


def test_phases_count_the_bytes_of_ids_and_their_numbers(tmp_path: Path) -> None:
    workload, context = dlrm(rounds=2), context_at(tmp_path)
    plan = workload.plan(context)
    outcome, _ = lived(workload, context)
    phase = next(each for each in context.phases if each.name == "number_ids")
    id_bytes = ROWS * 26 * 4
    written = sum(path.stat().st_size for path in tmp_path.rglob("*.cat_*.bin"))
    assert 2 * id_bytes <= phase.read_bytes < 2.1 * id_bytes  # O_DIRECT moves whole blocks
    assert phase.written_bytes >= written
    assert sum(each.written_bytes for each in context.phases if each.timed) <= plan.run_bytes
    peak = peak_bytes(outcome)
    assert peak <= plan.memory_bytes_per_rank


def test_other_workers_and_parts_give_the_same_numbers(tmp_path: Path) -> None:
    found = []
    for workload in (dlrm(), dlrm(workers=3, part_bytes=10 << 20)):
        outcome, checks = lived(workload, context_at(tmp_path))
        assert failed(checks) == set()
        assert set(kept(outcome).values()) == {0}
        found.append(all_columns(tmp_path))
    assert found[0] == found[1]


def test_ranks_share_the_columns(tmp_path: Path) -> None:
    def work(context: Context) -> list[Check]:
        workload = dlrm()
        workload.prepare(context)
        outcome = workload.run(context)
        return [*outcome.checks, *workload.verify(context)]

    ranks = [
        Context(targets=(directory_target(tmp_path),), communicator=communicator)
        for communicator in ThreadCommunicator.world(3)
    ]
    checks = [check for found in run_ranks(ranks, work) for check in found]
    assert {check.verdict for check in checks} == {"pass"}
    numbers = next(check for check in checks if check.name == "dlrm_numbers")
    assert numbers.figures["column_count"] == 3
    sizes = [1 + max(column) for column in torchrec_columns(tmp_path)]
    assert nvidia_columns(tmp_path, sizes) == torchrec_columns(tmp_path)


@pytest.mark.thorough
def test_more_ids_than_memory_has_room_for_are_spilled(tmp_path: Path) -> None:
    days, target, rows = tmp_path / "days", tmp_path / "target", 1_200_000
    days.mkdir()
    target.mkdir()
    gaps = "\t" * 25
    lines = (f"0{chr(9) * 14}{row % 1_100_000:08x}{gaps}\n" for row in range(rows))
    (days / "day_0").write_text("".join(lines), encoding="ascii")
    workload = dlrm(
        source=str(days),
        worker_memory_bytes=241_000_000,
        part_bytes=20 << 20,
        frequency_threshold=2,
        sample_row_groups=1,
    )
    outcome, checks = lived(workload, context_at(target))
    assert failed(checks) == set()
    frequent = 100_000
    assert list(facts_of(outcome).category_sizes) == [2 + frequent, *[3] * 25]
    assert facts_of(outcome).spilled_bytes > 0
    first = np.concatenate([np.fromfile(path, "<i4") for path in sorted(target.rglob("*.cat_0.*"))])
    assert (first[:frequent] == np.arange(2, 2 + frequent)).all()
    assert (first[frequent:1_100_000] == 1).all()
    assert (first[1_100_000:] == first[:frequent]).all()
    assert list(target.rglob("*spill*")) == []
    assert foreign_paths(target) == ()


SPLIT: dict[str, Any] = {
    "columnar": False,
    "dense": Dense.log,
    "pack": Pack.split_binary,
    "frequency_threshold": THRESHOLD,
}


def test_columns_finished_before_a_kill_are_kept(tmp_path: Path) -> None:
    target = tmp_path / "target"
    kill(target, NativeConfig(), after=8 + 5, **SPLIT)
    assert foreign_paths(target) == ()
    outcome, checks = lived(dlrm(), context_at(target))
    assert kept(outcome) == {"tsv_to_binary": 8, "number_ids": 5}
    assert failed(checks) == {"dlrm_tsv_bytes"}
    assert nvidia_columns(target, facts_of(outcome).category_sizes) == torchrec_columns(target)
    assert foreign_paths(target) == ()


def raise_one(numbers: NDArray[np.integer[Any]]) -> None:
    numbers[-1] = numbers.max() + 5  # no other has it, and numbers before it are missing


def swap(numbers: NDArray[np.integer[Any]]) -> None:
    ones, twos = numbers == 1, numbers == 2  # one of them may be absent from a column
    numbers[ones], numbers[twos] = 2, 1


@pytest.mark.parametrize("spoil", [raise_one, swap])
def test_wrong_numbers_fail_the_checks(
    tmp_path: Path, spoil: Callable[[NDArray[np.integer[Any]]], None]
) -> None:
    workload, context = dlrm(), context_at(tmp_path)
    workload.plan(context)
    workload.prepare(context)
    workload.run(context)
    for path in tmp_path.rglob("*.cat_*.bin"):
        name = path.name.replace("cat_", "id_")
        width = 4 * path.stat().st_size // path.with_name(name).stat().st_size
        numbers = np.fromfile(path, f"<i{width}")
        spoil(numbers)
        numbers.tofile(path)
    checks = {check.name: check for check in workload.verify(context)}
    assert failed(checks) == {"dlrm_content", "dlrm_numbers"}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"pack": Pack.rows}, "frequency_threshold numbers ids column by column; set workload.p"),
        (
            {"columnar": True, "ids": Ids.int32},
            "frequency_threshold numbers whole ids, and .*; set workload.ids=string or",
        ),
        ({"frequency_threshold": 0}, "workload.frequency_threshold must be 1 to 4294967295, got 0"),
        (
            {"worker_memory_bytes": 215_000_000},
            "block_bytes=65536 needs up to [0-9]+ bytes per worker, more than .*=215000000; use",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        dlrm(**changed).plan(context_at(tmp_path))


def test_a_loader_that_can_not_number_is_refused(tmp_path: Path) -> None:
    reason = "frequency_threshold needs loader=native; loader=arrow can't number ids"
    with pytest.raises(ConfigError, match=reason):
        dlrm(ArrowConfig()).plan(context_at(tmp_path))


def test_the_plan_counts_spills_only_if_memory_may_be_too_small(tmp_path: Path) -> None:
    rows = 2_000_000
    roomy = dlrm(row_count=rows).plan(context_at(tmp_path))
    memory_bytes = 200_000_000 + 6 * (1 << 16) + (8 << 20) + 33_000_000
    tight = dlrm(row_count=rows, worker_memory_bytes=memory_bytes).plan(context_at(tmp_path))
    assert tight.peak_bytes - roomy.peak_bytes == 8 * rows  # one worker, one column at a time
    assert tight.memory_bytes_per_rank <= memory_bytes < roomy.memory_bytes_per_rank
