"""Random writes on real files by O_DIRECT."""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.context import Context, context_at
from wattload.core import steady
from wattload.core.errors import ConfigError, DataError, RunError, TargetError
from wattload.core.io import DeviceIdentity
from wattload.core.record.results import Check
from wattload.core.units import MIB
from wattload.core.workload import Accelerator, Outcome
from wattload.results.random_write.facts import Condition, Draw, Until, WriteFacts
from wattload.workloads.random_write import conditioning, writing
from wattload.workloads.random_write import workload as module
from wattload.workloads.random_write.config import Config, Purge, Scale
from wattload.workloads.random_write.workload import RandomWrite
from wattload.workloads.random_write.write_area import (
    FILE_NAME,
    WriteArea,
    earlier_random_bytes,
    explained,
)

RANGE_BYTES = 8 * MIB


def config(**settings: Any) -> Config:
    return Config(scales={"demo": Scale(range_bytes=RANGE_BYTES)}, **settings)


def made(settings: Config, context: Context) -> tuple[RandomWrite, Outcome, Sequence[Check]]:
    settings.check(context.scale)
    workload = RandomWrite(settings, None, Accelerator())
    workload.plan(context)
    workload.prepare(context)
    outcome = workload.run(context)
    return workload, outcome, workload.verify(context)


def file_of(context: Context) -> Path:
    [path] = context.targets[0].data_folder.rglob(FILE_NAME)
    return path


def facts_of(outcome: Outcome) -> WriteFacts:
    assert isinstance(outcome.facts, WriteFacts)
    return outcome.facts


def words_of(path: Path) -> np.ndarray[Any, Any]:
    """Return nonce and word of each 4096-byte block, shape (n, 2)."""
    return np.fromfile(path, dtype="<u8").reshape(-1, 512)[:, :2]


