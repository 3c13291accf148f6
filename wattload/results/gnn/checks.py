"""The checks of training on a graph: rows are right, each came from one place, times close."""

from __future__ import annotations

from math import fsum

from wattload.core.record.results import Verdict
from wattload.core.units import format_bytes, format_percent
from wattload.results.checks import (
    CheckFigures,
    CheckRule,
    Observed,
    cold_cache,
    counted_latencies,
    counted_path,
    cpu_within_tree,
    data_path,
    passes,
    written_extents,
)
from wattload.results.gnn.facts import PHASE, PLACES, TRAINING, TRANSFER, GraphFacts, Run
from wattload.results.gnn.figures import wall_s

CLOSURE = 0.02
"""What the stages of serial steps may lack of their time."""
GPU_CLOCK = 0.02
"""What a stage may take longer by the GPU's clock than by the host's."""

STALLED = 0.01
"""The share of the timed steps in which threads may wait for memory."""


def _compared(figures: CheckFigures, _: Verdict) -> str:
    how = "recomputed from its number" if figures["recomputed"] else "read again from its file"
    return (
        f"{figures['compared_rows']:,} of {figures['rows']:,} rows were compared where the model "
        f"takes them, each {how}: none was wrong."
    )


def _place_figures(run: Run) -> CheckFigures:
    facts = run.facts
    return {
        "rows": facts.rows,
        **{name: getattr(facts, name) for name in PLACES},
        "storage_bytes": facts.storage_bytes,
        "read_bytes_per_row": facts.read_bytes_per_row,
    }


def _are_placed(figures: CheckFigures) -> Verdict:
    count = {name: int(figures[name] or 0) for name in (*PLACES, "rows")}
    read_bytes = count["storage_rows"] * int(figures["read_bytes_per_row"] or 0)
    is_whole = sum(count[name] for name in PLACES) == count["rows"]
    return passes(is_whole and read_bytes == figures["storage_bytes"])


def _placed(figures: CheckFigures, verdict: Verdict) -> str:
    read = format_bytes(int(figures["storage_bytes"] or 0))
    ending = ": these must add up, with the bytes of the rows read." if verdict == "fail" else "."
    return (
        f"Of {figures['rows']:,} rows {figures['storage_rows']:,} read from storage ({read}), "
        f"{figures['host_rows']:,} from host memory, {figures['cache_rows']:,} from the GPU's "
        f"cache and {figures['merged_rows']:,} merged with another's read{ending}"
    )


def _time_figures(run: Run) -> CheckFigures:
    facts = run.facts
    return {
        "stages_s": fsum(facts.stages_s.values()),
        "wall_s": wall_s(run),
        "transfer_s": facts.stages_s.get(TRANSFER),
        "training_s": facts.stages_s.get(TRAINING),
        "transfer_gpu_s": facts.transfer_gpu_s,
        "training_gpu_s": facts.training_gpu_s,
    }


def _are_closed(figures: CheckFigures) -> Verdict:
    """Judge whether stages add up to the steps, and the GPU's clock agrees with the host's."""
    for name in (TRANSFER, TRAINING):
        by_gpu, by_host = figures[f"{name}_gpu_s"], figures[f"{name}_s"]
        if by_gpu is not None and float(by_gpu) > (1 + GPU_CLOCK) * float(by_host or 0):
            return "warn"
    sum_s, of_s = float(figures["stages_s"] or 0), float(figures["wall_s"] or 0)
    return passes((1 - CLOSURE) * of_s <= sum_s <= (1 + 1e-6) * of_s, "warn")


def _closed(figures: CheckFigures, verdict: Verdict) -> str:
    share = format_percent(float(figures["stages_s"] or 0) / float(figures["wall_s"] or 1), 1)
    by_gpu = "; neither transfer nor training is longer by the GPU's own clock" * (
        figures["training_gpu_s"] is not None and verdict == "pass"
    )
    return f"The stages add up to {share} of the time of the steps{by_gpu}."


def _overlap_figures(run: Run) -> CheckFigures:
    stages_s = run.facts.stages_s
    longest = max(stages_s, key=lambda stage: stages_s[stage])
    return {
        "longest_stage": longest,
        "longest_stage_s": stages_s[longest],
        "wall_s": wall_s(run),
    }


