"""Made-up facts of unet3d: epochs whose steps are given, or that agree with spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wattload.core.record.phase import PhaseSpan
from wattload.core.units import NS_PER_S
from wattload.results.training.facts import (
    BARRIER,
    COMPUTE,
    LOAD,
    PHASE,
    REST,
    ProgramEpoch,
    TrainingFacts,
    TrainingSettings,
)
from wattload.workloads.training.facts import spreads_of
from wattload.workloads.training.loop import EpochTimes

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


def training_facts(spans: Sequence[PhaseSpan]) -> TrainingFacts:
    """Return the facts of one epoch that agree with its spans, one on each rank.

    Its accelerators read 10 GB/s if they never wait.
    """
    epochs = []
    for span in (span for span in spans if span.name == PHASE):
        seconds = (span.end_ns - span.start_ns) / NS_PER_S
        steps = max(2, round(span.read_bytes / (BATCH * RECORD_BYTES)))
        compute_s = min(0.1, 0.9 * seconds / steps)
        epochs.append(
            epoch(
                [seconds / steps - compute_s] * steps,
                [compute_s] * steps,
                duration_s=seconds,
                read_bytes=span.read_bytes,
            )
        )
    return facts_of(
        *([each] for each in epochs),
        step_s=0.1,
        ceiling_bytes_per_s=None,
        ceiling_reason="it was not measured",
    )
