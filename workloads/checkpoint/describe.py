"""What a reader must know of a checkpoint run beside its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wattload.core.units import GIB, NS_PER_S, format_bytes
from wattload.workloads.checkpoint.cycle import READ_PHASE, WRITE_PHASE, Account, Side
from wattload.workloads.checkpoint.job import Job
from wattload.workloads.checkpoint.metrics import Direction
from wattload.workloads.checkpoint.models import (
    SERVER_LAYERS,
    SERVER_NAME,
    SERVER_REMARK,
    model_named,
)


def remarks(job: Job) -> tuple[str, ...]:
    """Return the sentences that the page must print."""
    config, model = job.config, model_named(job.config.model)
    said = []
    if config.model == SERVER_NAME:
        said.append(f"{SERVER_REMARK}.")
    else:
        said.append(f"MLPerf's label for {model.name}: {model.published_remark}.")
    if len(job.shards) < job.model_ranks:
        said.append(
            f"The checkpoint of {config.model} has {job.model_ranks} ranks; the first "
            f"{len(job.shards)} of them ran, {format_bytes(job.rank_bytes)} of "
            f"{format_bytes(job.model_bytes)}."
        )
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


def details(job: Job, accounts: Sequence[Account], nonce: int) -> Mapping[str, Any]:
    """Return what a reader needs to judge the metrics, as JSON."""
    model = model_named(job.config.model)
    return {
        "model": job.config.model,
        "parameters": model.parameters,
        **_sharding(job),
        "model_ranks": job.model_ranks,
        "model_bytes": job.model_bytes,
        "model_gib": round(job.model_bytes / GIB, 3),
        "published_size": model.published if job.config.model != SERVER_NAME else "415 GB",
        "rank_whole_bytes": job.rank_bytes,
        "checkpoint_bytes": job.checkpoint_bytes,
        "rank_bytes": [shard.size_bytes for shard in job.shards],
        "rank_tensors": [len(shard.tensors) for shard in job.shards],
        "checkpoint_count": job.config.checkpoint_count,
        "kept": job.config.keep,
        "write_seconds": Direction(WRITE_PHASE, accounts).seconds,
        "read_seconds": Direction(READ_PHASE, accounts).seconds,
        "seconds_taken": _seconds_taken(accounts),
        "write_seconds_by_rank": [_seconds(account.write) for account in accounts],
        "read_seconds_by_rank": [_seconds(account.read) for account in accounts],
        "nonce": f"{nonce:016x}",
        "verified": (
            "every 4096-byte block's stamp, and the 64-bit sum of all delivered bytes against the "
            "manifest on the target"
        ),
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