def _overlapped(figures: CheckFigures, _: Verdict) -> str:
    factor = float(figures["wall_s"] or 0) / float(figures["longest_stage_s"] or 1)
    return (
        f"The steps took {factor:.2f} times their longest stage, {figures['longest_stage']}; 1 "
        "would be a perfect overlap."
    )


def _stall_figures(run: Run) -> CheckFigures:
    memory = run.facts.memory
    return {
        "limit_bytes": memory.limit_bytes,
        "limit_hits": memory.limit_hits,
        "stalled_s": memory.stalled_s,
        "wall_s": wall_s(run),
    }


def _is_unhindered(figures: CheckFigures) -> Verdict:
    if figures["stalled_s"] is None:
        return "not_checked"
    return passes(float(figures["stalled_s"]) <= STALLED * float(figures["wall_s"] or 0), "warn")


def _hindered(figures: CheckFigures, verdict: Verdict) -> str:
    if verdict == "not_checked":
        return (
            "How long threads waited for memory at its limit is unknown: the kernel shows no "
            "memory.pressure of control groups, which is part of version 2."
        )
    share = format_percent(float(figures["stalled_s"] or 0) / float(figures["wall_s"] or 1), 2)
    return (
        f"Threads waited for memory in {share} of the timed steps, at the limit of "
        f"{format_bytes(int(figures['limit_bytes'] or 0))}"
        + (": set a larger workload.memory_share." if verdict == "warn" else ".")
    )


def _operations(run: Run) -> int:
    return run.facts.operations


def _cpu_s(run: Run) -> float:
    return run.facts.cpu_s


def _read_bytes(run: Run) -> int | None:
    return run.facts.read_bytes


CHECKS = (
    CheckRule[GraphFacts](
        name="compared_rows",
        fault="no row was compared where the model takes it; a wrong row ends the run",
        figures=lambda run: {
            "compared_rows": run.facts.compared_rows,
            "rows": run.facts.rows,
            "compare_every": run.facts.settings.compare_every,
            "recomputed": int(run.facts.settings.source is None),
        },
        judge=lambda figures: passes(int(figures["compared_rows"] or 0) > 0),
        sentence=_compared,
        mandatory=True,
    ),
    CheckRule[GraphFacts](
        name="stage_times",
        fault="time is spent outside the stages, or by the GPU after the host took its work as "
        "done",
        figures=_time_figures,
        judge=_are_closed,
        sentence=_closed,
        applies=lambda run: not run.facts.is_ahead,
    ),
    CheckRule[GraphFacts](
        name="overlapped_times",
        fault="a stage took longer than all steps together, so its clock is wrong",
        figures=_overlap_figures,
        judge=lambda figures: passes(
            float(figures["longest_stage_s"] or 0) <= (1 + CLOSURE) * float(figures["wall_s"] or 0)
        ),
        sentence=_overlapped,
        applies=lambda run: run.facts.is_ahead,
    ),
    CheckRule[GraphFacts](
        name="row_counts",
        fault="a row came from no place or from two, or reads moved other bytes than those of "
        "their rows",
        figures=_place_figures,
        judge=_are_placed,
        sentence=_placed,
        mandatory=True,
        applies=lambda run: run.facts.is_counted,
    ),
    CheckRule[GraphFacts](
        name="memory_stalls",
        fault="the limit of memory slowed the process itself, not the page cache alone",
        figures=_stall_figures,
        judge=_is_unhindered,
        sentence=_hindered,
        # Of mapped files each read is such a wait.
        applies=lambda run: run.facts.memory.limit_bytes is not None and run.facts.is_counted,
    ),
    data_path(_operations, _read_bytes),
    counted_latencies(PHASE, _operations),
    cpu_within_tree(PHASE, _cpu_s),
)
OBSERVED: tuple[Observed[GraphFacts], ...] = (
    cold_cache(),
    written_extents(lambda run: run.facts.settings.source is None),
    counted_path(lambda run: run.record.workload.loader == "gpu_queue"),
)
"""A real graph is never written, so its extents may be anything."""
