"""Faults that are made on purpose: each is found by the check or the error that is meant for it."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.context import Context, context_at
from tests.run.running import run_here
from tests.stamped import sampled_blocks
from tests.workloads.kv_cache.making import (
    TINY,
    UNIT_BYTES,
    Made,
    block_files,
    config,
    layered,
    made,
    planned,
    require_empty,
    small_runs,
)
from wattload.core.errors import DataError
from wattload.core.io import Extent
from wattload.loaders.direct.transfers import EngineTransfers
from wattload.results.kv_cache.facts import RESTORE, STEADY, Admission, Arrivals
from wattload.workloads.kv_cache.cache import BlockCache
from wattload.workloads.kv_cache.requests import Request
from wattload.workloads.kv_cache.server import Server
from wattload.workloads.kv_cache.tier import DriveTier, Placed

__all__ = ["small_runs"]

FILLED, MIXED = "serving requests", "restoring alone"
"""What a run shows as its next step when the cache is filled, and when the mix is over."""


def at_step(context: Context, step: str, act: Callable[[], object]) -> None:
    """Act when a run begins a step."""
    begin = context.progress.begin

    def noted(task: str, **sizes: Any) -> None:
        begin(task, **sizes)
        if task == step:
            act()

    context.progress.begin = noted  # type: ignore[method-assign]


def made_with(path: Path, step: str, act: Callable[[], object], **settings: Any) -> Made:
    context = context_at(path)
    at_step(context, step, act)
    return made(context, config(**settings))


def swap_files(target: Path) -> None:
    """Give each file of a block the name of the next one."""
    paths = block_files(target)
    paths[0].rename(target / "first")
    for path, after in pairwise(paths):
        after.rename(path)
    (target / "first").rename(paths[-1])


def for_each_file(target: Path, act: Callable[[Path], object]) -> None:
    for path in block_files(target):
        act(path)


def change_unit(path: Path, unit: int) -> None:
    """Change one byte of a unit, behind its stamp."""
    with path.open("r+b") as file:
        file.seek(unit * UNIT_BYTES + 1000)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
        os.fsync(file.fileno())


def change_sampled(target: Path) -> None:
    """Change the first unit of each block, which every restore compares."""
    for_each_file(target, partial(change_unit, unit=0))


def change_unsampled(target: Path) -> None:
    """Change the one unit of each block that no restore compares."""
    for path in block_files(target):
        (word,) = np.fromfile(path, dtype="<u8", count=1, offset=8).tolist()
        size = path.stat().st_size
        (unit,) = {*range(size // UNIT_BYTES)} - {*sampled_blocks(size, 1, word)}
        change_unit(path, unit)


def test_blocks_in_the_place_of_others_are_found_when_they_are_restored(tmp_path: Path) -> None:
    run = made_with(tmp_path, FILLED, partial(swap_files, tmp_path))
    assert run.counts(STEADY).bad_blocks > 0
    check = run.check("restored_blocks")
    assert check.verdict == "fail"
    assert "units of 4096 bytes were wrong" in check.sentence


def test_a_tier_that_reads_another_slot_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = DriveTier._read

    def misread(
        tier: DriveTier, blocks: Sequence[Placed], pieces: range, *, sampled: bool = True
    ) -> Any:
        with monkeypatch.context() as patch:
            extent = DriveTier._extent

            def of_another(tier: DriveTier, block: Placed, *given: Any) -> Extent:
                return extent(tier, (block[0], block[1] ^ 1), *given)

            patch.setattr(DriveTier, "_extent", of_another)
            return read(tier, blocks, pieces, sampled=sampled)

    monkeypatch.setattr(DriveTier, "_read", misread)
    run = made(context_at(tmp_path), config(**layered(TINY, 6)))
    for name in ("restored_blocks", "stored_blocks"):
        assert run.check(name).verdict == "fail"
    assert run.counts(STEADY).bad_blocks * UNIT_BYTES == run.counts(STEADY).compared_bytes


def test_a_changed_unit_that_is_sampled_is_found_at_the_restore(tmp_path: Path) -> None:
    run = made_with(tmp_path, MIXED, partial(change_sampled, tmp_path))
    counts = run.counts(RESTORE)
    assert counts.bad_blocks == counts.restored_blocks > 0 == run.counts(STEADY).bad_blocks
    assert run.check("restored_blocks").verdict == "fail"


def test_a_changed_unit_that_is_not_sampled_is_found_at_the_end(tmp_path: Path) -> None:
    run = made_with(tmp_path, MIXED, partial(change_unsampled, tmp_path))
    assert run.check("restored_blocks").verdict == "pass"
    check = run.check("stored_blocks")
    assert check.verdict == "fail"
    kept = 64 - run.counts("store").stored_blocks  # which evicted as many
    assert check.figures["bad"] == kept
    assert "units of 4096 bytes were wrong" in check.sentence


def test_one_changed_unit_is_one_wrong_unit(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    workload = planned(context, config())
    workload.run(context)
    change_unit(block_files(tmp_path)[7], 2)
    check, _ = workload.verify(context)
    assert check.verdict == "fail"
    assert check.sentence == (
        "At the end 1.05 MB of 1.05 MB in the cache were compared, and 1 units of 4096 bytes were "
        "wrong."
    )


def test_a_block_of_an_earlier_run_is_found(tmp_path: Path) -> None:
    """Its stamp has the number of another run."""
    contents: list[bytes] = []
    for _ in range(2):
        context = context_at(tmp_path)
        workload = planned(context, config())
        workload.run(context)
        path = block_files(tmp_path)[0]
        if contents:
            path.write_bytes(contents[0])
        contents.append(path.read_bytes())
        check, _ = workload.verify(context)
    assert check.verdict == "fail"
    assert check.figures["bad"] == 4


def test_an_eviction_in_use_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evict the block that was used last: the head of the request that makes room."""

    def evict_in_use(cache: BlockCache) -> tuple[int, int] | None:
        block, entry = next(reversed(cache._entries.items()))
        cache._remove(block)
        cache.evicted += 1
        return block, entry.slot

    context = context_at(tmp_path)
    workload = planned(context, config())
    at_step(context, FILLED, lambda: monkeypatch.setattr(BlockCache, "evict_one", evict_in_use))
    with pytest.raises(FileNotFoundError, match=r"\.kv"):
        workload.run(context)
    require_empty(tmp_path)


