"""Bytes counted apart agree: application and device, drive and block layer, reads and paths."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.allocation import punch, unwrite
from tests.core.checks.changed_records import changed, check, checks, record_of, utilisations
from tests.records import Scenario, cluster_of, make_cluster, make_run
from tests.reports.gpu_reads import reads_run
from wattload.core.checks.io import path_check, written_bytes, written_extents_check
from wattload.core.errors import DataError
from wattload.core.io import DataPath, PathCounts
from wattload.core.record.energy import WrittenRecord
from wattload.core.record.results import PACED, Check
from wattload.core.record.run import RunRecord
from wattload.results import reading
from wattload.run.record import with_effective_paths


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1.01, "pass"), (0.5, "fail")])
def test_device_bytes_prove_a_direct_path(factor: float, verdict: str) -> None:
    record = record_of()
    counters = tuple(
        counter.model_copy(update={"read_bytes": int((counter.read_bytes or 0) * factor)})
        for counter in record.counters
    )
    assert check(changed(record, counters=counters), "device_bytes").verdict == verdict


def _with_copies(record: RunRecord, copies: float | None) -> RunRecord:
    (target,) = record.targets
    stack = target.facts.stack
    assert stack is not None
    missing = {"redundancy": "not shown"} if copies is None else {}
    lower = stack.children[0].model_copy(
        update={"redundancy": copies, "missing": {**stack.children[0].missing, **missing}}
    )
    facts = target.facts.model_copy(
        update={"stack": stack.model_copy(update={"children": (lower,)})}
    )
    return changed(record, targets=(target.model_copy(update={"facts": facts}),))


def _with_device_bytes(record: RunRecord, *, read: float, written: float) -> RunRecord:
    counters = tuple(
        counter.model_copy(
            update={
                "read_bytes": int((counter.read_bytes or 0) * read),
                "written_bytes": int((counter.written_bytes or 0) * written),
            }
        )
        for counter in record.counters
    )
    return changed(record, counters=counters)


@pytest.mark.parametrize(
    ("copies", "written", "verdict"),
    [(2.0, 2.0, "pass"), (2.0, 1.0, "fail"), (None, 2.0, "not_checked"), (1.0, 1.0, "pass")],
)
def test_an_array_writes_its_copies_and_not_fewer(
    copies: float | None, written: float, verdict: str
) -> None:
    record = _with_copies(record_of(workload="checkpoint", virtual=False), copies)
    tampered = _with_device_bytes(record, read=1.0, written=written)
    assert check(tampered, "device_bytes_write_written").verdict == verdict


def test_bytes_that_never_came_from_the_device_fail_whoever_shares_it() -> None:
    """Other load only adds bytes: on a root disk, too, a ratio below one is no direct path."""
    record = record_of(virtual=True)
    (target,) = record.targets
    facts = target.facts.model_copy(update={"shared_with": ("/",)})
    shared = changed(record, targets=(target.model_copy(update={"facts": facts}),))
    assert (
        check(_with_device_bytes(shared, read=0.07, written=1.0), "device_bytes").verdict == "fail"
    )
    assert (
        check(_with_device_bytes(shared, read=3.0, written=1.0), "device_bytes").verdict == "warn"
    )


@pytest.mark.parametrize(("ratio", "verdict"), [(0.95, "warn"), (0.5, "fail"), (1.0, "pass")])
def test_the_page_cache_may_serve_what_is_read_again_and_no_more(
    ratio: float, verdict: str
) -> None:
    record = record_of()
    paths = tuple(
        path.model_copy(update={"path_requested": "page_cache"}) for path in record.workload.paths
    )
    workload = record.workload.model_copy(update={"paths": paths})
    tampered = _with_device_bytes(changed(record, workload=workload), read=ratio, written=1.0)
    assert check(tampered, "device_bytes").verdict == verdict


def test_a_ratio_in_range_proves_nothing_with_other_traffic() -> None:
    record = record_of()
    counters = tuple(
        counter.model_copy(update={"written_bytes": counter.read_bytes})
        for counter in record.counters
    )
    found = check(changed(record, counters=counters), "device_bytes")
    assert found.verdict == "warn"
    assert "other traffic" in found.sentence


def test_a_run_that_ended_before_its_counters_were_collected_is_not_judged_by_them() -> None:
    record = changed(record_of(), counters=())
    assert check(record, "device_bytes").verdict == "not_checked"
    aborted = changed(record, status="aborted")
    assert checks(aborted, "device_bytes") == checks(aborted, "queue_depth") == []


def test_each_host_is_judged_by_its_own_block_counters() -> None:
    """Three hosts are named, but only the first one's drive moved anything."""
    record, _ = make_cluster(cluster_of("ada", "bob", "cyd"))
    counters = tuple(
        counter
        if counter.host == "ada"
        else counter.model_copy(update={"read_bytes": 0, "written_bytes": 0})
        for counter in record.counters
    )
    found = checks(changed(record, counters=counters), "device_bytes_read_read")
    assert {each.name.rpartition("_")[2]: each.verdict for each in found} == {
        "ada": "pass",
        "bob": "fail",
        "cyd": "fail",
    }


