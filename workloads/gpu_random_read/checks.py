"""The checks of random reads: what was delivered, and that no request was lost or doubled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from wattload.core.checks.io import is_path_as_counted, is_path_as_requested
from wattload.core.record.results import NO_STORAGE, Check, VerifiedBytes, amount
from wattload.core.record.run import RunRecord
from wattload.core.storage.extents import are_written
from wattload.core.units import NS_PER_S, format_bytes
from wattload.core.workload import DeclaredCheck, DerivedMetrics, Figures
from wattload.loaders.data.cold_cache import is_cold, worst_of_each
from wattload.workloads.gpu_random_read.metrics import MILLION, PHASE
from wattload.workloads.gpu_random_read.reads import Reads, failure_rows, wrong_place

_QUEUE = ("gpu_queue",)


def is_delivered(figures: Figures) -> bool:
    """Return whether every block had its own stamp; with ``null``, that there was no block."""
    if figures["engine"] == "null":
        return amount(figures, "delivered_blocks") == 0
    has_none_wrong = amount(figures, "wrong_blocks") == 0 and amount(figures, "bad_blocks") == 0
    return has_none_wrong and amount(figures, "compared_bytes") > 0


def are_counts_equal(figures: Figures) -> bool:
    """Return whether requests, descriptors and operations are equal, on each rank.

    With a cache, each request is in one of its counts, and those that missed or passed it are what
    was read.
    """
    ended = amount(figures, "operations") + amount(figures, "failed_reads")
    requests = asked = amount(figures, "requests")
    if "hits" in figures:
        asked = amount(figures, "misses") + amount(figures, "passed")
        met = sum(amount(figures, name) for name in ("coalesced", "hits", "joined"))
        if requests != met + asked:
            return False
    counts = {asked, amount(figures, "taken"), amount(figures, "answered")}
    return counts == {ended} and ended > 0 and amount(figures, "uneven_ranks") == 0


def none_failed(figures: Figures) -> bool:
    """Return whether every read succeeded."""
    return amount(figures, "failed_reads") == 0 and amount(figures, "operations") > 0


CHECKS = {
    "cold_cache": DeclaredCheck(since=3, holds=is_cold, optional=True),
    "written_extents": DeclaredCheck(since=3, holds=are_written, optional=True),
    "delivered_bytes": DeclaredCheck(since=3, holds=is_delivered),
    "queue_counts": DeclaredCheck(since=3, holds=are_counts_equal, made_only_by=_QUEUE),
    "failed_reads": DeclaredCheck(since=3, holds=none_failed),
    "data_path": DeclaredCheck(
        since=3,
        holds=is_path_as_requested,
        warns=is_path_as_counted,
        optional=True,
        made_only_by=_QUEUE,
    ),
}
"""The checks that only random reads have, and what their figures must be.

``data_path`` follows from the counts in the record and is made with it.
"""


def _operations(record: RunRecord) -> int:
    return sum(window.operations for window in record.windows if window.name == PHASE)


def _seconds(record: RunRecord) -> float:
    own = [window for window in record.windows if window.name == PHASE]
    return max(window.end_ns - window.start_ns for window in own) / NS_PER_S


def _reads_per_s(record: RunRecord) -> float:
    return _operations(record) / _seconds(record)


def _drive_bytes(record: RunRecord) -> float:
    """Return what drives read: of reads through the page cache the kernel's count."""
    details = record.workload.details
    if details.get("drive_bytes") is not None:
        return amount(details, "drive_bytes")
    return _operations(record) * amount(details, "read_bytes")


def _deliveries_per_s(record: RunRecord) -> float:
    """Return the rate of blocks that reached who asked: with a cache more than those read."""
    details = record.workload.details
    if details.get("cache_bytes"):
        return amount(details, "delivered") / _seconds(record)
    return _reads_per_s(record)


DERIVED: DerivedMetrics = {
    "reads_per_s": _reads_per_s,
    "delivered_bytes_per_s": lambda record: (
        _deliveries_per_s(record) * amount(record.workload.details, "block_bytes")
    ),
    "requests_per_s": _deliveries_per_s,
    "hit_rate": lambda record: (
        amount(record.workload.details, "hits") / amount(record.workload.details, "requests")
    ),
    "read_bytes_per_s": lambda record: _drive_bytes(record) / _seconds(record),
    "mean_latency_s": lambda record: next(
        row.mean_s for row in record.latencies if (row.phase, row.kind) == (PHASE, "request")
    ),
    "cpu_s_per_million_reads": lambda record: (
        amount(record.workload.details, "cpu_s") / _operations(record) * MILLION
    ),
    "failed_reads": lambda record: float(
        sum(amount(each, "count") for each in record.workload.details["failures"])
    ),
}
"""The metrics that follow from other figures of a record."""


