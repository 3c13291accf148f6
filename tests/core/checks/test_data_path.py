"""The path of reads into GPU memory is what their counts prove, also in an edited record."""

from __future__ import annotations

from typing import Any

import pytest

from tests.records import Scenario, make_run
from tests.reports.gpu_reads import reads_run
from wattload.core.checks.io import path_check
from wattload.core.io import DataPath, PathCounts
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord
from wattload.results import reading
from wattload.run.record import with_effective_paths

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


def record_of(found: PathCounts) -> RunRecord:
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
    record = record_of(found)
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
        assert record_of(found).workload.paths[0].initiator == initiator