def test_names_before_the_bytes_are_durable_fail_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = EngineTransfers.submit
    monkeypatch.setattr(
        EngineTransfers,
        "submit",
        lambda transfers, plan: submit(transfers, replace(plan, fsync=False)),
    )
    check = made(context_at(tmp_path), config()).check("durable_stores")
    assert check.verdict == "fail"
    assert check.sentence.startswith("0 files were made durable and ")
    assert check.sentence.endswith("files got their names before they were durable.")


OPEN: dict[str, Any] = {"arrivals": Arrivals.open, "request_rate": 500.0}


def test_a_schedule_that_is_kept_passes(tmp_path: Path) -> None:
    assert made(context_at(tmp_path), config(**OPEN)).check("schedule").verdict == "pass"


def test_a_schedule_that_slides_fails_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit = Server._admit

    def late(server: Server, request: Request, arrived_s: float, policy: Admission) -> Any:
        return admit(server, request, server._clock.now(), policy)

    monkeypatch.setattr(Server, "_admit", late)
    check = made(context_at(tmp_path), config(**OPEN)).check("schedule")
    assert check.verdict == "fail"
    assert "the schedule slid, or requests were skipped" in check.sentence


def test_requests_that_are_skipped_fail_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Server._take

    def every_second(server: Server) -> Request:
        server._follow(skipped := take(server), 0.0)
        server._taken -= 1
        return take(server) if server._arrivals else skipped

    monkeypatch.setattr(Server, "_take", every_second)
    check = made(context_at(tmp_path), config(**OPEN)).check("schedule")
    assert check.verdict == "fail"
    assert "the schedule slid, or requests were skipped" in check.sentence


def test_stores_that_nobody_reads_fail_a_check(tmp_path: Path) -> None:
    run = made(context_at(tmp_path), config(system_prompts=0, turns=1.0))
    assert run.counts(STEADY).stored_blocks > 0
    check = run.check("reuse")
    assert check.verdict == "fail"
    assert check.sentence.startswith("Nothing read the ")


def test_restores_of_what_was_only_just_written_fail_a_check(tmp_path: Path) -> None:
    check = made(context_at(tmp_path), config()).check("reuse")
    assert check.verdict == "fail"
    assert check.sentence.endswith("the others are reads of what was only just written.")


FULL: dict[str, Any] = {
    "bytes_per_token": 16384,
    "capacity_bytes": 40 << 20,
    "request_bytes": 65536,
    "most_input_tokens": 320,
}
"""A cache of 160 blocks of 256 KiB, more than a file system of 32 MiB holds."""


@pytest.mark.parametrize("tp", [1, 2])
def test_a_full_file_system_evicts_and_goes_on(tiny_file_system: Path, tp: int) -> None:
    thesis = tiny_file_system / "thesis"
    thesis.write_text("three years of work")
    run = made(context_at(tiny_file_system), config(**FULL, tp=tp))
    full = sum(counts.full_disk_evictions for counts in run.facts.counts.values())
    assert full > 0
    remark = f"The file system was full before the cache: {full:,} blocks made room for others."
    assert remark in run.outcome.remarks
    for name in ("stored_blocks", "restored_blocks", "durable_stores"):
        assert run.check(name).verdict == "pass"
    assert run.counts(STEADY).restored_blocks > 0
    assert thesis.read_text() == "three years of work"
    thesis.unlink()
    (tiny_file_system / "lost+found").rmdir()
    require_empty(tiny_file_system)


