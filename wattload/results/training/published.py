"""How published training runs are shown, with runs of ours next to them."""

from __future__ import annotations

from wattload.core.mlperf import formulas
from wattload.core.mlperf.formulas import Value
from wattload.core.mlperf.published import SOURCES, TrainingFacts
from wattload.core.units import Unit
from wattload.results.published import PublishedView, summarised
from wattload.results.quantity import quantity, whole
from wattload.results.training.as_published import published_facts
from wattload.results.training.facts import PHASE
from wattload.results.training.facts import TrainingFacts as OwnFacts

_RATE, _SHARE = Unit.SAMPLES_PER_SECOND, Unit.FRACTION


def _nominal(facts: TrainingFacts, edition: str) -> Value:
    rate = formulas.samples_per_s(facts, edition)
    if rate.value is None or facts.record_bytes is None:
        return Value(None, rate.reason or "the size of its records is unknown")
    return Value(rate.value * facts.record_bytes)


PUBLISHED = PublishedView[OwnFacts](
    kind="training",
    own=published_facts,
    rows=lambda facts: [(f"{facts.model}, {facts.accelerator or 'no accelerator'}", "", facts)],
    figures={
        "samples_per_s": (_RATE, formulas.samples_per_s),
        "nominal_bytes_per_s": (Unit.BYTES_PER_SECOND, _nominal),
        "whole_block_samples_per_s": (
            _RATE, lambda facts, _: formulas.whole_block_samples_per_s(facts)),
        "accelerators": (Unit.COUNT, lambda facts, _: Value(facts.accelerators)),
        "au": (_SHARE, lambda facts, _: formulas.au(facts)),
        "reported_au": (
            _SHARE, lambda facts, _: summarised(facts.reported and facts.reported.au_mean)),
        "au_with_first_step": (_SHARE, lambda facts, _: formulas.au_with_first_step(facts)),
    },
    data_from=lambda facts: SOURCES[facts.source],
    conditions=lambda facts: {
        "accelerators": whole(facts.accelerators),
        "files": whole(facts.file_count),
        "steps an epoch": whole(formulas.rank_steps(facts)),
        "epochs": whole(len(facts.epochs) or None),
        "batch": whole(facts.batch_samples),
        "step time": quantity(facts.step_s, Unit.SECONDS),
        "record": quantity(facts.record_bytes, Unit.BYTES),
    },
    phases=frozenset({PHASE}),
    unit="sample",
    count=lambda run: float(len(run.facts.by_epoch) * run.facts.steps_per_epoch
                            * run.facts.accelerators * run.facts.settings.batch_samples),
)  # fmt: skip
