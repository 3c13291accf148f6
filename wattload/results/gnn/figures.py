"""The figures of training on a graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from wattload.core.units import Unit
from wattload.results.facts import divided
from wattload.results.figures import Figure
from wattload.results.gnn.facts import (
    PHASE,
    STAGE_MEANINGS,
    STAGES,
    VERIFICATION,
    GraphFacts,
    Run,
)

MILLION = 1e6


def wall_s(run: Run) -> float:
    """Return the time from the first step to the end of the last, without dropping caches.

    With overlap caches are dropped beside other stages, so that nothing is taken off.
    """
    return run.seconds(PHASE) - (0.0 if run.facts.is_ahead else run.facts.eviction_s)


def step_s(run: Run) -> float:
    return wall_s(run) / run.facts.steps


def unverified_s(run: Run) -> float | None:
    """Return the time of all steps without verification, which published figures do not have."""
    verification_s = run.facts.stages_s.get(VERIFICATION)
    if run.facts.is_ahead or verification_s is None:
        return None
    return wall_s(run) - verification_s


def rows_per_s(run: Run) -> float | None:
    return divided(run.facts.rows, run.facts.aggregation_s)


def storage_rows_per_s(run: Run) -> float | None:
    return divided(run.facts.storage_rows, run.facts.aggregation_s)


def amplification(run: Run) -> float | None:
    """Return what the drive read ÷ the bytes of the rows that it was read for."""
    rows = run.facts.rows if run.facts.storage_rows is None else run.facts.storage_rows
    return divided(run.facts.storage_bytes, rows * run.facts.row_bytes)


def cpu_s_per_million_rows(run: Run) -> float:
    return run.facts.cpu_s / run.facts.rows * MILLION


_UNCOUNTED = "the page cache decides which rows are read, and nothing counts them"
figure = partial(Figure[GraphFacts], phase=PHASE)


def _stage_figures(run: Run) -> Sequence[Figure[GraphFacts]]:
    is_ahead = run.facts.is_ahead

    def of(stage: str) -> Figure[GraphFacts]:
        return figure(
            name=f"{stage}_s",
            of=lambda run: run.facts.stages_s.get(stage),
            unit=Unit.SECONDS,
            better="lower",
            meaning=STAGE_MEANINGS[stage] + (", beside other stages" if is_ahead else ""),
            part_of="" if is_ahead else "wall_s",
            reason=_not_transferred,
        )

    return [of(stage) for stage in STAGES]


def _not_transferred(run: Run) -> str:
    if run.facts.memory.batch_bytes == 0:
        return f"loader={run.record.workload.loader} gathers into the memory of the GPU"
    return "nothing is transferred: the rows stay in host memory"


def _hit_rate(place: str) -> Figure[GraphFacts]:
    where = "the GPU's cache" if place == "cache" else "the loader's rows in host memory"
    return figure(
        name=f"{place}_hit_rate",
        of=lambda run: divided(getattr(run.facts, f"{place}_rows"), run.facts.rows),
        unit=Unit.FRACTION,
        better="neither",
        meaning=f"rows found in {where} / rows",
        reason=_UNCOUNTED,
    )


def _epoch(run: Run) -> Sequence[Figure[GraphFacts]]:
    steps = run.facts.steps_per_epoch
    computed = "" if run.facts.has_whole_epoch else ", computed: no whole epoch ran"
    return [
        figure(
            name="epoch_s",
            of=lambda run: step_s(run) * steps,
            unit=Unit.SECONDS,
            better="lower",
            meaning=f"mean time of a step x {steps} steps of an epoch{computed}",
        )
    ]


FIGURES = (
    figure(
        name="step_s",
        of=step_s,
        unit=Unit.SECONDS,
        better="lower",
        meaning="mean time of a step, with its comparison of rows",
        headline=True,
    ),
    figure(
        name="rows_per_s",
        of=rows_per_s,
        unit=Unit.SAMPLES_PER_SECOND,
        better="higher",
        meaning="rows of features gathered / time of gathering, wherever they came from",
        label="rows per second",
    ),
    figure(
        name="storage_rows_per_s",
        of=storage_rows_per_s,
        unit=Unit.SAMPLES_PER_SECOND,
        better="higher",
        meaning="rows read from the drive / time of gathering",
        label="rows from the drive per second",
        reason=_UNCOUNTED,
    ),
    figure(
        name="storage_bytes_per_s",
        of=lambda run: divided(run.facts.storage_bytes, run.facts.aggregation_s),
        unit=Unit.BYTES_PER_SECOND,
        better="higher",
        meaning="bytes that storage gave / time of gathering",
    ),
    figure(
        name="read_bytes_per_s",
        of=lambda run: divided(run.facts.storage_bytes, run.seconds(PHASE)),
        unit=Unit.BYTES_PER_SECOND,
        better="higher",
        meaning="bytes that storage gave / time of all steps",
    ),
    _stage_figures,
    figure(
        name="wall_s",
        of=wall_s,
        unit=Unit.SECONDS,
        better="lower",
        meaning="time of all timed steps",
        label="time of all steps",
    ),
    figure(
        name="unverified_s",
        of=unverified_s,
        unit=Unit.SECONDS,
        better="lower",
        meaning="time of all timed steps without verification, as published figures have it",
        label="time of all steps without verification",
        reason="stages overlap",
    ),
    figure(
        name="aggregation_share",
        of=lambda run: divided(run.facts.aggregation_s, wall_s(run)),
        unit=Unit.FRACTION,
        better="neither",
        meaning="time of gathering / time of all steps",
    ),
    _hit_rate("cache"),
    _hit_rate("host"),
    figure(
        name="read_amplification",
        of=lambda run: run.facts.storage_bytes / (run.facts.rows * run.facts.row_bytes),
        unit=Unit.COUNT,
        better="lower",
        meaning="bytes that storage gave / bytes of the rows gathered; below 1 where caches held "
        "rows",
    ),
    figure(
        name="cpu_s_per_million_rows",
        of=cpu_s_per_million_rows,
        unit=Unit.SECONDS,
        better="lower",
        meaning="CPU time of gathering a million rows",
        label="CPU time per million rows",
    ),
    figure(
        name="last_loss",
        of=lambda run: run.facts.losses[-1] if run.facts.losses else None,
        unit=Unit.COUNT,
        better="neither",
        meaning="cross entropy of the last step",
        reason="training was emulated",
    ),
    _epoch,
)
