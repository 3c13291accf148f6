"""The arithmetic of a checkpoint that is too large to run: bytes, files, drives.

Nothing is measured: rate and power are inputs, or come from a run of another size. The time is
bytes divided by rate. It ignores that the rate changes as a drive fills, and any network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wattload.core.errors import ConfigError
from wattload.workloads.checkpoint.models import (
    MODELS,
    SERVER_NAME,
    SUBSETS,
    file_count,
    model_named,
    rank_count,
    shard_of,
)

_DIGITS = 9
"""Decimals kept before a number of drives is rounded up: 4.0000000000001 drives are 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of a checkpoint; ``file_count`` is that of DLIO's layout, ``None`` without one.

    ``file_count_missing`` is the reason for ``None``. ``ranks`` are the first of ``model_ranks``.
    """

    model: str
    parameters: int
    ranks: int
    model_ranks: int
    rank_min_bytes: int
    rank_max_bytes: int
    total_bytes: int
    file_count: int | None
    file_count_missing: str
    published: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drives:
    """The drives needed for an interval, and the training time that is still lost.

    ``stall_s`` is the time of a synchronous checkpoint on ``sync_count`` drives, and ``lost_share``
    its share of the interval. ``drain_s`` is the time of a drain on ``async_count`` drives.
    """

    interval_s: float
    overhead: float
    sync_count: int
    stall_s: float
    lost_share: float
    async_count: int
    drain_s: float


def shape(model: str, ranks: int | None = None) -> Shape:
    """Return the size of a model's checkpoint, or of the shards of its first ``ranks``.

    Raises ``ConfigError`` for an unknown model or a number of ranks out of range.
    """
    found, whole = model_named(model), rank_count(model)
    if ranks is not None and not 1 <= ranks <= whole:
        raise ConfigError(f"ranks must be 1 to {whole} for model {model}, got {ranks}")
    count = ranks or whole
    missing = _no_files(model, is_whole=count == whole)
    sizes = [shard_of(model, rank).size_bytes for rank in range(count)]
    return Shape(
        model=model,
        parameters=found.parameters,
        ranks=count,
        model_ranks=whole,
        rank_min_bytes=min(sizes),
        rank_max_bytes=max(sizes),
        total_bytes=sum(sizes),
        file_count=None if missing else file_count(model),
        file_count_missing=missing,
        published=_published(model),
    )


def drives_needed(
    total_bytes: int, rate_bytes_per_s: float, *, interval_s: float, overhead: float
) -> Drives:
    """Return the drives that keep the lost share of training time, stall / interval, in bounds.

    Synchronous: the stall is bytes / (n x rate), so n is at least bytes / (rate x overhead x
    interval). Asynchronous: the drain has to end within the interval, so n is at least bytes /
    (rate x interval). The snapshot does not depend on drives and is ignored.
    """
    one_s = total_bytes / rate_bytes_per_s
    sync_count = _whole(one_s / (overhead * interval_s))
    async_count = _whole(one_s / interval_s)
    return Drives(
        interval_s=interval_s,
        overhead=overhead,
        sync_count=sync_count,
        stall_s=one_s / sync_count,
        lost_share=one_s / sync_count / interval_s,
        async_count=async_count,
        drain_s=one_s / async_count,
    )


def _whole(drives: float) -> int:
    return max(1, math.ceil(round(drives, _DIGITS)))


def _no_files(model: str, *, is_whole: bool) -> str:
    """Return why DLIO has no file count, empty if it has one."""
    if model == SERVER_NAME:
        return f"DLIO has no layout for {model}"
    return "" if is_whole else "DLIO's layout covers all ranks"


def _published(model: str) -> str:
    if model == SERVER_NAME:
        return "415 GB, derivation unpublished"
    if model in SUBSETS:
        return f"{SUBSETS[model].published_gb} GB, means GiB"
    return f"{MODELS[model].published}: {MODELS[model].published_remark}"
