"""How published runs of MLPerf's vector database are shown, with runs of ours next to them."""

from __future__ import annotations

from wattload.core.mlperf import formulas
from wattload.core.mlperf.published import VectorFacts
from wattload.core.units import Unit
from wattload.results.published import PublishedView, summarised
from wattload.results.quantity import whole
from wattload.results.vector_search import figures
from wattload.results.vector_search.facts import SEARCH, Run
from wattload.results.vector_search.facts import VectorFacts as OwnFacts


def _own(run: Run) -> VectorFacts:
    index, found = run.facts.index, run.facts.passes[SEARCH]
    return VectorFacts(
        database="wattload", index="DISKANN", vectors=index.vectors, dimensions=index.dim,
        max_degree=index.degree, queries=found.queries, seconds=run.seconds(SEARCH) or None,
        queries_per_s=figures.rate(run), recall=figures.recall(run),
        latency_p99_s=figures.latency_s(run, "p99_s"),
    )  # fmt: skip


PUBLISHED = PublishedView[OwnFacts](
    kind="vector_database",
    own=_own,
    rows=lambda facts: [(f"vector search, {facts.index}", "", facts)],
    figures={
        "queries_per_s": (
            Unit.SAMPLES_PER_SECOND, lambda facts, _: summarised(facts.queries_per_s)),
        "recall": (Unit.FRACTION, lambda facts, _: summarised(facts.recall)),
        "latency_p99_s": (Unit.SECONDS, lambda facts, _: summarised(facts.latency_p99_s)),
        "index_bytes": (Unit.BYTES, lambda facts, _: formulas.index_bytes(facts)),
    },
    data_from=lambda facts: "query counts" if facts.queries else "summaries",
    conditions=lambda facts: {"database": facts.database, "vectors": whole(facts.vectors),
                              "dimensions": whole(facts.dimensions)},
    phases=frozenset({SEARCH}),
    unit="query",
    count=lambda run: run.facts.passes[SEARCH].queries,
    other_work="vectors and queries of wattload's own",
)  # fmt: skip
