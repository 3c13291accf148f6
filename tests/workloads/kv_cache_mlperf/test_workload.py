"""MLPerf's loop on real files: entries, their cache, and what is left of them."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.context import (
    Context,
    RecordedPhase,
    ThreadCommunicator,
    context_at,
    directory_target,
    run_ranks,
)
from tests.records import Scenario, make_run
from wattload.core.errors import DataError
from wattload.core.record.results import Check
from wattload.core.workload import Accelerator
from wattload.loaders.data.data_folder import DataFolder, list_folders
from wattload.results.facts import Run
from wattload.results.kv_cache_mlperf import NAME, PHASE, RESULTS, LoopFacts, Origin
from wattload.workloads.kv_cache.models import model_named
from wattload.workloads.kv_cache_mlperf import workload as module
from wattload.workloads.kv_cache_mlperf.config import OPTIONS, Config, Option
from wattload.workloads.kv_cache_mlperf.entries import HEADER_BYTES, Entries
from wattload.workloads.kv_cache_mlperf.workload import KvCacheMlperf

SMALL: dict[str, Any] = {
    "users": 4,
    "length_divisor": 512,
    "capacity_bytes": 1 << 30,
    "most_written_bytes": 200 * 10**6,
    "duration_s": 0.6,
}
MODEL = model_named("llama3.1-8b")
TOKEN_BYTES = MODEL.bytes_per_token(2)
IN_FILE = HEADER_BYTES + TOKEN_BYTES
"""The bytes of an entry of one token."""


def made(**changed: Any) -> KvCacheMlperf:
    return KvCacheMlperf(Config(**{**SMALL, **changed}), None, Accelerator())


def run(workload: KvCacheMlperf, context: Context) -> LoopFacts | None:
    plan = workload.plan(context)
    assert not plan.refusal
    workload.prepare(context)
    outcome = workload.run(context)
    assert workload.verify(context) == ()
    assert outcome.facts is None or isinstance(outcome.facts, LoopFacts)
    return outcome.facts


def checks_on(facts: LoopFacts) -> dict[str, Check]:
    """Return the checks that follow from facts."""
    run_of = Run(make_run(Scenario())[0], facts)
    return {check.name: check for rule in RESULTS.checks for check in rule(run_of)}


def files_in(target: Path) -> list[Path]:
    return sorted(target.rglob("*.npy"))


def entries_in(target: Path, *, capacity: int = 100, memory_bytes: int = 0) -> Entries:
    """Return an empty cache for ``capacity`` entries of one token."""
    data = DataFolder.claim(target, NAME, {}, seed=0)
    return Entries(
        data,
        "rank_0",
        RecordedPhase(PHASE, timed=True),
        MODEL,
        Option("llama3.1-8b", users=1, memory_bytes=memory_bytes, allocations=2),
        largest_bytes=8 * TOKEN_BYTES,
        capacity_bytes=capacity * IN_FILE,
        most_written_bytes=1 << 30,
    )


def own(entries: Entries, number: int) -> float:
    return entries.read(number, Origin.own_entry)


def test_own_entries_are_read_to_the_byte_and_nothing_is_left(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    facts = run(made(), context)
    assert facts is not None
    (client,) = facts.clients
    assert client.answered > 0
    assert client.decoded > 0
    checks = checks_on(facts)
    assert {name: checks[name].verdict for name in ("own_rereads", "entry_content")} == {
        "own_rereads": "pass",
        "entry_content": "pass",
    }
    own_reads = client.reads[Origin.own_entry]
    assert (own_reads.misses, own_reads.drive_bytes) == (0, client.own_drawn_bytes)
    prompts = client.reads[Origin.system_prompt]
    assert (prompts.misses, prompts.drive_bytes) == (prompts.lookups, 0)
    (phase,) = context.timed(PHASE)
    assert phase.read_bytes == sum(each.drive_bytes for each in client.reads.values())
    assert phase.written_bytes == client.written_bytes
    assert client.read_latency is not None
    assert client.read_latency.count == client.file_reads
    assert files_in(tmp_path) == []
    assert list_folders(tmp_path) == ()


def test_a_read_that_is_left_out_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, left_out = Entries.read, list[int]()

    def leaving_one_out(self: Entries, number: int, origin: Origin) -> float:
        if origin is Origin.own_entry and not left_out:
            left_out.append(number)
            return 0.0
        return read(self, number, origin)

    monkeypatch.setattr(Entries, "read", leaving_one_out)
    facts = run(made(), context_at(tmp_path))
    assert facts is not None
    assert left_out
    assert checks_on(facts)["own_rereads"].verdict == "fail"


def test_users_do_not_wait_for_their_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They draw as many requests from a drive that answers none."""
    asked = run(made(), context_at(tmp_path))
    monkeypatch.setattr(Entries, "write", lambda *_: threading.Event().wait(1.0) or 0.0)
    monkeypatch.setattr(Entries, "release", lambda *_: None)
    waited = run(made(), context_at(tmp_path))
    assert asked is not None
    assert waited is not None
    assert waited.clients[0].drawn == asked.clients[0].drawn > waited.clients[0].answered


