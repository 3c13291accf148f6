"""The checks of reads into GPU memory: what was delivered, from where, and in which time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wattload.core.record.results import Check, VerifiedBytes, amount
from wattload.core.units import MICRO, format_bytes, format_percent
from wattload.core.workload import DeclaredCheck, Figures
from wattload.loaders.data.cold_cache import RESIDENT_LIMIT, is_cold, residency
from wattload.loaders.gpu_reads import GpuReadResult
from wattload.workloads.gpu_read.config import Config
from wattload.workloads.gpu_read.metrics import PHASE, failed_reads, mean_latency_s

LITTLE_LOW, LITTLE_HIGH = 0.98, 1.02
"""Threads over IOPS x mean latency, if latencies cover all of a thread's time."""

_OUTSIDE = ("gdsio",)
"""Loaders that are programs of their own: their bytes can't be compared."""


def is_delivered(figures: Figures) -> bool:
    """Return whether something was copied back, and all of it is what the files have."""
    return amount(figures, "compared_bytes") > 0 and amount(figures, "bad_blocks") == 0


def none_failed(figures: Figures) -> bool:
    return amount(figures, "failed_reads") == 0 and amount(figures, "operations") > 0


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


CHECKS = {
    "cold_cache": DeclaredCheck(fault="the page cache held parts of the files before the reads"),
    "cold_cache_after": DeclaredCheck(fault="reads went through the page cache"),
    "written_extents": DeclaredCheck(
        fault="the file system has no data for parts of the files", optional=True
    ),
    "delivered_bytes": DeclaredCheck(
        fault="GPU memory has other bytes than the files", not_made_by=_OUTSIDE
    ),
    "failed_reads": DeclaredCheck(fault="a drive or file system failed a read"),
    "littles_law": DeclaredCheck(
        fault="a part of the threads' time is in no latency", optional=True
    ),
    "data_path": DeclaredCheck(
        fault="reads took another path than the one requested", optional=True
    ),
}
"""The checks that only reads into GPU memory have.

``data_path`` follows from the counts in the record and is made with it.
"""


def outcome_checks(config: Config, result: GpuReadResult) -> Sequence[Check]:
    """Return the checks that follow from what a reader counted."""
    return (
        delivered_bytes(config, result),
        failures(result),
        littles_law(config, result),
    )


def delivered_bytes(config: Config, result: GpuReadResult) -> Check:
    """Return the check that blocks copied back from GPU memory are those of the files."""
    name = "delivered_bytes"
    if not result.compared_bytes:
        return Check(
            name=name,
            verdict="not_checked",
            sentence="No block was copied back from GPU memory, so what was delivered is unknown.",
        )
    figures = {"compared_bytes": result.compared_bytes, "bad_blocks": result.bad_blocks}
    good = is_delivered(figures)
    in_time_bytes = min(config.threads * config.block_bytes, result.compared_bytes)
    return Check(
        name=name,
        verdict="pass" if good else "fail",
        sentence=(
            f"{format_bytes(result.compared_bytes)} were copied back from GPU memory and compared "
            "with the stamps and sums of the files"
            + ("." if good else f": {result.bad_blocks} blocks of 4096 bytes are wrong.")
        ),
        figures=figures,
        mandatory=True,
        verified=(
            VerifiedBytes(
                phase=PHASE,
                kind="read",
                moved_bytes=result.moved_bytes,
                verified_bytes=min(in_time_bytes, result.moved_bytes),
            ),
        ),
    )


def failures(result: GpuReadResult) -> Check:
    """Return the check that no read failed; a run with failures is in no comparison."""
    count = failed_reads(result)
    figures = {"failed_reads": count, "operations": result.operations}
    worst = max(result.failures, key=lambda clause: result.failures[clause], default="")
    return Check(
        name="failed_reads",
        verdict="pass" if none_failed(figures) else "fail",
        sentence=(
            f"None of {result.operations:,} reads failed."
            if not count
            else f"{count:,} reads failed beside {result.operations:,} that succeeded, most of "
            f"them because {worst}: the run is excluded from comparisons."
        ),
        figures=figures,
        mandatory=True,
    )


def littles_law(config: Config, result: GpuReadResult) -> Check:
    """Return the check that latencies cover the threads' time: threads = IOPS x mean latency."""
    name, mean_s = "littles_law", mean_latency_s(result)
    if not mean_s:
        return Check(
            name=name,
            verdict="not_checked",
            sentence="The reader reported no latency, so Little's law was not checked.",
        )
    figures: dict[str, float | int | str | None] = {
        "threads": config.threads,
        "operations": result.operations,
        "seconds": result.seconds,
        "mean_latency_s": mean_s,
        "cut_s": result.cut_s,
    }
    ratio = little_ratio(figures)
    in_flight = config.threads / ratio
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
            f"off, are {in_flight:.1f} reads in flight of {config.threads} threads" + rest
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
