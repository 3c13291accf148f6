"""How training on whole records is shown: what the accelerators did, and what limited them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from wattload.core.mlperf.edition import published_job
from wattload.core.units import Unit
from wattload.results.quantity import percent, quantity
from wattload.results.shapes import Grid, Shape, Word
from wattload.results.training.facts import Run, TrainingFacts
from wattload.results.training.figures import au_dlio, au_nominal, compute_fraction, samples_per_s
from wattload.results.training.outcome import UTILISATIONS, outcome
from wattload.results.training.published import PUBLISHED
from wattload.results.view import Limit, Shown, View, median_of_known


def _limit(runs: Sequence[Run], _: float | None) -> Limit | None:
    """Return the accelerators, if they computed as large a share as MLPerf Storage demands."""
    computed = median_of_known(map(compute_fraction, runs))
    if computed is None or computed < _threshold(runs[0]):
        return None
    return Limit(f"limited by the accelerator, which computed {percent(computed)} of the time")


def _closing(shown: Shown[TrainingFacts]) -> Iterator[Shape]:
    """Yield AU and throughput by number of accelerators, for each session of several numbers."""
    compared = {run.record.run_id for arm in shown.arms for run in arm.runs}
    sessions: dict[str, list[Run]] = defaultdict(list)
    for run in shown.runs:
        sessions[run.record.comparison.session_id].append(run)
    for session, runs in sessions.items():
        if len({run.facts.accelerators for run in runs}) == 1:
            continue
        threshold = quantity(_threshold(runs[0]), Unit.FRACTION, 2)
        runs.sort(key=lambda run: (run.facts.accelerators, run.record.comparison.block))
        yield Grid(
            columns=(
                "#accelerators", "#AU (DLIO)", "#AU nominal", "#samples", "#throughput",
                "#harness ceiling", "", "run",
            ),
            rows=[_row(run, is_compared=run.record.run_id in compared) for run in runs],
            caption=f"Utilisation by number of accelerators, session {session}",
            note=f"MLPerf Storage scores the largest number of accelerators that reach {threshold} "
            "AU by DLIO's formula, which leaves the first step out.",
        )  # fmt: skip


def _row(run: Run, *, is_compared: bool) -> list[str | Word]:
    utilisation = au_dlio(run)
    return [
        str(run.facts.accelerators),
        quantity(utilisation, Unit.FRACTION),
        quantity(au_nominal(run), Unit.FRACTION),
        quantity(samples_per_s(run), Unit.SAMPLES_PER_SECOND),
        quantity(run.facts.read_bytes_per_s, Unit.BYTES_PER_SECOND),
        quantity(run.facts.ceiling_bytes_per_s, Unit.BYTES_PER_SECOND),
        _reached(run, utilisation) if is_compared else Word("excluded", "bad"),
        run.record.run_id,
    ]


def _reached(run: Run, utilisation: float | None) -> Word:
    if utilisation is None:
        return Word("unknown", "open")
    is_reached = utilisation >= _threshold(run)
    return Word("reached", "good") if is_reached else Word("not reached", "warn")


def _threshold(run: Run) -> float:
    """Return the utilisation that MLPerf Storage demands of the run's model."""
    return published_job(run.record.workload.name).au


def training_view(title: str) -> View[TrainingFacts]:
    """Return the view of a training workload under a title."""
    return View[TrainingFacts](
        title=title,
        labels={
            "compute_fraction": "share of time computing",
            "dlio_reported_au": "DLIO reported AU",
        },
        work=lambda run, _: ("epoch", float(run.facts.settings.epochs)),
        limit=_limit,
        emulates_accelerators=True,
        useful_part=("compute_s", "computing"),
        closing=_closing,
        outcome=outcome,
        outcome_figures=UTILISATIONS,
        published=PUBLISHED,
    )
