"""The checks of reads of blocks: what was delivered, from where, and that no read was lost."""

from __future__ import annotations

from mmap import PAGESIZE

from wattload.core.record.results import Verdict, amount
from wattload.core.units import MICRO, format_bytes, format_percent
from wattload.results.checks import (
    CheckFigures,
    CheckRule,
    Observed,
    cold_cache,
    counted_bytes,
    counted_latencies,
    counted_path,
    cpu_within_tree,
    data_path,
    written_extents,
)
from wattload.results.gpu_read.facts import CACHE_COUNTS, NULL, STORAGE, ReadFacts, Run
from wattload.results.gpu_read.figures import mean_latency_s, phase_of, seconds

LITTLE_LOW, LITTLE_HIGH = 0.98, 1.02
"""Threads over IOPS x mean latency, if latencies cover all of a thread's time."""
_FAULT_TOLERANCE = 0.1
"""Two threads that wait for the same page are two faults and one read."""
_MOST_CACHED = 0.5
"""From this share of pages on, a rate is mostly that of the page cache."""


def _counted(count: float, noun: str) -> str:
    return f"{count:,.0f} {noun}{'s' * (count != 1)}"


def _delivery_figures(run: Run) -> CheckFigures:
    facts = run.facts
    return {
        "engine": facts.engine,
        "requests": facts.requests,
        "operations": facts.operations,
        "delivered_blocks": None if facts.queue is None else facts.queue["delivered"],
        "stamped_blocks": _stamped_blocks(run),
        "failed_reads": facts.failed,
        "wrong_blocks": facts.total("wrong_blocks"),
        "first_wrong": next((each.first_wrong for each in facts.ranks if each.first_wrong), ""),
        "compared_bytes": facts.total("compared_bytes"),
        "bad_blocks": facts.total("bad_blocks"),
        "bad_files": ", ".join(name for each in facts.ranks for name in each.bad_files),
    }


