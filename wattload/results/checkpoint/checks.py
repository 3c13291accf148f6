"""The checks of checkpoints: files are whole and durable, and every byte was read back."""

from __future__ import annotations

from wattload.core.record.results import Verdict
from wattload.core.units import NS_PER_S, format_bytes
from wattload.results.checkpoint.facts import READ_PHASE, WRITE_PHASE, CheckpointFacts, Run
from wattload.results.checks import CheckFigures, CheckRule, Observed, passes, written_extents

READ_START_S = 30
"""Seconds that MLPerf Storage allows between a write command and a read command."""


def _durable_figures(run: Run) -> CheckFigures:
    facts, count = run.facts, run.facts.settings.checkpoint_count
    return {
        "synced_files": sum(sum(own.synced_counts) for own in facts.ranks),
        "planned_files": sum(own.file_count for own in facts.ranks) * count,
        "different_ranks": sum(
            own.synced_counts != [own.file_count] * count for own in facts.ranks
        ),
        "fsync": int(facts.settings.fsync),
    }


def _are_durable(figures: CheckFigures) -> Verdict:
    """Judge the fsyncs of files; those of folders and manifest raise an error if they fail."""
    if not figures["fsync"]:
        return "warn"
    return passes(figures["synced_files"] == figures["planned_files"] and
                   not figures["different_ranks"])  # fmt: skip


def _durable(figures: CheckFigures, verdict: Verdict) -> str:
    if not figures["fsync"]:
        return "workload.fsync was false, so the write window ended before data was durable."
    ending = "." if verdict == "pass" else ": some files were not made durable."
    return (
        f"{figures['synced_files']} fsyncs were counted in the write windows for "
        f"{figures['planned_files']} files{ending}"
    )


def _size_figures(run: Run) -> CheckFigures:
    facts = run.facts
    return {
        "file_bytes": sum(sum(own.file_bytes) for own in facts.ranks),
        "planned_bytes": facts.planned_bytes,
        "checkpoint_count": facts.settings.checkpoint_count,
        "container_bytes": sum(own.overhead_bytes for own in facts.ranks),
        "different_ranks": sum(
            len(own.file_bytes) != facts.settings.checkpoint_count
            or not all(0 <= found - planned <= own.overhead_bytes for found in own.file_bytes)
            for own, planned in zip(facts.ranks, facts.rank_bytes, strict=True)
        ),
    }


def _sizes(figures: CheckFigures, verdict: Verdict) -> str:
    spare_bytes = int(figures["container_bytes"] or 0)
    container = f" and at most {format_bytes(spare_bytes)} of container each" * bool(spare_bytes)
    ending = "." if verdict == "pass" else ": the file sizes do not match the plan."
    return (
        f"The files of {figures['checkpoint_count']} checkpoints have {figures['file_bytes']} "
        f"bytes; the plan was {figures['planned_bytes']} of tensors{container}{ending}"
    )


def _read_back_figures(run: Run) -> CheckFigures:
    files = [name for own in run.facts.ranks for name in own.bad_files]
    return {
        "delivered_bytes": sum(own.payload_bytes for own in run.facts.ranks),
        "planned_bytes": run.facts.planned_bytes,
        "bad_blocks": sum(own.bad_blocks for own in run.facts.ranks),
        "bad_files": len(files),
        "first_bad_files": ", ".join(files[:3]),
    }


def _is_read_back(figures: CheckFigures) -> Verdict:
    is_whole = figures["delivered_bytes"] == figures["planned_bytes"]
    return passes(is_whole and figures["bad_blocks"] == figures["bad_files"] == 0)


def _read_back(figures: CheckFigures, verdict: Verdict) -> str:
    files = figures["first_bad_files"]
    errors = f": {figures['bad_blocks']} blocks are wrong" + (f", in {files}" if files else "")
    return (
        f"{figures['delivered_bytes']} of {figures['planned_bytes']} tensor bytes were read back, "
        "and every 4096-byte block was compared with its stamp and its sum"
        f"{'' if verdict == 'pass' else errors}."
    )


def _start_figures(run: Run) -> CheckFigures:
    """Return the time from the end of the last write to the first read, on the slowest host."""
    ends_ns = {window.host: window.end_ns for window in run.windows(WRITE_PHASE)}
    delays_ns = [window.start_ns - ends_ns[window.host] for window in run.windows(READ_PHASE)]
    return {"seconds": max(delays_ns) / NS_PER_S}


def _start(figures: CheckFigures, verdict: Verdict) -> str:
    if verdict == "fail":
        return "The first read began before the last write ended."
    return (
        f"The first read began {figures['seconds']:.1f} s after the last write, in the same "
        f"command. The limit of {READ_START_S} s only applies to reads by a separate command."
    )


CHECKS = (
    CheckRule[CheckpointFacts](
        name="checkpoint_durable",
        fault="a file was not fsynced in its write window",
        figures=_durable_figures,
        judge=_are_durable,
        sentence=_durable,
        mandatory=True,
    ),
    CheckRule[CheckpointFacts](
        name="checkpoint_bytes_on_target",
        fault="a file has another size than planned",
        figures=_size_figures,
        judge=lambda figures: passes(not figures["different_ranks"]),
        sentence=_sizes,
        mandatory=True,
    ),
    CheckRule[CheckpointFacts](
        name="checkpoint_read_back",
        fault="the drive returned other bytes than were saved",
        figures=_read_back_figures,
        judge=_is_read_back,
        sentence=_read_back,
        mandatory=True,
    ),
    # Source: MLPerf Storage Rules.md (checkpointing); core/mlperf/rules.py has the other rules.
    CheckRule[CheckpointFacts](
        name="mlperf_read_start",
        fault="the first read began before the last write ended",
        figures=_start_figures,
        judge=lambda figures: passes(float(figures["seconds"] or 0) >= 0),
        sentence=_start,
        applies=lambda run: run.facts.settings.protocol == "mlperf",
    ),
)
OBSERVED: tuple[Observed[CheckpointFacts], ...] = (
    Observed(name="cold_cache", fault="the page cache held parts of the files before the reads"),
    written_extents(),
    Observed(
        name="checkpoint_committed",
        fault="a checkpoint is missing or incomplete at the end, or one too many was kept",
    ),
)
