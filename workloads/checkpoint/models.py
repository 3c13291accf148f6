"""The models: their dimensions and parallelism, published sizes, and the tensors of each rank.

Dimensions and parallelism are those of DLIO's and MLPerf Storage's ``llama3_*.yaml`` (vocabulary
128256, weights in fp16, optimizer in fp32). 70b keeps their 128 attention heads, although the real
model has 64; this halves its K and V projections. Tensors are placed as in DLIO.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import accumulate, pairwise

from wattload.core.errors import ConfigError
from wattload.loaders.checkpoint_store import DTYPE_BYTES, DType, Shard, Tensor

VOCABULARY = 128256
SUBSET_RANKS = 8
"""Processes of a larger model's checkpoint in the subset mode of MLPerf Storage v2.0."""
MODEL_BYTES = 2
OPTIMIZER_BYTES = 4
SERVER_NAME = "405b_server"
SERVER_RANKS = 8
SERVER_BYTES = 415_000_000_000
SERVER_LAYERS = 8
SERVER_REMARK = (
    "405b_server is the published 415 GB of a Llama-405B checkpoint per 8-GPU server. How that "
    "size was derived is unpublished. The model has 8 layers, embedding and head at 14 B per "
    "parameter: 415.86 GB, scaled to 415 GB. No stage of a real 16-stage pipeline has both "
    "embedding and head. The mean of those stages is 355.1 GB"
)
_OPTIMIZER_GROUPS = ("master", "exp_avg", "exp_avg_sq")
_WORD_BYTES = 4
_GIB_AS_GB = "published as GB but means GiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A Llama-3 model and the layout of its checkpoint.

    ``tensor_parallel x pipeline_parallel x data_parallel`` ranks save it, sharded by ``zero_stage``
    (1: the optimizer over all ranks, weights by the first data-parallel group; 3: weights too).
    ``published`` is the size printed by MLPerf, ``published_remark`` explains its error.
    """

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    zero_stage: int
    published: str
    published_remark: str

    @property
    def rank_count(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def kv_width(self) -> int:
        """The columns of the K and of the V projection."""
        return self.hidden // self.heads * self.kv_heads

    @property
    def layer_parameters(self) -> int:
        """The parameters of one transformer layer: two norms, attention, gated MLP."""
        attention = self.hidden * (self.hidden + 2 * self.kv_width) + self.hidden**2
        return 2 * self.hidden + attention + 3 * self.hidden * self.ffn

    @property
    def parameters(self) -> int:
        """All parameters, by DLIO's ``get_num_parameters``: embedding, layers, norm and head."""
        return 2 * VOCABULARY * self.hidden + self.layers * self.layer_parameters + self.hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """The first 8 ranks of a model, which MLPerf Storage v2.0 allows in place of a whole cluster.

    ``published_gb`` is the published size; the figures are GiB. Those of 70b and 8b are the bytes
    of the first ranks. Those of 405b and 1t are equal shares of the published totals (weights over
    tensor and pipeline ranks, optimizer over all ranks). The first ranks also have the embedding,
    and the published weights of 1t are too large.
    """

    model: str
    published_gb: int


_MODELS = (
    Model(
        name="8b",
        layers=32,
        hidden=4096,
        ffn=14336,
        heads=32,
        kv_heads=8,
        tensor_parallel=1,
        pipeline_parallel=1,
        data_parallel=8,
        zero_stage=3,
        published="105 GB",
        published_remark=f"105 is {_GIB_AS_GB}: 104.705 GiB is 112.43 GB",
    ),
    Model(
        name="70b",
        layers=80,
        hidden=8192,
        ffn=28672,
        heads=128,
        kv_heads=8,
        tensor_parallel=8,
        pipeline_parallel=1,
        data_parallel=8,
        zero_stage=3,
        published="912 GB",
        published_remark=f"912 is {_GIB_AS_GB}: 911.212 GiB is 978.41 GB",
    ),
    Model(
        name="405b",
        layers=126,
        hidden=16384,
        ffn=53248,
        heads=128,
        kv_heads=8,
        tensor_parallel=8,
        pipeline_parallel=32,
        data_parallel=2,
        zero_stage=1,
        published="5290 GB",
        published_remark="5.29 TB is published with GiB taken for GB: 5292.249 GiB is 5.68 TB",
    ),
    Model(
        name="1t",
        layers=128,
        hidden=25872,
        ffn=98304,
        heads=192,
        kv_heads=32,
        tensor_parallel=8,
        pipeline_parallel=64,
        data_parallel=2,
        zero_stage=1,
        published="18000 GB",
        published_remark=(
            "18 TB is wrong: 15426.589 GiB is 16.56 TB; the total of 15426 was mistaken for the "
            "optimizer's share, and a sixth of it was added again for the weights"
        ),
    ),
)
MODELS = {model.name: model for model in _MODELS}
SUBSETS = {
    "mlperf_subset": Subset(model="405b", published_gb=94),
    "mlperf_subset_8b": Subset(model="8b", published_gb=105),
    "mlperf_subset_70b": Subset(model="70b", published_gb=114),
    "mlperf_subset_405b": Subset(model="405b", published_gb=94),
    "mlperf_subset_1t": Subset(model="1t", published_gb=161),
}
NAMES = (*MODELS, SERVER_NAME, *SUBSETS)


