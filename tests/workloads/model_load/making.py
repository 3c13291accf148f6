"""Makes small runs of the model_load workload, by a loader whose faults can be chosen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tests.context import Context, RecordedPhase
from wattload.core.io import ByteCounter, DataPath
from wattload.core.storage.targets import Target
from wattload.core.workload import Accelerator, Outcome, Requirement
from wattload.loaders.tensor_loads import Loaded, LoadPlan, TensorPart
from wattload.results.model_load.facts import LOAD, LoadFacts
from wattload.workloads.model_load.config import Config, Destination
from wattload.workloads.model_load.workload import ModelLoad

Content = NDArray[np.uint8]


@dataclass
class ReadingConfig:
    """A loader that reads parts one by one; ``spoil`` may change one when all have arrived."""

    name: ClassVar[str] = "reading"
    requires: ClassVar[tuple[Requirement, ...]] = ()
    tensors_bypass_cache: ClassVar[bool] = False
    reads_columns: ClassVar[bool] = True

    spoil: Callable[[list[Content]], object] = lambda _: None
    memory_bytes: int = 0

    def check(self) -> None:
        pass

    def check_tensor_load(self, plan: LoadPlan, targets: Sequence[Target]) -> None:
        pass

    def tensor_load_bytes(self, plan: LoadPlan) -> int:
        return self.memory_bytes

    def tensor_load(self, plan: LoadPlan) -> ReadingLoad:
        return ReadingLoad(plan, self)


@dataclass
class ReadingLoad:
    """One rank's loads."""

    plan: LoadPlan
    config: ReadingConfig
    held: list[Content] = field(default_factory=list)
    is_closed: bool = False

    def load(self, moved: ByteCounter) -> Loaded:
        assert not self.held, "what the last load delivered was not released"
        start_ns, delivered_bytes, first_ns = time.monotonic_ns(), 0, 0
        left = set(self.plan.first_layer)
        for index, part in enumerate(self.plan.parts):
            content = read_part(self.plan.files[part.file], part)
            self.held.append(content)
            moved(content.size)
            delivered_bytes += content.size
            left.discard(index)
            first_ns = first_ns or (0 if left else time.monotonic_ns())
        self.config.spoil(self.held)
        return Loaded(
            start_ns=start_ns,
            first_layer_ns=first_ns,
            end_ns=time.monotonic_ns(),
            delivered_bytes=delivered_bytes,
        )

    def content(self, index: int) -> Content:
        return self.held[index]

    def release(self) -> None:
        self.held.clear()

    def path(self) -> DataPath:
        return DataPath(data_path="page cache", path_requested="page_cache", engine="reading")

    def close(self) -> None:
        self.release()
        self.is_closed = True


def read_part(path: Path, part: TensorPart) -> Content:
    """Return rows and columns of a tensor, read through the page cache."""
    rows = part.shape[0] if part.shape else 1
    whole = np.fromfile(path, np.uint8, rows * part.row_bytes, offset=part.offset_bytes)
    matrix = whole.reshape(rows, part.row_bytes)
    return matrix[slice(*part.rows), slice(*part.columns)].copy()


def config(**settings: Any) -> Config:
    return Config(**{"model": "tiny", "loads": 2, "destination": Destination.host, **settings})


@dataclass
class Made:
    """A run that has ended."""

    context: Context
    outcome: Outcome

    @property
    def facts(self) -> LoadFacts:
        assert isinstance(self.outcome.facts, LoadFacts)
        return self.outcome.facts

    @property
    def loads(self) -> list[RecordedPhase]:
        return self.context.timed(LOAD)


def planned(context: Context, settings: Config, loader: Any = None) -> ModelLoad:
    settings.check(context.scale)
    workload = ModelLoad(settings, loader or ReadingConfig(), Accelerator())
    workload.plan(context)
    return workload


def made(context: Context, settings: Config, loader: Any = None) -> Made:
    """Run from the plan to the end on one rank."""
    workload = planned(context, settings, loader)
    workload.prepare(context)
    outcome = workload.run(context)
    assert not workload.verify(context)
    return Made(context, outcome)
