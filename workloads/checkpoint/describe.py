"""What a reader must know of a checkpoint run beside its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wattload.core.units import GIB, format_bytes
from wattload.workloads.checkpoint.cycle import Account
from wattload.workloads.checkpoint.job import Job
from wattload.workloads.checkpoint.models import SERVER_NAME, SERVER_REMARK, model_named


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
        "tensor_parallel": model.tensor_parallel,
        "pipeline_parallel": model.pipeline_parallel,
        "data_parallel": model.data_parallel,
        "zero_stage": model.zero_stage,
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
        "write_seconds_by_rank": [account.write.seconds for account in accounts],
        "read_seconds_by_rank": [account.read.seconds for account in accounts],
        "nonce": f"{nonce:016x}",
        "verified": "every 4096-byte block's stamp, and the 64-bit sum of all delivered bytes",
    }
