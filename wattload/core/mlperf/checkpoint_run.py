"""A run of DLIO that writes or reads checkpoints, as MLPerf Storage v2.0 and v3 publish it.

Each rank has start and end of every checkpoint in ``RANK_per_epoch_stats.json``; the summary has
the means of rank 0. ``checkpoint_size_GB`` and ``..._GB_per_second`` mean GiB (``statscounter.py``
of mlcommons/DLIO_local_changes).
"""

from __future__ import annotations

import re

from wattload.core.mlperf.dlio_run import (
    UNKNOWN,
    RunSummary,
    Span,
    published_run,
    settings_of,
    spans_of,
)
from wattload.core.mlperf.files import SUMMARY, RunFolder, Values
from wattload.core.mlperf.metadata import (
    Counters,
    counters_of,
    metadata_of,
    moved_bytes,
    storage_location,
)
from wattload.core.mlperf.published import CheckpointFacts, PublishedRun
from wattload.core.units import GIB

_MODEL = re.compile(r"llama3?[-_]?(8b|70b|405b|1t)")
_KINDS = {"save": "write", "load": "read"}


def read_checkpoints(folder: RunFolder) -> PublishedRun:
    """Return a run of checkpoints; raises as ``read_training`` does."""
    summary = folder.part(SUMMARY, RunSummary, folder.summary)
    metric = Values(folder, SUMMARY, folder.summary)
    settings, overrides = settings_of(folder)
    named = (metadata_of(folder).get("model", str), settings.get("model.name"), folder.path)
    models = [model for name in named for model in _MODEL.findall(str(name))]
    found: dict[str, object] = {
        "model": f"llama3-{models[0]}" if models else UNKNOWN,
        "ranks": summary.num_accelerators,
        "checkpoint_bytes": metric.whole("metric.checkpoint_size_GB", GIB),
        "fsync": settings.get("checkpoint.fsync"),
        "interval_s": settings.get("checkpoint.time_between_checkpoints"),
        **_operations(folder, summary),
    }
    for kind, field in _KINDS.items():
        name = f"metric.{kind}_checkpoint_io_mean_GB_per_second"
        found[f"reported_{field}_bytes_per_s"] = metric.number(name, GIB)
    facts = folder.part(SUMMARY, CheckpointFacts, found)
    return published_run(folder, summary, facts, settings, overrides)


def _operations(folder: RunFolder, summary: RunSummary) -> dict[str, list[dict[str, object]]]:
    """Return ``writes`` and ``reads``, each in the order of time; none without ranks' files."""
    spans: dict[tuple[int, str, int], list[Span]] = {}
    kinds = {f"{kind}_ckpt": f"{field}s" for kind, field in _KINDS.items()}
    for rank, name in sorted(folder.by_rank(r"(\d+)_per_epoch_stats\.json").items()):
        own = spans_of(folder, name, *kinds)
        if rank >= summary.num_accelerators or (spans and own.keys() != spans.keys()):
            folder.refuse(name, f"its rank or checkpoints are not those of {SUMMARY} and the first")
        for key, span in own.items():
            spans.setdefault(key, []).append(span)
    counters: Counters = ()
    if spans and summary.start is not None and storage_location(folder) == "local":
        counters = counters_of(folder, summary.start, summary.num_hosts or 1)
    found: dict[str, list[dict[str, object]]] = {field: [] for field in kinds.values()}
    for (_, kind, _), of_ranks in spans.items():
        start_s, end_s = min(s.start for s in of_ranks), max(s.end for s in of_ranks)
        found[kinds[kind]].append(
            {
                "seconds": tuple(span.end - span.start for span in of_ranks),
                "device_bytes": moved_bytes(counters, start_s, end_s, kind == "save_ckpt"),
            }
        )
    return found