def test_a_full_file_system_with_nothing_to_evict_is_an_error(
    tiny_file_system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BlockCache, "evict_one", lambda cache, fits=None: None)
    context = context_at(tiny_file_system)
    workload = planned(context, config(**FULL))
    with pytest.raises(OSError, match=r"No space left.*\.kv") as caught:
        workload.run(context)
    assert caught.value.errno == errno.ENOSPC
    require_empty(tiny_file_system)


def test_layers_that_find_no_room_are_refused_at_once(tiny_file_system: Path) -> None:
    context = context_at(tiny_file_system)
    workload = planned(context, config(**layered(TINY, 6, capacity_bytes=40 << 20)))
    with pytest.raises(OSError, match=r"No space left.*\.kv"):
        workload.run(context)
    require_empty(tiny_file_system)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    at_step(context, FILLED, lambda: for_each_file(tmp_path, Path.unlink))
    workload = planned(context, config())
    with pytest.raises(FileNotFoundError, match=rf"{tmp_path}.*\.kv"):
        workload.run(context)
    require_empty(tmp_path)


def test_a_shortened_file_is_named(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    at_step(context, FILLED, lambda: for_each_file(tmp_path, partial(os.truncate, length=8192)))
    workload = planned(context, config())
    with pytest.raises(DataError, match=rf"{tmp_path}.*\.kv"):
        workload.run(context)
    require_empty(tmp_path)


def sparse(path: Path) -> Path:
    with path.open("wb") as file:
        file.truncate(1 << 30)
    return path


def trace_of(folder: Path, *lines: str) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(f"{{{line}}}\n" for line in lines))
    return path


LINE = '"timestamp": {}, "input_length": 600, "output_length": 1'
IDS = '"hash_ids": [1, 2]'
TRACES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "without hash ids": (
        lambda folder: trace_of(folder, LINE.format(0)),
        r"trace\.jsonl, line 1: hash_ids: Field required",
    ),
    "falling times": (
        lambda folder: trace_of(folder, *(f"{LINE.format(time)}, {IDS}" for time in (10, 5))),
        r"trace\.jsonl, line 2: timestamp must not be before 10, got '5'",
    ),
    "1 GB in a line": (
        lambda folder: sparse(folder / "trace.jsonl"),
        r"trace\.jsonl, line 1: a line must be shorter than 1048576 bytes",
    ),
    "missing": (lambda folder: folder / "trace.jsonl", r"trace=\S+trace\.jsonl is not a file"),
}


@pytest.mark.parametrize(("make", "sentence"), TRACES.values(), ids=TRACES)
def test_a_bad_trace_is_one_sentence(
    tmp_path: Path, make: Callable[[Path], Path], sentence: str
) -> None:
    words = ("workload.requests=trace", f"workload.trace={make(tmp_path)}")
    refused(tmp_path, words, sentence)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("workload.model=llama9",), r"model=llama9 is unknown; use one of tiny-1b, .*deepseek-v3"),
        (("workload.tp=3",), r"tp=3 does not divide the 8 key-value heads of tiny-1b; use a div"),
        (("workload.block_tokens=1024",), r"block_tokens must be .* 16 to 512, got 1024"),
        (
            ("workload.requests=trace", "workload.trace=any", "workload.block_tokens=48"),
            r"block_tokens=48 does not divide the trace's blocks of 512 tokens; use 16, 32, 64,",
        ),
        (("workload.capacity_bytes=9000000",), r"holds 1 blocks .* but one request may have 8;"),
        (("workload.request_rate=3",), r"request_rate=3 needs workload\.arrivals=open"),
        (("loader=cufile",), r"loader=cufile does not support workload=kv_cache; use loader=dir"),
        (("workload.capacity_bytes=1e15",), r"capacity_bytes"),
        (("workload.capacity_bytes=900000000000000",), r"free, but the run needs 900\.00 TB more"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, words: Sequence[str], sentence: str) -> None:
    refused(tmp_path, words, sentence)


def refused(folder: Path, words: Sequence[str], sentence: str) -> None:
    """Check that a run is refused in one sentence, before anything is written to its target."""
    done = run_here(folder, "workload=kv_cache", "scale=demo", "power=none", *words)
    assert done.returncode == 2
    [first, *more] = done.stderr.splitlines()
    assert first.startswith("wattload: ")
    assert re.search(sentence, first)
    assert all(line.startswith("  also ") for line in more)
    assert list((folder / "target").iterdir()) == []


def test_a_read_only_target_is_one_sentence(tiny_file_system: Path, tmp_path: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_file_system)], check=True)
    words = (f"target.path={tiny_file_system}", "workload=kv_cache", "scale=demo", "power=none")
    done = run_here(tmp_path, *words, "workload.capacity_bytes=16777216", *SMALL)
    assert done.returncode == 2
    assert re.fullmatch(r"wattload: .*[Rr]ead-only.*\n", done.stderr), done.stderr


SMALL = ("workload.bytes_per_token=1024", "workload.most_input_tokens=4096")
