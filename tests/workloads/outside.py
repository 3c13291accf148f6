"""An outside program in this process that really reads the files, and runs of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.context import Context
from wattload.core.errors import RunError
from wattload.core.io import DataPath, Harness, HarnessWatch, IOResult
from wattload.core.record.results import Check
from wattload.core.storage.targets import Target
from wattload.core.workload import Accelerator, Outcome
from wattload.loaders.dlio import config
from wattload.loaders.samples import (
    SampleHarnessConfig,
    SampleSet,
    TrainedEpoch,
    Training,
    TrainingResult,
)
from wattload.workloads.unet3d.config import Config
from wattload.workloads.unet3d.workload import Unet3d

FILES, BATCH, EPOCHS, STEP_S = 8, 2, 2, 0.002


@dataclass
class Outside:
    """A program that reads each file whole, one accelerator after the other, step by step."""

    training: Training
    told_bytes: int | None = None
    plugged: bool = False
    start_up_s: float = 0.0
    """By how much the first epoch is longer than it was."""

    def command(self) -> Sequence[str]:
        return ("outside", "--train")

    def run(self, folder: Path, watch: HarnessWatch) -> TrainingResult:
        folder.mkdir()
        (folder / "said.txt").write_text("trained")
        epochs = [self._epoch(epoch, watch) for epoch in range(self.training.epochs)]
        each = [trained for epoch in epochs for trained in epoch]
        rate = [10.0] * self.training.epochs
        return TrainingResult(
            io=IOResult(
                moved_bytes=sum(trained.read_bytes for trained in each),
                operation_count=1,
                seconds=sum(epoch[0].duration_s for epoch in epochs),
                cpu_s=1.0,
                path=DataPath(data_path="outside", path_requested="page_cache"),
            ),
            reported={
                "train_au_percentage": [90.0] * self.training.epochs,
                "train_au_mean_percentage": 90.0,
                "train_throughput_samples_per_second": rate,
                "train_throughput_mean_samples_per_second": 10.0,
                "train_io_mean_MB_per_second": 2.0,
            },
            recomputed={
                "train_au_percentage": [90.0] * self.training.epochs,
                "train_throughput_samples_per_second": rate,
            },
            version="1.2",
            command=tuple(self.command()),
            epochs=epochs,
            plugged_bytes=sum(t.read_bytes for t in each) if self.plugged else None,
        )

    def _epoch(self, epoch: int, watch: HarnessWatch) -> list[TrainedEpoch]:
        watch.before(epoch)
        start_ns = time.monotonic_ns()
        for step in range(self.training.steps):
            for accelerator, order in enumerate(self.training.orders[epoch]):
                for index in order[step * BATCH : (step + 1) * BATCH]:
                    self.training.samples.paths[index].read_bytes()
                watch.moved(read_bytes=self.training.batch_bytes_read(epoch, accelerator, step))
            time.sleep(self.training.step_s)
        duration_s = (time.monotonic_ns() - start_ns) / 1e9 + (not epoch) * self.start_up_s
        watch.after(epoch)
        steps = self.training.steps
        return [
            TrainedEpoch(
                duration_s=duration_s,
                load_s=(duration_s / steps - self.training.step_s,) * steps,
                compute_s=(self.training.step_s,) * steps,
                processed_s=(duration_s / steps,) * steps,
                read_bytes=self.training.epoch_bytes_read(epoch, accelerator),
                cpu_s=0.25,
                called_bytes=self.told_bytes,
                storage_bytes=None,
                peak_bytes=(100 << 20) + epoch,
            )
            for accelerator in range(self.training.accelerators)
        ]


@dataclass
class OutsideConfig(config.Config):
    """The DLIO harness's settings for a program that is always there."""

    trainings: list[Training] = field(default_factory=list)
    fails: str = ""

    def check_samples(self, samples: SampleSet, targets: Sequence[Target]) -> None:
        pass

    def training_harness(self, training: Training) -> Harness[TrainingResult]:
        self.trainings.append(training)
        return Failing(training, self.fails) if self.fails else Outside(training, 1 << 40)


@dataclass
class Failing(Outside):
    """Fails in the middle of the first epoch."""

    words: str | int | None = None

    def __init__(self, training: Training, words: str) -> None:
        super().__init__(training)
        self.words = words

    def run(self, folder: Path, watch: HarnessWatch) -> TrainingResult:
        watch.before(0)
        watch.moved(read_bytes=1)
        raise RunError(f"the program failed: {self.words}")


def workload(loader: SampleHarnessConfig, *, count: int = 1, step_s: float = STEP_S) -> Unet3d:
    config = Config(record_divisor=640, file_count=FILES, batch_samples=BATCH, epochs=EPOCHS)
    return Unet3d(config, loader, Accelerator(name="test", count=count, step_s={"unet3d": step_s}))


def live(subject: Unet3d, context: Context) -> Outcome:
    subject.plan(context)
    subject.prepare(context)
    outcome = subject.run(context)
    return replace(outcome, checks=(*outcome.checks, *subject.verify(context)))


def check(outcome: Outcome, name: str) -> Check:
    return next(check for check in outcome.checks if check.name == name)


def value(outcome: Outcome, name: str) -> float | None:
    return next(metric for metric in outcome.metrics if metric.name == name).value
