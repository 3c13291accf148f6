"""Made-up published sets; no figure here was published by anybody."""

from __future__ import annotations

from typing import Any

from wattload.core.mlperf.published import (
    PublishedRun,
    PublishedSet,
    RankBlock,
    ReportedTraining,
    TrainingFacts,
)

BLOCK_S = 200.0


def training(
    reported: float | None = None, *, ranks: int = 1, listed: bool = False, **changes: Any
) -> TrainingFacts:
    """Return two accelerators that do 500 steps of 7 samples in 200 s: 35 samples a second.

    ``listed`` ranks have step lists: a first step of 20 s, steps of 0.323 s of computation.
    """
    steps: dict[str, Any] = {
        "steps": 500, "first_step_s": 20.0, "first_compute_s": 0.323, "compute_s": 500 * 0.323,
    }  # fmt: skip
    blocks = [
        RankBlock(rank=rank, duration_s=BLOCK_S, **steps if listed else {}) for rank in range(ranks)
    ]
    values = {
        "model": "unet3d", "accelerator": "h100", "accelerators": 2, "file_count": 7000,
        "samples_per_file": 1, "record_bytes": 146_600_628.0, "batch_samples": 7, "step_s": 0.323,
        "epochs": (tuple(blocks),) * 5,
        "reported": ReportedTraining(au_mean=499 * 0.323 / 180, samples_per_s_mean=reported),
    }  # fmt: skip
    return TrainingFacts.model_validate(values | changes)


def published(system: str, *facts: Any, **changes: Any) -> PublishedSet:
    """Return a set of v1.0 with a run of each of these facts."""
    values: dict[str, Any] = {
        "tree": "results_made_up", "path": f"closed/Maker/results/{system}", "edition": "v1.0",
        "division": "closed", "organisation": "Maker", "system": system,
        "runs": [PublishedRun(name=f"run{n}", facts=each) for n, each in enumerate(facts)],
    }  # fmt: skip
    return PublishedSet.model_validate(values | changes)
