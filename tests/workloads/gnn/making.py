"""Makes runs of gnn in this process, on a small graph, with the CPU as trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.context import Context, LocalCommunicator, directory_target
from wattload.core.record.results import Check
from wattload.core.workload import Accelerator, Communicator, Device, Outcome
from wattload.loaders.direct.config import Config as Direct
from wattload.loaders.feature_rows import FeatureLoaderConfig
from wattload.loaders.gpu_queue.config import Config as Queue
from wattload.loaders.graph import shapes
from wattload.loaders.graph.shapes import GraphShape, NodeType, Relation
from wattload.loaders.mmap.config import Config as Mapped
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
    monkeypatch.setitem(shapes.SHAPES, "igb_tiny", SMALL)


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


def made(workload: Gnn, context: Context) -> tuple[Outcome, dict[str, Check]]:
    workload.plan(context)
    workload.prepare(context)
    outcome = workload.run(context)
    return outcome, {check.name: check for check in outcome.checks}


def metric(outcome: Outcome, name: str) -> float | None:
    [found] = [each for each in outcome.metrics if each.name == name]
    return found.value
