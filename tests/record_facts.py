"""The facts of made-up runs, as they follow from their spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wattload.core.record.phase import PhaseSpan
from wattload.core.units import NS_PER_S
from wattload.results.checkpoint.facts import (
    READ_PHASE,
    WRITE_PHASE,
    Ceilings,
    CheckpointFacts,
    CheckpointSettings,
    RankCounts,
    StepTimes,
)

CHECKPOINT_SETTINGS: dict[str, Any] = {
    "model": "8b",
    "mode": "sync",
    "protocol": "plain",
    "checkpoint_count": 1,
    "fsync": True,
}


def checkpoint_facts(spans: Sequence[PhaseSpan]) -> CheckpointFacts:
    """Return the facts of one checkpoint, on a host that writes and reads 100 GB/s."""
    written = [span for span in spans if span.name == WRITE_PHASE]
    read = [span for span in spans if span.name == READ_PHASE]
    total_bytes = sum(span.written_bytes for span in written)
    counts = [
        RankCounts(
            file_count=1,
            synced_counts=[1],
            file_bytes=[save.written_bytes],
            payload_bytes=save.written_bytes,
            write_s=(save.end_ns - save.start_ns) / NS_PER_S,
            read_s=(load.end_ns - load.start_ns) / NS_PER_S,
            write_cpu_s=save.cpu_s,
            read_cpu_s=load.cpu_s,
        )
        for save, load in zip(written, read, strict=True)
    ]
    return CheckpointFacts(
        settings=CheckpointSettings.model_validate(CHECKPOINT_SETTINGS),
        model_ranks=8,
        model_bytes=8 * total_bytes,
        whole_bytes=total_bytes,
        rank_bytes=tuple(span.written_bytes for span in written),
        rank_tensors=(53,) * len(written),
        kept=1,
        interval_s=0.0,
        step_s=0.0,
        ranks=tuple(counts),
        draining_steps=StepTimes(),
        other_steps=StepTimes(),
        ceilings=Ceilings(
            write_bytes_per_s=1e11, read_bytes_per_s=1e11, generator_bytes_per_s=1e11
        ),
    )
