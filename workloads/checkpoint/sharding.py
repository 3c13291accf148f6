"""Which tensors each rank saves, as DLIO places them, and how a list is sliced or scaled.

The placement follows ``checkpointing/base_checkpointing.py`` of DLIO (argonne-lcf/dlio_benchmark,
``get_layer_index``, ``get_layer_parameters``, ``get_optimization_groups``): ranks count tensor
parallelism first, then pipeline, then data parallelism; layer 0 is the embedding and lies with the
first stage, head and final norm with the last; the optimizer is three flat fp32 groups per rank,
each with a buffer of five times the hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from wattload.core.errors import ConfigError
from wattload.loaders.checkpoints import DTYPE_BYTES, DType, Shard, Tensor
from wattload.workloads.checkpoint.models import (
    MODEL_BYTES,
    OPTIMIZER_BYTES,
    SERVER_BYTES,
    SERVER_LAYERS,
    SERVER_NAME,
    SUBSET_RANKS,
    SUBSETS,
    VOCABULARY,
    Model,
    model_named,
)

SERVER_RANKS = 8
_OPTIMIZER_GROUPS = ("master", "exp_avg", "exp_avg_sq")
_WORD_BYTES = 4


def rank_count(name: str) -> int:
    """Return how many ranks the checkpoint of a model has; raises ``ConfigError`` if unknown."""
    model = model_named(name)
    if name == SERVER_NAME:
        return SERVER_RANKS
    return SUBSET_RANKS if name in SUBSETS else model.rank_count


def file_count(name: str) -> int:
    """Return how many files DLIO makes of a checkpoint; raises ``ConfigError`` if unknown.

    One of the optimizer per rank, and of the weights one per rank under ZeRO-3, else one per layer
    and tensor-parallel rank (embedding, norm and head are layers too). A preset of 8 ranks has the
    files that those ranks make; ``405b_server``, which DLIO does not know, two per rank.
    """
    model, ranks = model_named(name), rank_count(name)
    if name == SERVER_NAME or model.zero_stage == 3:  # noqa: PLR2004 - ZeRO stage 3
        return 2 * ranks
    stages = range(ranks // model.tensor_parallel) if name in SUBSETS else None
    layers = (
        sum(len(stage_layers(model, stage)) for stage in stages)
        if stages is not None
        else model.layers + 3
    )
    return layers * model.tensor_parallel + ranks


def shard_of(name: str, rank: int) -> Shard:
    """Return the whole shard of one rank, weights first.

    Raises ``ConfigError`` for an unknown model or a rank that it does not have.
    """
    model = model_named(name)
    if not 0 <= rank < rank_count(name):
        raise ConfigError(f"model {name} has ranks 0 to {rank_count(name) - 1}, got {rank}")
    if name == SERVER_NAME:
        tensors = scaled(tuple(_server(model)), SERVER_BYTES // SERVER_RANKS)
    else:
        tensors = (*_weights(model, rank), *_optimizer(model))
    return Shard(rank, tensors)


def sliced(shard: Shard, most_bytes: int) -> Shard:
    """Return the shard's first tensors, as many as fit into ``most_bytes``, whole.

    Raises ``ConfigError`` if not even the first one fits.
    """
    kept: list[Tensor] = []
    for tensor in shard.tensors:
        if sum(t.size_bytes for t in kept) + tensor.size_bytes > most_bytes:
            break
        kept.append(tensor)
    if not kept:
        first = shard.tensors[0]
        raise ConfigError(
            f"workload.slice_bytes must be at least {first.size_bytes}, the first tensor of rank "
            f"{shard.rank} ({first.name}); got {most_bytes}"
        )
    return replace(shard, tensors=tuple(kept))


def scaled(tensors: Sequence[Tensor], total_bytes: int) -> tuple[Tensor, ...]:
    """Return the tensors scaled to exactly ``total_bytes``, none smaller than 4 bytes.

    Every tensor gets 4 bytes, and what is left is shared in proportion, rounded so that no byte is
    lost. Raises ``ConfigError`` unless the total is a multiple of 4 with 4 bytes for each tensor.
    """
    count = len(tensors)
    spare, rest = divmod(total_bytes - _WORD_BYTES * count, _WORD_BYTES)
    if rest or spare < 0:
        raise ConfigError(
            f"{count} tensors can't share {total_bytes} bytes; "
            f"give a multiple of {_WORD_BYTES}, at least {_WORD_BYTES * count}"
        )
    ends = list(accumulate((tensor.size_bytes for tensor in tensors), initial=0))
    shares = [spare * end // ends[-1] for end in ends]
    return tuple(
        replace(tensor, size_bytes=_WORD_BYTES * (1 + after - before))
        for tensor, (before, after) in zip(tensors, pairwise(shares), strict=True)
    )


def stage_layers(model: Model, stage: int) -> range:
    """Return a pipeline stage's layers: 0 is the embedding, the last two are head and norm."""
    each, more = divmod(model.layers, model.pipeline_parallel)
    first = stage * each + min(stage, more) + 1
    last = first + each + (1 if stage < more else 0) - 1
    if stage == 0:
        first = 0
    if stage == model.pipeline_parallel - 1:
        last = model.layers + 2
    return range(first, last + 1)


