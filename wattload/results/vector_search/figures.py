"""The figures of vector search: its rate, recall and latency, what a query costs, memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from wattload.core.units import Unit
from wattload.results.facts import divided
from wattload.results.figures import Figure, FigureSource
from wattload.results.vector_search.facts import SEARCH, Run, VectorFacts

RATE = "queries_per_s"
LATENCIES = {"p50_s": "p50", "p90_s": "p90", "p99_s": "p99", "p999_s": "p99.9"}
COSTS = (("reads", "reads", Unit.COUNT), ("rounds", "rounds", Unit.COUNT),
         ("read_bytes", "bytes", Unit.BYTES), ("cpu_s", "CPU time", Unit.SECONDS))  # fmt: skip
"""Counts of ``Pass`` that are shown for a query."""
FARTHEST = 0.05
"""Points of a curve that are farther apart in recall than this are not interpolated."""
CHANCE = 4.0
"""How many standard deviations random arrivals may be from what is expected."""

figure = partial(Figure[VectorFacts], phase=SEARCH)
lower = partial(figure, better="lower")


def rate(run: Run, phase: str = SEARCH) -> float | None:
    return divided(run.facts.passes[phase].queries, run.seconds(phase))


def per_query(run: Run, name: str, phase: str = SEARCH) -> float | None:
    """Return a count of ``Pass`` ÷ answered queries; that of queries that were cut is in it."""
    found = run.facts.passes[phase]
    return divided(getattr(found, name), found.queries)


def mean_share(hits: Sequence[int]) -> float | None:
    """Return the mean share of k neighbours, of queries by how many they have, 0 to k."""
    found = sum(count * queries for count, queries in enumerate(hits))
    return divided(found, sum(hits) * (len(hits) - 1))


def recall(run: Run) -> float | None:
    return None if run.facts.answers is None else mean_share(run.facts.answers.hits)


def recall_interval(run: Run) -> tuple[float, float] | None:
    """Return the 95 % interval of recall by bootstrap over queries; ``None`` without recall."""
    if run.facts.answers is None or not (queries := sum(run.facts.answers.hits)):
        return None
    hits = np.array(run.facts.answers.hits)
    drawn = np.random.default_rng(1).multinomial(queries, hits / queries, 2000)
    recalls = drawn @ np.arange(hits.size) / (queries * (hits.size - 1))
    low, high = np.quantile(recalls, (0.025, 0.975)).tolist()
    return low, high


def is_overloaded(run: Run) -> bool:
    """Return whether an open loop fell behind: latency then depends on how long it ran.

    Those that waited when the window ended were cut, too, beside those that were under way.
    """
    due = (run.facts.settings.query_rate or 0.0) * run.facts.settings.duration_s
    under_way = run.facts.threads * run.facts.inflight_per_thread
    found = run.facts.passes[SEARCH].queries + under_way
    return found < due - CHANCE * math.sqrt(due)


def latency_s(run: Run, name: str, phase: str = SEARCH) -> float | None:
    """Return a percentile of the latency of queries; ``None`` if overloaded, or of too few."""
    latency = run.facts.passes[phase].latency
    return None if latency is None or is_overloaded(run) else latency.percentiles_s[name]


def ceiling_share(run: Run, phase: str = SEARCH) -> float | None:
    """Return reads ÷ time, over the drive's ceiling; ``None`` through the page cache."""
    reads = divided(run.facts.passes[phase].reads, run.seconds(phase))
    return divided(reads, run.facts.drive_ceiling_reads_per_s if run.facts.reads_directly else None)


def held_bytes(run: Run) -> int:
    return sum(run.facts.index.memory_bytes.values())


Points = Sequence[tuple[str, float, float | None]]
"""Points of a curve: the name of each, its recall, and a value above 0, ``None`` if unknown."""


def at_recall(points: Points, goal: float) -> tuple[float | None, str]:
    """Return the value of a curve at a recall, and how it was found.

    Between neighbours by recall at most ``FARTHEST`` apart, the logarithm of the value is
    interpolated linearly; else the next point above is used. Nothing is extrapolated.
    """
    curve = sorted(points, key=lambda point: point[1])
    index = next((at for at, point in enumerate(curve) if point[1] >= goal), None)
    if index is None:
        most = f": {curve[-1][1]:.4f} at {curve[-1][0]}" if curve else ""
        return None, f"not reached{most}"
    name, above, value = curve[index]
    if above == goal:
        return value, f"measured at {name}"
    below = curve[index - 1] if index else None
    if below is None or above - below[1] > FARTHEST + 1e-9:  # recalls are rounded
        return value, f"next point above, {name}: recall {above:.4f}"
    how = f"interpolated between {below[0]} and {name}"
    if not value or not below[2]:
        return None, how
    share = (goal - below[1]) / (above - below[1])
    return math.exp((1 - share) * math.log(below[2]) + share * math.log(value)), how


FIGURES: tuple[FigureSource[VectorFacts], ...] = (
    figure(name=RATE, label="queries", of=rate, unit=Unit.SAMPLES_PER_SECOND, better="higher",
           headline=True, meaning="queries that were answered / time of the search"),
    figure(name="recall", of=recall, unit=Unit.FRACTION, better="neither",
           meaning="distinct answers no farther than the true k-th neighbour / k, over queries",
           reason="replayed reads answer no query"),
    *(
        lower(name=f"query_{name}", label=f"latency of a query, {words}", unit=Unit.SECONDS,
              of=partial(latency_s, name=name), reason="overloaded, or too few queries",
              meaning="from its start, in an open loop from its arrival, to its answer")
        for name, words in LATENCIES.items()
    ),
    *(
        lower(name=f"{name}_per_query", label=f"{words} of a query", unit=unit,
              of=partial(per_query, name=name), meaning=f"{words} / answered queries")
        for name, words, unit in COSTS
    ),
    lower(name="held_memory_bytes", label="memory held", of=held_bytes, unit=Unit.BYTES,
          meaning="codes, digests, cached nodes, buffers; of a mapping also its pages in memory"),
    figure(name="ceiling_fraction", label="share of the drive's ceiling", of=ceiling_share,
           unit=Unit.FRACTION, better="higher", reason="not measured, or not direct",
           meaning="reads / time, over random reads of the same size and depth from the file"),
)  # fmt: skip
