from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattload.core.errors import ConfigError
from wattload.core.units import GIB
from wattload.loaders.checkpoint_store import DTYPE_BYTES, Shard, Tensor
from wattload.workloads.checkpoint.models import (
    MODELS,
    NAMES,
    SERVER_BYTES,
    VOCABULARY,
    Model,
    rank_count,
    scaled,
    shard_of,
    sliced,
    stage_layers,
)


def totals(name: str) -> list[int]:
    return [shard_of(name, rank).size_bytes for rank in range(rank_count(name))]


@pytest.mark.parametrize(
    ("name", "parameters", "gib", "model_gib", "ranks"),
    [
        ("8b", 8_030_261_248, 104.705, 14.958, 8),
        ("70b", 69_882_617_856, 911.212, 130.184, 64),
        ("405b", 405_853_388_800, 5292.249, 756.015, 512),
        ("1t", 1_183_035_102_480, 15426.589, 2203.661, 1024),
    ],
)
def test_sizes_are_dlios_to_three_decimals(
    name: str, parameters: int, gib: float, model_gib: float, ranks: int
) -> None:
    assert MODELS[name].parameters == parameters
    shards = [shard_of(name, rank) for rank in range(rank_count(name))]
    assert len(shards) == ranks
    weights = sum(t.size_bytes for s in shards for t in s.tensors if t.dtype == "float16")
    assert round(sum(s.size_bytes for s in shards) / GIB, 3) == gib
    assert round(weights / GIB, 3) == model_gib


@pytest.mark.parametrize(
    ("name", "least_gib", "most_gib"),
    [
        ("8b", 13.088, 13.088),
        ("70b", 14.238, 14.238),
        ("405b", 8.860, 12.318),
        ("1t", 12.913, 17.966),
    ],
)
def test_rank_sizes_are_dlios(name: str, least_gib: float, most_gib: float) -> None:
    sizes = totals(name)
    assert round(min(sizes) / GIB, 3) == least_gib
    assert round(max(sizes) / GIB, 3) == most_gib


def test_seventy_b_keeps_the_heads_of_the_published_file() -> None:
    """The real model has 64 heads, which would add 671,088,640 parameters."""
    model = MODELS["70b"]
    assert model.heads == 128
    lacking = model.layers * 2 * model.hidden * (model.hidden // 64 * 8 - model.kv_width)
    assert lacking == 671_088_640


def test_server_preset_is_exactly_415_gb_on_8_equal_ranks() -> None:
    sizes = totals("405b_server")
    assert sizes == [51_875_000_000] * 8
    assert sum(sizes) == SERVER_BYTES == 415_000_000_000


def test_server_preset_comes_from_14_bytes_a_parameter() -> None:
    model = MODELS["405b"]
    parameters = 8 * model.layer_parameters + 2 * VOCABULARY * model.hidden
    assert round(parameters * 14 / 1e9, 2) == 415.86
    tensors = shard_of("405b_server", 0).tensors
    weights = sum(t.size_bytes for t in tensors if t.dtype == "bfloat16")
    assert weights / 51_875_000_000 == pytest.approx(1 / 7, rel=1e-7)
    assert len(tensors) == 1 + 8 * 6 + 1 + 3
    assert len({tensor.name for tensor in tensors}) == len(tensors)


def test_the_mean_stage_of_a_real_pipeline_is_smaller() -> None:
    assert round(MODELS["405b"].parameters * 14 / 16 / 1e9, 1) == 355.1


def test_the_first_8_ranks_hold_what_a_subset_run_writes() -> None:
    assert round(sum(totals("8b")[:8]) / GIB) == 105
    assert round(sum(totals("70b")[:8]) / GIB) == 114
    assert round(sum(totals("405b")[:8]) / 1e9, 1) == 105.8


@pytest.mark.parametrize("name", NAMES)
def test_tensors_hold_whole_elements(name: str) -> None:
    for rank in (0, rank_count(name) - 1):
        for tensor in shard_of(name, rank).tensors:
            assert tensor.size_bytes > 0
            assert tensor.size_bytes % DTYPE_BYTES[tensor.dtype] == 0


def test_an_unknown_model_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"one of 8b, 70b, .*, got '7b'; did you mean 70b\?"):
        shard_of("7b", 0)


