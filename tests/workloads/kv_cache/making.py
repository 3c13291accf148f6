"""Makes small runs of the kv_cache workload on real files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.context import Context, RecordedPhase
from tests.reports.caches import cache_record
from tests.stamped import sampled_blocks
from wattload.core.record.results import Check
from wattload.core.units import MIB
from wattload.core.workload import Accelerator, Outcome
from wattload.loaders.block_transfers import BlockTransferConfig, BlockTransfers, Transfer
from wattload.loaders.data.data_folder import list_folders
from wattload.loaders.direct.config import Config as DirectConfig
from wattload.results.kv_cache.checks import CHECKS
from wattload.results.kv_cache.facts import Counts, KvFacts, Layout, Run
from wattload.workloads.kv_cache import outline, sources
from wattload.workloads.kv_cache import workload as module
from wattload.workloads.kv_cache.config import Config, Spread, UserType
from wattload.workloads.kv_cache.geometry import PIECE_BITS, geometry_of
from wattload.workloads.kv_cache.models import MODELS, Model
from wattload.workloads.kv_cache.requests import Request, Requests
from wattload.workloads.kv_cache.tier import DriveTier, Placed
from wattload.workloads.kv_cache.workload import KvCache

UNIT_BYTES = 4096
BLOCK_TOKENS = 16
CAPACITY = 64
REQUESTS = 60
STORED_ALONE = 8
SETTINGS: dict[str, Any] = {
    "bytes_per_token": 1024,
    "block_tokens": BLOCK_TOKENS,
    "capacity_bytes": 1 * MIB,
    "request_bytes": 8192,
    "queue_depth": 16,
    "users": 3,
    "system_prompts": 2,
    "system_prompt_tokens": 64,
    "most_input_tokens": 512,
    "duration_s": 3600.0,
    "saturation_s": 0.05,
    "warm_up_s": 0.0,
}
"""A cache of 64 blocks of 16 KiB. The mix ends with the last of ``REQUESTS``, at any speed."""

TINY, TINY_MLA = "tiny", "tiny-mla"


def config(**settings: Any) -> Config:
    tester = UserType(
        new_tokens=Spread(low=64, high=160),
        output_tokens=Spread(low=16, high=64),
        think_s=Spread(low=0.001, high=0.01),
    )
    return Config(**{"user_types": {"tester": tester}, **SETTINGS, **settings})


def layered(model: str, pieces: int, **settings: Any) -> dict[str, Any]:
    """Return the settings of a cache of 64 blocks that have so many pieces in layers."""
    size = CAPACITY * pieces * UNIT_BYTES
    chosen = {"bytes_per_token": None, "model": model, "layout": Layout.layer}
    return {**chosen, "capacity_bytes": size, **settings}


class Bounded:
    """A source that ends after so many requests."""

    def __init__(self, source: Requests, requests: int) -> None:
        self._source = source
        self.is_closed = source.is_closed
        self._left = requests

    def first(self) -> Iterable[Request]:
        first = list(self._source.first())
        self._left -= len(first)
        return first

    def following(self, request: Request, time_s: float) -> Request | None:
        self._left -= 1
        return self._source.following(request, time_s) if self._left >= 0 else None


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a mix end after ``REQUESTS``, and what is measured beside the phases take no time.

    Adds a model whose pieces are 4096 bytes at 16 tokens, and one whose pieces are 2304.
    """
    monkeypatch.setattr(module, "CEILING_S", 0.02)
    monkeypatch.setattr(module, "HARNESS_S", 0.02)
    monkeypatch.setattr(outline, "STORE_BYTES_PER_S", STORED_ALONE * 16384 / 0.05)
    monkeypatch.setattr(sources, "MOST_REQUESTS", 500)
    source_of = sources.source_of
    monkeypatch.setattr(
        module,
        "source_of",
        lambda config, *, seed: Bounded(source_of(config, seed=seed), REQUESTS),
    )
    assert isinstance(MODELS, dict)
    monkeypatch.setitem(MODELS, TINY, Model(layers=3, kv_heads=2, head_dim=64))
    monkeypatch.setitem(MODELS, TINY_MLA, Model(layers=3, latent_dim=72))


@dataclass
class Made:
    """A run that has ended: what it reported, and what its tier saw."""

    workload: KvCache
    context: Context
    outcome: Outcome
    checks: Sequence[Check]
    restored: list[tuple[Placed, range]] = field(default_factory=list)
    """Pieces of blocks that were submitted to be restored."""

    @property
    def facts(self) -> KvFacts:
        assert isinstance(self.outcome.facts, KvFacts)
        return self.outcome.facts

    def counts(self, phase: str) -> Counts:
        return self.facts.counts[phase]

    def phase(self, name: str) -> RecordedPhase:
        [phase] = self.context.timed(name)
        return phase

    def check(self, name: str) -> Check:
        """Return a check that the run made, or that follows from its facts."""
        run = Run(record=cache_record(), facts=self.facts)  # of which only times are looked at
        made = (check for rule in CHECKS for check in rule(run))
        [check] = [check for check in (*self.checks, *made) if check.name == name]
        return check


def planned(
    context: Context, settings: Config, loader: BlockTransferConfig | None = None
) -> KvCache:
    settings.check(context.scale)
    workload = KvCache(settings, loader or DirectConfig(), Accelerator())
    workload.plan(context)
    workload.prepare(context)
    return workload


def made(context: Context, settings: Config, loader: BlockTransferConfig | None = None) -> Made:
    """Run from the plan to the end."""
    workload = planned(context, settings, loader)
    restored: list[tuple[Placed, range]] = []
    read, moving_by = DriveTier._read, DriveTier.moving_by
    is_ceiling = False

    def noted(
        tier: DriveTier, blocks: Sequence[Placed], pieces: range, *, sampled: bool = True
    ) -> Transfer:
        if sampled and not is_ceiling:
            restored.extend((block, pieces) for block in blocks)
        return read(tier, blocks, pieces, sampled=sampled)

    @contextmanager
    def unnoted(tier: DriveTier, transfers: BlockTransfers) -> Iterator[None]:
        nonlocal is_ceiling
        is_ceiling = True
        with moving_by(tier, transfers):
            yield
        is_ceiling = False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DriveTier, "_read", noted)
        patch.setattr(DriveTier, "moving_by", unnoted)
        outcome = workload.run(context)
        checks = workload.verify(context)
    return Made(workload, context, outcome, [*outcome.checks, *checks], restored)


def sampled_bytes(settings: Config, restored: Iterable[tuple[Placed, range]], seed: int) -> int:
    """Return what restores of these pieces compare."""
    size = geometry_of(settings).moved_piece_bytes
    return UNIT_BYTES * sum(
        len(sampled_blocks(size, seed, block << PIECE_BITS | piece))
        for (block, _), pieces in restored
        for piece in pieces
    )


def block_files(target: Path) -> list[Path]:
    """Return the files of blocks on a target, by name."""
    return sorted(target.rglob("*.kv*"))


def require_empty(target: Path) -> None:
    """Check that a target has no data folder and no file of a block."""
    assert list_folders(target) == ()
    assert [path for path in target.rglob("*") if path.is_file()] == []


def write_trace(path: Path, lines: Iterable[tuple[int, int, int, list[int]]]) -> str:
    """Write a trace of times in ms, input and output lengths, and hash ids; return its path."""
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    rows = (dict(zip(names, line, strict=True)) for line in lines)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)
