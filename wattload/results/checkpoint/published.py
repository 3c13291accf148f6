"""How published checkpoints are shown, with runs of ours next to them."""

from __future__ import annotations

from wattload.core.mlperf import formulas
from wattload.core.units import GB, Unit
from wattload.results.checkpoint.facts import READ_PHASE, WRITE_PHASE, CheckpointFacts
from wattload.results.checkpoint.figures import moved_bytes
from wattload.results.checkpoint.submission import published_facts
from wattload.results.published import PublishedView, summarised
from wattload.results.quantity import quantity, whole

_RATE = Unit.BYTES_PER_SECOND

PUBLISHED = PublishedView[CheckpointFacts](
    kind="checkpointing",
    own=published_facts,
    rows=lambda facts: [
        (f"checkpoints, {facts.model.removeprefix('llama3-')}", "", facts)
    ],
    figures={
        "save_bytes_per_s": (
            _RATE, lambda f, _: formulas.checkpoint_bytes_per_s(f, f.writes)),
        "reported_save_bytes_per_s": (
            _RATE, lambda f, _: summarised(f.reported_write_bytes_per_s)),
        "load_bytes_per_s": (
            _RATE, lambda f, _: formulas.checkpoint_bytes_per_s(f, f.reads)),
        "reported_load_bytes_per_s": (
            _RATE, lambda f, _: summarised(f.reported_read_bytes_per_s)),
    },
    data_from=lambda f: "checkpoint times" if f.writes or f.reads else "summaries",
    conditions=lambda f: {
        "processes": whole(f.ranks),
        "checkpoint": quantity(f.checkpoint_bytes, Unit.BYTES),
        "saves": whole(None if f.source == "summary" else len(f.writes)),
        "loads": whole(None if f.source == "summary" else len(f.reads)),
        "fsync": str(f.fsync),
    },
    phases=frozenset({WRITE_PHASE, READ_PHASE}),
    unit="GB",
    count=lambda run: sum(moved_bytes(run, each) for each in (WRITE_PHASE, READ_PHASE)) / GB,
)  # fmt: skip
