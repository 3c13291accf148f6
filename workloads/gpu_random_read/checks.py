"""The checks of random reads: what was delivered, and that no request was lost or doubled."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from wattload.core.record.results import NO_STORAGE, Check, Verdict, VerifiedBytes, amount
from wattload.core.units import format_bytes, format_percent
from wattload.core.workload import DeclaredCheck, Figures
from wattload.loaders.data.cold_cache import worst_of_each
from wattload.workloads.gpu_random_read.metrics import PHASE
from wattload.workloads.gpu_random_read.reads import Reads, bad_files, failure_rows, wrong_place

_QUEUE = ("gpu_queue",)
_MAPPED = ("mmap",)
_FAULT_TOLERANCE = 0.1
"""Two threads that wait for the same page are two faults and one read."""
_MOST_CACHED = 0.5
"""From this share of pages on, a rate is mostly that of the page cache."""


def is_delivered(figures: Figures) -> bool:
    """Return whether every block had its own stamp; with ``null``, that there was no block.

    Each request through a queue has ended as a block whose stamp was compared, or has failed.
    """
    if figures["engine"] == "null":
        return amount(figures, "delivered_blocks") == 0
    if figures["requests"] is not None:
        ended = ("delivered_blocks", "wrong_blocks", "failed_reads")
        if sum(amount(figures, name) for name in ended) != amount(figures, "requests"):
            return False
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
    return amount(figures, "failed_reads") == 0 and amount(figures, "operations") > 0


def is_read_for_faults(figures: Figures) -> bool:
    """Return whether storage was read for every page that a thread waited for."""
    waited_bytes = amount(figures, "major_faults") * amount(figures, "page_bytes")
    return waited_bytes <= (1 + _FAULT_TOLERANCE) * amount(figures, "drive_bytes")


def is_of_drives(figures: Figures) -> bool:
    """Return whether storage was read for every fault, and most pages waited for it."""
    waited = amount(figures, "major_faults") / amount(figures, "touched_pages")
    return is_read_for_faults(figures) and waited > 1 - _MOST_CACHED


CHECKS = {
    "cold_cache": DeclaredCheck(
        fault="the page cache held parts of the files before the reads", optional=True
    ),
    "written_extents": DeclaredCheck(
        fault="the file system has no data for parts of the files", optional=True
    ),
    "delivered_bytes": DeclaredCheck(fault="a requester got another block than it asked for"),
    "queue_counts": DeclaredCheck(
        fault="a request was lost or doubled between requesters, pollers and drives",
        made_only_by=_QUEUE,
    ),
    "page_faults": DeclaredCheck(
        fault="the page cache served the pages, or the kernel counted too few bytes for them",
        made_only_by=_MAPPED,
    ),
    "failed_reads": DeclaredCheck(fault="a drive or file system failed a read"),
    "data_path": DeclaredCheck(
        fault="reads took another path than the one requested", optional=True, made_only_by=_QUEUE
    ),
}
"""The checks that only random reads have.

