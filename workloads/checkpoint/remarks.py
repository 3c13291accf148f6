"""The remarks on a checkpoint run: what its bytes are, and what they are not."""

from __future__ import annotations

from wattload.core.units import GIB, format_bytes
from wattload.workloads.checkpoint.config import Job
from wattload.workloads.checkpoint.cycle import SNAPSHOT_BUFFER_BYTES
from wattload.workloads.checkpoint.models import SERVER_NAME, SERVER_REMARK, SUBSETS, model_named


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
    if len(job.sharers) % job.target_count:
        found.append(
            f"{len(job.sharers)} ranks do not divide evenly over {job.target_count} targets: the "
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
