"""What follows from the facts of an outcome: its figures and checks, as a record has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tests.context import Context
from tests.records import Scenario, make_run
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.results import Check
from wattload.core.workload import Outcome
from wattload.results.facts import Run
from wattload.results.gpu_read.facts import ReadFacts
from wattload.results.reading import checks_of, metrics_of, run_of
from wattload.workloads.gpu_read.workload import GpuRead


@dataclass(frozen=True)
class Made:
    """A run in this process; ``checks`` are those that it stored and those of its facts."""

    outcome: Outcome
    run: Run[ReadFacts]
    checks: dict[str, Check]
    metrics: dict[str, float | None]

    @property
    def facts(self) -> ReadFacts:
        return self.run.facts


def made(workload: GpuRead, context: Context) -> Made:
    workload.plan(context)
    workload.prepare(context)
    return read_by(workload, context)


def read_by(workload: GpuRead, context: Context) -> Made:
    """Return a run whose files exist."""
    return followed(workload, workload.run(context), [context])


def followed(workload: GpuRead, outcome: Outcome, contexts: Sequence[Context]) -> Made:
    """Return the run of an outcome; ``contexts`` are those of its ranks."""
    assert outcome.facts is not None
    spans = [
        PhaseSpan(
            name=phase.name, parent=None, host="box", rank=rank, timed=True,
            start_ns=phase.edges_ns[0], end_ns=phase.edges_ns[1], read_bytes=phase.read_bytes,
            written_bytes=0, operations=phase.operations, cpu_s=0.0,
        )
        for rank, context in enumerate(contexts)
        for phase in context.timed(workload.name)
    ]  # fmt: skip
    base, _ = make_run(Scenario())
    stored = base.workload.model_copy(
        update={
            "name": workload.name,
            "facts": outcome.facts.model_dump(mode="json"),
            "paths": tuple(outcome.paths),
        }
    )
    record = base.model_copy(
        update={
            "config": {"workload": asdict(workload.config)},
            "workload": stored,
            "spans": tuple(spans),
            "latencies": tuple(outcome.latencies),
        }
    )
    run = run_of(record)
    assert run is not None
    checks = (*outcome.checks, *checks_of(record))
    return Made(
        outcome,
        run,
        {check.name: check for check in checks},
        {metric.name: metric.value for metric in metrics_of(record)},
    )