def test_each_process_is_a_client_with_all_users(tmp_path: Path) -> None:
    contexts = [
        Context(targets=(directory_target(tmp_path),), communicator=communicator)
        for communicator in ThreadCommunicator.world(2)
    ]
    found = run_ranks(contexts, lambda context: run(made(), context))
    assert found[1] is None
    assert found[0] is not None
    clients = found[0].clients
    assert len(clients) == 2
    assert clients[0].drawn > 0
    assert clients[1].drawn > 0
    assert clients[0].own_drawn_bytes != clients[1].own_drawn_bytes
    assert checks_on(found[0])["own_rereads"].verdict == "pass"
    assert list_folders(tmp_path) == ()


def test_no_more_is_written_than_planned(tmp_path: Path) -> None:
    workload = made(most_written_bytes=20 * 10**6, duration_s=60.0, users=8)
    context = context_at(tmp_path)
    assert workload.plan(context).run_bytes == 20 * 10**6
    facts = run(workload, context)
    assert facts is not None
    assert facts.clients[0].is_full
    assert 0 < facts.clients[0].written_bytes <= 20 * 10**6
    assert checks_on(facts)["own_rereads"].verdict == "pass"


def test_a_cache_in_memory_is_counted_and_its_entries_are_written_when_they_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = OPTIONS[2]._replace(memory_bytes=16 * 512 * TOKEN_BYTES)
    monkeypatch.setattr(module, "OPTIONS", {2: small})
    facts = run(made(option=2, users=24), context_at(tmp_path))
    assert facts is not None
    (client,) = facts.clients
    assert client.reads[Origin.own_entry].memory_bytes > 0
    assert client.demoted_bytes > 0
    assert checks_on(facts)["own_rereads"].verdict == "pass"


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    saved = Entries._save

    def failing(self: Entries, entry: Any) -> tuple[int, int]:
        if len(files_in(tmp_path)) >= 3:
            raise fault
        return saved(self, entry)

    monkeypatch.setattr(Entries, "_save", failing)
    with pytest.raises(type(fault)):
        run(made(duration_s=60.0), context_at(tmp_path))
    assert files_in(tmp_path) == []
    assert list_folders(tmp_path) == ()


def test_ctrl_c_ends_the_loop_and_leaves_nothing(tmp_path: Path) -> None:
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        run(made(duration_s=60.0), context_at(tmp_path))
    assert list_folders(tmp_path) == ()


def test_leftovers_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    entries = entries_in(tmp_path)
    entries.write(0, 1)
    assert len(files_in(tmp_path)) == 1
    workload = made()
    workload.plan(context_at(tmp_path))
    workload.prepare(context_at(tmp_path))
    assert files_in(tmp_path) == []


def test_too_little_memory_is_refused_in_one_sentence(tmp_path: Path) -> None:
    plan = made(users=None, length_divisor=1, option=3).plan(context_at(tmp_path))
    # 4 entries of 8.19 GB, and 66 of a mean user's longest.
    assert 150e9 < plan.memory_bytes_per_rank < 400e9
    if plan.refusal:
        assert str(plan.memory_bytes_per_rank) in plan.refusal
        assert "lower workload.users, or raise workload.length_divisor" in plan.refusal
        assert plan.refusal.count(". ") == 0


def test_a_target_is_shared_by_processes_and_filled_to_its_limit(tmp_path: Path) -> None:
    plan = made(capacity_bytes=None, most_written_bytes=10**15).plan(context_at(tmp_path))
    status = os.statvfs(tmp_path)
    assert 0 < plan.peak_bytes <= status.f_bavail * status.f_frsize