def test_a_host_that_moved_nothing_fails_the_run() -> None:
    record, _ = make_cluster(cluster_of("ada", "bob", "cyd"))
    assert check(record, "hosts_took_part").verdict == "pass"
    spans = tuple(span for span in record.spans if span.host != "cyd" or not span.timed)
    found = check(changed(record, spans=spans), "hosts_took_part")
    assert found.verdict == "fail"
    assert "cyd" in found.sentence


def test_each_host_has_the_queue_of_its_ranks() -> None:
    record, _ = make_cluster(cluster_of("ada", "bob", "cyd", ranks=2))
    sizes = {"queue_depth_asked": 24, "block_bytes_asked": 1_048_576}
    asked = changed(record, workload=record.workload.model_copy(update=sizes))
    assert [each.figures["asked"] for each in checks(asked, "queue_depth_read")] == [8, 8, 8]


def test_device_bytes_without_a_device_counter_are_not_checked() -> None:
    record = record_of()
    counters = ()
    found = check(changed(record, counters=counters), "device_bytes")
    assert found.verdict == "not_checked"
    assert found.mandatory


def _with_depth(record: RunRecord, request_bytes: int, weighted: float) -> RunRecord:
    """Return a record of depth 8 whose devices counted ``weighted`` requests in flight."""
    workload = record.workload.model_copy(
        update={"queue_depth_asked": 8, "block_bytes_asked": 4 << 20}
    )
    counters = tuple(
        counter.model_copy(
            update={
                "read_operations": (counter.read_bytes or 0) // request_bytes,
                "write_operations": 0,
                "busy_s": 10.0,
                "weighted_s": 10.0 * weighted,
            }
        )
        for counter in record.counters
    )
    return changed(record, workload=workload, counters=counters)


@pytest.mark.parametrize(
    ("request_bytes", "weighted", "verdict"),
    [
        (4 << 20, 8.0, "pass"),
        (1 << 20, 32.0, "pass"),
        (1 << 20, 8.0, "warn"),
        (4 << 20, 20.0, "warn"),
    ],
)
def test_queue_depth_is_in_blocks_of_the_requested_size(
    request_bytes: int, weighted: float, verdict: str
) -> None:
    """Requests are blocks cut up: 32 in flight of a quarter block each are eight blocks."""
    record = _with_depth(record_of(), request_bytes, weighted)
    assert check(record, "queue_depth").verdict == verdict


@pytest.mark.parametrize(
    ("nominal", "weighted", "verdict"),
    [(0.99, 2.0, "not_checked"), (0.99, 8.0, "pass"), (0.99, 20.0, "warn"), (0.6, 2.0, "warn")],
)
def test_a_paced_loader_needs_no_deep_queue(nominal: float, weighted: float, verdict: str) -> None:
    record = _with_depth(record_of(), 4 << 20, weighted)
    metrics = utilisations(record, nominal, nominal)
    found = check(changed(record, metrics=metrics), "queue_depth")
    assert found.verdict == verdict
    assert found.cause == (PACED if verdict == "not_checked" else "")


RECORD, _ = make_run(Scenario(workload="checkpoint", power="measured", virtual=False))
(BLOCK,) = [each for each in RECORD.counters if each.phase == "write"]


def written(host_bytes: int | None, *, device: str = "SERIAL1", reason: str = "-") -> WrittenRecord:
    missing = "the drive reports no count of media bytes"
    return WrittenRecord(
        host=BLOCK.host,
        device=device,
        phase="write",
        host_written_bytes=host_bytes,
        media_written_bytes=None,
        write_amplification=None,
        media_source=None,
        missing={
            **({"host_written_bytes": reason} if host_bytes is None else {}),
            **dict.fromkeys(("media_written_bytes", "write_amplification"), missing),
            "media_source": missing,
        },
    )


def written_checks(*found: WrittenRecord, record: RunRecord = RECORD) -> list[Check]:
    power = record.power.model_copy(update={"written": found})
    return list(written_bytes(record.model_copy(update={"power": power})))


@pytest.mark.parametrize(
    ("share", "verdict"), [(1.0, "pass"), (0.96, "pass"), (1.2, "warn"), (0.9, "warn")]
)
def test_the_drive_s_count_is_compared_with_the_block_layer_s(share: float, verdict: str) -> None:
    assert BLOCK.written_bytes
    (check,) = written_checks(written(round(BLOCK.written_bytes * share)))
    assert (check.name, check.verdict) == ("written_bytes_write_SERIAL1", verdict)
    assert check.figures["ratio"] == pytest.approx(share, rel=1e-6)


