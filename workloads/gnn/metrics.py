"""The metrics of graph training."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from wattload.core.record.results import Metric
from wattload.core.units import Unit
from wattload.workloads.gnn.results import Results

PHASE = "gnn"
MILLION = 1e6

figure = partial(Metric.of, phase=PHASE)
"""Create a metric of this phase; see ``Metric.of``."""

UNCOUNTED = "the page cache decides which rows are read, and nothing counts them"
_MEANINGS = {
    "sampling_s": "drawing neighbours and classes of the batches, in all",
    "aggregation_s": "gathering their rows of features, in all",
    "transfer_s": "copying rows from pinned memory to the GPU, in all",
    "training_s": "forward, backward and update of the model, in all",
    "verification_s": "recomputing rows where the model takes them, in all",
}


def metrics(
    results: Results, *, steps_per_epoch: int, not_transferred: str, not_trained: str
) -> Iterator[Metric]:
    """Yield the metrics of a run, its headline first."""
    step_s = results.wall_s / results.count
    aggregation_s = results.stage_s("aggregation_s") or 0.0
    yield figure(
        "step_s",
        step_s,
        Unit.SECONDS,
        "lower",
        "mean time of a step, with its comparison of rows",
        headline=True,
    )
    yield figure(
        "rows_per_s",
        results.rows / aggregation_s,
        Unit.SAMPLES_PER_SECOND,
        "higher",
        "rows of features gathered / time of gathering, wherever they came from",
    )
    storage_rows = results.counted("storage_rows")
    yield figure(
        "storage_rows_per_s",
        None if storage_rows is None else storage_rows / aggregation_s,
        Unit.SAMPLES_PER_SECOND,
        "higher",
        "rows read from the drive / time of gathering",
        reason=UNCOUNTED,
    )
    yield figure(
        "storage_bytes_per_s",
        results.storage_bytes / aggregation_s,
        Unit.BYTES_PER_SECOND,
        "higher",
        "bytes that storage gave / time of gathering",
    )
    yield figure(
        "read_bytes_per_s",
        results.storage_bytes / results.span_s,
        Unit.BYTES_PER_SECOND,
        "higher",
        "bytes that storage gave / time of all steps",
        rate_of="read",
    )
    for name, meaning in _MEANINGS.items():
        yield figure(
            name,
            results.stage_s(name),
            Unit.SECONDS,
            "lower",
            meaning + (", beside other stages" if results.overlaps else ""),
            part_of="" if results.overlaps else "wall_s",
            reason=not_transferred,
        )
    yield figure("wall_s", results.wall_s, Unit.SECONDS, "lower", "time of all timed steps")
    yield figure(
        "aggregation_share",
        aggregation_s / results.wall_s,
        Unit.FRACTION,
        "neither",
        "time of gathering / time of all steps",
    )
    for place, name in (("cache_rows", "cache_hit_rate"), ("host_rows", "host_hit_rate")):
        count = results.counted(place)
        where = "the GPU's cache" if place == "cache_rows" else "the loader's rows in host memory"
        yield figure(
            name,
            None if count is None else count / results.rows,
            Unit.FRACTION,
            "neither",
            f"rows found in {where} / rows",
            reason=UNCOUNTED,
        )
    yield figure(
        "read_amplification",
        results.storage_bytes / (results.rows * results.row_bytes),
        Unit.COUNT,
        "lower",
        "bytes that storage gave / bytes of the rows gathered; below 1 where caches held rows",
    )
    yield figure(
        "cpu_s_per_million_rows",
        results.cpu_s / results.rows * MILLION,
        Unit.SECONDS,
        "lower",
        "CPU time of gathering a million rows",
    )
    yield figure(
        "last_loss",
        results.losses[-1] if results.losses else None,
        Unit.COUNT,
        "neither",
        "cross entropy of the last step",
        reason=not_trained,
    )
    yield figure(
        "epoch_s",
        step_s * steps_per_epoch,
        Unit.SECONDS,
        "lower",
        f"mean time of a step x {steps_per_epoch} steps of an epoch"
        + ("" if results.count >= steps_per_epoch else ", computed: no whole epoch ran"),
    )