def test_an_entry_is_a_whole_npy_file_of_which_no_block_repeats(tmp_path: Path) -> None:
    entries = entries_in(tmp_path)
    for number in range(2):  # longer than the noise
        assert entries.write(number, 9) is not None
        entries.release(number)
    contents = [np.load(path) for path in files_in(tmp_path)]
    assert {(each.shape, each.dtype.name) for each in contents} == {((32, 2, 9, 8, 128), "float16")}
    blocks = [bytes(row) for each in contents for row in each.view(np.uint8).reshape(-1, 4096)]
    assert len({*blocks}) == len(blocks) == 2 * 9 * TOKEN_BYTES // 4096
    assert own(entries, 0) > 0
    assert entries.counts.reads[Origin.own_entry].drive_bytes == HEADER_BYTES + 9 * TOKEN_BYTES


def test_another_entry_in_a_file_is_found(tmp_path: Path) -> None:
    entries = entries_in(tmp_path)
    entries.write(0, 1)
    entries.write(1, 1)
    one, other = files_in(tmp_path)
    content = one.read_bytes(), other.read_bytes()
    one.write_bytes(content[1])
    other.write_bytes(content[0])
    own(entries, 0)
    assert (entries.counts.bad_blocks, entries.counts.compared_blocks) == (3, 3)


@pytest.mark.parametrize("place", [HEADER_BYTES + 100, IN_FILE - 1])
def test_a_changed_byte_in_a_compared_block_is_found(tmp_path: Path, place: int) -> None:
    entries = entries_in(tmp_path)
    entries.write(0, 1)
    (path,) = files_in(tmp_path)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    own(entries, 0)
    assert entries.counts.bad_blocks >= 1


def test_a_file_that_was_cut_ends_the_run_by_name(tmp_path: Path) -> None:
    entries = entries_in(tmp_path)
    entries.write(0, 1)
    (path,) = files_in(tmp_path)
    os.truncate(path, 5000)
    with pytest.raises(DataError, match=f"{path.name} is not the file that was written"):
        own(entries, 0)


def test_the_entry_used_longest_ago_is_removed_but_none_in_use(tmp_path: Path) -> None:
    entries = entries_in(tmp_path, capacity=3)
    for number in range(3):
        entries.write(number, 1)
    entries.release(0)
    entries.release(1)
    own(entries, 0)
    entries.write(3, 1)  # 1 was used before 0, and 2 is in use
    assert len(files_in(tmp_path)) == 3
    assert [own(entries, number) > 0 for number in range(4)] == [True, False, True, True]
    assert entries.counts.evicted == 1
    entries.write(4, 1)
    assert own(entries, 0) == 0
    entries.write(5, 1)  # all others are in use
    assert len(files_in(tmp_path)) == 4
    assert entries.counts.evicted == 2


def test_an_entry_that_is_removed_while_a_read_waits_for_it_is_a_miss(tmp_path: Path) -> None:
    entries = entries_in(tmp_path, capacity=1)
    entries.write(0, 1)
    entries.release(0)
    counts = entries.counts.reads[Origin.own_entry]
    with ThreadPoolExecutor(2) as threads:
        with entries._entries[0].lock:
            read = threads.submit(own, entries, 0)
            while not counts.lookups:
                time.sleep(0.001)
            write = threads.submit(entries.write, 1, 1)
            while not entries.counts.evicted:
                time.sleep(0.001)
        assert read.result() == 0
        assert write.result() is not None
    assert counts.misses == 1


def test_memory_holds_no_more_than_its_share_and_reads_never_promote(tmp_path: Path) -> None:
    entries = entries_in(tmp_path, memory_bytes=10 * TOKEN_BYTES)
    for number in range(9):  # 8 of 10 fit
        entries.write(number, 1)
    assert len(files_in(tmp_path)) == 1
    assert own(entries, 0) > 0
    assert own(entries, 0) > 0
    assert own(entries, 1) == 0
    entries.write(9, 1)  # 2 is the oldest in memory, since 1 was read
    assert own(entries, 2) > 0
    assert own(entries, 1) == 0
    counts = entries.counts
    assert counts.reads[Origin.own_entry].memory_bytes == 2 * IN_FILE
    assert counts.reads[Origin.own_entry].misses == 0
    assert counts.demoted_bytes == counts.written_bytes == 2 * IN_FILE
    entries.write(10, 10)  # larger than 95 % of the memory
    assert counts.written_bytes == 2 * IN_FILE + HEADER_BYTES + 10 * TOKEN_BYTES
