from __future__ import annotations

from collections import Counter

import pytest

from wattload.core.errors import ConfigError
from wattload.loaders.data.safetensors_files import StoredTensor
from wattload.workloads.model_load.models import (
    MODELS,
    expert_of,
    is_embedding,
    layer_of,
    model_named,
    part_of,
    shards_of,
    tensors_of,
)


@pytest.mark.parametrize(
    ("name", "tensors", "size_bytes", "files"),  # files of 5 GB, None if published in smaller ones
    [
        ("llama3.1-8b", 291, 16_060_522_496, 4),
        ("llama3.1-70b", 723, 141_107_412_992, 30),
        ("llama3.1-405b", 1137, 811_706_777_600, 191),
        ("moe-30b-a3b", 18867, 61_064_245_248, None),
    ],
)
def test_models_are_as_published(
    name: str, tensors: int, size_bytes: int, files: int | None
) -> None:
    """``total_size`` and the number of files are those of the indexes on Hugging Face."""
    found = tensors_of(MODELS[name], "BF16")
    assert len(found) == len({tensor.name for tensor in found}) == tensors
    assert sum(tensor.size_bytes for tensor in found) == size_bytes
    shards = list(shards_of(found, 5_000_000_000))
    assert files is None or len(shards) == files
    assert [tensor for shard in shards for tensor in shard] == list(found)


def test_an_expert_is_three_tensors_of_9_44_mb() -> None:
    found = [
        tensor
        for tensor in tensors_of(MODELS["moe-30b-a3b"], "BF16")
        if (layer_of(tensor.name), expert_of(tensor.name)) == (47, 127)
    ]
    assert (len(found), sum(tensor.size_bytes for tensor in found)) == (3, 9_437_184)


def test_a_model_is_cut_to_layers_and_vocabulary() -> None:
    model = model_named("llama3.1-8b", layers=2, vocabulary_divisor=16)
    found = tensors_of(model, "F32")
    layers = Counter(layer_of(tensor.name) for tensor in found)
    assert layers == {0: 9, 1: 9, None: 3}
    embedding = next(tensor for tensor in found if is_embedding(tensor.name))
    assert (embedding.shape, embedding.size_bytes) == ((8016, 4096), 8016 * 4096 * 4)
    with pytest.raises(ConfigError, match=r"workload\.layers=33 is more than llama3\.1-8b has, 32"):
        model_named("llama3.1-8b", layers=33)


def test_a_tensor_larger_than_a_file_has_one_of_its_own() -> None:
    found = tensors_of(MODELS["tiny"], "BF16")
    assert [len(shard) for shard in shards_of(found, 1)] == [1] * len(found)


ROW, COLUMN, WHOLE = ((16, 32), (0, 64)), ((0, 64), (16, 32)), ((0, 64), (0, 64))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        *((f"model.layers.0.self_attn.{each}_proj.weight", ROW) for each in "qkv"),
        *((f"model.layers.0.mlp.{each}_proj.weight", ROW) for each in ("gate", "up")),
        ("model.layers.0.mlp.experts.7.up_proj.weight", ROW),
        ("model.embed_tokens.weight", ROW),
        ("lm_head.weight", ROW),
        ("model.layers.0.self_attn.o_proj.weight", COLUMN),
        ("model.layers.0.mlp.down_proj.weight", COLUMN),
        ("model.layers.0.mlp.gate.weight", WHOLE),
        ("model.layers.0.input_layernorm.weight", WHOLE),
        ("vision.patch", WHOLE),
    ],
)
def test_a_rank_has_its_rows_or_columns(name: str, part: object) -> None:
    tensor = StoredTensor(name, "BF16", (64, 32), 0, 4096)
    assert part_of(tensor, 1, 4) == part


def test_ranks_share_a_head_of_keys_where_they_are_more_than_heads() -> None:
    tensor = StoredTensor("model.layers.0.self_attn.k_proj.weight", "BF16", (64, 32), 0, 4096)
    rows = [part_of(tensor, rank, 4, kv_heads=2)[0] for rank in range(4)]
    assert rows == [(0, 32), (0, 32), (32, 64), (32, 64)]
    assert part_of(tensor, 1, 2, kv_heads=2)[0] == (32, 64)
    with pytest.raises(ConfigError, match=r"workload\.tp=4 is no multiple of 3"):
        part_of(tensor, 0, 4, kv_heads=3)


def test_a_bias_is_divided_as_its_rows_are() -> None:
    bias = StoredTensor("model.layers.0.self_attn.q_proj.bias", "BF16", (64,), 0, 4096)
    assert part_of(bias, 1, 4) == ((16, 32), (0, 2))
    bias = StoredTensor("model.layers.0.self_attn.o_proj.bias", "BF16", (64,), 0, 4096)
    assert part_of(bias, 1, 4) == ((0, 64), (0, 2))


@pytest.mark.parametrize("name", ["model.layers.0.mlp.up_proj.weight", "a.down_proj.weight"])
def test_a_dimension_that_tp_does_not_divide_is_one_sentence(name: str) -> None:
    tensor = StoredTensor(name, "BF16", (64, 64), 0, 4096)
    with pytest.raises(
        ConfigError, match=f"workload.tp=3 does not divide 64, a dimension of {name}"
    ):
        part_of(tensor, 0, 3)