def test_a_count_that_fell_warns() -> None:
    (check,) = written_checks(written(None, reason="it fell from 9 to 3 B"))
    assert check.verdict == "warn"
    assert "it fell from 9 to 3 B, so it was reset or wrapped" in check.sentence


def test_an_unknown_count_and_several_drives_are_not_checked() -> None:
    (check,) = written_checks(
        written(None, reason="it was not read both before and after the phase")
    )
    assert check.verdict == "not_checked"
    both = written_checks(written(5), written(6, device="SERIAL2"))
    assert [each.verdict for each in both] == ["not_checked", "not_checked"]


def test_a_run_without_such_counts_has_no_such_check() -> None:
    assert written_checks() == []


READS = 61_440


def counts(**values: Any) -> PathCounts:
    return PathCounts(reads=READS, read_bytes=READS * 4096, **values)


BOUNCED = counts(pinned_copies=READS, pinned_bytes=READS * 4096)


P2P = counts(library_reads=READS, p2p_reads=READS, nvfs_reads=0, posix_reads=0)


POSIX = counts(library_reads=READS, p2p_reads=0, nvfs_reads=0, posix_reads=READS)


NVFS = counts(
    library_reads=READS, p2p_reads=0, nvfs_reads=READS, posix_reads=0, nvidia_fs_reads=READS
)


MIXED = counts(library_reads=READS, p2p_reads=READS - 40, nvfs_reads=0, posix_reads=40)


SILENT = counts()


ZEROS = counts(library_reads=0, p2p_reads=0, nvfs_reads=0, posix_reads=0)


FEWER = counts(library_reads=READS - 1, p2p_reads=READS - 1, nvfs_reads=0, posix_reads=0)


APART = counts(library_reads=READS, p2p_reads=READS, nvfs_reads=0, posix_reads=5)


LESS_COPIED = counts(pinned_copies=READS, pinned_bytes=4096)


REFUTED = counts(
    library_reads=READS, p2p_reads=0, nvfs_reads=READS, posix_reads=0, nvidia_fs_reads=5
)


QUEUED = counts(requester="gpu", asked=READS, taken=READS, answered=READS, delivered=READS)


BY_CPU = QUEUED.model_copy(update={"requester": "cpu"})


FAILED = QUEUED.model_copy(update=dict.fromkeys(("asked", "taken", "answered"), READS + 3))


LOST = QUEUED.model_copy(update={"answered": READS - 1})


DOUBLED = QUEUED.model_copy(update=dict.fromkeys(("asked", "taken", "answered"), READS - 1))


WRONG = QUEUED.model_copy(update={"delivered": READS - 1})


CACHED = counts(
    requester="gpu", asked=READS, taken=READS, answered=READS, delivered=3 * READS,
    requests=3 * READS, coalesced=10, hits=2 * READS - 15, merged=5, misses=READS - 2, bypassed=2,
)  # fmt: skip


def record_of_path(found: PathCounts) -> RunRecord:
    record, _ = make_run(Scenario(virtual=False, power="measured"))
    paths = (DataPath(data_path="gpu", path_requested="direct", counts=found),)
    workload = record.workload.model_copy(update={"paths": paths})
    return with_effective_paths(record.model_copy(update={"workload": workload}))


def judged(found: PathCounts, *, must_be_direct: bool = False) -> Check:
    return path_check(found, operations=READS, block_bytes=4096, must_be_direct=must_be_direct)


