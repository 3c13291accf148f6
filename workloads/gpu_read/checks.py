"""The checks of reads of blocks: what was delivered, from where, and that no read was lost."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from wattload.core.record.results import NO_STORAGE, Check, Verdict, VerifiedBytes, amount
from wattload.core.units import MICRO, format_bytes, format_percent
from wattload.core.workload import DeclaredCheck, Figures
from wattload.loaders.data.cold_cache import RESIDENT_LIMIT, is_cold, residency, worst_of_each
from wattload.workloads.gpu_read.reads import Reads, bad_files, failure_rows, wrong_place

_QUEUE = ("gpu_queue",)
_MAPPED = ("mmap",)
_OUTSIDE = ("gdsio",)
"""Loaders that are programs of their own: their bytes can't be compared."""

LITTLE_LOW, LITTLE_HIGH = 0.98, 1.02
"""Threads over IOPS x mean latency, if latencies cover all of a thread's time."""
_FAULT_TOLERANCE = 0.1
"""Two threads that wait for the same page are two faults and one read."""
_MOST_CACHED = 0.5
"""From this share of pages on, a rate is mostly that of the page cache."""
CACHE_COUNTS = ("coalesced", "hits", "joined", "misses", "passed")
"""What becomes of requests at a cache, each in one of the counts; see ``PathCounts``."""


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


def little_ratio(figures: Figures) -> float:
    """Return the threads over the reads that are in flight by Little's law.

    The time of the reads that the end cut off is in no latency, but it is not lost.
    """
    in_reads_s = amount(figures, "operations") * amount(figures, "mean_latency_s")
    in_reads_s += amount(figures, "cut_s")
    return amount(figures, "threads") * amount(figures, "seconds") / in_reads_s


def closes(figures: Figures) -> bool:
    """Return whether the latencies cover all of the threads' time."""
    return LITTLE_LOW <= little_ratio(figures) <= LITTLE_HIGH


_EVERY: Mapping[str, DeclaredCheck] = {
    "written_extents": DeclaredCheck(
        fault="the file system has no data for parts of the files", optional=True
    ),
    "delivered_bytes": DeclaredCheck(
        fault="a block was delivered that is not the one of its file", not_made_by=_OUTSIDE
    ),
    "failed_reads": DeclaredCheck(fault="a drive or file system failed a read"),
}

CHECKS: Mapping[str, DeclaredCheck] = {
    **_EVERY,
    "cold_cache": DeclaredCheck(fault="the page cache held parts of the files before the reads"),
    "cold_cache_after": DeclaredCheck(fault="reads went through the page cache"),
    "littles_law": DeclaredCheck(
        fault="a part of the threads' time is in no latency", optional=True
    ),
    "data_path": DeclaredCheck(
        fault="reads took another path than the one requested", optional=True
    ),
}
"""The checks of reads by threads; ``data_path`` follows from the counts in the record."""

OF_REQUESTERS: Mapping[str, DeclaredCheck] = {
    **_EVERY,
    "cold_cache": DeclaredCheck(
        fault="the page cache held parts of the files before the reads", optional=True
    ),
    "queue_counts": DeclaredCheck(
        fault="a request was lost or doubled between requesters, pollers and drives",
        made_only_by=_QUEUE,
    ),
    "page_faults": DeclaredCheck(
        fault="the page cache served the pages, or the kernel counted too few bytes for them",
        made_only_by=_MAPPED,
    ),
    "data_path": DeclaredCheck(
        fault="reads took another path than the one requested", optional=True, made_only_by=_QUEUE
    ),
}
"""The checks of reads that requesters ask for.

Without a queue, the path is proved by what block devices counted (``device_bytes``), so these runs
do not have ``data_path``.
"""


def outcome_checks(reads: Reads) -> Iterator[Check]:
    """Yield the checks that follow from what the ranks counted."""
    yield from _of_files(reads)
    yield delivered_bytes(reads)
    yield failed_reads(reads)
    if reads.threads:
        yield littles_law(reads, reads.threads)
    if reads.has_queue:
        yield queue_counts(reads)
    if reads.total("major_faults") is not None:
        yield page_faults(reads)


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
    wrong, counts = reads.total("wrong_blocks") or 0, reads.counts
    figures: dict[str, float | int | str | None] = {
        "engine": reads.engine,
        "requests": reads.requests,
        "delivered_blocks": counts.delivered if counts is not None else None,
        "failed_reads": reads.failed,
        "wrong_blocks": wrong,
        "compared_bytes": compared,
        "bad_blocks": bad,
    }
    moved_bytes = reads.drive_bytes
    # What threads compare besides their last reads is read outside of the timed window.
    in_time_bytes = reads.threads * reads.block_bytes if reads.threads else moved_bytes
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
            mandatory=not reads.threads,
        )
    else:
        good = is_delivered(figures)
        sentence = _compared(reads, compared) + _unlike(reads, wrong, bad, is_good=good)
    return Check(
        name="delivered_bytes",
        verdict="pass" if good else "fail",
        sentence=sentence,
        figures=figures,
        mandatory=True,
        verified=(
            VerifiedBytes(
                phase=reads.phase,
                kind="read",
                moved_bytes=moved_bytes,
                verified_bytes=min(compared, in_time_bytes, moved_bytes),
            ),
        )
        if moved_bytes
        else (),
    )


def _not_compared(reads: Reads) -> str:
    if reads.counts is not None and reads.counts.delivered:
        return (
            f"The stamp of each of {reads.operations:,} blocks was compared where it was "
            "delivered, but no block byte by byte: the last read of each requester failed."
        )
    return "No block could be compared, so what was delivered is unknown."