def _stamped_blocks(run: Run) -> int | None:
    """Return the blocks whose stamp was compared: without a queue, those of ``compared_bytes``.

    It is ``None`` for reads by threads, which compare whole blocks alone.
    """
    facts = run.facts
    if facts.by_threads:
        return None
    if facts.queue is not None:
        return int(facts.queue["delivered"] + facts.total("wrong_blocks"))
    each_bytes = facts.settings.block_bytes if facts.is_mapped else facts.read_bytes
    return int(facts.total("compared_bytes") // each_bytes)


def _delivered(figures: CheckFigures) -> Verdict:
    """Judge whether every block had its own stamp; with ``null``, that there was no block.

    Each request through a queue has ended as a block whose stamp was compared, or has failed.
    """
    if figures["engine"] == NULL:
        return "pass" if amount(figures, "delivered_blocks") == 0 else "fail"
    if not amount(figures, "compared_bytes"):
        return "not_checked"
    if figures["requests"] is not None:
        ended = ("delivered_blocks", "wrong_blocks", "failed_reads")
        if sum(amount(figures, name) for name in ended) != amount(figures, "requests"):
            return "fail"
    is_wrong = amount(figures, "wrong_blocks") or amount(figures, "bad_blocks")
    return "fail" if is_wrong else "pass"


def _delivery(figures: CheckFigures, verdict: Verdict) -> str:
    if figures["engine"] == NULL:
        ending = ", and no block was." if verdict == "pass" else ", but blocks were."
        return f"Nothing is delivered with loader.engine=null{ending}"
    if verdict == "not_checked" and figures["delivered_blocks"]:
        return (
            f"The stamp of each of {figures['operations']:,} blocks was compared where it was "
            "delivered, but no block byte by byte: the last read of each requester failed."
        )
    if verdict == "not_checked":
        return "No block could be compared, so what was delivered is unknown."
    compared = format_bytes(int(amount(figures, "compared_bytes")))
    if figures["stamped_blocks"] is None:
        text = (
            f"{compared} were copied back from GPU memory and compared with the stamps and sums "
            "of the files"
        )
    else:
        text = (
            f"The stamp of each of {figures['stamped_blocks']:,} blocks was compared where it was "
            f"delivered, and every byte of {compared} of them"
        )
    return text + _unlike(figures, verdict)


def _unlike(figures: CheckFigures, verdict: Verdict) -> str:
    """Return the end of the sentence: what was not as it must be."""
    if wrong := amount(figures, "wrong_blocks"):
        return (
            f": wrong stamps in {_counted(wrong, 'block')}, the first of {figures['first_wrong']}."
        )
    if bad := amount(figures, "bad_blocks"):
        of = f" of {figures['bad_files']}" if figures["bad_files"] else ""
        return f": wrong bytes in {_counted(bad, 'block')} of 512 bytes{of}."
    if verdict == "pass":
        return "."
    failed = f" and {figures['failed_reads']:,} failed" if figures["failed_reads"] else ""
    return f", but {figures['requests']:,} were requested{failed}."


def _failure_figures(run: Run) -> CheckFigures:
    worst = max(run.facts.failures, key=lambda each: each.count, default=None)
    return {
        "failed_reads": run.facts.failed,
        "operations": run.facts.operations,
        "reason": worst.reason if worst else "",
        "count": worst.count if worst else 0,
        "file": worst.file if worst else None,
        "offset_bytes": worst.offset_bytes if worst else None,
    }


def _failures(figures: CheckFigures, _: Verdict) -> str:
    if not figures["failed_reads"]:
        return f"None of {figures['operations']:,} reads failed."
    where = f"on {figures['file']} " if figures["file"] else ""
    first = f", first at byte {figures['offset_bytes']}" if figures["file"] else ""
    return (
        f"{_counted(amount(figures, 'failed_reads'), 'read')} failed and {figures['operations']:,} "
        f"succeeded. Most failed {where}({figures['reason']}, "
        f"{_counted(amount(figures, 'count'), 'time')}{first}). The run is excluded from "
        "comparisons."
    )


def _little_ratio(figures: CheckFigures) -> float:
    """Return the threads over the reads that are in flight by Little's law.

    The time of the reads that the end cut off is in no latency, but it is not lost.
    """
    in_reads_s = amount(figures, "operations") * amount(figures, "mean_latency_s")
    in_reads_s += amount(figures, "cut_s")
    return amount(figures, "threads") * amount(figures, "seconds") / in_reads_s


def little_figures(run: Run) -> CheckFigures:
    figures: dict[str, float | int | str | None] = {
        "threads": run.facts.in_flight,
        "operations": run.facts.operations,
        "seconds": seconds(run),
        "mean_latency_s": mean_latency_s(run),
        "cut_s": run.facts.total("cut_s"),
    }
    has_latency = bool(figures["mean_latency_s"])
    return {**figures, "ratio": _little_ratio(figures) if has_latency else None}


def _little(figures: CheckFigures) -> Verdict:
    if figures["ratio"] is None:
        return "not_checked"
    return "pass" if LITTLE_LOW <= amount(figures, "ratio") <= LITTLE_HIGH else "warn"


def _little_text(figures: CheckFigures, verdict: Verdict) -> str:
    if verdict == "not_checked":
        return "The reader reported no latency, so Little's law was not checked."
    ratio = amount(figures, "ratio")
    in_flight = amount(figures, "threads") / ratio
    if verdict == "pass":
        rest = "."
    elif ratio > 1:
        rest = f": {format_percent(1 - 1 / ratio)} of a thread's time is in no latency."
    else:
        rest = ": more than there are threads, so times or counts are wrong."
    return (
        f"IOPS x mean latency ({amount(figures, 'mean_latency_s') / MICRO:,.0f} µs), with the "
        f"reads that the end cut off, are {in_flight:.1f} reads in flight of "
        f"{figures['threads']} threads{rest}"
    )


def _queue_figures(run: Run) -> CheckFigures:
    facts = run.facts
    queue = facts.queue or {}
    figures = {
        "requests": facts.requests,
        "taken": queue.get("taken"),
        "answered": queue.get("answered"),
        "operations": facts.operations,
        "failed_reads": facts.failed,
        "uneven_ranks": sum(not each.is_even for each in facts.ranks),
    }
    return {**figures, **({name: queue[name] for name in CACHE_COUNTS} if facts.has_cache else {})}


def _are_equal(figures: CheckFigures) -> Verdict:
    """Judge whether requests, descriptors and operations are equal, on each rank.

    With a cache, each request is in one of its counts, and those that missed or bypassed it are
    what was read.
    """
    ended = amount(figures, "operations") + amount(figures, "failed_reads")
    requests = asked = amount(figures, "requests")
    if "hits" in figures:
        asked = amount(figures, "misses") + amount(figures, "bypassed")
        met = sum(amount(figures, name) for name in ("coalesced", "hits", "merged"))
        if requests != met + asked:
            return "fail"
    counts = {asked, amount(figures, "taken"), amount(figures, "answered")}
    is_equal = counts == {ended} and ended > 0 and amount(figures, "uneven_ranks") == 0
    return "pass" if is_equal else "fail"


def _queue_text(figures: CheckFigures, verdict: Verdict) -> str:
    has_cache = "hits" in figures
    met = (
        f" ({figures['hits']:,} hits in the cache, {figures['merged']:,} merged, "
        f"{figures['coalesced']:,} coalesced, {figures['misses']:,} missed and "
        f"{figures['bypassed']:,} bypassed)"
        if has_cache
        else ""
    )
    failed = f" and {figures['failed_reads']:,} failed ones" if figures["failed_reads"] else ""
    must = "add up" if has_cache else "be equal"
    return (
        f"{figures['requests']:,} requests{met}, {figures['taken']:,} taken and "
        f"{figures['answered']:,} answered by pollers, {figures['operations']:,} reads{failed}"
    ) + ("." if verdict == "pass" else f": these counts must {must}.")


def _fault_figures(run: Run) -> CheckFigures:
    return {
        "major_faults": run.facts.total("major_faults"),
        "touched_pages": run.facts.total("touched_pages"),
        "page_bytes": PAGESIZE,
        "drive_bytes": run.facts.drive_bytes,
    }


def _are_of_drives(figures: CheckFigures) -> Verdict:
    """Judge whether storage was read for every page that waited, and most pages waited for it."""
    waited_bytes = amount(figures, "major_faults") * amount(figures, "page_bytes")
    if waited_bytes > (1 + _FAULT_TOLERANCE) * amount(figures, "drive_bytes"):
        return "fail"
    waited = amount(figures, "major_faults") / amount(figures, "touched_pages")
    return "pass" if waited > 1 - _MOST_CACHED else "warn"


def _fault_text(figures: CheckFigures, verdict: Verdict) -> str:
    read = format_bytes(int(amount(figures, "drive_bytes")))
    text = (
        f"{figures['major_faults']:,} of {figures['touched_pages']:,} touched pages waited for a "
        f"drive (major page faults), and the drives read {read} (read_bytes of /proc/self/io)"
    )
    if verdict == "fail":
        return f"{text}: too little for these pages."
    if verdict == "pass":
        return f"{text}."
    cached = 1 - amount(figures, "major_faults") / amount(figures, "touched_pages")
    return (
        f"{text}: the page cache served {format_percent(max(cached, 0.0), 1)}, so the rate is "
        "mostly of memory."
    )


def _cpu_s(run: Run) -> float:
    return run.facts.cpu_s


def _operations(run: Run) -> int:
    return run.facts.operations


def _block_bytes(run: Run) -> int | None:
    return run.facts.read_bytes


def _must_be_direct(run: Run) -> bool:
    return run.facts.must_be_direct


def _reads_storage(run: Run) -> bool:
    return run.facts.engine == STORAGE


def _by_threads(run: Run) -> bool:
    return run.facts.by_threads


def _drive_bytes(run: Run) -> int:
    return run.facts.drive_bytes


CHECKS = (
    counted_bytes(phase_of, "read", _drive_bytes, _reads_storage),
    CheckRule[ReadFacts](
        name="delivered_bytes",
        fault="a block was delivered that is not the one of its file, or none was compared",
        figures=_delivery_figures,
        judge=_delivered,
        sentence=_delivery,
        # Blocks that an outside program read can't be compared.
        mandatory=lambda run: not run.facts.reported,
    ),
    CheckRule[ReadFacts](
        name="failed_reads",
        fault="a drive or file system failed a read; the run is in no comparison",
        figures=_failure_figures,
        judge=lambda figures: (
            "pass" if figures["operations"] and not figures["failed_reads"] else "fail"
        ),
        sentence=_failures,
        mandatory=True,
    ),
    CheckRule[ReadFacts](
        name="littles_law",
        fault="a part of the threads' time is in no latency",
        figures=little_figures,
        judge=_little,
        sentence=_little_text,
        applies=_by_threads,
    ),
    CheckRule[ReadFacts](
        name="queue_counts",
        fault="a request was lost or doubled between requesters, pollers and drives",
        figures=_queue_figures,
        judge=_are_equal,
        sentence=_queue_text,
        mandatory=True,
        applies=lambda run: run.facts.queue is not None,
    ),
    CheckRule[ReadFacts](
        name="page_faults",
        fault="the page cache served the pages, or the kernel counted too few bytes for them",
        figures=_fault_figures,
        judge=_are_of_drives,
        sentence=_fault_text,
        applies=lambda run: run.facts.is_mapped,
    ),
    data_path(_operations, _block_bytes, _must_be_direct),
    counted_latencies(phase_of, _operations),
    cpu_within_tree(phase_of, _cpu_s),
)


def _has_counted_path(run: Run) -> bool:
    """Return whether only counts prove the path; of others block devices count the bytes."""
    return _reads_storage(run) and (run.facts.by_threads or run.facts.queue is not None)


OBSERVED: tuple[Observed[ReadFacts], ...] = (
    counted_path(_has_counted_path),
    cold_cache(_reads_storage),
    written_extents(_reads_storage),
    Observed(
        name="cold_cache_after", fault="reads went through the page cache", applies=_by_threads
    ),
)
