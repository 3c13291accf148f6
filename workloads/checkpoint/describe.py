"""What a reader must know of a checkpoint run beside its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wattload.core.units import GIB, NS_PER_S, format_bytes
from wattload.workloads.checkpoint.account import Account, Side
from wattload.workloads.checkpoint.config import Config
from wattload.workloads.checkpoint.cycle import READ_PHASE
from wattload.workloads.checkpoint.job import Job
from wattload.workloads.checkpoint.metrics import Direction
from wattload.workloads.checkpoint.models import (
    SERVER_LAYERS,
    SERVER_NAME,
    SERVER_REMARK,
    SUBSETS,
    Model,
    model_named,
)
from wattload.workloads.checkpoint.training import SNAPSHOT_BUFFER_BYTES
from wattload.workloads.checkpoint.writing import WRITE_PHASE


def remarks(job: Job) -> tuple[str, ...]:
    """Return the sentences that the page must print."""
    config = job.config
    said = [_label(job)]
    if len(job.shards) < job.model_ranks:
        last = job.shards[-1].rank
        which = f"ranks 0 to {last}" if last else "rank 0"
        said.append(
            f"The checkpoint of {config.model} has {job.model_ranks} ranks; the first "
            f"{len(job.shards)} of them ran (the shards of {which}), "
            f"{format_bytes(job.rank_bytes)} of {format_bytes(job.model_bytes)}."
        )
    if len(job.shards) % job.target_count:
        said.append(
            f"{len(job.shards)} ranks do not divide evenly over {job.target_count} targets: the "
            "first ones hold a rank more, and set the time."
        )
    if config.is_async:
        said.append(_snapshot(job))
    if config.shrink_bytes is not None:
        said.append(
            f"shrunken for a demonstration: each rank's tensors are scaled to "
            f"{config.shrink_bytes} bytes, so no figure of this run stands for the model."
        )
    whole_bytes = len(job.shards) * (config.shrink_bytes or 0) or job.rank_bytes
    if config.slice_bytes is not None and job.checkpoint_bytes < whole_bytes:
        tensors = sum(len(shard.tensors) for shard in job.shards)
        said.append(
            f"sliced: {job.checkpoint_bytes} of {whole_bytes} bytes, the first {tensors} "
            "tensors of the ranks' lists, whole."
        )
    return tuple(said)


def _label(job: Job) -> str:
    """Return what is to be known of the size that was published for the model."""
    config, model = job.config, model_named(job.config.model)
    if config.model == SERVER_NAME:
        return f"{SERVER_REMARK}."
    if config.model not in SUBSETS:
        return f"MLPerf's label for {model.name}: {model.published_remark}."
    published_gb = SUBSETS[config.model].published_gb
    return (
        f"{config.model} is the first {job.model_ranks} of {model.rank_count} ranks of "
        f"{model.name}, as MLPerf Storage v2.0 had a subset: {job.model_bytes / GIB:.1f} GiB by "
        f"its own placement, where it printed {published_gb} GB."
    )


def _snapshot(job: Job) -> str:
    largest_bytes = max(shard.size_bytes for shard in job.shards)
    return (
        "The snapshot that training waits for copies as many bytes as a rank's shard has "
        f"({format_bytes(largest_bytes)} at most) from memory to memory, through two buffers of at "
        f"most {format_bytes(SNAPSHOT_BUFFER_BYTES)}: the copy is not kept, and the bytes that "
        "drain are generated. A copy from an accelerator's memory takes as long as its bus allows."
    )


def details(
    job: Job, accounts: Sequence[Account], *, nonce: int, step_s: float
) -> Mapping[str, Any]:
    """Return what a reader needs to judge the metrics, as JSON."""
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
        **_times(accounts),
        **_overlap(accounts),
        "nonce": f"{nonce:016x}",
        "verified": (
            "every 4096-byte block's stamp, and the 64-bit sum of all delivered bytes against the "
            "manifest on the target"
        ),
    }


def _times(accounts: Sequence[Account]) -> Mapping[str, Any]:
    """Return the seconds of each checkpoint, over all ranks and on each."""
    return {
        "write_seconds": Direction(WRITE_PHASE, accounts).seconds,
        "read_seconds": Direction(READ_PHASE, accounts).seconds,
        "seconds_taken": _seconds_taken(accounts),
        "write_seconds_by_rank": [_seconds(account.write) for account in accounts],
        "read_seconds_by_rank": [_seconds(account.read) for account in accounts],
    }


def _published(config: Config, model: Model) -> str:
    if config.model in SUBSETS:
        return f"{SUBSETS[config.model].published_gb} GB"
    return "415 GB" if config.model == SERVER_NAME else model.published


def _overlap(accounts: Sequence[Account]) -> Mapping[str, Any]:
    """Return each stall on each rank, where checkpoints drained while training went on."""
    if not any(account.stalls for account in accounts):
        return {}
    stalls = [account.stalls for account in accounts]
    return {
        "drain_wait_seconds_by_rank": [[s.wait_ns / NS_PER_S for s in own] for own in stalls],
        "snapshot_seconds_by_rank": [[s.snapshot_ns / NS_PER_S for s in own] for own in stalls],
        "commit_seconds": [commit_ns / NS_PER_S for commit_ns in accounts[0].write.commit_ns],
        "drained_by": "a thread of each rank; ranks agree on what is complete at each step's end",
    }


def _sharding(job: Job) -> Mapping[str, Any]:
    """Return how the ranks divide the model; ``None`` for what the preset has nothing of."""
    model = model_named(job.config.model)
    if job.config.model == SERVER_NAME:
        return {
            "tensor_parallel": job.model_ranks,
            "pipeline_parallel": None,
            "data_parallel": 1,
            "zero_stage": None,
            "sharding": (
                f"{SERVER_LAYERS} of {model.layers} layers, embedding and head, divided evenly "
                f"over {job.model_ranks} ranks: tensor parallelism within one stage, 8 "
                "layers being about one of 16; there is no pipeline and no ZeRO in this preset, "
                "and parameters counts the whole model"
            ),
        }
    return {
        "tensor_parallel": model.tensor_parallel,
        "pipeline_parallel": model.pipeline_parallel,
        "data_parallel": model.data_parallel,
        "zero_stage": model.zero_stage,
        "sharding": "as DLIO places the tensors",
    }


def _seconds_taken(accounts: Sequence[Account]) -> str:
    hosts = len({account.host for account in accounts})
    if hosts == 1:
        return "from the first rank's start to the last rank's end of each checkpoint"
    return (
        f"from the first rank's start to the last rank's end on each of {hosts} hosts, of which "
        "the longest counts: their clocks are not comparable, so a host that starts later than "
        "another is not seen"
    )


def _seconds(side: Side) -> list[float]:
    return [(end_ns - start_ns) / NS_PER_S for start_ns, end_ns in side.windows_ns]
