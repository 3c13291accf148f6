"""The checks of a checkpoint run, its remarks and its details.

The checks: files have the planned size, every byte was read back, writes were durable, and reads
started cold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from wattload.core.record.results import Check, VerifiedBytes, amount
from wattload.core.units import GIB, NS_PER_S, format_bytes
from wattload.core.workload import DeclaredCheck, Figures
from wattload.loaders.data.cold_cache import worst_of_each
from wattload.workloads.checkpoint.config import Config, Job
from wattload.workloads.checkpoint.cycle import (
    READ_PHASE,
    SNAPSHOT_BUFFER_BYTES,
    WRITE_PHASE,
    DirectionTotals,
    RankTotals,
)
from wattload.workloads.checkpoint.metrics import Direction
from wattload.workloads.checkpoint.models import (
    SERVER_LAYERS,
    SERVER_NAME,
    SERVER_REMARK,
    SUBSETS,
    Model,
    model_named,
)
from wattload.workloads.checkpoint.storage import folder_name

READ_START_S = 30.0
"""Seconds that MLPerf Storage allows between a write command and a read command."""


def is_read_back(figures: Figures) -> bool:
    """Return whether all saved bytes were loaded, none with a wrong stamp or checksum."""
    is_whole = amount(figures, "delivered_bytes") == amount(figures, "planned_bytes") > 0
    return is_whole and amount(figures, "bad_blocks") == amount(figures, "bad_files") == 0


def is_on_target(figures: Figures) -> bool:
    """Return whether the files have at least the planned bytes; a container adds some."""
    return amount(figures, "file_bytes") >= amount(figures, "planned_bytes") > 0


def is_durable(figures: Figures) -> bool:
    return amount(figures, "synced_files") == amount(figures, "planned_files") > 0


def is_committed(figures: Figures) -> bool:
    """Return whether every rank found the planned checkpoints at the end, and no others."""
    return amount(figures, "kept") > 0 and amount(figures, "different_ranks") == 0


CHECKS = {
    "cold_cache": DeclaredCheck(fault="the page cache held parts of the files before the reads"),
    "written_extents": DeclaredCheck(
        fault="the file system has no data for parts of the files", optional=True
    ),
    "checkpoint_durable": DeclaredCheck(fault="a file was not fsynced in its write window"),
    "checkpoint_bytes_on_target": DeclaredCheck(fault="a file has another size than planned"),
    "checkpoint_committed": DeclaredCheck(
        fault="a checkpoint is missing or incomplete at the end, or one too many was kept"
    ),
    "checkpoint_read_back": DeclaredCheck(fault="the drive returned other bytes than were saved"),
    "mlperf_read_start": DeclaredCheck(
        fault="the first read began before the last write ended",
        made_only_with={"protocol": "mlperf"},
    ),
}
"""The checks that only a checkpoint run can make."""


def bytes_on_target(job: Job, ranks: Sequence[RankTotals], overhead_bytes: Sequence[int]) -> Check:
    """Compare the files' sizes with the plan, per rank and checkpoint.

    ``overhead_bytes`` is the allowed size of each rank's files beyond its tensors, per checkpoint.
    """
    planned_bytes = job.checkpoint_bytes * job.config.checkpoint_count
    found_bytes = sum(sum(totals.file_bytes) for totals in ranks)
    agree = all(
        len(totals.file_bytes) == job.config.checkpoint_count
        and all(0 <= size - shard.size_bytes <= spare for size in totals.file_bytes)
        for shard, totals, spare in zip(job.shards, ranks, overhead_bytes, strict=True)
    )
    container = f" and at most {format_bytes(sum(overhead_bytes))} of container each"
    return Check(
        name="checkpoint_bytes_on_target",
        verdict="pass" if agree else "fail",
        sentence=(
            f"The files of {job.config.checkpoint_count} checkpoints have {found_bytes} bytes; the "
            f"plan was {planned_bytes} of tensors{container if any(overhead_bytes) else ''}"
            + ("." if agree else ": the file sizes do not match the plan.")
        ),
        figures={"file_bytes": found_bytes, "planned_bytes": planned_bytes},
        mandatory=True,
    )


def committed(job: Job, complete: Sequence[Sequence[str]]) -> Check:
    """Compare the complete checkpoints on each rank's target with the plan."""
    count, kept = job.config.checkpoint_count, min(job.config.kept, job.config.checkpoint_count)
    expected = [folder_name(number) for number in range(count - kept, count)]
    different = sum(list(names) != expected for names in complete)
    return Check(
        name="checkpoint_committed",
        verdict="fail" if different else "pass",
        sentence=(
            f"At the end, the target had the last {kept} checkpoints, complete by their manifests, "
            "and no others."
            if not different
            else f"At the end, the target should have the last {kept} checkpoints, complete by "
            f"their manifests, and no others; found {[list(names) for names in complete]}."
        ),
        figures={"kept": kept, "different_ranks": different},
        mandatory=True,
    )


