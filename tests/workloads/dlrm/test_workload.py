"""The dlrm workload end to end: real files, real workers, checks that can fail."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.allocation import punch, unwrite
from tests.context import Context, ThreadCommunicator, context_at, directory_target, run_ranks
from tests.workloads.dlrm.facts import facts_of, peak_bytes
from wattload.core.errors import ConfigError, DataError, RunError, TargetError
from wattload.core.record.results import Check
from wattload.core.workload import Accelerator, Outcome
from wattload.loaders.arrow import Config as ArrowConfig
from wattload.loaders.converters import ConverterConfig
from wattload.loaders.data.criteo_day_files import (
    COLUMNS,
    ROW_BYTES,
    SPLIT_ROW_BYTES,
    pack_row,
    parse_line,
)
from wattload.loaders.data.criteo_synthetic import MEAN_ROW_BYTES, SyntheticDay
from wattload.loaders.data.target_folder import clean, foreign_paths
from wattload.loaders.native.config import Config as NativeConfig
from wattload.workloads.dlrm.config import BadRows, Compression, Config, Dense, Ids, Pack
from wattload.workloads.dlrm.workload import Dlrm

ROWS = 6000


def config(**changed: Any) -> Config:
    settings = {"row_count": ROWS, "day_count": 2, "rounds": 2, "workers": 1}
    return Config(**{**settings, **changed})


def dlrm(loader: ConverterConfig | None = None, **changed: Any) -> Dlrm:
    return Dlrm(config(**changed), loader or ArrowConfig(), Accelerator())


each_loader = pytest.mark.parametrize(
    "loader", [ArrowConfig(), NativeConfig()], ids=["arrow", "native"]
)


def lived(workload: Dlrm, context: Context) -> tuple[Outcome, dict[str, Check]]:
    workload.plan(context)
    workload.prepare(context)
    outcome = workload.run(context)
    checks = [*outcome.checks, *workload.verify(context)]
    return outcome, {check.name: check for check in checks}


def outputs(target: Path) -> list[Path]:
    return sorted(path for path in target.rglob("*") if path.suffix in {".parquet", ".bin"})


def real_days(folder: Path, day_count: int = 2, row_count: int = 500) -> bytes:
    folder.mkdir()
    whole = b""
    for day in range(day_count):
        text = SyntheticDay(7, day, row_count).readall()
        (folder / f"day_{day}").write_bytes(text)
        whole += text
    return whole


@each_loader
def test_a_run_converts_all_rows_and_leaves_no_output(
    loader: ConverterConfig, tmp_path: Path
) -> None:
    context = context_at(tmp_path)
    # Parts of three workers begin within blocks.
    outcome, checks = lived(dlrm(loader, workers=3, sample_row_groups=9), context)
    assert {check.verdict for check in checks.values()} == {"pass"}
    assert checks["dlrm_rows"].figures["packed_row_count"] == ROWS
    assert checks["dlrm_rows"].figures["day_line_count"] == ROWS
    assert checks["dlrm_sample"].figures["compared_count"] == ROWS
    assert outputs(tmp_path) == []
    assert not list(tmp_path.glob("wattload-data/dlrm-output-*"))
    assert foreign_paths(tmp_path) == ()
    wanted = {"arrow": "page_cache", "native": "o_direct"}[loader.name]
    assert outcome.paths[0].path_requested == wanted


def test_phases_count_the_bytes_of_the_files(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    outcome, _ = lived(dlrm(), context)
    facts = facts_of(outcome)
    columnar, packed = context.timed("tsv_to_parquet"), context.timed("parquet_to_binary")
    assert len(columnar) == len(packed) == 2
    for phase in columnar:
        assert phase.read_bytes == facts.tsv_bytes
    for phase in packed:
        assert phase.written_bytes == ROWS * ROW_BYTES
        # Nothing is read twice, and each of the two files but for the 4 bytes that it begins with.
        assert phase.read_bytes == columnar[0].written_bytes - 2 * 4


def test_packed_rows_are_those_of_the_lines_in_order(tmp_path: Path) -> None:
    text = real_days(tmp_path / "real")
    (tmp_path / "target").mkdir()
    workload = dlrm(source=str(tmp_path / "real"), rounds=1, workers=3, keep_output=True)
    _, checks = lived(workload, context_at(tmp_path / "target"))
    assert checks["dlrm_sample"].verdict == "pass"
    packed = [path for path in outputs(tmp_path / "target") if path.suffix == ".bin"]
    assert b"".join(path.read_bytes() for path in packed) == b"".join(
        pack_row(parse_line(line)) for line in text.splitlines()
    )


def test_kept_output_is_listed_and_replaced_by_the_next_run(tmp_path: Path) -> None:
    for _ in range(2):
        lived(dlrm(rounds=1, keep_output=True), context_at(tmp_path))
        assert {path.suffix for path in outputs(tmp_path)} == {".parquet", ".bin"}
        assert foreign_paths(tmp_path) == ()
    assert clean(tmp_path).freed_bytes > ROWS * ROW_BYTES
    assert outputs(tmp_path) == []


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    first = dlrm(workers=3)
    first.prepare(context)
    first.run(context)
    left = outputs(tmp_path)
    assert len(left) == 2 * 6
    assert first._outputs is not None
    first._outputs.close()  # as the kernel does for a killed process
    lived(dlrm(keep_output=True), context)
    assert len(outputs(tmp_path)) == 2 * 2


def test_day_files_are_reused_and_a_broken_one_is_made_again(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    first = dlrm().prepare(context)
    assert not first.reused
    assert first.file_count == 2
    assert dlrm().plan(context).prepare_bytes == 0
    day = Path(first.folder) / "day_1"
    content, kept = day.read_bytes(), (Path(first.folder) / "day_0").stat()
    day.write_bytes(content[:-1])
    assert dlrm().plan(context).prepare_bytes == ROWS // 2 * MEAN_ROW_BYTES
    assert not dlrm().prepare(context).reused
    assert day.read_bytes() == content
    assert (Path(first.folder) / "day_0").stat().st_mtime_ns == kept.st_mtime_ns
    again = dlrm().prepare(context)
    assert (again.reused, again.key) == (True, first.key)


def test_the_number_of_workers_and_a_restart_do_not_change_the_data(tmp_path: Path) -> None:
    digests = set()
    for workers in (1, 2):
        target = tmp_path / str(workers)
        target.mkdir()
        context, planned = context_at(target), dlrm(workers=workers, day_count=3)
        made = planned.prepare(context)
        digests.add(made.parameters["sha256"])
        (Path(made.folder) / f"day_{workers - 1}").unlink()
        digests.add(dlrm(workers=1, day_count=3).prepare(context).parameters["sha256"])
    assert len(digests) == 1


def test_other_counts_are_other_data(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    keys = {dlrm(row_count=count).prepare(context).key for count in (100, 101)}
    assert len(keys) == 2
    assert dlrm(row_count=101).prepare(context).parameters["row_count"] == 101


def test_real_files_are_read_and_never_touched(tmp_path: Path) -> None:
    source = tmp_path / "real"
    real_days(source)
    (tmp_path / "target").mkdir()
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in source.iterdir()}
    context = context_at(tmp_path / "target")
    workload = dlrm(source=str(source))
    plan = workload.plan(context)
    assert (plan.data_bytes, plan.prepare_bytes) == (0, 0)
    _, checks = lived(workload, context)
    assert checks["dlrm_rows"].figures["line_count"] == 1000
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in source.iterdir()} == before
    assert outputs(tmp_path) == []


def zipped(folder: Path, *days: str) -> None:
    for name in days:
        path = folder / name
        (folder / f"{name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


@pytest.mark.parametrize(
    ("loader", "columnar"),
    [(ArrowConfig(), True), (NativeConfig(), False)],
    ids=["arrow-columnar", "native-packed"],
)
def test_gz_days_are_converted_and_counted_apart(
    loader: ConverterConfig, tmp_path: Path, *, columnar: bool
) -> None:
    text = real_days(tmp_path / "real", day_count=3, row_count=3000)
    zipped(tmp_path / "real", "day_0", "day_2")
    (tmp_path / "target").mkdir()
    context = context_at(tmp_path / "target")
    workload = dlrm(
        loader, source=str(tmp_path / "real"), workers=2, columnar=columnar, keep_output=True,
        block_bytes=1 << 17, sample_row_groups=99,
    )  # fmt: skip
    plan = workload.plan(context)
    assert plan.run_bytes == pytest.approx(2 * 9000 * (ROW_BYTES + columnar * 184), rel=0.2)
    outcome, checks = lived(workload, context)
    assert {check.verdict for check in checks.values()} == {"pass"}
    facts = facts_of(outcome)
    stored = sum(path.stat().st_size for path in (tmp_path / "real").iterdir())
    gz_bytes = sum(path.stat().st_size for path in (tmp_path / "real").glob("*.gz"))
    assert (facts.tsv_bytes, facts.gz_bytes) == (len(text), gz_bytes)
    assert sum(work.unpack_cpu_s for work in facts.phases.values()) > 0
    phases = context.timed("tsv_to_parquet" if columnar else "tsv_to_binary")
    if loader.name == "arrow":  # O_DIRECT moves blocks at the edges of parts twice
        assert [phase.read_bytes for phase in phases] == [stored, stored]
    packed = [path for path in outputs(tmp_path / "target") if path.suffix == ".bin"]
    assert b"".join(path.read_bytes() for path in packed) == b"".join(
        pack_row(parse_line(line)) for line in text.splitlines()
    )


def test_gz_days_that_can_not_be_shared_evenly_are_remarked(tmp_path: Path) -> None:
    real_days(tmp_path / "real", day_count=2)
    zipped(tmp_path / "real", "day_0", "day_1")
    source = str(tmp_path / "real")
    remark = (
        "2 gz files can't be shared evenly by 3 workers, because one worker converts all of a "
        "file; unpacked files are divided by bytes."
    )
    outcome, _ = lived(dlrm(source=source, workers=3), context_at(tmp_path))
    assert remark in outcome.remarks
    outcome, _ = lived(dlrm(source=source, workers=2), context_at(tmp_path))
    assert not any("gz files" in remark for remark in outcome.remarks)


def test_a_gz_day_that_is_cut_short_ends_the_run_before_it_is_timed(tmp_path: Path) -> None:
    real_days(tmp_path / "real")
    zipped(tmp_path / "real", "day_1")
    day = tmp_path / "real" / "day_1.gz"
    os.truncate(day, day.stat().st_size - 1000)
    end = day.stat().st_size
    with pytest.raises(DataError, match=rf"day_1.gz is cut short: its gz data ends at byte {end},"):
        dlrm(source=str(tmp_path / "real")).prepare(context_at(tmp_path))


def test_workers_share_one_file_of_a_few_lines(tmp_path: Path) -> None:
    real_days(tmp_path / "real", day_count=1, row_count=2)
    workload = dlrm(source=str(tmp_path / "real" / "day_0"), workers=3)
    outcome, checks = lived(workload, context_at(tmp_path))
    assert facts_of(outcome).phases["tsv_to_parquet"].part_count == 2 * 2  # of two rounds
    assert checks["dlrm_rows"].figures["packed_row_count"] == 2


def test_a_source_elsewhere_than_the_target_is_remarked(tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK) or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system to write to")
    real_days(tmp_path / "real")
    target = shared / f"wattload-test-{os.getpid()}"
    target.mkdir()
    try:
        outcome, _ = lived(dlrm(source=str(tmp_path / "real")), context_at(target))
        assert any("is not on the target's file system" in remark for remark in outcome.remarks)
    finally:
        clean(target)
        target.rmdir()


def test_ranks_share_the_parts_and_agree_on_the_result(tmp_path: Path) -> None:
    contexts = [
        Context(targets=(directory_target(tmp_path),), communicator=communicator)
        for communicator in ThreadCommunicator.world(2)
    ]

    def live(context: Context) -> tuple[Outcome, dict[str, Check]]:
        return lived(dlrm(workers=1, day_count=3), context)

    (first, checks), (second, others) = run_ranks(contexts, live)
    assert {check.verdict for check in checks.values()} == {"pass"}
    assert (second, others) == (Outcome(), {})
    assert facts_of(first).workers == 2
    read = [sum(phase.read_bytes for phase in c.timed("tsv_to_parquet")) for c in contexts]
    assert sum(read) == 2 * facts_of(first).tsv_bytes
    assert min(read) > 0
    assert outputs(tmp_path) == []


def test_a_rank_without_a_part_takes_part(tmp_path: Path) -> None:
    real_days(tmp_path / "real", day_count=1, row_count=1)
    contexts = [
        Context(targets=(directory_target(tmp_path),), communicator=communicator)
        for communicator in ThreadCommunicator.world(2)
    ]
    found = run_ranks(contexts, lambda c: lived(dlrm(workers=1, source=str(tmp_path / "real")), c))
    assert {check.verdict for check in found[0][1].values()} == {"pass"}


def test_data_and_output_are_spread_over_targets(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.mkdir()
    targets = tuple(directory_target(path, index=index) for index, path in enumerate(paths))
    _, checks = lived(dlrm(keep_output=True), Context(targets=targets))
    assert checks["dlrm_sample"].verdict == "pass"
    for path in paths:
        assert len(outputs(path)) == 2
        assert len(list(path.rglob("day_*"))) >= 1


def spoiled(
    tmp_path: Path,
    spoil: Callable[[list[Path]], None],
    suffix: str,
    **changed: Any,
) -> dict[str, Check]:
    """Run, then change the outputs with this suffix before verify looks."""
    workload, context = dlrm(rounds=1, **changed), context_at(tmp_path)
    workload.prepare(context)
    workload.run(context)
    spoil([path for path in outputs(tmp_path) if path.suffix == suffix])
    return {check.name: check for check in workload.verify(context)}


def failed(checks: dict[str, Check]) -> set[str]:
    return {name for name, check in checks.items() if check.verdict == "fail"}


def flip(path: Path, offset: int, mask: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= mask
    path.write_bytes(content)


def test_a_lost_row_fails_the_checks(tmp_path: Path) -> None:
    def lose(paths: list[Path]) -> None:
        os.truncate(paths[0], paths[0].stat().st_size - ROW_BYTES)

    checks = spoiled(tmp_path, lose, ".bin")
    assert failed(checks) == {"dlrm_content", "dlrm_rows", "dlrm_sample"}
    assert "rows were lost or duplicated" in checks["dlrm_rows"].sentence


@pytest.mark.parametrize("column", [0, 39])
def test_a_changed_value_fails_the_checks(tmp_path: Path, column: int) -> None:
    def change(paths: list[Path]) -> None:
        content = bytearray(paths[0].read_bytes())
        content[4 * column :: ROW_BYTES] = bytes(
            value ^ 1 for value in content[4 * column :: ROW_BYTES]
        )
        paths[0].write_bytes(content)

    checks = spoiled(tmp_path, change, ".bin")
    assert failed(checks) == {"dlrm_content", "dlrm_sample"}
    check = checks["dlrm_sample"]
    assert "the first is row 0 of " in check.sentence
    assert check.figures["different_count"] == ROWS // 2
    assert check.figures["expected_sha256"] != check.figures["found_sha256"]


@pytest.mark.parametrize("suffix", [".bin", ".parquet"])
def test_one_flipped_bit_fails_the_checks(tmp_path: Path, suffix: str) -> None:
    checks = spoiled(tmp_path, lambda paths: flip(paths[1], 1000), suffix)
    assert "dlrm_content" in failed(checks)
    assert f"day_1.00000{suffix} does not have the bytes" in checks["dlrm_content"].sentence


def test_a_parquet_file_without_its_footer_fails_the_checks(tmp_path: Path) -> None:
    checks = spoiled(tmp_path, lambda paths: flip(paths[0], -1), ".parquet")
    assert failed(checks) == {"dlrm_content", "dlrm_rows", "dlrm_sample"}


@pytest.mark.parametrize("keep_output", [False, True])
@pytest.mark.parametrize("suffix", [".bin", ".parquet"])
def test_a_deleted_output_fails_the_checks(
    tmp_path: Path, suffix: str, *, keep_output: bool
) -> None:
    checks = spoiled(tmp_path, lambda paths: paths[0].unlink(), suffix, keep_output=keep_output)
    assert failed(checks) == {"dlrm_content", "dlrm_rows", "dlrm_sample"}
    assert (
        f"{suffix} can't be read after the timed phases (No such file or directory); 1 files differ"
        in checks["dlrm_content"].sentence
    )


def test_all_outputs_deleted_fail_the_checks(tmp_path: Path) -> None:
    def delete(paths: list[Path]) -> None:
        for path in paths[0].parent.glob("*.[bp]*"):
            path.unlink()

    checks = spoiled(tmp_path, delete, ".bin")
    assert failed(checks) == {"dlrm_content", "dlrm_rows", "dlrm_sample"}


def test_a_deleted_day_file_fails_the_checks(tmp_path: Path) -> None:
    workload, context = dlrm(sample_row_groups=1000), context_at(tmp_path)
    facts = workload.prepare(context)
    workload.run(context)
    (Path(facts.folder) / "day_0").unlink()
    checks = {check.name: check for check in workload.verify(context)}
    assert failed(checks) == {"data_digests", "dlrm_sample"}
    assert "day_0, which can't be read (No such file" in checks["dlrm_sample"].sentence
    assert checks["dlrm_sample"].figures["different_count"] == ROWS // 2


def test_the_rows_of_another_part_fail_the_checks(tmp_path: Path) -> None:
    def copy(paths: list[Path]) -> None:
        paths[0].write_bytes(paths[1].read_bytes())

    assert failed(spoiled(tmp_path, copy, ".parquet")) == {"dlrm_content", "dlrm_sample"}
    assert failed(spoiled(tmp_path, copy, ".bin")) == {"dlrm_content", "dlrm_sample"}


def test_swapped_columns_fail_the_checks(tmp_path: Path) -> None:
    def swap_parquet(paths: list[Path]) -> None:
        table = pq.read_table(paths[0])
        names = ["i3" if name == "i2" else "i2" if name == "i3" else name for name in COLUMNS]
        pq.write_table(table.rename_columns(names).select(list(COLUMNS)), paths[0])

    def swap_packed(paths: list[Path]) -> None:
        rows = np.fromfile(paths[0], "<i4").reshape(-1, len(COLUMNS))
        rows[:, [2, 3]] = rows[:, [3, 2]]
        rows.tofile(paths[0])

    assert failed(spoiled(tmp_path, swap_parquet, ".parquet")) == {"dlrm_content", "dlrm_sample"}
    assert failed(spoiled(tmp_path, swap_packed, ".bin")) == {"dlrm_content", "dlrm_sample"}


def test_which_row_groups_are_compared_is_drawn_by_the_run_and_not_by_the_seed(
    tmp_path: Path,
) -> None:
    draws = {
        lived(dlrm(rounds=1), context_at(tmp_path))[1]["dlrm_sample"].figures["draw"]
        for _ in range(2)
    }
    assert len(draws) == 2


def test_a_sample_is_a_share_of_the_row_groups(tmp_path: Path) -> None:
    workload = dlrm(rounds=1, block_bytes=64 << 10, part_bytes=256 << 10, sample_row_groups=3)
    _, checks = lived(workload, context_at(tmp_path))
    figures = checks["dlrm_sample"].figures
    assert checks["dlrm_sample"].verdict == "pass"
    assert figures["groups_drawn"] == 3
    assert float(figures["group_count"] or 0) > 3


def repeat_a_line(day: Path) -> None:
    """Replace the last lines by copies of the first, so that only the count of lines differs."""
    lines = day.read_bytes().splitlines(keepends=True)
    size_bytes = day.stat().st_size
    long = max(lines, key=len)
    text = b"".join(lines[:-10])
    while len(text) + len(long) < size_bytes - 300:
        text += long
    fields = long.split(b"\t")
    last = b"\t".join([b"0", *fields[1:-1], b"\n"])
    day.write_bytes((text + last * 10)[: size_bytes - 1] + b"\n")


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda day: flip(day, 500, 1), id="one bit"),
        pytest.param(repeat_a_line, id="fewer lines of equal size"),
        pytest.param(lambda day: day.write_bytes(bytes(day.stat().st_size)), id="zeros"),
    ],
)
def test_a_changed_day_file_is_refused_before_it_is_timed(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    context = context_at(tmp_path)
    folder = dlrm().prepare(context).folder
    day = Path(folder) / "day_1"
    before, content = day.stat(), day.read_bytes()
    spoil(day)
    os.utime(day, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert day.stat().st_size == before.st_size
    with pytest.raises(DataError, match=r"day_1 is not what was written: its SHA-256 .*; delete"):
        dlrm().prepare(context)
    day.unlink()
    assert not dlrm().prepare(context).reused
    assert day.read_bytes() == content


def test_a_day_file_changed_during_the_run_fails_the_checks(tmp_path: Path) -> None:
    workload, context = dlrm(), context_at(tmp_path)
    facts = workload.prepare(context)
    flip(Path(facts.folder) / "day_0", 1)  # the second byte: the label's tab or its first integer
    flip(Path(facts.folder) / "day_0", 1)
    workload.run(context)
    checks = {check.name: check for check in workload.verify(context)}
    assert failed(checks) == {"data_digests"}
    assert "day_0 was changed during the run" in checks["data_digests"].sentence


def test_other_bytes_than_those_verified_fail_the_checks(tmp_path: Path) -> None:
    workload, context = dlrm(), context_at(tmp_path)
    facts = workload.prepare(context)
    day = Path(facts.folder) / "day_0"
    lines = day.read_bytes().splitlines(keepends=True)
    lines[0], lines[1] = lines[1], lines[0]
    day.write_bytes(b"".join(lines))
    workload.run(context)
    checks = {check.name: check for check in workload.verify(context)}
    assert failed(checks) == {"data_digests", "dlrm_content"}


def test_changed_files_of_the_user_are_other_data(tmp_path: Path) -> None:
    real_days(tmp_path / "real")
    (tmp_path / "target").mkdir()
    context, source = context_at(tmp_path / "target"), str(tmp_path / "real")
    first = dlrm(source=source).prepare(context)
    day = tmp_path / "real" / "day_0"
    lines = day.read_bytes().splitlines(keepends=True)
    day.write_bytes(b"".join(reversed(lines)))
    second = dlrm(source=source).prepare(context)
    assert first.data_bytes == second.data_bytes
    assert first.key != second.key
    assert first.parameters["sha256"] != second.parameters["sha256"]
    assert foreign_paths(tmp_path / "target") == ()
    clean(tmp_path / "target")
    assert list((tmp_path / "target" / "wattload-data").glob("dlrm*")) == []


@pytest.mark.parametrize("hollow_out", [punch, unwrite])
def test_a_hollow_day_file_ends_the_run_before_it_is_timed(
    tmp_path: Path, hollow_out: Callable[[Path], None]
) -> None:
    real_days(tmp_path / "real")
    workload, context = dlrm(source=str(tmp_path / "real")), context_at(tmp_path)
    workload.prepare(context)
    hollow_out(tmp_path / "real" / "day_1")
    with pytest.raises(DataError, match=r"day_1 has 16\.38 kB in holes.*cp --sparse=never"):
        workload.run(context)
    assert context.timed("tsv_to_parquet") == []
    assert outputs(tmp_path) == []


def test_a_bad_line_ends_the_run_and_removes_the_output(tmp_path: Path) -> None:
    real_days(tmp_path / "real")
    day = tmp_path / "real" / "day_1"
    lines = day.read_bytes().splitlines(keepends=True)
    lines[300] = lines[300].replace(b"\t", b" ", 1)
    day.write_bytes(b"".join(lines))
    workload, context = dlrm(source=str(tmp_path / "real")), context_at(tmp_path)
    workload.prepare(context)
    with pytest.raises(DataError, match=r"day_1, line 301 \(byte [0-9]+\): 39 columns"):
        workload.run(context)
    assert outputs(tmp_path) == []


def test_a_bad_id_is_named_by_its_line_in_the_tsv(tmp_path: Path) -> None:
    real_days(tmp_path / "real")
    day = tmp_path / "real" / "day_0"
    lines = day.read_bytes().splitlines(keepends=True)
    fields = lines[200].split(b"\t")
    lines[200] = b"\t".join([*fields[:14], b"nothexxx", *fields[15:]])
    day.write_bytes(b"".join(lines))
    workload, context = dlrm(source=str(tmp_path / "real")), context_at(tmp_path)
    workload.prepare(context)
    with pytest.raises(DataError, match=r"day_0, line 201 .*c1 is b'nothexxx'") as error:
        workload.run(context)
    assert error.value.__notes__ == [
        "  fix         correct the line, or set workload.bad_rows=drop to skip and count such lines"
    ]
    assert outputs(tmp_path) == []


@each_loader
def test_numeric_ids_pack_to_the_same_rows(loader: ConverterConfig, tmp_path: Path) -> None:
    text = real_days(tmp_path / "real")
    (tmp_path / "target").mkdir()
    workload = dlrm(
        loader, source=str(tmp_path / "real"), rounds=1, ids=Ids.int32, keep_output=True
    )
    _, checks = lived(workload, context_at(tmp_path / "target"))
    assert {check.verdict for check in checks.values()} == {"pass"}
    columns, rows = ([p for p in outputs(tmp_path) if p.suffix == s] for s in (".parquet", ".bin"))
    assert {str(pq.read_schema(path).field("c1").type) for path in columns} == {"int32"}
    assert b"".join(path.read_bytes() for path in rows) == b"".join(
        pack_row(parse_line(line)) for line in text.splitlines()
    )


@each_loader
@pytest.mark.parametrize("columnar", [True, False])
def test_logarithms_of_dense_features_are_packed_and_compared(
    loader: ConverterConfig, tmp_path: Path, *, columnar: bool
) -> None:
    workload, context = (
        dlrm(loader, rounds=1, dense=Dense.log, columnar=columnar),
        context_at(tmp_path),
    )
    _, checks = lived(workload, context)
    assert {check.verdict for check in checks.values()} == {"pass"}


@each_loader
@pytest.mark.parametrize("columnar", [True, False])
def test_columns_are_packed_apart_and_compared(
    loader: ConverterConfig, tmp_path: Path, *, columnar: bool
) -> None:
    split = {"dense": Dense.log, "pack": Pack.split_binary}
    workload = dlrm(loader, **split, columnar=columnar, keep_output=True)
    _, checks = lived(workload, context_at(tmp_path))
    assert {check.verdict for check in checks.values()} == {"pass"}
    packed = [path for path in outputs(tmp_path) if path.suffix == ".bin"]
    assert len(packed) == 2 * 28
    assert sum(path.stat().st_size for path in packed) == ROWS * SPLIT_ROW_BYTES


@pytest.mark.parametrize("name", ["label", "numerical", "cat_25"])
def test_a_flipped_bit_of_a_column_fails_the_checks(tmp_path: Path, name: str) -> None:
    def change(paths: list[Path]) -> None:
        path = next(path for path in paths if path.name == f"day_1.00000.{name}.bin")
        content = bytearray(path.read_bytes())
        content[0] ^= 1
        path.write_bytes(content)

    checks = spoiled(tmp_path, change, ".bin", dense=Dense.log, pack=Pack.split_binary)
    assert failed(checks) == {"dlrm_content", "dlrm_sample"}
    assert f"the first is row 0 of {tmp_path}" in checks["dlrm_sample"].sentence
    assert f"{name}.bin." in checks["dlrm_sample"].sentence


def test_counts_are_not_packed_as_float16(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pack=split_binary has .*; set workload.dense=log"):
        dlrm(pack=Pack.split_binary).plan(context_at(tmp_path))


def test_wrong_logarithms_fail_the_checks(tmp_path: Path) -> None:
    def change(paths: list[Path]) -> None:
        rows = np.fromfile(paths[0], "<i4").reshape(-1, len(COLUMNS))
        rows[:, 5] += 1  # the next float32
        rows.tofile(paths[0])

    assert failed(spoiled(tmp_path, change, ".bin", dense=Dense.log)) == {
        "dlrm_content",
        "dlrm_sample",
    }


@each_loader
@pytest.mark.parametrize("ids", Ids)
def test_dropped_rows_are_counted_and_the_first_is_named(
    loader: ConverterConfig, ids: Ids, tmp_path: Path
) -> None:
    real_days(tmp_path / "real")
    day = tmp_path / "real" / "day_1"
    lines = day.read_bytes().splitlines(keepends=True)
    lines[200] = lines[200].replace(b"\t", b" ", 1)
    lines[300] = b"\xe9\n"
    day.write_bytes(b"".join(lines))
    workload = dlrm(loader, source=str(tmp_path / "real"), bad_rows=BadRows.drop, ids=ids)
    outcome, checks = lived(workload, context_at(tmp_path))
    assert {check.verdict for check in checks.values()} == {"pass"}
    facts = facts_of(outcome)
    assert (facts.dropped_count, facts.row_count) == (2, 998)
    start = sum(map(len, lines[:200]))
    assert outcome.remarks[0] == (
        "2 lines were not rows and were dropped, as workload.bad_rows=drop requests; the first: "
        f"{day}, line 201 (byte {start}): 39 columns where 40 are needed."
    )
    assert checks["dlrm_rows"].sentence == (
        "1000 of the day files' 1000 lines were read, 2 of them dropped as invalid, and became "
        "998 Parquet rows and 998 packed rows."
    )


@each_loader
def test_without_parquet_there_is_one_phase_and_the_same_rows(
    loader: ConverterConfig, tmp_path: Path
) -> None:
    text = real_days(tmp_path / "real")
    (tmp_path / "target").mkdir()
    context = context_at(tmp_path / "target")
    workload = dlrm(loader, source=str(tmp_path / "real"), columnar=False, keep_output=True)
    plan = workload.plan(context)
    outcome, checks = lived(workload, context)
    assert {check.verdict for check in checks.values()} == {"pass"}
    assert {phase.name for phase in context.phases if phase.timed} == {"tsv_to_binary"}
    for phase in context.timed("tsv_to_binary"):
        assert (phase.read_bytes, phase.written_bytes) == (len(text), 1000 * ROW_BYTES)
    assert plan.run_bytes == pytest.approx(2 * 1000 * ROW_BYTES, rel=0.01)
    assert {path.suffix for path in outputs(tmp_path)} == {".bin"}
    assert b"".join(path.read_bytes() for path in outputs(tmp_path)) == b"".join(
        pack_row(parse_line(line)) for line in text.splitlines()
    )
    assert set(facts_of(outcome).phases) == {"tsv_to_binary"}
    assert "cold_cache_tsv_to_binary" in checks
    assert checks["dlrm_rows"].sentence == (
        "1000 of the day files' 1000 lines were read and became 1000 packed rows."
    )


@pytest.mark.parametrize(
    ("spoil", "wrong"),
    [
        pytest.param(lambda path: flip(path, 1000), set(), id="one bit"),
        pytest.param(Path.unlink, {"dlrm_rows"}, id="deleted"),
    ],
)
def test_without_parquet_wrong_rows_fail_the_checks(
    tmp_path: Path, spoil: Callable[[Path], None], wrong: set[str]
) -> None:
    checks = spoiled(
        tmp_path, lambda paths: spoil(paths[0]), ".bin", columnar=False, sample_row_groups=99
    )
    assert failed(checks) == {"dlrm_content", "dlrm_sample"} | wrong


def test_a_good_row_that_was_dropped_fails_the_checks(tmp_path: Path) -> None:
    workload, context = dlrm(bad_rows=BadRows.drop, sample_row_groups=9), context_at(tmp_path)
    folder = workload.prepare(context).folder
    day = Path(folder) / "day_0"
    content = day.read_bytes()
    lines = content.splitlines(keepends=True)
    lines[100] = lines[100].replace(b"\t", b" ", 1)
    day.write_bytes(b"".join(lines))  # the converter finds a bad line, the reference a good one
    workload.run(context)
    day.write_bytes(content)
    assert "dlrm_sample" in failed({check.name: check for check in workload.verify(context)})


def test_a_target_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="absent is not a directory"):
        dlrm().prepare(context_at(tmp_path / "absent"))


def test_methods_out_of_order_are_refused(tmp_path: Path) -> None:
    workload, context = dlrm(), context_at(tmp_path)
    with pytest.raises(RunError, match=r"prepare\(\) has to be called"):
        workload.run(context)
    workload.prepare(context)
    with pytest.raises(RunError, match=r"run\(\) has to be called"):
        workload.verify(context)


def test_the_plan_bounds_what_the_run_writes(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    workload = dlrm(compression=Compression.none)
    plan = workload.plan(context)
    outcome, _ = lived(workload, context)
    written = sum(phase.written_bytes for phase in context.phases)
    assert plan.run_bytes >= written
    tsv_bytes = facts_of(outcome).tsv_bytes
    assert plan.data_bytes == pytest.approx(tsv_bytes, rel=0.02)
    timed = [phase.written_bytes for phase in context.phases if phase.timed]
    assert plan.peak_bytes >= tsv_bytes + sum(timed) // 2
    assert plan.memory_bytes_per_rank >= peak_bytes(outcome)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"row_count": 0}, "workload.row_count must be 1 or more, got 0"),
        ({"rounds": 0}, "workload.rounds must be 1 to 10000, got 0"),
        ({"workers": -1}, "workload.workers must be 0 to 4096, got -1"),
        ({"row_count": 1}, r"workload.row_count must be at least workload.day_count \(2\), got 1"),
        ({"block_bytes": 100}, "workload.block_bytes must be 65536 to 1073741824, got 100"),
        ({"part_bytes": 1 << 20}, "workload.part_bytes must be at least workload.block_bytes"),
        (
            {"block_bytes": 64 << 20},
            "workload.block_bytes=67108864 needs up to [0-9]+ bytes per worker, more than "
            "workload.worker_memory_bytes=512000000; use smaller blocks",
        ),
        ({"source": "/absent"}, "workload.source=/absent does not exist"),
    ],
)
def test_a_setting_out_of_range_is_refused(
    tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        dlrm(**changed).plan(context_at(tmp_path))


def test_workers_default_to_the_cores_shared_by_the_ranks() -> None:
    cores = len(os.sched_getaffinity(0))
    assert config(workers=0).workers_per_rank(1) == cores
    assert config(workers=0).workers_per_rank(1000) == 1
    assert config(workers=5).workers_per_rank(2) == 5
