"""An outside program in this process that really reads the files, and runs of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.context import Context
from tests.unet3d import checks_of, named
from wattload.core.errors import RunError
from wattload.core.io import DataPath
from wattload.core.record.results import Check
from wattload.core.storage.targets import Target
from wattload.core.workload import Accelerator, Outcome
from wattload.loaders.dlio import config
from wattload.loaders.samples import (
    ProcessCounts,
    Reported,
    SampleHarnessConfig,
    SampleSet,
    TimedWindow,
    TrainedEpoch,
    TrainedRank,
    Training,
    TrainingResult,
)
from wattload.workloads.training.config import Config
from wattload.workloads.training.workload import Unet3d

FILES, BATCH, EPOCHS, STEP_S = 8, 2, 2, 0.002


def outside(
    training: Training, folder: Path, window: TimedWindow | None, *, called_bytes: int | None = None
) -> TrainingResult:
    """Read each file whole in each epoch, one accelerator after the other, step by step."""
    folder.mkdir()
    (folder / "said.txt").write_text("trained")
    return TrainingResult(
        epochs=[outside_epoch(training, window, called_bytes) for _ in range(training.epochs)],
        path=DataPath(data_path="outside", path_requested="page_cache"),
        version="1.2",
        command=("outside", "--train"),
    )


def outside_epoch(
    training: Training, window: TimedWindow | None, called_bytes: int | None
) -> TrainedEpoch:
    with window() if window else nullcontext() as phase:
        start_ns = time.monotonic_ns()
        for step in range(training.steps):
            for accelerator, order in enumerate(training.orders):
                for index in order[step * BATCH : (step + 1) * BATCH]:
                    training.samples.paths[index].read_bytes()
                if phase is not None:
                    phase.moved(read_bytes=training.batch_bytes_read(accelerator, step))
            time.sleep(training.step_s)
        duration_s = (time.monotonic_ns() - start_ns) / 1e9
    steps = training.steps
    rank = TrainedRank(
        duration_s=duration_s,
        load_s=(duration_s / steps - training.step_s,) * steps,
        processed_s=(duration_s / steps,) * steps,
    )
    return TrainedEpoch(
        ranks=[rank] * training.accelerators,
        window_s=duration_s,
        counts=ProcessCounts(
            cpu_s=0.25, called_bytes=called_bytes, storage_bytes=None, peak_bytes=100 << 20
        ),
        reported=Reported(
            au=training.step_s * (steps - 1) / (duration_s * (1 - 1 / steps)),
            samples_per_s=training.accelerators * steps * BATCH / duration_s,
            nominal_bytes_per_s=2.0 * 1024**2,
        ),
    )


@dataclass
class OutsideConfig(config.Config):
    """The DLIO harness's settings for a program that is always there.

    ``fails`` is what it says when it fails in the middle of an epoch, ``ceiling_fails`` when it
    runs from memory; ``after`` is done to the files when an epoch has been read.
    """

    trainings: list[Training] = field(default_factory=list)
    fails: str = ""
    ceiling_fails: str = ""
    after: Callable[[Training], object] = lambda _: None

    def check_samples(self, samples: SampleSet, targets: Sequence[Target]) -> None:
        pass

    def train(self, training: Training, folder: Path, window: TimedWindow | None) -> TrainingResult:
        self.trainings.append(training)
        if self.fails and window is not None:
            with window() as phase:
                phase.moved(read_bytes=1)
                raise RunError(f"the program failed: {self.fails}")
        if self.ceiling_fails and training.samples.in_memory:
            raise RunError(f"the program failed: {self.ceiling_fails}")
        result = outside(training, folder, window, called_bytes=1 << 40)
        if not training.samples.in_memory:
            self.after(training)
        return result


def workload(loader: SampleHarnessConfig, *, count: int = 1, step_s: float = STEP_S) -> Unet3d:
    config = Config(record_divisor=640, file_count=FILES, batch_samples=BATCH, epochs=EPOCHS)
    return Unet3d(config, loader, Accelerator(name="test", count=count, step_s={"unet3d": step_s}))


def live(subject: Unet3d, context: Context) -> Outcome:
    subject.plan(context)
    subject.prepare(context)
    outcome = subject.run(context)
    return replace(outcome, checks=(*checks_of(outcome), *subject.verify(context)))


def check(outcome: Outcome, name: str) -> Check:
    return next(check for check in outcome.checks if check.name == name)


def value(outcome: Outcome, name: str) -> float | None:
    return named(outcome)[name].value