``data_path`` follows from the counts in the record and is made with it. Without a queue, the path
is proved by what block devices counted (``device_bytes``), so these runs do not have ``data_path``.
"""


def outcome_checks(reads: Reads) -> Sequence[Check]:
    """Return the checks that follow from what the ranks counted."""
    made = [*_of_files(reads), delivered_bytes(reads), failed_reads(reads)]
    if reads.total("requests") is not None:
        made.append(queue_counts(reads))
    if reads.total("major_faults") is not None:
        made.append(page_faults(reads))
    return made


def _of_files(reads: Reads) -> Sequence[Check]:
    """Return the checks of the files, or that none was read."""
    if reads.engine == "storage":
        return worst_of_each(check for each in reads.ranks for check in each.checks)
    sentence = f"No storage was read: loader.engine={reads.engine}."
    missing_check = partial(Check, verdict="not_checked", sentence=sentence, cause=NO_STORAGE)
    return [
        missing_check(name="cold_cache"),
        missing_check(name="written_extents"),
        missing_check(name="data_path"),
    ]


def delivered_bytes(reads: Reads) -> Check:
    """Return the check that what was delivered is what the files, or the table, have."""
    compared, bad = reads.total("compared_bytes") or 0, reads.total("bad_blocks") or 0
    wrong = reads.total("wrong_blocks") or 0
    figures: dict[str, float | int | str | None] = {
        "engine": reads.engine,
        "requests": reads.total("requests"),
        "delivered_blocks": reads.total("delivered"),
        "failed_reads": reads.failed,
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
            sentence=_not_compared(reads),
            figures=figures,
            mandatory=True,
        )
    else:
        good = is_delivered(figures)
        place = wrong_place(reads.ranks)
        sentence = (
            f"The stamp of each of {_compared_blocks(reads, compared):,} blocks was compared "
            f"where it was delivered, and every byte of {format_bytes(compared)} of them"
        )
        if wrong:
            sentence += f": wrong stamps in {_counted(wrong, 'block')}, the first of {place}"
        elif bad:
            files = ", ".join(bad_files(reads.ranks))
            sentence += f": wrong bytes in {_counted(bad, 'block')} of 512 bytes" + (
                f" of {files}" if files else ""
            )
        elif not good:
            sentence += f", but {reads.total('requests'):,} were requested"
            sentence += f" and {reads.failed:,} failed" if reads.failed else ""
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


def _not_compared(reads: Reads) -> str:
    if reads.total("delivered"):
        return (
            f"The stamp of each of {reads.operations:,} blocks was compared where it was "
            "delivered, but no block byte by byte: the last read of each requester failed."
        )
    return "No block could be compared, so what was delivered is unknown."


def _compared_blocks(reads: Reads, compared_bytes: int) -> int:
    """Return the blocks whose stamp was compared: without a queue, those of ``compared_bytes``."""
    delivered = reads.total("delivered")
    if delivered is not None:
        return delivered + (reads.total("wrong_blocks") or 0)
    is_cached = reads.total("drive_bytes") is not None
    return compared_bytes // (reads.block_bytes if is_cached else reads.read_bytes)


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


def page_faults(reads: Reads) -> Check:
    """Return the check that compares page faults with what the kernel read for them."""
    figures: dict[str, float | int | str | None] = {
        "major_faults": reads.total("major_faults"),
        "touched_pages": reads.total("touched_pages"),
        "page_bytes": mmap.PAGESIZE,
        "drive_bytes": reads.drive_bytes,
    }
    waited = (
        f"{figures['major_faults']:,} of {figures['touched_pages']:,} touched pages waited for a "
        f"drive (major page faults), and the drives read {format_bytes(reads.drive_bytes)} "
        "(read_bytes of /proc/self/io)"
    )
    if not is_read_for_faults(figures):
        verdict: Verdict = "fail"
        sentence = f"{waited}: too little for these pages."
    elif is_of_drives(figures):
        verdict, sentence = "pass", f"{waited}."
    else:
        verdict = "warn"
        cached = format_percent(reads.resident_fraction or 0.0, 1)
        sentence = f"{waited}: the page cache served {cached}, so the rate is mostly of memory."
    return Check(name="page_faults", verdict=verdict, sentence=sentence, figures=figures)


def failed_reads(reads: Reads) -> Check:
    """Return the check that no read failed; a run with failures is in no comparison."""
    figures = {"failed_reads": reads.failed, "operations": reads.operations}
    rows = failure_rows(reads)
    worst = max(rows, key=lambda row: int(row["count"]), default=None)
    sentence = f"None of {reads.operations:,} reads failed."
    if worst is not None:
        sentence = (
            f"{_counted(reads.failed, 'read')} failed and {reads.operations:,} succeeded. Most "
            f"failed on {worst['file']} ({worst['reason']}, {_counted(worst['count'], 'time')}, "
            f"first at byte {worst['offset_bytes']}). The run is excluded from comparisons."
        )
    return Check(
        name="failed_reads",
        verdict="pass" if none_failed(figures) else "fail",
        sentence=sentence,
        figures=figures,
        mandatory=True,
    )


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"