def read_back(job: Job, ranks: Sequence[RankTotals]) -> Check:
    """Compare loaded with saved data: bytes, stamps and sums.

    Every checkpoint is read back, so the tensor bytes of both phases are verified. What containers
    add to the tensors is parsed by their libraries, not verified.
    """
    planned_bytes = job.checkpoint_bytes * job.config.checkpoint_count
    delivered_bytes = sum(totals.payload_bytes for totals in ranks)
    blocks = sum(totals.bad_blocks for totals in ranks)
    files = [name for totals in ranks for name in totals.bad_files]
    figures = {
        "delivered_bytes": delivered_bytes,
        "planned_bytes": planned_bytes,
        "bad_blocks": blocks,
        "bad_files": len(files),
    }
    good = is_read_back(figures)
    errors = f": {blocks} blocks are wrong"
    errors += f", in {', '.join(files[:3])}" if files else ""
    return Check(
        name="checkpoint_read_back",
        verdict="pass" if good else "fail",
        sentence=(
            f"{delivered_bytes} of {planned_bytes} tensor bytes were read back, and every "
            "4096-byte block was compared with its stamp and its sum"
            + ("." if good else errors + ".")
        ),
        figures=figures,
        mandatory=True,
        verified=(
            _verified(READ_PHASE, "read", delivered_bytes, [totals.read for totals in ranks]),
            _verified(WRITE_PHASE, "written", delivered_bytes, [totals.write for totals in ranks]),
        ),
    )


def _verified(
    phase: str,
    kind: Literal["read", "written"],
    delivered_bytes: int,
    sides: Sequence[DirectionTotals],
) -> VerifiedBytes:
    moved_bytes = sum(sum(side.moved_bytes) for side in sides)
    return VerifiedBytes(
        phase=phase,
        kind=kind,
        moved_bytes=moved_bytes,
        verified_bytes=min(delivered_bytes, moved_bytes),
    )


def durable(job: Job, ranks: Sequence[RankTotals]) -> Check:
    """Compare the number of fsynced files with the number of planned files.

    Folders and manifest are fsynced by the commit itself, which raises an error if that fails.
    """
    count = job.config.checkpoint_count
    planned = sum(totals.file_count for totals in ranks) * count
    synced = sum(sum(totals.synced_counts) for totals in ranks)
    if not job.config.fsync:
        return Check(
            name="checkpoint_durable",
            verdict="warn",
            sentence="workload.fsync was false, so the write window ended before data was durable.",
            figures={"synced_files": 0, "planned_files": planned},
        )
    good = all(totals.synced_counts == [totals.file_count] * count for totals in ranks)
    return Check(
        name="checkpoint_durable",
        verdict="pass" if good else "fail",
        sentence=f"{synced} fsyncs were counted in the write windows for {planned} files"
        + ("." if good else ": some files were not made durable."),
        figures={"synced_files": synced, "planned_files": planned},
        mandatory=True,
    )