def _weights(model: Model, rank: int) -> Iterator[Tensor]:
    """Yield the weights that a rank saves; under ZeRO-1 only the first data-parallel group does."""
    if model.zero_stage == 1 and rank // (model.tensor_parallel * model.pipeline_parallel):
        return
    stage = rank // model.tensor_parallel % model.pipeline_parallel
    for layer in stage_layers(model, stage):
        yield from _layer(model, layer)


def _layer(model: Model, layer: int) -> Iterator[Tensor]:
    """Yield one layer's weights on one rank, divided as DLIO divides them (rounding down)."""
    shards = model.data_parallel if model.zero_stage == 3 else 1  # noqa: PLR2004 - ZeRO stage 3
    split, h = model.tensor_parallel, model.hidden
    if layer in (0, model.layers + 1):
        name = "embedding" if layer == 0 else "head"
        sizes = {name: h * VOCABULARY // split // shards}
    elif layer == model.layers + 2:
        sizes = {"norm": h // shards}
    else:
        sizes = {
            f"layer{layer}.input_norm": h // shards,
            f"layer{layer}.attention.qkv": h * (h + 2 * model.kv_width) // split // shards,
            f"layer{layer}.attention.dense": h * h // split // shards,
            f"layer{layer}.post_norm": h // shards,
            f"layer{layer}.mlp.gate_up": h * 2 * model.ffn // split // shards,
            f"layer{layer}.mlp.down": h * model.ffn // split // shards,
        }
    for name, count in sizes.items():
        yield Tensor(name, "float16", count * MODEL_BYTES)


def _optimizer(model: Model) -> Iterator[Tensor]:
    count = model.parameters // model.rank_count
    for group in _OPTIMIZER_GROUPS:
        yield Tensor(f"optimizer.{group}", "float32", count * OPTIMIZER_BYTES)
        yield Tensor(f"optimizer.{group}.buffer", "float32", 5 * model.hidden * OPTIMIZER_BYTES)


def _server(model: Model) -> Iterator[Tensor]:
    """Yield one of 8 equal shards of 8 layers, embedding and head, at 14 bytes a parameter."""
    for layer in (*range(SERVER_LAYERS + 1), model.layers + 1):
        yield from _server_layer(model, layer)
    count = (SERVER_LAYERS * model.layer_parameters + 2 * VOCABULARY * model.hidden) // SERVER_RANKS
    for group in _OPTIMIZER_GROUPS:
        yield Tensor(f"optimizer.{group}", "float32", count * OPTIMIZER_BYTES)


def _server_layer(model: Model, layer: int) -> Iterator[Tensor]:
    # bf16, as Llama 3 was trained; norms are divided here too, so that each parameter counts once.
    dtype: DType = "bfloat16"
    for tensor in _layer(model, layer):
        norm = tensor.name.endswith("norm")
        size_bytes = tensor.size_bytes // (SERVER_RANKS if norm else 1)
        yield replace(tensor, dtype=dtype, size_bytes=size_bytes // DTYPE_BYTES[dtype] * 2)
