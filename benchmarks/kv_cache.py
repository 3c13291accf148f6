"""A cache of keys and values against the engine and LMCache, then its request logic alone.

Restores are cold. LMCache restores one request after another, of the same files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.child import scratch
from benchmarks.engine import bytes_per_s
from benchmarks.kv_job import BUFFERED, DIRECT, ENGINE, OURS, Job, served
from benchmarks.measure import Comparison, Figures, Row
from wattload.core.io import IOKind

TOKENS = (256, 64)
"""Of a block of llama3.1-8b: LMCache's 32 MiB, and 8 MiB, as in vLLM's example."""
TOTAL_TOKENS = 16384
"""2 GiB."""
FEW, SOME, MANY = 20_000, 250_000, 1_000_000
"""Requests, of 24 blocks on average."""

_cpu = partial(Row, figure="cpu_s_per_byte", unit="CPU s per GB", scale=1e9, sense="at_most")


def comparisons(target: Path) -> Iterator[Comparison]:
    """Compare stores and restores by size of block, then measure the request logic."""
    for tokens in TOKENS:
        with scratch(target) as stores, scratch(target) as restores:
            job = partial(Job, tokens=tokens, count=TOTAL_TOKENS // tokens)
            store = job(folder=stores, kind=IOKind.WRITE)
            yield from _against_engine("store", store, speed=0.9)
            replace(store, folder=restores)()
            restore = job(folder=restores, kind=IOKind.READ)
            yield from _against_engine("restore", restore, speed=0.97, cpu=1.1)
            if tokens == TOKENS[0]:
                yield from _against_lmcache("store", store)
                yield from _against_lmcache("restore", restore)
    rate = Row(name="request logic", figure="blocks_per_s", unit="k/s", scale=1e-3, goal=100.0)
    yield Comparison(rows=(rate,), ways={"users": partial(served, FEW)})
    wall = Row(name="1 M requests", figure="seconds", unit="s", goal=300.0, sense="at_most")
    growth = replace(wall, name="memory, 1 M requests ÷ 250 k", figure="growth", unit="", goal=1.05)
    yield Comparison(rows=(wall, growth), ways={"users": _many}, rounds=1)


def _against_engine(
    what: str, job: Job, *, speed: float, cpu: float | None = None
) -> Iterator[Comparison]:
    name = f"{what} of {job.tokens} tokens"
    yield Comparison(
        rows=(
            bytes_per_s(name=f"{name} ÷ engine", goal=speed),
            _cpu(name=f"{name}, CPU ÷ engine's", goal=cpu),
        ),
        ways={OURS: job, ENGINE: replace(job, mover=ENGINE)},
    )
    yield Comparison(rows=(_cpu(name=f"{name}, CPU", goal=0.5),), ways={OURS: job})


def _against_lmcache(what: str, job: Job) -> Iterator[Comparison]:
    """Compare with both ways of LMCache, then the faster one with the drive's ceiling."""
    with scratch(job.folder.parent) as folder:
        stored = job.files if job.kind is IOKind.READ else ()
        for mover in (BUFFERED, DIRECT):
            theirs = replace(job, folder=folder, mover=mover, stored=stored)
            yield Comparison(
                rows=(
                    bytes_per_s(name=f"{what} ÷ {mover}", goal=1.5),
                    _cpu(name=f"{what}, CPU ÷ that of {mover}"),
                ),
                ways={OURS: job, mover: theirs},
                noise=False,
            )
        yield Comparison(
            rows=(bytes_per_s(name=f"{what} of {DIRECT} ÷ engine", goal=0.9),),
            ways={DIRECT: theirs, ENGINE: replace(job, mover=ENGINE)},
            noise=False,
        )


def _many() -> Figures:
    """Serve many requests; ``growth`` is the peak memory, divided by that of a quarter of them."""
    before, after = served(SOME), served(MANY)
    return {**after, "growth": after["peak_bytes"] / before["peak_bytes"]}