def cold(ranks: Sequence[RankTotals]) -> list[Check]:
    """Return the worst checks of cache and extents of all reads and ranks."""
    return worst_of_each(check for totals in ranks for check in totals.cold)


def mlperf_read_start(ranks: Sequence[RankTotals]) -> Check:
    """Check the time from the end of the last write to the start of the first read.

    Source: MLPerf Storage ``Rules.md`` (checkpointing). ``wattload.core.mlperf.rules`` checks the
    other rules from the record.
    """
    delay_s = max(
        (totals.read.windows_ns[0][0] - totals.write.windows_ns[-1][1] - totals.write.commit_ns[-1])
        / NS_PER_S
        for totals in ranks
    )
    if delay_s < 0:
        return Check(
            name="mlperf_read_start",
            verdict="fail",
            sentence="The first read began before the last write ended.",
            figures={"seconds": delay_s},
        )
    return Check(
        name="mlperf_read_start",
        verdict="pass",
        sentence=(
            f"The first read began {delay_s:.1f} s after the last write, in the same command. The "
            f"limit of {READ_START_S:.0f} s only applies to reads by a separate command."
        ),
        figures={"seconds": delay_s},
    )


def remarks(job: Job) -> tuple[str, ...]:
    config = job.config
    found = [_label(job)]
    if len(job.shards) < job.model_ranks:
        last = job.shards[-1].rank
        which = f"ranks 0 to {last}" if last else "rank 0"
        found.append(
            f"The checkpoint of {config.model} has {job.model_ranks} ranks. This run had the first "
            f"{len(job.shards)} of them (the shards of {which}), "
            f"{format_bytes(job.rank_bytes)} of {format_bytes(job.model_bytes)}."
        )
    if len(job.shards) % job.target_count:
        found.append(
            f"{len(job.shards)} ranks do not divide evenly over {job.target_count} targets: the "
            "first targets have one rank more and determine the time."
        )
    if config.is_async:
        found.append(_snapshot(job))
    if config.shrink_bytes is not None:
        found.append(
            f"shrunken for a demonstration: each rank's tensors are scaled to "
            f"{config.shrink_bytes} bytes, so the figures of this run do not describe the model."
        )
    whole_bytes = len(job.shards) * (config.shrink_bytes or 0) or job.rank_bytes
    if config.slice_bytes is not None and job.checkpoint_bytes < whole_bytes:
        tensors = sum(len(shard.tensors) for shard in job.shards)
        found.append(
            f"sliced: {job.checkpoint_bytes} of {whole_bytes} bytes, the first {tensors} complete "
            "tensors of the ranks' lists."
        )
    return tuple(found)


def _label(job: Job) -> str:
    """Return the remark on the published size of the model."""
    config, model = job.config, model_named(job.config.model)
    if config.model == SERVER_NAME:
        return f"{SERVER_REMARK}."
    if config.model not in SUBSETS:
        return f"MLPerf's label for {model.name}: {model.published_remark}."
    published_gb = SUBSETS[config.model].published_gb
    return (
        f"{config.model} is the first {job.model_ranks} of {model.rank_count} ranks of "
        f"{model.name}, a subset in MLPerf Storage v2.0: {job.model_bytes / GIB:.1f} GiB by its "
        f"own placement, published as {published_gb} GB."
    )


def _snapshot(job: Job) -> str:
    largest_bytes = max(shard.size_bytes for shard in job.shards)
    return (
        "The snapshot that training waits for copies as many bytes as a rank's shard has "
        f"({format_bytes(largest_bytes)} at most) from memory to memory, through two buffers of at "
        f"most {format_bytes(SNAPSHOT_BUFFER_BYTES)}. The copy is not kept, and the drained bytes "
        "are generated. A copy from an accelerator's memory would take as long as its bus allows."
    )


