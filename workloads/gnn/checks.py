"""The checks of graph training: rows are right, each came from one place, and times close."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.record.results import Check, Verdict, VerifiedBytes, amount
from wattload.core.units import format_bytes, format_percent
from wattload.core.workload import DeclaredCheck, Figures
from wattload.workloads.gnn.metrics import PHASE
from wattload.workloads.gnn.results import COUNTS, STAGES, Results

CLOSURE = 0.02
"""What the stages of serial steps may lack of their time."""
GPU_CLOCK = 0.02
"""What a stage may take longer by the GPU's clock than by the host's."""
_COUNTED_BY = ("direct", "gpu_queue")
_QUEUE = ("gpu_queue",)


def are_rows_right(figures: Figures) -> bool:
    """Return whether rows were compared, and none was wrong."""
    return amount(figures, "compared_rows") > 0 and amount(figures, "wrong_rows") == 0


def are_rows_counted(figures: Figures) -> bool:
    """Return whether each row came from one place, and storage gave the bytes of its rows."""
    placed = sum(amount(figures, name) for name in COUNTS)
    read_bytes = amount(figures, "storage_rows") * amount(figures, "read_bytes_per_row")
    is_whole = placed == amount(figures, "rows") and placed > 0
    return is_whole and read_bytes == amount(figures, "storage_bytes")


def are_times_closed(figures: Figures) -> bool:
    """Return whether the stages add up to the steps, and the GPU's clock agrees with the host's."""
    sum_s, wall_s = amount(figures, "stages_s"), amount(figures, "wall_s")
    for name in ("transfer", "training"):
        if figures[f"{name}_gpu_s"] is not None:
            by_host = amount(figures, f"{name}_s")
            if amount(figures, f"{name}_gpu_s") > (1 + GPU_CLOCK) * by_host:
                return False
    return (1 - CLOSURE) * wall_s <= sum_s <= (1 + 1e-6) * wall_s


def are_overlapped(figures: Figures) -> bool:
    """Return whether no stage took longer than all steps together."""
    return amount(figures, "longest_stage_s") <= (1 + CLOSURE) * amount(figures, "wall_s")


CHECKS = {
    "cold_cache": DeclaredCheck(
        fault="the page cache held parts of the files before the reads", optional=True
    ),
    "written_extents": DeclaredCheck(
        fault="the file system has no data for parts of the files", optional=True
    ),
    "compared_rows": DeclaredCheck(fault="the model was given another row than it asked for"),
    "row_counts": DeclaredCheck(
        fault="a row was lost or taken twice, or storage gave other bytes than those of its rows",
        made_only_by=_COUNTED_BY,
    ),
    "stage_times": DeclaredCheck(
        fault="a part of the steps is in no stage, or the GPU's clock has longer stages",
        made_only_with={"overlap": "serial"},
    ),
    "overlapped_times": DeclaredCheck(
        fault="a stage took longer than all steps together", made_only_with={"overlap": "ahead"}
    ),
    "data_path": DeclaredCheck(
        fault="reads took another path than the one requested", optional=True, made_only_by=_QUEUE
    ),
}
"""The checks that only graph training has."""


def compared_rows(results: Results, *, every: int, recomputes: bool) -> Check:
    """Return the check of the rows that the model took; a wrong one has ended the run before."""
    figures = {"compared_rows": results.compared_rows, "wrong_rows": 0, "compare_every": every}
    how = "recomputed from its number" if recomputes else "read again from its file"
    return Check(
        name="compared_rows",
        verdict="pass" if are_rows_right(figures) else "fail",
        sentence=(
            f"{results.compared_rows:,} of {results.rows:,} rows were compared where the model "
            f"takes them, each {how}: none was wrong."
        ),
        figures=figures,
        mandatory=True,
        verified=(
            VerifiedBytes(
                phase=PHASE,
                kind="read",
                moved_bytes=results.storage_bytes,
                verified_bytes=min(
                    results.compared_rows * results.row_bytes, results.storage_bytes
                ),
            ),
        )
        if results.storage_bytes
        else (),
    )


def row_counts(results: Results, *, read_bytes_per_row: int) -> Check:
    """Return the check that each row came from one place."""
    figures: dict[str, float | int | str | None] = {
        "rows": results.rows,
        **{name: results.counted(name) for name in COUNTS},
        "storage_bytes": results.storage_bytes,
        "read_bytes_per_row": read_bytes_per_row,
    }
    good = are_rows_counted(figures)
    listed = (
        f"{figures['storage_rows']:,} read from storage ({format_bytes(results.storage_bytes)}), "
        f"{figures['host_rows']:,} from host memory, {figures['cache_rows']:,} from the GPU's "
        f"cache and {figures['joined_rows']:,} joined to another's read"
    )
    return Check(
        name="row_counts",
        verdict="pass" if good else "fail",
        sentence=f"Of {results.rows:,} rows {listed}"
        + ("." if good else ": these must add up, with the bytes of the rows read."),
        figures=figures,
        mandatory=True,
    )


def times(results: Results) -> Check:
    """Return the check of the stages' times against the time of the steps."""
    stages = {name: results.stage_s(name) for name in STAGES}
    known = {name: seconds for name, seconds in stages.items() if seconds is not None}
    if results.overlaps:
        longest = max(known, key=lambda name: known[name])
        figures: dict[str, float | int | str | None] = {
            "longest_stage": longest,
            "longest_stage_s": known[longest],
            "wall_s": results.wall_s,
        }
        return Check(
            name="overlapped_times",
            verdict="pass" if are_overlapped(figures) else "fail",
            sentence=(
                f"The steps took {results.wall_s / known[longest]:.2f} times their longest stage, "
                f"{longest.removesuffix('_s')}; 1 would be a perfect overlap."
            ),
            figures=figures,
        )
    figures = {
        "stages_s": sum(known.values()),
        "wall_s": results.wall_s,
        **{name: stages[name] for name in ("transfer_s", "training_s")},
        **{name: results.gpu_s(name) for name in ("transfer_gpu_s", "training_gpu_s")},
    }
    verdict: Verdict = "pass" if are_times_closed(figures) else "warn"
    share = format_percent(sum(known.values()) / results.wall_s, 1)
    by_gpu = "; neither transfer nor training is longer by the GPU's own clock" * (
        figures["training_gpu_s"] is not None and verdict == "pass"
    )
    return Check(
        name="stage_times",
        verdict=verdict,
        sentence=f"The stages add up to {share} of the time of the steps{by_gpu}.",
        figures=figures,
    )


def outcome_checks(
    results: Results, *, every: int, recomputes: bool, read_bytes_per_row: int
) -> Sequence[Check]:
    made = [compared_rows(results, every=every, recomputes=recomputes), times(results)]
    if results.counted("storage_rows") is not None:
        made.append(row_counts(results, read_bytes_per_row=read_bytes_per_row))
    return made
