"""Runs of vector search, in memory: a curve of recall, with power, in either loop, or a walk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.records import Scenario, make_run
from tests.reports.sessions import EMPTY, metered, placed, timed_span
from wattload.core.histogram import Histogram
from wattload.core.power import OCP
from wattload.core.record.energy import WrittenRecord
from wattload.core.record.phase import IoCounter
from wattload.core.record.results import latencies_of
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.reports.runs.load import Run
from wattload.results.reading import metrics_of
from wattload.results.vector_search.facts import BUILD, FIRST_PASS, SEARCH

K, BEAM, QUERIES = 10, 4, 10_000
SECONDS = {BUILD: 120.0, FIRST_PASS: 20.0, SEARCH: 60.0}
WATTS = {BUILD: 6.0, FIRST_PASS: 9.0, SEARCH: 10.0}
RECALLS = {10: 0.62, 20: 0.81, 40: 0.92, 80: 0.965, 160: 0.988, 320: 0.996}
"""Recall by list length, as made up as all here."""


@dataclass(kw_only=True)
class Search:
    """What a made-up run was: its list, its rate and watts, and how it read."""

    name: str = "run-1"
    label: str = "A"
    search_list: int = 40
    queries_per_s: float = 2000.0
    watts: float = 10.0
    recall: float | None = None
    """By the list, if it is not stated."""
    reads_directly: bool = True
    from_drive: float = 0.2
    """Share of the mapped search that the drive moved."""
    is_walk: bool = False
    is_built: bool = True
    query_rate: float | None = None
    cache_nodes: int = 0
    cpu_share: float = 0.4
    """CPU time of the searching threads ÷ their time."""
    drive_ceiling: float | None = 100_000.0
    has_power: bool = True
    repeat: int = 0
    serial: str = "SERIAL1"
    index_digest: str = "1d" * 32
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Other facts than those that follow from the above."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """Other facts of the timed queries."""
    moved: float = 1.0
    """Bytes counted as they moved ÷ those of the reads."""


def search_run(**changes: Any) -> Run:
    """Return a run whose facts agree with its spans."""
    made = Search(**changes)
    scenario = Scenario(
        run_id=made.name, label=made.label, workload="checkpoint", power="measured",
        virtual=False, model="MICRON_9550", serial=made.serial,
    )  # fmt: skip
    base, _ = make_run(scenario)
    return Run(record=_record(made, base), traces=EMPTY)


def search_record(**changes: Any) -> RunRecord:
    return search_run(**changes).record


def _pass(made: Search, phase: str, queries: int, cut: int) -> dict[str, Any]:
    nodes = made.search_list + 4
    expanded, threads, depth = (queries + cut) * nodes, 2, 1 if not made.reads_directly else 16
    cached = expanded // 2 if made.cache_nodes else 0
    scatter = np.random.default_rng(7).lognormal(0, 0.4, queries)
    each_s = threads * depth * SECONDS[phase] / queries * scatter / scatter.mean()
    (latency,) = latencies_of(
        Histogram.of((each_s * NS_PER_S).astype(np.int64).tolist()),
        phase=phase, kind="request", operation_bytes=4096,
    )  # fmt: skip
    return {
        "queries": queries,
        "cut": cut,
        "rounds": -(-(expanded - cached) // BEAM) + queries,
        "expanded": expanded,
        "cached": cached,
        "reads": expanded - cached,
        "read_bytes": (expanded - cached) * 4096,
        "compared": (expanded - cached) // 64,
        "wrong": 0,
        "cpu_s": made.cpu_share * threads * SECONDS[phase],
        "latency": latency.model_dump(),
        "late_s": 0.001 if made.query_rate else 0.0,
    }


def _passes(made: Search) -> dict[str, Any]:
    queries = round(made.queries_per_s * SECONDS[SEARCH])
    cut = 32 if made.reads_directly else 2
    found = {SEARCH: {**_pass(made, SEARCH, queries, cut), **made.search}}
    if not made.reads_directly:
        found = {FIRST_PASS: _pass(made, FIRST_PASS, QUERIES, 0), **found}
    return found


def hits(recall: float) -> list[int]:
    """Return queries by their hits, with this recall: some have none or half, the others all."""
    lost = round((1 - recall) * QUERIES)
    return [lost // 2, *[0] * (K // 2 - 1), 2 * (lost - lost // 2), *[0] * (K // 2 - 1),
            QUERIES - lost // 2 - 2 * (lost - lost // 2)]  # fmt: skip


def _facts(made: Search) -> dict[str, Any]:
    recall = RECALLS[made.search_list] if made.recall is None else made.recall
    memory = {"codes": 6_400_000, "pivots": 131_072, "digests": 1_600_000, "buffers": 3_000_000}
    if made.cache_nodes:
        memory["cached nodes"] = made.cache_nodes * 772
    passes = _passes(made)
    started = passes[SEARCH]["queries"] + passes[SEARCH]["cut"]
    facts: dict[str, Any] = {
        "index": {
            "vectors": 200_000, "dim": 128, "dtype": "f32", "degree": 64, "build_list": 128,
            "node_bytes": 772, "read_bytes": 4096, "file_bytes": 163_844_096, "pq_bytes": 32,
            "memory_bytes": memory, "digest": made.index_digest,
        },
        "data": {
            "queries": QUERIES, "truth_digest": "ab" * 32, "intrinsic_dimension": 19.4,
            "code_order_hits": hits(0.8),
        },
        "build": {
            "threads": 2, "quantization_s": 12.0, "graph_s": 100.0, "writing_s": 8.0,
            "peak_memory_bytes": 400_000_000,
        } if made.is_built and not made.is_walk else None,
        "passes": passes,
        "answers": {"hits": hits(recall), "short": 0, "digest": f"{made.search_list:064x}"},
        "threads": 2,
        "inflight_per_thread": 16 if made.reads_directly else 1,
        "tried": [],
        "reads_directly": made.reads_directly,
        "schedule_s": (
            None if made.query_rate is None else started * (started + 1) / 2 / made.query_rate
        ),
        "drive_ceiling_reads_per_s": made.drive_ceiling,
        "host_ceiling_queries_per_s": None if made.is_walk else 10 * made.queries_per_s,
    }  # fmt: skip
    if made.is_walk:
        facts |= {"data": None, "answers": None}
        facts["index"] |= {"pq_bytes": 0, "memory_bytes": {"trace": 9_000_000}}
    return {**facts, **made.facts}


def _record(made: Search, base: RunRecord) -> RunRecord:
    facts = _facts(made)
    passes, start_ns, spans = facts["passes"], int(base.windows[0].start_ns), []
    phases = [*([BUILD] if facts["build"] else []), *passes]
    counters = []
    for phase in phases:
        own = passes.get(phase, {"read_bytes": 0, "reads": 0})
        written = facts["index"]["file_bytes"] if phase == BUILD else 0
        read, cpu_s = round(made.moved * own["read_bytes"]), 2 * made.cpu_share * SECONDS[phase]
        spans.append(
            timed_span(phase, start_ns, SECONDS[phase], read_bytes=read, written_bytes=written,
                       operations=own["reads"], cpu_s=cpu_s + 1)
        )  # fmt: skip
        start_ns = spans[-1].end_ns + NS_PER_S
        cold = 1.0 if made.reads_directly else 0.9 if phase == FIRST_PASS else made.from_drive
        counters.append(
            IoCounter(
                host="box", device="nvme0n1", phase=phase,
                read_bytes=round(own["read_bytes"] * cold), written_bytes=written,
                read_operations=round(own["reads"] * cold), write_operations=written >> 20,
                busy_s=SECONDS[phase], weighted_s=30 * SECONDS[phase],
            )
        )  # fmt: skip
    settings = {
        "vectors": 200_000, "dim": 128, "metric": "l2", "search_list": made.search_list,
        "beam": BEAM, "k": K, "cache_nodes": made.cache_nodes, "query_rate": made.query_rate,
        "duration_s": SECONDS[SEARCH],
        "arrivals": "open" if made.query_rate else "closed",
        "graph": "walk" if made.is_walk else "vamana", "source": None,
    }  # fmt: skip
    record = base.model_copy(
        update={
            **placed(made.repeat, made.label),
            "command": ("wattload", "run", f"workload.search_list={made.search_list}"),
            "config": {
                **base.config,
                "workload": settings,
                "loader": {"name": "direct" if made.reads_directly else "mmap"},
            },
            "workload": base.workload.model_copy(
                update={
                    "name": "vector_search",
                    "facts": facts,
                    "data": None,
                    "loader": "direct" if made.reads_directly else "mmap",
                }
            ),
            "spans": tuple(spans),
            "power": _power(made, base, phases),
            "metrics": (),
            "counters": tuple(counters),
            "latencies": (),
            "halves": (),
            "checks": (),
        }
    )
    return record.model_copy(update={"metrics": metrics_of(record)})


def _power(made: Search, base: RunRecord, phases: Sequence[str]) -> Any:
    if not made.has_power:
        return base.power.model_copy(update={"energy": (), "requested": "none", "sources": ()})
    (first, *_) = base.power.energy
    watts = {**WATTS, SEARCH: made.watts}
    written = WrittenRecord(
        host="box",
        device=made.serial,
        phase=BUILD,
        host_written_bytes=200_000_000,
        media_written_bytes=250_000_000,
        write_amplification=1.25,
        media_source=OCP,
    )
    return base.power.model_copy(
        update={
            "energy": tuple(
                metered(first, phase, SECONDS[phase], watts[phase], device=made.serial,
                        net_j=(watts[phase] - 5.0) * SECONDS[phase])
                for phase in phases
            ),
            "written": (written,) if BUILD in phases else (),
        }
    )  # fmt: skip


def curve(lists: Sequence[int] = tuple(RECALLS), *, place: int = 0, **changes: Any) -> list[Run]:
    """Return the runs of a sweep over list lengths; the rate falls as the list grows."""
    speed = changes.pop("speed", 1.0)
    return [
        search_run(
            **{
                "name": f"list-{changes.get('label', 'A')}-{size}",
                "search_list": size,
                "queries_per_s": speed * 100_000 / (size + 8),
                "is_built": index == 0,
                "repeat": 2 * index + place,
                "drive_ceiling": 120_000.0,
                **changes,
            }
        )
        for index, size in enumerate(lists)
    ]


def drive_curves() -> list[Run]:
    """Return the curves of two drives, the second of which is slower and needs less power."""
    return [
        *curve(label="A", serial="SERIALA"),
        *curve(label="B", serial="SERIALB", speed=0.7, watts=6.0, place=1),
    ]
