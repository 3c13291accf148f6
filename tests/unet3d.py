"""Small unet3d runs for tests: records of 229 kB, two epochs, everything real."""

from __future__ import annotations

from typing import Any

from tests.records import run_of_facts
from wattload.core.record.results import Check, Metric
from wattload.core.workload import Accelerator, Outcome, RunContext
from wattload.loaders.direct.config import Config as DirectConfig
from wattload.loaders.samples import SampleHarnessConfig, SampleLoaderConfig
from wattload.loaders.torch.config import Config as TorchConfig
from wattload.results.figures import evaluated
from wattload.results.training.checks import CHECKS
from wattload.results.training.facts import TrainingFacts
from wattload.results.training.figures import FIGURES
from wattload.workloads.training.config import Config
from wattload.workloads.training.workload import ImageTraining, Unet3d

FILES, BATCH, EPOCHS = 17, 2, 2


def direct() -> DirectConfig:
    return DirectConfig(block_bytes=64 << 10, queue_depth=3, workers=2, prefetch_bytes=4 << 20)


def torch() -> TorchConfig:
    return TorchConfig(workers=1, start_method="fork")


def workload(
    loader: SampleLoaderConfig | SampleHarnessConfig | None = None,
    *,
    step_s: float = 0.002,
    count: int = 1,
    **changes: Any,
) -> Unet3d:
    settings: dict[str, Any] = {
        "record_divisor": 640,
        "file_count": FILES,
        "batch_samples": BATCH,
        "epochs": EPOCHS,
        **changes,
    }
    accelerator = Accelerator(name="test", count=count, step_s={"unet3d": step_s})
    return Unet3d(Config(**settings), loader or direct(), accelerator)


def live(subject: ImageTraining, context: RunContext) -> tuple[Outcome, list[Check]]:
    subject.plan(context)
    subject.prepare(context)
    return subject.run(context), list(subject.verify(context))


def facts_of(outcome: Outcome) -> TrainingFacts:
    assert isinstance(outcome.facts, TrainingFacts)
    return outcome.facts


def named(outcome: Outcome) -> dict[str, Metric]:
    metrics = evaluated(FIGURES, run_of_facts(facts_of(outcome)))
    return {metric.name: metric for metric in metrics}


def checks_of(outcome: Outcome) -> list[Check]:
    """Return the checks that the run made, and those that follow from its facts."""
    run = run_of_facts(facts_of(outcome))
    return [*outcome.checks, *(check for rule in CHECKS for check in rule(run))]


def verdict(checks: list[Check], name: str) -> str:
    (check,) = (check for check in checks if check.name == name)
    return check.verdict
