"""Makes runs of gnn in this process, on a small graph, with the CPU as trainer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.context import Context, directory_target
from tests.records import Scenario, make_run
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.results import Check, Metric
from wattload.core.workload import Accelerator, Communicator, Device, Outcome
from wattload.loaders.direct.config import Config as Direct
from wattload.loaders.feature_rows import FeatureLoaderConfig
from wattload.loaders.gpu_queue.config import Config as Queue
from wattload.loaders.graph import synthetic
from wattload.loaders.graph.synthetic import GraphShape, NodeType, Relation
from wattload.loaders.mmap.config import Config as Mapped
from wattload.results.facts import Run
from wattload.results.figures import evaluated
from wattload.results.gnn.checks import CHECKS
from wattload.results.gnn.facts import GraphFacts
from wattload.results.gnn.figures import FIGURES
from wattload.run.ranks import LocalCommunicator
from wattload.workloads.gnn.config import Config
from wattload.workloads.gnn.workload import Gnn

NODES = 4000
SMALL = GraphShape(
    "igb_tiny", (NodeType("paper", NODES),), (Relation(0, "cites", 0, 20_000, 60, 60),)
)
"""A graph of 16 MB in the place of ``igb_tiny``."""
SETTINGS = {
    "graph": "igb_tiny",
    "batch_seeds": 20,
    "fanouts": [3, 2],
    "layers": 2,
    "hidden": 16,
    "steps": 4,
    "warmup_steps": 1,
    "profile_steps": 1,
    "memory_share": 1.5,
}
LOADERS: dict[str, FeatureLoaderConfig] = {
    "direct": Direct(),
    "mmap": Mapped(advice="random", threads=2),
    "gpu_queue": Queue(requester="cpu", host_share=0.2),
}


@pytest.fixture(autouse=True)
def small_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.SHAPES, "igb_tiny", SMALL)


def workload_of(loader: FeatureLoaderConfig | None = None, **settings: Any) -> Gnn:
    step_s = settings.pop("step_s", {"gnn": 0.001})
    config = Config(**{**SETTINGS, **settings})
    config.check("demo")
    accelerator = Accelerator(name="h100", step_s=step_s, device=Device.none)
    return Gnn(config, loader or Direct(), accelerator)


def context_of(folder: Path, *names: str, communicator: Communicator | None = None) -> Context:
    """Return a context with a target in each of the named folders, which are made."""
    targets = []
    for index, name in enumerate(names or ("target",)):
        (folder / name).mkdir(exist_ok=True)
        targets.append(directory_target(folder / name, index=index))
    return Context(targets=tuple(targets), communicator=communicator or LocalCommunicator())


def made(workload: Gnn, context: Context) -> tuple[Outcome, Results]:
    workload.plan(context)
    workload.prepare(context)
    outcome = workload.run(context)
    return outcome, Results.of(outcome)


@dataclass(frozen=True)
class Results:
    """The facts of an outcome, and what follows from them."""

    facts: GraphFacts
    metrics: dict[str, Metric]
    checks: dict[str, Check]

    @classmethod
    def of(cls, outcome: Outcome) -> Results:
        facts = outcome.facts
        assert isinstance(facts, GraphFacts)
        first, *_, last = outcome.tables["steps"].to_pylist() * 2
        span = PhaseSpan(
            name="gnn", parent=None, host="box", rank=0, timed=True, start_ns=first["start_ns"],
            end_ns=last["end_ns"], read_bytes=facts.storage_bytes, written_bytes=0,
            operations=facts.operations, cpu_s=0.0,
        )  # fmt: skip
        base, _ = make_run(Scenario())
        record = base.model_copy(update={"spans": (span,)})
        run = Run(record, facts)
        checks = [*outcome.checks, *(check for source in CHECKS for check in source(run))]
        return cls(
            facts,
            {metric.name: metric for metric in evaluated(FIGURES, run)},
            {check.name: check for check in checks},
        )
