"""The size and the pieces of a block: what is stored of it in which file."""

from __future__ import annotations

from dataclasses import dataclass

from wattload.core.errors import ConfigError
from wattload.loaders.aligned_io import PAGE_BYTES, round_up
from wattload.results.kv_cache.facts import Layout
from wattload.workloads.kv_cache.config import Config
from wattload.workloads.kv_cache.models import model_named

PIECE_BITS = 20
"""A stamp has these bits for the number of a piece, and the others for the id of its block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """A block of ``tokens`` in ``pieces`` equal pieces, each in a file of its own.

    A piece has ``piece_bytes``, moved as ``moved_piece_bytes``, a multiple of 4096.
    ``first_layer_pieces`` of them, the first ones, are needed for the first layer; all of them
    where a file has all layers. ``bytes_per_token`` counts each key and value once, ``block_bytes``
    what ranks hold several times too. ``mla`` says how ranks hold the latent vectors, if any.
    """

    layout: Layout
    tokens: int
    bytes_per_token: int
    pieces: int
    piece_bytes: int
    first_layer_pieces: int
    mla: str = ""

    @property
    def moved_piece_bytes(self) -> int:
        return round_up(self.piece_bytes, PAGE_BYTES)

    @property
    def block_bytes(self) -> int:
        return self.pieces * self.piece_bytes

    @property
    def moved_block_bytes(self) -> int:
        return self.pieces * self.moved_piece_bytes


def geometry_of(config: Config) -> Geometry:
    """Return the geometry of a configuration.

    Raises:
        ConfigError: the model is unknown, its heads are not divisible by ``tp``, or the layout
            needs layers that ``bytes_per_token`` does not have.
    """
    tokens, tp = config.block_tokens, config.tp
    if config.bytes_per_token is not None:
        return _of_bytes(config, config.bytes_per_token)
    model = model_named(config.model)
    if model.latent_dim:
        shards = tp if config.mla_shards == "replicated" else 1
        shard_bytes, mla = model.vector_bytes(config.kv_dtype_bytes), config.mla_shards
    else:
        if model.kv_heads % tp:
            raise ConfigError(
                f"workload.tp={tp} does not divide the {model.kv_heads} key-value heads of "
                f"{config.model}; use a divisor of {model.kv_heads}"
            )
        shards, mla = tp, ""
        shard_bytes = model.vector_bytes(config.kv_dtype_bytes) // tp
    pieces = model.layers * model.vectors  # of a shard
    is_layered = config.layout is Layout.layer
    return Geometry(
        layout=config.layout,
        tokens=tokens,
        bytes_per_token=model.bytes_per_token(config.kv_dtype_bytes),
        pieces=shards * pieces if is_layered else shards,
        piece_bytes=tokens * shard_bytes * (1 if is_layered else pieces),
        first_layer_pieces=shards * model.vectors if is_layered else shards,
        mla=mla,
    )


def _of_bytes(config: Config, bytes_per_token: int) -> Geometry:
    tokens, tp = config.block_tokens, config.tp
    if config.layout is Layout.layer:
        raise ConfigError(
            "workload.layout=layer needs the layers of a workload.model; remove "
            f"workload.bytes_per_token={bytes_per_token}"
        )
    if bytes_per_token % tp:
        raise ConfigError(
            f"workload.tp={tp} does not divide workload.bytes_per_token={bytes_per_token}"
        )
    return Geometry(
        layout=config.layout,
        tokens=tokens,
        bytes_per_token=bytes_per_token,
        pieces=tp,
        piece_bytes=tokens * bytes_per_token // tp,
        first_layer_pieces=tp,
    )