@pytest.mark.parametrize(
    ("found", "word", "free", "asked"),
    [
        (BOUNCED, "host_bounce", "pass", "fail"),
        (P2P, "p2p_pci", "pass", "pass"),
        (NVFS, "p2p_nvfs", "pass", "pass"),
        (POSIX, "posix_bounce", "warn", "fail"),
        (MIXED, "mixed", "warn", "fail"),
        (SILENT, "unverified", "not_checked", "fail"),
        (ZEROS, "unverified", "not_checked", "fail"),
        (FEWER, "unverified", "fail", "fail"),
        (APART, "unverified", "fail", "fail"),
        (LESS_COPIED, "unverified", "fail", "fail"),
        (NVFS.model_copy(update={"nvidia_fs_reads": None}), "p2p_nvfs", "pass", "pass"),
        (P2P.model_copy(update={"peer_reads": READS + 1}), "unverified", "not_checked", "fail"),
        (REFUTED, "unverified", "fail", "fail"),
        (QUEUED, "gpu_pull", "pass", "fail"),
        (BY_CPU, "cpu_queue", "pass", "fail"),
        (FAILED, "unverified", "not_checked", "fail"),
        (LOST, "unverified", "fail", "fail"),
        (DOUBLED, "unverified", "fail", "fail"),
        (WRONG, "unverified", "not_checked", "fail"),
        (CACHED, "gpu_pull", "pass", "fail"),
        (CACHED.model_copy(update={"hits": 2 * READS}), "unverified", "fail", "fail"),
        (CACHED.model_copy(update={"bypassed": 3}), "unverified", "fail", "fail"),
        (CACHED.model_copy(update={"requests": 3 * READS - 1}), "unverified", "fail", "fail"),
        (CACHED.model_copy(update={"requests": None}), "unverified", "fail", "fail"),
        (CACHED.model_copy(update={"misses": None}), "unverified", "fail", "fail"),
        (
            CACHED.model_copy(update={"delivered": 3 * READS - 1}),
            "unverified",
            "not_checked",
            "fail",
        ),
        (CACHED.model_copy(update={"taken": READS + 1}), "unverified", "fail", "fail"),
        (P2P.model_copy(update={"memory_bytes_per_byte": 0.02}), "p2p_pci", "pass", "pass"),
        (P2P.model_copy(update={"memory_bytes_per_byte": 1.9}), "unverified", "fail", "fail"),
        (POSIX.model_copy(update={"memory_bytes_per_byte": 1.9}), "posix_bounce", "warn", "fail"),
    ],
)
def test_verdicts_by_counts(found: PathCounts, word: str, free: str, asked: str) -> None:
    record = record_of_path(found)
    assert record.workload.paths[0].path_effective == word
    assert f"reads {READS:,}" in record.workload.paths[0].path_evidence
    assert judged(found).verdict == free
    assert judged(found, must_be_direct=True).verdict == asked


def test_a_direct_path_that_was_not_taken_is_named() -> None:
    check = judged(POSIX, must_be_direct=True)
    assert check.sentence.startswith(
        "Path direct asked, posix_bounce taken by 61,440 of 61,440 reads"
    )


def test_some_bounced_reads_are_named() -> None:
    check = judged(MIXED, must_be_direct=True)
    counted = "61,400 of 61,440 reads by GPUDirect Storage, 40 through host memory"
    assert check.sentence.startswith(f"Path direct asked, {counted}")
    allowed = judged(MIXED)
    assert allowed.sentence.startswith(f"Not only GPUDirect Storage: {counted}")


def test_a_missing_proof_bars_the_verdict() -> None:
    record = reads_run().record
    (path,) = record.workload.paths
    bare = path.model_copy(update={"counts": None})
    workload = record.workload.model_copy(update={"paths": (bare,)})
    bare_record = record.model_copy(update={"workload": workload, "checks": ()})
    checks = reading.judged(bare_record).checks
    assert [check.bars_verdict for check in checks if check.name == "data_path"] == [True]


def test_counts_of_a_few_reads_do_not_prove_the_path_of_all() -> None:
    few = {"reads": 10, "read_bytes": 40960, "library_reads": 10, "p2p_reads": 10}
    check = judged(P2P.model_copy(update=few))
    assert check.verdict == "fail"
    assert f"do not cover the {READS} timed reads" in check.sentence


def test_a_gpu_asked_only_where_counts_prove_it() -> None:
    for found, initiator in ((QUEUED, "gpu"), (BY_CPU, "cpu"), (LOST, "cpu"), (P2P, "cpu")):
        assert record_of_path(found).workload.paths[0].initiator == initiator


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_bytes(os.urandom(1 << 16))
    return paths


def test_files_that_were_written_pass(files: list[Path]) -> None:
    check = written_extents_check(files, remedy="")
    assert (check.verdict, check.figures["file_count"]) == ("pass", 2)
    assert written_extents_check(files[:1], remedy="").sentence.startswith("All bytes of 1 file w")


@pytest.mark.parametrize("hollow_out", [punch, unwrite])
def test_a_hollow_file_is_refused_with_what_to_do(
    files: list[Path], hollow_out: Callable[[Path], None]
) -> None:
    hollow_out(files[1])
    with pytest.raises(DataError, match=r"/b has 16.38 kB in holes .*the drive; delete it$"):
        written_extents_check(files, remedy="delete it")


def test_a_file_of_another_length_than_its_data_is_refused(files: list[Path]) -> None:
    os.truncate(files[0], 1 << 20)
    with pytest.raises(DataError, match=r"/a has 983.04 kB in holes"):
        written_extents_check(files, remedy="delete it")


def test_a_file_system_that_can_not_say_leaves_it_unchecked(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no FIEMAP")

    monkeypatch.setattr(fcntl, "ioctl", refuses)
    check = written_extents_check(files, remedy="")
    assert (check.verdict, check.figures["unknown_count"]) == ("not_checked", 2)
    assert "does not report unwritten extents" in check.sentence
    punch(files[0])
    with pytest.raises(DataError, match=r"/a has 16.38 kB in holes"):
        written_extents_check(files, remedy="")
