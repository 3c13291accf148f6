"""Training runs of ours in the form of published ones, for MLPerf Storage's formulas and rules."""

from __future__ import annotations

from wattload.core.mlperf import published
from wattload.results.facts import Run
from wattload.results.training.facts import TrainingFacts


def published_facts(run: Run[TrainingFacts]) -> published.TrainingFacts:
    """Return a run in the form of published ones: each accelerator is a rank of its own.

    Nothing is validated again.
    """
    facts = run.facts
    epochs = tuple(
        tuple(
            published.RankBlock.model_construct(
                rank=rank,
                duration_s=each.duration_s,
                steps=facts.steps_per_epoch,
                first_step_s=each.first_step_s,
                first_compute_s=each.first_compute_s,
                compute_s=each.compute_s,
            )
            for rank in range(facts.accelerators)
            for each in [of_ranks[rank // facts.per_rank]]
        )
        for of_ranks in facts.by_epoch
    )
    return published.TrainingFacts.model_construct(
        model=run.record.workload.name,
        accelerator=run.record.workload.accelerator,
        accelerators=facts.accelerators,
        file_count=facts.epoch_files,
        samples_per_file=1,
        # How long the records of a source were to be is unknown.
        record_bytes=facts.settings.record_bytes if facts.settings.source is None else None,
        batch_samples=facts.settings.batch_samples,
        step_s=facts.step_s,
        epochs=epochs,
    )
