"""Made-up runs of unet3d: facts of epochs whose steps are given, and records with them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tests.records import Scenario, make_run
from wattload.core.record.run import RunRecord
from wattload.results.facts import Run
from wattload.results.reading import metrics_of
from wattload.results.unet3d.facts import (
    BARRIER,
    COMPUTE,
    LOAD,
    REST,
    ProgramEpoch,
    TrainingFacts,
    TrainingSettings,
)
from wattload.workloads.unet3d.facts import spreads_of
from wattload.workloads.unet3d.loop import EpochTimes

RECORD_BYTES, BATCH, STEP_S = 146_600_628, 7, 0.3


def epoch(
    load_s: Sequence[float], compute_s: Sequence[float], *, barrier_s: float = 0.0, **changes: Any
) -> EpochTimes:
    """Return an epoch whose steps follow each other with nothing but the barrier between."""
    processed = [load + compute for load, compute in zip(load_s, compute_s, strict=True)]
    times: dict[str, Any] = {
        "duration_s": sum(processed) + barrier_s * len(processed),
        "parts_s": {
            LOAD: tuple(load_s),
            COMPUTE: tuple(compute_s),
            BARRIER: (barrier_s,) * len(processed),
            REST: (0.0,) * len(processed),
        },
        "processed_s": tuple(processed),
        "step_s": tuple(each + barrier_s for each in processed),
        "read_bytes": 1100 * len(processed),
        "cpu_s": 0.5,
        "hash_cpu_s": 0.25,
    }
    return EpochTimes(**{**times, **changes})


def facts_of(*ranks: Sequence[EpochTimes], **changes: Any) -> TrainingFacts:
    epochs = [each for rank in ranks for each in rank]
    facts: dict[str, Any] = {
        "settings": TrainingSettings(
            record_mean_bytes=RECORD_BYTES,
            record_divisor=1,
            batch_samples=BATCH,
            epochs=len(ranks[0]),
        ),
        "file_count": 28,
        "epoch_files": 28,
        "record_mean_bytes": float(RECORD_BYTES),
        "record_stdev_bytes": 68_341_808.0,
        "accelerators": len(ranks),
        "steps_per_epoch": len(epochs[0].processed_s),
        "step_s": STEP_S,
        "crc_checked": False,
        "device": None,
        "draw": "195ac94001b8efb8",
        "ranks": [[each.summed() for each in rank] for rank in ranks],
        "spreads": spreads_of(epochs),
        "missing": {"copy": "no device", "decode": "the library does both in one"},
        "ceiling_bytes_per_s": 5e9,
        "ceiling_reason": "",
        "program": None,
    }
    return TrainingFacts(**{**facts, **changes})


def program_epoch(**changes: Any) -> ProgramEpoch:
    """Return what a program reports of steps of 0.1 + 0.3 s, four in an epoch."""
    reported: dict[str, Any] = {
        "window_s": 1.6,
        "called_bytes": 4400,
        "storage_bytes": 4400,
        "peak_bytes": 100 << 20,
        "plugged_bytes": None,
        "au": 0.75,
        "samples_per_s": 17.5,
        "nominal_bytes_per_s": 17.5 * RECORD_BYTES,
    }
    return ProgramEpoch(**{**reported, **changes})


def run_of_facts(facts: TrainingFacts) -> Run[TrainingFacts]:
    record, _ = make_run(Scenario())
    return Run(record, facts)


def training_record(facts: TrainingFacts, scenario: Scenario, **changes: Any) -> RunRecord:
    """Return a record with these facts and the figures that follow from them."""
    made, _ = make_run(scenario)
    # The phase that unet3d is measured by.
    record = RunRecord.model_validate_json(re.sub(r'\btrain"', 'read"', made.model_dump_json()))
    settings = {**facts.settings.model_dump(), "_target_": "x"}
    record = record.model_copy(
        update={
            "workload": record.workload.model_copy(update={"facts": facts.model_dump(mode="json")}),
            "config": {**record.config, "workload": settings},
            **changes,
        }
    )
    return record.model_copy(update={"metrics": metrics_of(record)})


def whole_record(scenario: Scenario, **changes: Any) -> RunRecord:
    """Return a record whose facts, one epoch of 16 steps, agree with its timed phase."""
    made, _ = make_run(scenario)
    (window,) = made.timed_windows()
    step_s = window.seconds / 16
    one = epoch(
        [step_s - 0.3] * 16, [0.3] * 16, duration_s=window.seconds, read_bytes=window.read_bytes
    )
    return training_record(facts_of([one], **changes), scenario)
