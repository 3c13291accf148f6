"""Blocks of models, in files by rank or by layer."""

from __future__ import annotations

from typing import Any

import pytest

from wattload.core.errors import ConfigError
from wattload.core.units import KIB, MIB
from wattload.results.kv_cache.facts import Layout
from wattload.workloads.kv_cache.config import Config
from wattload.workloads.kv_cache.geometry import Geometry, geometry_of


def geometry(**settings: Any) -> Geometry:
    return geometry_of(Config(**settings))


@pytest.mark.parametrize(
    ("model", "bytes_per_token", "block_mib"),
    [
        ("llama3.1-8b", 131_072, 32),
        ("llama3.1-70b", 327_680, 80),
        ("llama3.1-405b", 516_096, 126),
        ("llama2-7b", 524_288, 128),
        ("qwen3-32b", 262_144, 64),
        ("gpt-oss-120b", 73_728, 18),
        ("gpt-oss-20b", 49_152, 12),
        ("deepseek-v3", 70_272, 17.15625),
    ],
)
def test_a_block_of_256_tokens_is_as_large_as_engines_write_it(
    model: str, bytes_per_token: int, block_mib: float
) -> None:
    """The sizes are computed from each model's published configuration at 2 bytes a number."""
    found = geometry(model=model)
    assert found.bytes_per_token == bytes_per_token
    assert found.block_bytes == block_mib * MIB


def test_ranks_share_a_block_and_eight_bits_halve_it() -> None:
    found = geometry(tp=8, kv_dtype_bytes=1)
    assert (found.pieces, found.piece_bytes) == (8, 2 * MIB)


@pytest.mark.parametrize(("tp", "piece_kib"), [(1, 32), (8, 4)])
def test_a_piece_of_a_layer_is_small(tp: int, piece_kib: int) -> None:
    found = geometry(layout=Layout.layer, block_tokens=16, tp=tp)
    assert found.pieces == 32 * 2 * tp
    assert found.moved_piece_bytes == found.piece_bytes == piece_kib * KIB
    assert found.first_layer_pieces == 2 * tp


def test_a_latent_vector_is_padded_and_held_by_every_rank_or_by_one() -> None:
    every = geometry(model="deepseek-v3", layout=Layout.layer, block_tokens=16, tp=4)
    once = geometry(
        model="deepseek-v3", layout=Layout.layer, block_tokens=16, tp=4, mla_shards="once"
    )
    assert (every.pieces, once.pieces) == (61 * 4, 61)
    assert (every.piece_bytes, every.moved_piece_bytes) == (16 * 576 * 2, 20 * KIB)
    assert every.bytes_per_token == once.bytes_per_token == 70_272
    assert (every.mla, once.mla) == ("replicated", "once")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"model": "gpt-9"}, "workload.model=gpt-9 is unknown; use one of tiny-1b, llama3.1-8b"),
        ({"tp": 3}, "workload.tp=3 does not divide the 8 key-value heads of llama3.1-8b"),
        ({"bytes_per_token": 100, "tp": 3}, "does not divide workload.bytes_per_token=100"),
        ({"bytes_per_token": 100, "layout": Layout.layer}, "layout=layer needs the layers"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        geometry(**settings)