def details(
    job: Job, ranks: Sequence[RankTotals], *, nonce: int, step_s: float
) -> Mapping[str, Any]:
    model = model_named(job.config.model)
    return {
        "model": job.config.model,
        "parameters": model.parameters,
        **_sharding(job),
        "model_ranks": job.model_ranks,
        "model_bytes": job.model_bytes,
        "model_gib": round(job.model_bytes / GIB, 3),
        "published_size": _published(job.config, model),
        "ranks": [shard.rank for shard in job.shards],
        "rank_whole_bytes": job.rank_bytes,
        "checkpoint_bytes": job.checkpoint_bytes,
        "rank_bytes": [shard.size_bytes for shard in job.shards],
        "rank_tensors": [len(shard.tensors) for shard in job.shards],
        "checkpoint_count": job.config.checkpoint_count,
        "kept": job.config.kept,
        "mode": job.config.mode,
        "interval_s": job.config.training_s,
        "step_s": step_s,
        **_times(ranks),
        **_overlap(ranks),
        "nonce": f"{nonce:016x}",
        "verified": ("the stamp of every 4096-byte block, and the sum of its other bytes"),
    }


def _times(ranks: Sequence[RankTotals]) -> Mapping[str, Any]:
    """Return the seconds of each checkpoint, over all ranks and per rank."""
    return {
        "write_seconds": Direction(WRITE_PHASE, ranks).seconds,
        "read_seconds": Direction(READ_PHASE, ranks).seconds,
        "seconds_taken": _seconds_taken(ranks),
        "write_seconds_by_rank": [_seconds(totals.write) for totals in ranks],
        "read_seconds_by_rank": [_seconds(totals.read) for totals in ranks],
    }


def _published(config: Config, model: Model) -> str:
    if config.model in SUBSETS:
        return f"{SUBSETS[config.model].published_gb} GB"
    return "415 GB" if config.model == SERVER_NAME else model.published


def _overlap(ranks: Sequence[RankTotals]) -> Mapping[str, Any]:
    """Return each stall on each rank, if checkpoints drained during training."""
    if not any(totals.stalls for totals in ranks):
        return {}
    stalls = [totals.stalls for totals in ranks]
    return {
        "drain_wait_seconds_by_rank": [[s.wait_ns / NS_PER_S for s in own] for own in stalls],
        "snapshot_seconds_by_rank": [[s.snapshot_ns / NS_PER_S for s in own] for own in stalls],
        "commit_seconds": [commit_ns / NS_PER_S for commit_ns in ranks[0].write.commit_ns],
        "drained_by": "a thread of each rank; ranks agree on completion at the end of each step",
    }


def _sharding(job: Job) -> Mapping[str, Any]:
    """Return how the ranks divide the model; ``None`` for what the preset lacks."""
    model = model_named(job.config.model)
    if job.config.model == SERVER_NAME:
        return {
            "tensor_parallel": job.model_ranks,
            "pipeline_parallel": None,
            "data_parallel": 1,
            "zero_stage": None,
            "sharding": (
                f"{SERVER_LAYERS} of {model.layers} layers, embedding and head, divided evenly "
                f"over {job.model_ranks} ranks: tensor parallelism within one stage, about one of "
                "16; this preset has no pipeline and no ZeRO, and parameters counts the whole model"
            ),
        }
    return {
        "tensor_parallel": model.tensor_parallel,
        "pipeline_parallel": model.pipeline_parallel,
        "data_parallel": model.data_parallel,
        "zero_stage": model.zero_stage,
        "sharding": "as DLIO places the tensors",
    }


def _seconds_taken(ranks: Sequence[RankTotals]) -> str:
    hosts = len({totals.host for totals in ranks})
    if hosts == 1:
        return "from the first rank's start to the last rank's end of each checkpoint"
    return (
        f"from the first rank's start to the last rank's end on each of {hosts} hosts; the longest "
        "counts. Their clocks are not comparable, so a late start of one host is not visible"
    )


def _seconds(side: DirectionTotals) -> list[float]:
    return [(end_ns - start_ns) / NS_PER_S for start_ns, end_ns in side.windows_ns]