def _compared(reads: Reads, compared: int) -> str:
    if reads.threads:
        return (
            f"{format_bytes(compared)} were copied back from GPU memory and compared with the "
            "stamps and sums of the files"
        )
    return (
        f"The stamp of each of {_compared_blocks(reads, compared):,} blocks was compared where it "
        f"was delivered, and every byte of {format_bytes(compared)} of them"
    )


def _unlike(reads: Reads, wrong: int, bad: int, *, is_good: bool) -> str:
    """Return the end of the sentence: what was not as it must be."""
    if wrong:
        place = wrong_place(reads.ranks)
        return f": wrong stamps in {_counted(wrong, 'block')}, the first of {place}."
    if bad:
        files = ", ".join(bad_files(reads.ranks))
        return f": wrong bytes in {_counted(bad, 'block')} of 512 bytes" + (
            f" of {files}." if files else "."
        )
    if is_good:
        return "."
    failed = f" and {reads.failed:,} failed" if reads.failed else ""
    return f", but {reads.requests:,} were requested{failed}."


def _compared_blocks(reads: Reads, compared_bytes: int) -> int:
    """Return the blocks whose stamp was compared: without a queue, those of ``compared_bytes``."""
    if reads.counts is not None:
        return (reads.counts.delivered or 0) + (reads.total("wrong_blocks") or 0)
    is_mapped = reads.total("major_faults") is not None
    return compared_bytes // (reads.block_bytes if is_mapped else reads.read_bytes)


def queue_counts(reads: Reads) -> Check:
    """Return the check that no request was lost or doubled between requesters and drives."""
    uneven = sum(not each.is_even for each in reads.ranks)
    counts = reads.counts
    assert counts is not None
    figures: dict[str, float | int | str | None] = {
        "requests": reads.requests,
        "taken": counts.taken,
        "answered": counts.answered,
        "operations": reads.operations,
        "failed_reads": reads.failed,
        "uneven_ranks": uneven,
    }
    if reads.has_cache:
        figures |= {name: getattr(counts, name) for name in CACHE_COUNTS}
    good = are_counts_equal(figures)
    met = (
        f" ({counts.hits:,} hits in the cache, {counts.joined:,} joined, {counts.coalesced:,} "
        f"coalesced, {counts.misses:,} missed and {counts.passed:,} passed)"
        if reads.has_cache
        else ""
    )
    text = (
        f"{reads.requests:,} requests{met}, {counts.taken:,} taken and {counts.answered:,} "
        f"answered by pollers, {reads.operations:,} reads"
        + (f" and {reads.failed:,} failed ones" if reads.failed else "")
    )
    must = "add up" if reads.has_cache else "be equal"
    return Check(
        name="queue_counts",
        verdict="pass" if good else "fail",
        sentence=text + ("." if good else f": these counts must {must}."),
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
        where = f"on {worst['file']} " if worst["file"] else ""
        first = f", first at byte {worst['offset_bytes']}" if worst["file"] else ""
        sentence = (
            f"{_counted(reads.failed, 'read')} failed and {reads.operations:,} succeeded. Most "
            f"failed {where}({worst['reason']}, {_counted(worst['count'], 'time')}{first}). The "
            "run is excluded from comparisons."
        )
    return Check(
        name="failed_reads",
        verdict="pass" if none_failed(figures) else "fail",
        sentence=sentence,
        figures=figures,
        mandatory=True,
    )


def littles_law(reads: Reads, threads: int) -> Check:
    """Return the check that latencies cover the threads' time: threads = IOPS x mean latency."""
    name, mean_s = "littles_law", reads.mean_latency_s
    if not mean_s:
        return Check(
            name=name,
            verdict="not_checked",
            sentence="The reader reported no latency, so Little's law was not checked.",
        )
    figures: dict[str, float | int | str | None] = {
        "threads": threads,
        "operations": reads.operations,
        "seconds": reads.seconds,
        "mean_latency_s": mean_s,
        "cut_s": sum(each.cut_s for each in reads.results),
    }
    ratio = little_ratio(figures)
    in_flight = threads / ratio
    if closes(figures):
        rest = "."
    elif ratio > 1:
        rest = f": {format_percent(1 - 1 / ratio)} of a thread's time is in no latency."
    else:
        rest = ": more than there are threads, so times or counts are wrong."
    return Check(
        name=name,
        verdict="pass" if closes(figures) else "warn",
        sentence=(
            f"IOPS x mean latency ({mean_s / MICRO:,.0f} µs), with the reads that the end cut "
            f"off, are {in_flight:.1f} reads in flight of {threads} threads" + rest
        ),
        figures={**figures, "ratio": ratio},
    )


def still_cold(paths: Sequence[Path]) -> Check:
    """Return the check that the reads left nothing in the page cache: they did not go through it.

    Raises:
        OSError: a file can't be opened.
    """
    name, found = "cold_cache_after", residency(paths)
    if found.fraction is None:
        return Check(
            name=name,
            verdict="not_checked",
            sentence=f"Whether reads used the page cache is unknown: {found.missing}.",
            mandatory=True,
        )
    figures = {
        "resident_bytes": found.resident_bytes,
        "total_bytes": found.total_bytes,
        "limit_fraction": RESIDENT_LIMIT,
    }
    good = is_cold(figures)
    return Check(
        name=name,
        verdict="pass" if good else "fail",
        sentence=(
            f"{format_percent(found.fraction, 2)} of the files' {found.total_bytes} bytes were in "
            "the page cache after the reads"
            + ("." if good else ": reads went through it, or another program read the files.")
        ),
        figures=figures,
        mandatory=True,
    )


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"