@pytest.mark.parametrize("rank", [-1, 8])
def test_a_rank_that_the_model_lacks_is_refused(rank: int) -> None:
    with pytest.raises(ConfigError, match=f"ranks 0 to 7, got {rank}"):
        shard_of("8b", rank)


def made(layers: int, pipeline: int, tensor: int = 1, data: int = 1, zero: int = 1) -> Model:
    return Model(
        name="made",
        layers=layers,
        hidden=64,
        ffn=128,
        heads=8,
        kv_heads=2,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        data_parallel=data,
        zero_stage=zero,
        published="",
        published_remark="",
    )


@given(st.integers(1, 200), st.integers(1, 64))
def test_stages_hold_each_layer_once(layers: int, pipeline: int) -> None:
    pipeline = min(pipeline, layers)
    model = made(layers, pipeline)
    dealt = [layer for stage in range(pipeline) for layer in stage_layers(model, stage)]
    assert dealt == list(range(layers + 3))


@settings(max_examples=40)
@given(
    st.integers(1, 24),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 3]),
)
def test_shards_sum_to_the_model(
    layers: int, pipeline: int, tensor: int, data: int, zero: int
) -> None:
    """With sizes that divide evenly, ranks hold every weight once (norms once per tensor rank)."""
    model = made(layers, min(pipeline, layers), tensor, data, zero)
    MODELS["made"] = model
    try:
        shards = [shard_of("made", rank) for rank in range(model.rank_count)]
    finally:
        del MODELS["made"]
    weights = sum(t.size_bytes for s in shards for t in s.tensors if t.dtype == "float16")
    norms = (2 * layers + 1) * model.hidden
    assert weights == 2 * (model.parameters + (tensor - 1) * norms)
    optimizer = sum(t.size_bytes for s in shards for t in s.tensors if t.dtype == "float32")
    rounding = 3 * 4 * model.rank_count
    expected = 3 * 4 * (model.parameters + 5 * model.hidden * model.rank_count)
    assert expected - rounding < optimizer <= expected


TENSORS = st.lists(st.integers(1, 10_000_000), min_size=1, max_size=40).map(
    lambda sizes: [Tensor(str(i), "float32", 4 * size) for i, size in enumerate(sizes)]
)


@given(TENSORS, st.integers(1, 1_000_000_000))
def test_scaling_hits_the_total_exactly_and_keeps_proportions(
    tensors: list[Tensor], words: int
) -> None:
    total = 4 * max(words, len(tensors))
    found = scaled(tensors, total)
    assert sum(t.size_bytes for t in found) == total
    assert all(t.size_bytes >= 4 and t.size_bytes % 4 == 0 for t in found)
    factor = Fraction(total, sum(t.size_bytes for t in tensors))
    raised = 4 * len(tensors)  # the 4 bytes that every tensor has before the rest is shared
    for before, after in zip(tensors, found, strict=True):
        assert abs(after.size_bytes - before.size_bytes * factor) <= 4 + raised


@pytest.mark.parametrize("total", [0, 4, 10])
def test_scaling_to_less_than_a_word_each_is_refused(total: int) -> None:
    with pytest.raises(ConfigError, match="must be a multiple of 4 bytes"):
        scaled([Tensor("a", "float32", 8), Tensor("b", "float32", 8)], total)


@given(TENSORS, st.integers(4, 400_000_000))
def test_a_slice_keeps_whole_tensors_from_the_front(tensors: list[Tensor], most: int) -> None:
    shard = Shard(3, tuple(tensors))
    if tensors[0].size_bytes > most:
        with pytest.raises(ConfigError, match="must be at least"):
            sliced(shard, most)
        return
    found = sliced(shard, most)
    assert found.rank == 3
    assert found.tensors == shard.tensors[: len(found.tensors)]
    assert found.size_bytes <= most
    if len(found.tensors) < len(shard.tensors):
        assert found.size_bytes + shard.tensors[len(found.tensors)].size_bytes > most


def test_scaling_leaves_no_tensor_empty_however_uneven() -> None:
    tensors = [
        Tensor(str(i), "float32", size) for i, size in enumerate([4 << 30, 4 << 30, *[4] * 38])
    ]
    assert [t.size_bytes for t in scaled(tensors, 160)] == [4] * 40