def test_a_fill_writes_every_block_once_per_pass(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    _, outcome, [check] = made(config(passes=3), context)
    assert [each.written_bytes for each in facts_of(outcome).passes] == [
        number * RANGE_BYTES for number in (1, 2, 3)
    ]
    assert [phase.written_bytes for phase in context.timed("random_write")] == [3 * RANGE_BYTES]
    nonces = words_of(file_of(context))
    assert len(set(nonces[:, 0])) == 1
    assert set(nonces[:, 1]) == {18}  # the third pass, each block exactly once
    assert check.verdict == "pass"
    assert outcome.latencies[0].count == 3 * RANGE_BYTES // 16384


def test_each_pass_has_an_order_of_its_own(tmp_path: Path) -> None:
    _, outcome, _ = made(config(passes=2), context_at(tmp_path))
    first, second = (each.rows["offset_bytes"] for each in outcome.operations)
    assert sorted(first) == sorted(second)
    assert list(first) != list(second)


def test_uniform_writes_leave_some_blocks_to_the_preparation(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    _, outcome, [check] = made(config(passes=1, draw=Draw.uniform), context)
    words = words_of(file_of(context))[:, 1].reshape(-1, 4)
    assert (words == words[:, :1]).all()  # no write was torn
    share = float((words[:, 0] == 1).mean())  # by the second sequential pass only
    assert share == pytest.approx(np.exp(-1), abs=0.1)
    assert check.verdict == "pass"
    assert facts_of(outcome).draw is Draw.uniform


def test_the_tables_add_up_to_what_was_written(tmp_path: Path) -> None:
    _, outcome, _ = made(config(passes=2, rate_bytes_per_s=8e6), context_at(tmp_path))
    for name in ("seconds", "rounds"):
        table: pa.Table = outcome.tables[name]
        rows = table.to_pylist()
        assert sum(row["written_bytes"] for row in rows) == 2 * RANGE_BYTES
        assert sum(row["operations"] for row in rows) == 2 * RANGE_BYTES // 16384
        assert all(a["end_ns"] == b["start_ns"] for a, b in pairwise(rows))
    assert outcome.tables["seconds"].num_rows >= 2


@pytest.fixture
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rounds take 0.3 s instead of a minute, however uneven they are on a busy machine."""
    monkeypatch.setattr(steady, "ROUND_S", 0.3)
    monkeypatch.setattr(steady, "RANGE_LIMIT", math.inf)
    monkeypatch.setattr(steady, "SLOPE_LIMIT", math.inf)
    monkeypatch.setattr(writing, "READ_EVERY_S", 0.1)


@pytest.mark.usefixtures("short_rounds")
def test_writes_end_in_a_steady_state(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    settings = config(until=Until.steady, passes=90, rate_bytes_per_s=50e6)
    _, outcome, [check] = made(settings, context)
    assert check.verdict == "pass"
    [phase] = context.timed("random_write")
    [(name, start, end)] = phase.parts
    facts = facts_of(outcome)
    written = facts.total.written_bytes
    assert name == "steady"
    assert written == phase.written_bytes < 90 * RANGE_BYTES  # nothing after the stop is missed
    seconds = (end.time_ns - start.time_ns) / 1e9
    rate = (end.written_bytes - start.written_bytes) / seconds
    assert start.written_bytes >= RANGE_BYTES  # one capacity before the first round
    assert outcome.latencies[1].phase == "steady"
    assert facts.ended_by == "steady state"
    stored = facts.model_dump(mode="json")
    assert WriteFacts.model_validate({**stored, "settings": facts.settings}) == facts
    assert facts.steady is not None
    window = facts.steady.headline.window
    assert window is not None
    assert window.bytes_per_s == pytest.approx(rate, rel=0.01)
    assert window.end_s * 1e9 == pytest.approx(end.time_ns - phase.start_ns, rel=0.5)


@pytest.mark.usefixtures("short_rounds")
def test_no_steady_state_is_a_result_without_steady_figures(tmp_path: Path) -> None:
    settings = config(until=Until.steady, passes=1)
    _, outcome, _ = made(settings, context_at(tmp_path))
    found = facts_of(outcome).steady
    assert found is not None
    assert found.headline.window is None
    assert re.fullmatch("[0-4] of 5 rounds are complete", found.headline.reason)
    assert any(remark.startswith("Not steady after 8.39 MB") for remark in outcome.remarks)


@pytest.mark.usefixtures("short_rounds")
def test_kept_random_writes_count_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def noted(area: WriteArea, settings: Config) -> int:
        found.append(earlier_random_bytes(area, settings))
        return found[-1]

    monkeypatch.setattr(module, "earlier_random_bytes", noted)
    first = config(until=Until.steady, passes=2, rate_bytes_per_s=50e6)
    _, outcome, _ = made(first, context_at(tmp_path))
    kept = config(until=Until.steady, passes=2, rate_bytes_per_s=50e6, condition=Condition.keep)
    _, _, [check] = made(kept, context_at(tmp_path))
    assert found == [0, facts_of(outcome).total.written_bytes]
    assert check.verdict == "pass"


@pytest.mark.usefixtures("short_rounds")
def test_a_limited_rate_is_not_what_a_drive_sustains(tmp_path: Path) -> None:
    settings = config(until=Until.steady, passes=90, rate_bytes_per_s=50e6)
    _, outcome, _ = made(settings, context_at(tmp_path))
    assert any("was limited to 50.00 MB/s" in remark for remark in outcome.remarks)


def test_no_second_shorter_than_a_second_is_the_slowest(tmp_path: Path) -> None:
    _, outcome, _ = made(config(passes=3, rate_bytes_per_s=10e6), context_at(tmp_path))
    rows = outcome.tables["seconds"].to_pylist()
    whole = [row for row in rows if row["end_ns"] - row["start_ns"] > 0.9e9]
    rates = [row["written_bytes"] / (row["end_ns"] - row["start_ns"]) * 1e9 for row in whole]
    assert facts_of(outcome).slowest_second_bytes_per_s == pytest.approx(min(rates))


def test_keep_is_refused_when_the_range_was_emptied(tmp_path: Path) -> None:
    made(config(passes=1), context_at(tmp_path))
    context = context_at(tmp_path)
    with file_of(context).open("r+b") as file:
        file.seek(RANGE_BYTES // 2)
        file.write(bytes(RANGE_BYTES // 4))  # as a discard leaves it
    with pytest.raises(TargetError, match="discarded, formatted or overwritten since"):
        made(config(condition=Condition.keep), context)


def test_keep_after_unprepared_writes_does_not_count_them(tmp_path: Path) -> None:
    made(config(passes=1), context_at(tmp_path))
    context = context_at(tmp_path)
    workload, _, _ = made(config(passes=1, condition=Condition.none), context)
    assert workload.plan(context).prepare_bytes == 0
    made(config(passes=1, condition=Condition.keep), context_at(tmp_path))


def test_a_kept_range_is_not_prepared_again(tmp_path: Path) -> None:
    made(config(passes=1), context_at(tmp_path))
    context = context_at(tmp_path)
    _, _, [check] = made(config(passes=1, condition=Condition.keep), context)
    assert [phase.name for phase in context.phases] == ["random_write"]
    assert check.verdict == "pass"


def test_keep_is_refused_without_a_preparation(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="was never prepared by wattload on this host, or was purged since; run"
    ):
        made(config(condition=Condition.keep), context_at(tmp_path))


def interrupt_preparation(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """End a preparation after five steps of 2 MiB."""
    monkeypatch.setattr(conditioning, "STEP_LEAST_BYTES", 2 * MIB)
    kept = conditioning.sequential_plans

    def cut_short(*given: Any) -> Any:
        for number, each in enumerate(kept(*given)):
            if number == 5:
                raise KeyboardInterrupt
            yield each

    with monkeypatch.context() as cut:
        cut.setattr(conditioning, "sequential_plans", cut_short)
        with pytest.raises(KeyboardInterrupt):
            made(config(), context)


def test_an_interrupted_preparation_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = context_at(tmp_path)
    interrupt_preparation(first, monkeypatch)
    again = context_at(tmp_path)
    made(config(passes=1), again)
    [prepared] = [phase for phase in again.phases if phase.name == "condition"]
    assert prepared.written_bytes == 2 * RANGE_BYTES - 5 * 2 * MIB


def test_an_interrupted_preparation_of_an_emptied_range_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = context_at(tmp_path)
    interrupt_preparation(first, monkeypatch)
    with file_of(first).open("r+b") as file:
        file.write(bytes(RANGE_BYTES))
    again = context_at(tmp_path)
    made(config(passes=1), again)
    [prepared] = [phase for phase in again.phases if phase.name == "condition"]
    assert prepared.written_bytes == 2 * RANGE_BYTES


def test_blocks_that_are_not_what_was_written_fail_the_check(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    workload, _, _ = made(config(passes=1), context)
    path = file_of(context)
    content = bytearray(path.read_bytes())
    for block in range(0, RANGE_BYTES, 16384):  # a stale block: whole, but of an earlier pass
        content[block + 8 : block + 16] = (1).to_bytes(8, "little")
    path.write_bytes(content)
    [check] = workload.verify(context)
    assert check.verdict == "fail"
    assert "are wrong, the first at byte 0" in check.sentence


def test_a_swapped_pair_of_blocks_is_found(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    workload, _, _ = made(config(passes=1, range_bytes=2 * MIB), context)
    path = file_of(context)
    content = path.read_bytes()
    path.write_bytes(content[16384:32768] + content[:16384] + content[32768:])
    [check] = workload.verify(context)
    assert check.verdict == "fail"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"draw": Draw.each_once, "until": Until.steady},
            "workload.until=steady needs workload.draw=uniform",
        ),
        (
            {"until": Until.steady, "condition": Condition.none},
            "workload.until=steady needs workload.condition=sequential or keep",
        ),
        ({"until": Until.wsat}, "workload.until=wsat starts on a purged drive"),
        (
            {"purge": Purge.discard, "condition": Condition.keep},
            "workload.purge=discard would undo what workload.condition=keep relies on",
        ),
        ({"block_bytes": 6000}, "workload.block_bytes"),
        ({"purge": Purge.discard}, "empties a whole drive and needs target=block"),
        ({"range_bytes": 1 * MIB, "block_bytes": 2 * MIB}, "must hold a block of 2097152 bytes"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    tmp_path: Path, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        made(config(**settings), context_at(tmp_path))
    assert not list(tmp_path.iterdir())


def test_each_run_that_prepares_writes_the_preparation_again(tmp_path: Path) -> None:
    for condition, again in ((None, True), (Condition.none, False)):
        workload = RandomWrite(config(condition=condition), None, Accelerator())
        assert workload.plan(context_at(tmp_path)).prepares_again is again


def test_several_targets_are_refused(tmp_path: Path) -> None:
    one = context_at(tmp_path)
    two = replace(one, targets=(*one.targets, replace(one.targets[0], index=1)))
    with pytest.raises(ConfigError, match="random_write writes to one target, got 2"):
        RandomWrite(config(), None, Accelerator()).plan(two)


def test_a_full_file_system_leaves_a_sentence_and_no_reserved_space(tiny_file_system: Path) -> None:
    context = context_at(tiny_file_system)
    with pytest.raises(OSError, match="No space left"):
        made(config(range_bytes=64 * MIB), context)
    assert os.statvfs(tiny_file_system).f_bavail * 4096 > 16 * MIB


def test_a_note_of_another_version_is_refused(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    made(config(passes=1), context)
    [manifest] = file_of(context).parent.glob(".wattload-manifest-*")
    manifest.write_text(manifest.read_text().replace('"range_bytes"', '"range_octets"'))
    with pytest.raises(DataError, match="delete the data with `wattload clean`"):
        made(config(), context)


def test_a_fault_of_a_drive_that_is_gone_says_so() -> None:
    gone = DeviceIdentity(
        path=Path("/dev/nvme9n1"),
        major_minor="259:1048575",
        disk_sequence=7,
        size_bytes=RANGE_BYTES,
        logical_block_bytes=512,
    )
    area = WriteArea(path=gone.path, range_bytes=RANGE_BYTES, device=gone)
    with pytest.raises(RunError, match="/dev/nvme9n1 went away during the run"), explained(area):
        raise OSError(errno.ENOSPC, "write failed", "/dev/nvme9n1")