def outcome_checks(reads: Reads) -> Sequence[Check]:
    """Return the checks that follow from what the ranks counted."""
    made = [*_of_files(reads), delivered_bytes(reads), failed_reads(reads)]
    if reads.total("requests") is not None:
        made.append(queue_counts(reads))
    return made


def _of_files(reads: Reads) -> Sequence[Check]:
    """Return the checks of the files, or that none was read."""
    if reads.engine == "storage":
        return worst_of_each(check for each in reads.ranks for check in each.checks)
    sentence = f"No storage was read: loader.engine={reads.engine}."
    names = ("cold_cache", "written_extents", "data_path")
    return [
        Check(name=name, verdict="not_checked", sentence=sentence, cause=NO_STORAGE)
        for name in names
    ]


def delivered_bytes(reads: Reads) -> Check:
    """Return the check that what was delivered is what the files, or the table, have."""
    compared, bad = reads.total("compared_bytes") or 0, reads.total("bad_blocks") or 0
    wrong = reads.total("wrong_blocks") or 0
    figures: dict[str, float | int | str | None] = {
        "engine": reads.engine,
        "delivered_blocks": reads.total("delivered"),
        "wrong_blocks": wrong,
        "compared_bytes": compared,
        "bad_blocks": bad,
    }
    moved_bytes = reads.drive_bytes
    if reads.engine == "null":
        good = is_delivered(figures)
        sentence = "Nothing is delivered with loader.engine=null" + (
            ", and no block was." if good else ", but blocks were."
        )
    elif not compared:
        return Check(
            name="delivered_bytes",
            verdict="not_checked",
            sentence="No block could be compared, so what was delivered is unknown.",
            figures=figures,
            mandatory=True,
        )
    else:
        good = is_delivered(figures)
        place = wrong_place(reads.ranks)
        delivered = (reads.total("delivered") or 0) + wrong if reads.cache else reads.operations
        sentence = (
            f"The stamp of each of {delivered:,} blocks was compared where it was "
            f"delivered, and all of {format_bytes(compared)}"
        )
        if wrong:
            sentence += f": {wrong:,} blocks are wrong, the first of {place}"
        elif bad:
            sentence += f": {bad:,} blocks of 512 bytes are wrong"
        sentence += "."
    return Check(
        name="delivered_bytes",
        verdict="pass" if good else "fail",
        sentence=sentence,
        figures=figures,
        mandatory=True,
        verified=(
            VerifiedBytes(
                phase=PHASE,
                kind="read",
                moved_bytes=moved_bytes,
                verified_bytes=min(compared, moved_bytes),
            ),
        )
        if moved_bytes
        else (),
    )


def queue_counts(reads: Reads) -> Check:
    """Return the check that no request was lost or doubled between requesters and drives."""
    uneven = sum(not each.is_even for each in reads.ranks)
    cache = reads.cache
    figures: dict[str, float | int | str | None] = {
        **{name: reads.total(name) for name in ("requests", "taken", "answered")},
        **(asdict(cache) if cache else {}),
        "operations": reads.operations,
        "failed_reads": reads.failed,
        "uneven_ranks": uneven,
    }
    good = are_counts_equal(figures)
    met = (
        f" ({cache.hits:,} hits in the cache, {cache.joined:,} joined, {cache.coalesced:,} "
        f"coalesced, {cache.misses:,} missed and {cache.passed:,} passed)"
        if cache
        else ""
    )
    counts = (
        f"{figures['requests']:,} requests{met}, {figures['taken']:,} taken and "
        f"{figures['answered']:,} answered by pollers, {reads.operations:,} reads"
        + (f" and {reads.failed:,} failed ones" if reads.failed else "")
    )
    return Check(
        name="queue_counts",
        verdict="pass" if good else "fail",
        sentence=counts
        + ("." if good else f": these counts must {'add up' if cache else 'be equal'}."),
        figures=figures,
        mandatory=True,
    )


def failed_reads(reads: Reads) -> Check:
    """Return the check that no read failed; a run with failures is in no comparison."""
    figures = {"failed_reads": reads.failed, "operations": reads.operations}
    rows = failure_rows(reads)
    worst = max(rows, key=lambda row: int(row["count"]), default=None)
    sentence = f"None of {reads.operations:,} reads failed."
    if worst is not None:
        sentence = (
            f"{reads.failed:,} reads failed beside {reads.operations:,} that succeeded, most of "
            f"them on {worst['file']} ({worst['reason']}, {worst['count']:,} times, first at byte "
            f"{worst['offset_bytes']}): the run is excluded from comparisons."
        )
    return Check(
        name="failed_reads",
        verdict="pass" if none_failed(figures) else "fail",
        sentence=sentence,
        figures=figures,
        mandatory=True,
    )
