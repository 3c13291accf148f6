"""The tensors of published models, and what tensor parallelism gives a rank of each.

Names and shapes are those of the checkpoints on Hugging Face: Llama 3.1 8B, 70B and 405B, and
Qwen3-30B-A3B, a mixture of experts. The order is that of their ``state_dict``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from wattload.core.errors import ConfigError
from wattload.loaders.data.safetensors_files import StoredTensor, Tensor

_LAYER = re.compile(r"(?:^|\.)(?:layers|h)\.(\d+)\.")
_EXPERT = re.compile(r"\.experts\.(\d+)\.")
_EMBEDDINGS = {"embed_tokens", "tok_embeddings", "wte"}
_OF_HEADS = {"k_proj", "v_proj"}
_BY_ROWS = {"q_proj", "gate_proj", "up_proj", "lm_head"} | _OF_HEADS | _EMBEDDINGS
_BY_COLUMNS = {"o_proj", "down_proj"}


@dataclass(frozen=True, slots=True)
class Model:
    """A transformer without biases; the MLP of each layer is gated, with ``ffn`` channels.

    With ``experts`` each layer has that many such MLPs and a router, of which a token takes
    ``experts_per_token``, and norms of queries and keys.
    """

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int = 128
    vocabulary: int = 128256
    experts: int = 0
    experts_per_token: int = 0


_MODELS = (
    Model("llama3.1-8b", 32, 4096, 14336, 32, 8),
    Model("llama3.1-70b", 80, 8192, 28672, 64, 8),
    Model("llama3.1-405b", 126, 16384, 53248, 128, 8),
    Model("moe-30b-a3b", 48, 2048, 768, 32, 4, 128, 151936, experts=128, experts_per_token=8),
    Model("tiny", 2, 64, 192, 8, 8, 8, 512),
    Model("tiny-moe", 2, 64, 64, 8, 8, 8, 512, experts=8, experts_per_token=2),
)
MODELS = {model.name: model for model in _MODELS}
"""``tiny`` and ``tiny-moe`` are no published models: some hundred KB, for tests."""


def model_named(name: str, *, layers: int | None = None, vocabulary_divisor: int = 1) -> Model:
    """Return one of ``MODELS``, cut to its first layers and a part of its vocabulary.

    Raises ``ConfigError`` for more layers than the model has.
    """
    model = MODELS[name]
    if layers is not None and layers > model.layers:
        raise ConfigError(
            f"workload.layers={layers} is more than {name} has, {model.layers}; lower it"
        )
    vocabulary = model.vocabulary // vocabulary_divisor
    return replace(model, layers=layers or model.layers, vocabulary=vocabulary)


def tensors_of(model: Model, dtype: str) -> tuple[Tensor, ...]:
    """Return the tensors of a model, of one type as safetensors names it."""
    hidden, heads, kv = model.hidden, model.heads * model.head_dim, model.kv_heads * model.head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (model.vocabulary, hidden)}
    for layer in range(model.layers):
        at = f"model.layers.{layer}"
        shapes |= {f"{at}.self_attn.{each}_proj": (kv, hidden) for each in "qkv"}
        shapes |= {
            f"{at}.self_attn.q_proj": (heads, hidden),
            f"{at}.self_attn.o_proj": (hidden, heads),
        }
        mlps = [f"{at}.mlp"]
        if model.experts:
            shapes |= {f"{at}.self_attn.{each}_norm": (model.head_dim,) for each in "qk"}
            shapes[f"{at}.mlp.gate"] = (model.experts, hidden)
            mlps = [f"{at}.mlp.experts.{expert}" for expert in range(model.experts)]
        for mlp in mlps:
            shapes |= {f"{mlp}.{each}_proj": (model.ffn, hidden) for each in ("gate", "up")}
            shapes[f"{mlp}.down_proj"] = (hidden, model.ffn)
        shapes |= {f"{at}.{each}_layernorm": (hidden,) for each in ("input", "post_attention")}
    shapes |= {"model.norm": (hidden,), "lm_head": (model.vocabulary, hidden)}
    return tuple(Tensor(f"{name}.weight", dtype, shape) for name, shape in shapes.items())


def shards_of(tensors: Sequence[Tensor], most_bytes: int) -> Iterator[list[Tensor]]:
    """Yield the tensors of each file: as many as fit, and one at least."""
    shard: list[Tensor] = []
    shard_bytes = 0
    for tensor in tensors:
        if shard and shard_bytes + tensor.size_bytes > most_bytes:
            yield shard
            shard, shard_bytes = [], 0
        shard.append(tensor)
        shard_bytes += tensor.size_bytes
    yield shard


def layer_of(name: str) -> int | None:
    """Return the number of a tensor's layer, ``None`` if it is in none."""
    found = _LAYER.search(name)
    return int(found[1]) if found else None


def expert_of(name: str) -> int | None:
    """Return the number of a tensor's expert within its layer, ``None`` if it is of none."""
    found = _EXPERT.search(name)
    return int(found[1]) if found else None


def is_embedding(name: str) -> bool:
    """Return whether a tensor has the vectors of tokens."""
    return _module_of(name) in _EMBEDDINGS


def part_of(
    tensor: StoredTensor, rank: int, tp: int, kv_heads: int | None = None
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the rows, and the bytes of each row, that rank ``rank`` of ``tp`` needs.

    As Megatron-LM and vLLM divide a transformer: by rows what comes first (query, key, value, gate,
    up) and embedding and head, by columns what comes second (output, down). Norms, routers and
    tensors of other names are whole on every rank. With more ranks than ``kv_heads``, each of these
    heads is on several ranks.

    Raises:
        ConfigError: the dimension is not a multiple of ``tp``, or ``tp`` is none of ``kv_heads``.
    """
    module, row_bytes = _module_of(tensor.name), tensor.row_bytes
    rows, columns = (0, tensor.rows), (0, row_bytes)
    if module in _OF_HEADS and kv_heads and tp > kv_heads:
        if tp % kv_heads:
            raise ConfigError(
                f"workload.tp={tp} is no multiple of {kv_heads}, the model's heads of keys and "
                "values, which ranks then share; choose one"
            )
        rank, tp = rank * kv_heads // tp, kv_heads
    if module in _BY_ROWS and tensor.shape:
        return _share(tensor, rank, tp, tensor.rows, 1), columns
    if module in _BY_COLUMNS and len(tensor.shape) > 1:
        return rows, _share(tensor, rank, tp, tensor.shape[1], row_bytes // tensor.shape[1])
    return rows, columns


def _module_of(name: str) -> str:
    """Return what has the parameter: ``q_proj`` of ``model.layers.0.self_attn.q_proj.weight``."""
    return name.rpartition(".")[0].rpartition(".")[2]


def _share(tensor: StoredTensor, rank: int, tp: int, whole: int, unit: int) -> tuple[int, int]:
    each, rest = divmod(whole, tp)
    if rest:
        raise ConfigError(
            f"workload.tp={tp} does not divide {whole}, a dimension of {tensor.name} with shape "
            f"{list(tensor.shape)}; choose a divisor of it"
        )
    return rank * each * unit, (rank + 1) * each * unit
