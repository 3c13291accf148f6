"""A checkpoint that can't be run here, by arithmetic: bytes, files, time, energy, drives.

Nothing here was measured: rate and power are given, or those of a run of another size. The time is
bytes over rate; how a rate changes as a drive fills, and what a network adds, is not in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wattload.core.errors import ConfigError
from wattload.core.units import J_PER_WH
from wattload.workloads.checkpoint.models import MODELS, SERVER_NAME, SUBSETS, model_named
from wattload.workloads.checkpoint.sharding import file_count, rank_count, shard_of

_DIGITS = 9
"""Decimals of a number of drives before it is rounded up: 4.0000000000001 drives are 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A checkpoint's size; ``file_count`` as DLIO lays it out, ``None`` where it does not.

    ``file_count_missing`` says why it is ``None``. ``ranks`` are the first of ``model_ranks``.
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
class Watts:
    """The power of what writes, in W: one figure, or bounds; an upper bound may stand alone."""

    mean_w: float | None
    lower_w: float | None
    upper_w: float | None
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """The energy of one checkpoint in Wh, as far as its power is known."""

    energy_wh: float | None
    lower_wh: float | None
    upper_wh: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drives:
    """How many drives an interval needs, and what training then loses.

    ``stall_s`` is the time of a synchronous checkpoint on ``sync_count`` drives, ``lost_share``
    what it is of the interval, ``drain_s`` the time of a drain on ``async_count`` drives.
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

    Raises ``ConfigError`` for an unknown model, and for ranks that it does not have.
    """
    found, whole = model_named(model), rank_count(model)
    if ranks is not None and not 1 <= ranks <= whole:
        raise ConfigError(f"ranks must be 1 to {whole}, which {model} has, got {ranks}")
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


def write_seconds(total_bytes: int, rate_bytes_per_s: float, drives: int = 1) -> float:
    """Return the seconds that a checkpoint takes on drives of this rate each."""
    return total_bytes / (rate_bytes_per_s * drives)


def write_energy(seconds: float, watts: Watts) -> Energy:
    """Return the energy of these seconds; n drives take n times the power for 1/n of the time."""

    def over(power_w: float | None) -> float | None:
        return None if power_w is None else power_w * seconds / J_PER_WH

    return Energy(
        energy_wh=over(watts.mean_w), lower_wh=over(watts.lower_w), upper_wh=over(watts.upper_w)
    )


def drives_needed(
    total_bytes: int, rate_bytes_per_s: float, *, interval_s: float, overhead: float
) -> Drives:
    """Return the drives that hold the share of training time lost, stall over interval.

    Synchronous: bytes over (n x rate) is the stall, so n is at least bytes over (rate x overhead x
    interval). Asynchronous: the drain has to end within the interval, so n is at least bytes over
    (rate x interval); the snapshot, which depends on no drive, is not in it.
    """
    one_s = write_seconds(total_bytes, rate_bytes_per_s)
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
    """Return why there is no number of DLIO's files, empty where there is one."""
    if model == SERVER_NAME:
        return f"DLIO has no layout of {model}, which is no model of its own"
    return "" if is_whole else "DLIO's layout is of all ranks"


def _published(model: str) -> str:
    if model == SERVER_NAME:
        return "415 GB, its derivation unpublished"
    if model in SUBSETS:
        return f"{SUBSETS[model].published_gb} GB, in fact GiB"
    return f"{MODELS[model].published}: {MODELS[model].published_remark}"