def model_named(name: str) -> Model:
    """Return a model by name; ``405b_server`` and the subsets are parts of a model.

    Raises ``ConfigError`` for a name that is not in ``NAMES``.
    """
    if name == SERVER_NAME:
        return MODELS["405b"]
    if name in SUBSETS:
        return MODELS[SUBSETS[name].model]
    if name not in MODELS:
        near = get_close_matches(name, NAMES, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"model must be one of {', '.join(NAMES)}, got {name!r}{hint}")
    return MODELS[name]


def rank_count(name: str) -> int:
    """Return the number of ranks of a model's checkpoint; raises ``ConfigError`` if unknown."""
    model = model_named(name)
    if name == SERVER_NAME:
        return SERVER_RANKS
    return SUBSET_RANKS if name in SUBSETS else model.rank_count


def file_count(name: str) -> int:
    """Return the number of files of a checkpoint in DLIO; raises ``ConfigError`` if unknown.

    Each rank has one file of the optimizer. Weights have one file per rank under ZeRO-3, else one
    per layer and tensor-parallel rank (embedding, norm and head count as layers). A preset of 8
    ranks has the files of those ranks. ``405b_server``, which DLIO lacks, has two per rank.
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

    Raises ``ConfigError`` for an unknown model or rank.
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
    """Return as many of the shard's first tensors as fit into ``most_bytes``.

    Raises ``ConfigError`` if the first one does not fit.
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

    Every tensor gets 4 bytes. The rest is shared in proportion and rounded so that no byte is lost.
    Raises ``ConfigError`` unless the total is a multiple of 4 with 4 bytes for each tensor.
    """
    count = len(tensors)
    spare, rest = divmod(total_bytes - _WORD_BYTES * count, _WORD_BYTES)
    if rest or spare < 0:
        raise ConfigError(
            f"the size of {count} tensors must be a multiple of {_WORD_BYTES} bytes, at least "
            f"{_WORD_BYTES * count}, got {total_bytes}"
        )
    ends = list(accumulate((tensor.size_bytes for tensor in tensors), initial=0))
    shares = [spare * end // ends[-1] for end in ends]
    return tuple(
        replace(tensor, size_bytes=_WORD_BYTES * (1 + after - before))
        for tensor, (before, after) in zip(tensors, pairwise(shares), strict=True)
    )


def stage_layers(model: Model, stage: int) -> range:
    """Return the layers of a pipeline stage; 0 is the embedding, the last two are head and norm."""
    each, more = divmod(model.layers, model.pipeline_parallel)
    first = stage * each + min(stage, more) + 1
    last = first + each + (1 if stage < more else 0) - 1
    if stage == 0:
        first = 0
    if stage == model.pipeline_parallel - 1:
        last = model.layers + 2
    return range(first, last + 1)


def _weights(model: Model, rank: int) -> Iterator[Tensor]:
    """Yield a rank's weights; under ZeRO-1 only the first data-parallel group has any."""
    if model.zero_stage == 1 and rank // (model.tensor_parallel * model.pipeline_parallel):
        return
    stage = rank // model.tensor_parallel % model.pipeline_parallel
    for layer in stage_layers(model, stage):
        yield from _layer(model, layer)


def _layer(model: Model, layer: int) -> Iterator[Tensor]:
    """Yield the weights of a layer on one rank, divided as in DLIO (rounding down)."""
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
    # bf16, as in the training of Llama 3. Norms are divided too, so each parameter counts once.
    dtype: DType = "bfloat16"
    for tensor in _layer(model, layer):
        norm = tensor.name.endswith("norm")
        size_bytes = tensor.size_bytes // (SERVER_RANKS if norm else 1)
        yield replace(tensor, dtype=dtype, size_bytes=size_bytes // DTYPE_BYTES[dtype] * 2)
