"""What a run will do, by arithmetic: its blocks, what it stores, and what rate and power mean."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from wattload.core.errors import ConfigError
from wattload.core.units import GB, GIB, MILLI, format_bytes, format_percent
from wattload.core.workload import Outline
from wattload.loaders.block_transfers import TransferLimits
from wattload.results.kv_cache.facts import Admission, LruPoint, Source, SourceReport
from wattload.results.quantity import counted
from wattload.workloads.kv_cache.config import Config
from wattload.workloads.kv_cache.geometry import Geometry, geometry_of
from wattload.workloads.kv_cache.sources import report_of

FILL_EVICTED_SHARE = 0.2
STORE_BYTES_PER_S = 10 * GB
STORE_CAPACITIES, STORE_LEAST_BYTES = 4, 16 * GIB
"""Stores alone end early after this rate for their time, or after so many times the cache, where
that is more than the least bytes."""
MOST_FILLS = 8
"""The fill ends at the latest when an LRU cache would have stored so many times its capacity."""
DAY_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a run will do with a cache of ``capacity`` blocks."""

    config: Config
    geometry: Geometry
    capacity: int
    source: SourceReport

    @property
    def moved(self) -> int:
        """The bytes of a block as moved."""
        return self.geometry.moved_block_bytes

    @property
    def cache_bytes(self) -> int:
        return self.capacity * self.moved

    @property
    def limits(self) -> TransferLimits:
        return TransferLimits(
            request_bytes=self.config.request_bytes,
            queue_depth=self.config.queue_depth,
            largest_bytes=self.geometry.moved_piece_bytes,
        )

    @property
    def lru(self) -> LruPoint:
        """What the source does with a cache of this capacity."""
        return next(each for each in self.source.lru if each.blocks == self.capacity)

    @property
    def most_filling(self) -> int:
        """The most requests of the fill: half a trace, or what surely fills the cache."""
        if self.config.requests is Source.trace:
            return self.source.requests // 2
        stored = max(self.lru.stored_blocks, 1)
        return -(-MOST_FILLS * self.capacity * self.source.requests // stored)

    @property
    def most_stored_per_s(self) -> float:
        """The most blocks that requests store in a second, as if they took no time."""
        if self.config.admission is Admission.none or not self.source.span_s:
            return 0.0
        return self.lru.stored_blocks / self.source.span_s

    @property
    def most_stored_alone(self) -> int:
        of_rate = STORE_BYTES_PER_S * self.config.saturation_s
        of_size = max(STORE_CAPACITIES * self.cache_bytes, STORE_LEAST_BYTES)
        return math.ceil(min(of_rate, of_size) / self.moved)

    @property
    def fill_bytes(self) -> int:
        return round(self.cache_bytes * (1 + FILL_EVICTED_SHARE))

    @property
    def mix_bytes(self) -> int:
        """The most bytes that the mix stores."""
        seconds = self.config.duration_s + self.config.warm_up_s
        return math.ceil(self.most_stored_per_s * seconds) * self.moved

    @property
    def alone_bytes(self) -> int:
        return self.most_stored_alone * self.moved

    @property
    def daily_bytes(self) -> float | None:
        """The most bytes that requests store in a day; ``None`` in a closed loop, unpaced."""
        return None if self.config.is_closed else self.most_stored_per_s * DAY_S * self.moved

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of a plan."""
        yield from size_lines(self.config, self.geometry)
        yield (
            "cache",
            f"{self.capacity:,} blocks of {format_bytes(self.moved)}, "
            f"{format_bytes(self.cache_bytes)} in all",
        )
        total = self.fill_bytes + self.mix_bytes + self.alone_bytes
        yield (
            "stores",
            f"at most {format_bytes(total)}: {format_bytes(self.fill_bytes)} to fill it and evict "
            f"{format_percent(FILL_EVICTED_SHARE)}, at most {format_bytes(self.mix_bytes)} by "
            f"requests and {format_bytes(self.alone_bytes)} alone",
        )
        hits, at_most = (
            format_percent(point.hit_blocks / max(self.source.references, 1))
            for point in (self.lru, self.source.lru[-1])
        )
        yield (
            "hits",
            f"{hits} of the requests' blocks at this capacity, {at_most} without evictions",
        )
        daily = self.daily_bytes
        yield (
            "wear",
            "not applicable: unpaced"
            if daily is None
            else f"at most {format_bytes(daily)} a day, "
            f"{daily / self.cache_bytes:,.0f} times the cache",
        )


def plan_job(config: Config, capacity_bytes: int, *, seed: int) -> Job:
    """Return what a run does with a cache of a size.

    Raises:
        ConfigError: a setting does not fit the model or the trace, or the cache is too small for a
            request.
        DataError: the trace can't be read.
    """
    geometry = geometry_of(config)
    capacity = capacity_bytes // geometry.moved_block_bytes
    if config.requests is Source.users:
        most, remedy = config.most_input_tokens // geometry.tokens, "workload.most_input_tokens"
        _require_room(capacity, max(most, 1), geometry, f"fewer {remedy}")
    source = report_of(config, seed=seed, capacity_blocks=max(capacity, 1))
    _require_room(capacity, max(source.most_blocks, 1), geometry, "a smaller model")
    return Job(config=config, geometry=geometry, capacity=capacity, source=source)


def _require_room(capacity: int, least: int, geometry: Geometry, remedy: str) -> None:
    if capacity < least:
        raise ConfigError(
            f"workload.capacity_bytes holds {capacity} blocks of {geometry.moved_block_bytes} "
            f"bytes, but one request may have {least}; use at least "
            f"{least * geometry.moved_block_bytes}, or {remedy}"
        )


def size_lines(config: Config, geometry: Geometry) -> Iterator[tuple[str, str]]:
    padded_bytes = geometry.moved_block_bytes
    moved = f", moved as {padded_bytes:,}" if padded_bytes > geometry.block_bytes else ""
    mla = f"; MLA {geometry.mla}" if geometry.mla else ""
    name = config.model if config.bytes_per_token is None else "workload.bytes_per_token"
    files = counted(geometry.pieces, "file")
    yield "model", f"{name}, {geometry.bytes_per_token:,} bytes a token{mla}"
    yield "block", f"{geometry.tokens} tokens: {geometry.block_bytes:,} bytes{moved}, in {files}"


def outline(config: Config, *, seed: int) -> Outline:
    """Return what a run takes, as far as it is known without a target.

    Raises:
        ConfigError: a setting does not fit the model or the trace.
        DataError: the trace can't be read.
    """
    geometry, capacity_bytes = geometry_of(config), config.capacity_bytes
    figures: dict[str, float | int | None] = {
        "bytes_per_token": geometry.bytes_per_token,
        "block_bytes": geometry.block_bytes,
        "moved_block_bytes": geometry.moved_block_bytes,
        "files_per_block": geometry.pieces,
    }
    if capacity_bytes is None:
        unknown = "80 % of the file system; add target.path= or workload.capacity_bytes="
        return Outline(lines=(*size_lines(config, geometry), ("cache", unknown)), figures=figures)
    job = plan_job(config, capacity_bytes, seed=seed)
    figures |= {
        "capacity_blocks": job.capacity,
        "fill_bytes": job.fill_bytes,
        "mix_bytes": job.mix_bytes,
        "alone_bytes": job.alone_bytes,
        "daily_bytes": job.daily_bytes,
    }
    return Outline(lines=tuple(job.lines()), figures=figures)


def at_rate(config: Config, *, rate_bytes_per_s: float, power_w: float | None) -> Outline:
    """Return the tokens that a drive restores at a rate, and what one costs at a power."""
    geometry = geometry_of(config)
    tokens_per_s = rate_bytes_per_s * geometry.tokens / geometry.moved_block_bytes
    energy_j = None if power_w is None else power_w / tokens_per_s
    return Outline(
        lines=(
            (
                "restore",
                f"{tokens_per_s:,.0f} tokens/s = rate x {geometry.tokens} tokens / "
                f"{geometry.moved_block_bytes:,} bytes",
            ),
            (
                "token",
                "energy unknown; add power_w=W of the drive"
                if energy_j is None
                else f"{energy_j / MILLI:.4g} mJ per restored token = power / tokens/s",
            ),
        ),
        figures={"restored_tokens_per_s": tokens_per_s, "j_per_restored_token": energy_j},
    )
