"""Runs of MLPerf's loop, in memory."""

from __future__ import annotations

from typing import Any

from tests.records import Scenario, make_run
from tests.reports.sessions import EMPTY
from wattload.core.histogram import Histogram
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.results import Latency, latencies_of
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.reports.runs.load import Run
from wattload.results.kv_cache_mlperf import (
    NAME,
    PHASE,
    ClientFacts,
    Lookups,
    LoopFacts,
    LoopSettings,
    Origin,
)
from wattload.results.reading import metrics_of

GB = 10**9


def latency(kind: Any, seconds: float) -> Latency:
    values_ns = [round(seconds * NS_PER_S)] * 40
    (row,) = latencies_of(Histogram.of(values_ns), phase=PHASE, kind=kind, operation_bytes=GB)
    return row


def client(**changed: Any) -> ClientFacts:
    """Return a process that read 40 + 6 GB and wrote 10 GB."""
    values: dict[str, Any] = {
        "drawn": 500, "answered": 100, "decoded": 80, "generated_tokens": 16_000,
        "own_drawn_bytes": 42 * GB, "io_s": 4000.0, "written_bytes": 10 * GB,
        "demoted_bytes": 2 * GB, "evicted": 0, "file_reads": 600, "compared_blocks": 1800,
        "bad_blocks": 0, "is_full": False,
        "reads": {
            Origin.system_prompt: lookups(20, 20, 0),
            Origin.earlier_turn: lookups(60, 50, 6 * GB),
            Origin.own_entry: lookups(600, 0, 40 * GB, 2 * GB),
        },
        "read_latency": latency("read", 5.0),
        "save_latency": latency("write", 2.0),
        "sync_latency": latency("write", 0.02),
    }  # fmt: skip
    return ClientFacts(**values | changed)


def lookups(count: int, misses: int, drive_bytes: int, memory_bytes: int = 0) -> Lookups:
    return Lookups(lookups=count, misses=misses, drive_bytes=drive_bytes, memory_bytes=memory_bytes)


def loop_record(*clients: ClientFacts, seconds: float = 320.0, divisor: int = 1) -> RunRecord:
    """Return a record of a run whose requests in progress took 20 s after its 300 s were over."""
    record, _ = make_run(Scenario(workload="checkpoint"))
    span = PhaseSpan(
        name=PHASE, parent=None, host="box", rank=0, timed=True, start_ns=0,
        end_ns=round(seconds * NS_PER_S), read_bytes=0, written_bytes=0, operations=0, cpu_s=0.0,
    )  # fmt: skip
    settings = {"option": 1, "length_divisor": divisor, "duration_s": 300.0}
    facts = LoopFacts(
        settings=LoopSettings.model_validate(settings),
        model="llama3.1-8b",
        users=200,
        clients=clients or (client(),),
    )
    section = {"name": NAME, "facts": facts.model_dump(mode="json")}
    return record.model_copy(
        update={
            "spans": (span,),
            "config": {**record.config, "workload": settings},
            "workload": record.workload.model_copy(update=section),
        }
    )


def loop_run(label: str, **users: Any) -> Run:
    """Return a run of an arm whose processes have the users of MLPerf's option, or others."""
    record = loop_record()
    config = {**record.config, "workload": {**record.config["workload"], "users": None, **users}}
    update = {"run_id": f"run-{label}", "label": label, "config": config}
    made = record.model_copy(update=update)
    return Run(record=made.model_copy(update={"metrics": tuple(metrics_of(made))}), traces=EMPTY)
