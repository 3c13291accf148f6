"""The checks of training on whole records: times close, and an outside program did its work."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import harmonic_mean

from wattload.core.record.results import Verdict
from wattload.core.units import format_bytes
from wattload.results.checks import (
    CheckFigures,
    CheckRule,
    Observed,
    counted_bytes,
    written_extents,
)
from wattload.results.facts import divided, sum_if_known
from wattload.results.training.facts import (
    PHASE,
    STEPS,
    Epoch,
    ProgramEpoch,
    Run,
    TrainingFacts,
)

CLOSES_WITHIN, CLOSES_WITHIN_S = 0.005, 0.010
"""How far the parts of an epoch may be from its steps by another clock: the larger of both.

The clocks differ by at most 0.05 %, but a process can lose its core between reading the two.
"""
RATIO_LOW, RATIO_HIGH = 0.98, 1.02
"""Bytes counted for an outside program over those of its files."""
SUMMARY_WITHIN_S = 0.050
"""As ``CLOSES_WITHIN_S``, for a program that reads its clock before it logs an epoch's end."""


def _tolerance_s(whole_s: float) -> float:
    return max(whole_s * CLOSES_WITHIN, CLOSES_WITHIN_S)


def _amount(figures: CheckFigures, name: str) -> float:
    return float(figures[name] or 0)


def _has_program(run: Run) -> bool:
    return run.facts.program is not None


def _program_epochs(run: Run) -> tuple[ProgramEpoch, ...]:
    return run.facts.program.epochs if run.facts.program is not None else ()


def _is_timed(run: Run) -> bool:
    return not _has_program(run)


def _part_figures(run: Run) -> CheckFigures:
    """Return the sums of the parts and of the steps of the worst epoch, each by its clock."""
    sides = [
        (sum(epoch.parts_s.values()), epoch.steps_s)
        for epoch in run.facts.all_epochs
        if epoch.steps_s is not None
    ]
    if len(sides) < len(run.facts.all_epochs):
        return {"epochs_checked": 0, "reason": run.facts.missing.get(STEPS, "steps are not timed")}
    parts_s, steps_s = max(sides, key=lambda side: abs(side[0] - side[1]) / _tolerance_s(side[1]))
    return {"parts_s": parts_s, "steps_s": steps_s, "epochs_checked": len(sides)}


def _are_parts_close(figures: CheckFigures) -> Verdict:
    if not figures["epochs_checked"]:
        return "not_checked"
    steps_s = _amount(figures, "steps_s")
    is_close = abs(_amount(figures, "parts_s") - steps_s) <= _tolerance_s(steps_s)
    return "pass" if is_close else "fail"


def _parts_close(figures: CheckFigures, verdict: Verdict) -> str:
    if verdict == "not_checked":
        return f"Not compared: {figures['reason']}."
    return (
        "In the worst epoch, load, copy, compute, barrier and rest sum to "
        f"{figures['parts_s']:.3f} s; its steps take {figures['steps_s']:.3f} s by a separate clock"
        + ("." if verdict == "pass" else ": the times of this run are inconsistent.")
    )


def _windows_s(epochs: Sequence[Epoch], of_program: ProgramEpoch) -> list[float]:
    """Return an epoch on each rank by CLOCK_MONOTONIC.

    The program's log has that of rank 0. No barrier precedes the start, so other ranks' epochs are
    longer or shorter, by the difference of the durations that the program reports.
    """
    return [of_program.window_s + (each.duration_s - epochs[0].duration_s) for each in epochs]


def _window_figures(run: Run) -> CheckFigures:
    """Return the program's steps and the timed window of the epoch where they differ most.

    The program uses the wall clock, which may be adjusted; the epoch is timed by CLOCK_MONOTONIC.
    """
    each = [
        (sum(epoch.parts_s.values()), window_s)
        for epochs, of_program in zip(run.facts.by_epoch, _program_epochs(run), strict=True)
        for epoch, window_s in zip(epochs, _windows_s(epochs, of_program), strict=True)
    ]
    steps_s, epoch_s = max(each, key=lambda times: (times[0] - times[1]) / _tolerance_s(times[1]))
    return {"steps_s": steps_s, "epoch_s": epoch_s}


def _fits_window(figures: CheckFigures) -> Verdict:
    """Judge the steps: they exclude the barriers after them, so only an excess contradicts."""
    epoch_s = _amount(figures, "epoch_s")
    return "pass" if _amount(figures, "steps_s") - epoch_s <= _tolerance_s(epoch_s) else "fail"


def _window_sentence(figures: CheckFigures, verdict: Verdict) -> str:
    return (
        f"In the worst epoch, the program's steps sum to {figures['steps_s']:.3f} s by the wall "
        f"clock; the epoch took {figures['epoch_s']:.3f} s by the monotonic clock"
        + ("." if verdict == "pass" else ": the program's times are wrong.")
    )


def _counted(run: Run, of: Callable[[ProgramEpoch], int | None]) -> float | None:
    """Return the sum of a count over the program's epochs; ``None`` if one is unknown."""
    return sum_if_known(map(of, _program_epochs(run)))


def _ratio(figures: CheckFigures, name: str) -> float:
    return _amount(figures, name) / _amount(figures, "file_bytes")


def _read_figures(run: Run) -> CheckFigures:
    """Return the bytes of the files, and those that the program read.

    With our reader plugged in, its journal counts exactly. Otherwise the kernel's count of the
    processes' read calls is used, which also covers other files.
    """
    plugged_bytes = _counted(run, lambda epoch: epoch.plugged_bytes)
    if plugged_bytes is not None:
        return {"file_bytes": run.facts.read_bytes, "plugged_bytes": plugged_bytes}
    called_bytes = _counted(run, lambda epoch: epoch.called_bytes)
    return {"file_bytes": run.facts.read_bytes, "called_bytes": called_bytes}


def _is_read(figures: CheckFigures) -> Verdict:
    if "plugged_bytes" in figures:
        return "pass" if _ratio(figures, "plugged_bytes") == 1 else "fail"
    if figures["called_bytes"] is None:
        return "not_checked"
    ratio = _ratio(figures, "called_bytes")
    if ratio < RATIO_LOW:
        return "fail"
    return "pass" if ratio <= RATIO_HIGH else "warn"


def _read_sentence(figures: CheckFigures, verdict: Verdict) -> str:
    if "plugged_bytes" in figures:
        return (
            f"wattload's reader read {format_bytes(_amount(figures, 'plugged_bytes'))} inside the "
            f"program; its files have {format_bytes(_amount(figures, 'file_bytes'))}"
            + ("." if verdict == "pass" else ": not every file was read once.")
        )
    if verdict == "not_checked":
        return "The kernel does not report the reads of the program's processes."
    endings = {
        "pass": ".",
        "warn": ": this includes code, settings and messages between its processes.",
        "fail": ": some files were not read completely.",
    }
    return (
        "By the kernel's count, the program's read calls returned "
        f"{_ratio(figures, 'called_bytes'):.4f} of the files' bytes" + endings[verdict]
    )


def _is_from_storage(figures: CheckFigures) -> Verdict:
    if figures["storage_bytes"] is None:
        return "not_checked"
    return "pass" if RATIO_LOW <= _ratio(figures, "storage_bytes") <= RATIO_HIGH else "warn"


def _storage_sentence(figures: CheckFigures, verdict: Verdict) -> str:
    if verdict == "not_checked":
        return "The kernel does not report the bytes fetched from storage for the program."
    ratio = _ratio(figures, "storage_bytes")
    other = "the rest came from memory" if ratio < RATIO_LOW else "some were fetched more than once"
    return f"The kernel fetched {ratio:.4f} of the files' bytes from storage for the program's " + (
        "processes." if verdict == "pass" else f"processes: {other}."
    )


def _summary_figures(run: Run) -> CheckFigures:
    """Return the seconds of the epoch where the program's summary and our times differ most.

    The summary's throughput and utilisation are turned into the seconds that they were computed
    with. On the other side are the settings of the job, and the windows by CLOCK_MONOTONIC.
    """
    sides = [
        side
        for epochs, of_program in zip(run.facts.by_epoch, _program_epochs(run), strict=True)
        for side in _reported_and_timed_s(run, epochs, of_program)
    ]
    reported_s, timed_s = max(sides, key=lambda side: _summary_distance(*side))
    return {"reported_s": reported_s, "timed_s": timed_s}


def _reported_and_timed_s(
    run: Run, epochs: Sequence[Epoch], of_program: ProgramEpoch
) -> Iterator[tuple[float, float]]:
    """Yield the seconds of a whole epoch, and those after its first step.

    The summary adds up rates of the ranks, each by its own window: as one in their harmonic mean,
    which is 0 if one of them has no time left.
    """
    windows_s = _windows_s(epochs, of_program)
    samples = run.facts.steps_per_epoch * run.facts.settings.batch_samples * len(epochs)
    yield divided(samples, of_program.samples_per_s) or 0.0, _mean_window_s(windows_s)
    computed_s = run.facts.step_s * (run.facts.steps_per_epoch - 1)
    if computed_s:
        later_s = [
            window_s - each.first_step_s for window_s, each in zip(windows_s, epochs, strict=True)
        ]
        yield divided(computed_s, of_program.au) or 0.0, _mean_window_s(later_s)


def _mean_window_s(windows_s: Sequence[float]) -> float:
    return harmonic_mean([max(window_s, 0.0) for window_s in windows_s])


def _summary_distance(reported_s: float, timed_s: float) -> float:
    """Return how far both are apart, as a multiple of what is tolerated."""
    if timed_s <= 0:
        return math.inf
    return abs(reported_s - timed_s) / max(timed_s * CLOSES_WITHIN, SUMMARY_WITHIN_S)


def _is_summary_close(figures: CheckFigures) -> Verdict:
    distance = _summary_distance(_amount(figures, "reported_s"), _amount(figures, "timed_s"))
    return "pass" if distance <= 1 else "fail"


def _summary_sentence(figures: CheckFigures, verdict: Verdict) -> str:
    return (
        "Where they differ most, the throughput or utilisation in dlio-benchmark's summary is that "
        f"of {figures['reported_s']:.3f} s; this job took {figures['timed_s']:.3f} s by the "
        "monotonic clock" + ("." if verdict == "pass" else ": the summary is not of this job.")
    )


def _delivered_bytes(run: Run) -> int:
    return run.facts.read_bytes


CHECKS = (
    counted_bytes(PHASE, "read", _delivered_bytes, _is_timed),
    CheckRule[TrainingFacts](
        name="step_times_close",
        fault="a part of the steps is in no stage of them",
        figures=_part_figures,
        judge=_are_parts_close,
        sentence=_parts_close,
        applies=_is_timed,
    ),
    CheckRule[TrainingFacts](
        name="harness_bytes",
        fault="the program read other bytes than its files have",
        figures=_read_figures,
        judge=_is_read,
        sentence=_read_sentence,
        mandatory=True,
        applies=_has_program,
    ),
    CheckRule[TrainingFacts](
        name="harness_storage_bytes",
        fault="bytes came from the page cache, or were read twice",
        figures=lambda run: {
            "file_bytes": run.facts.read_bytes,
            "storage_bytes": _counted(run, lambda epoch: epoch.storage_bytes),
        },
        judge=_is_from_storage,
        sentence=_storage_sentence,
        applies=_has_program,
    ),
    CheckRule[TrainingFacts](
        name="harness_summary",
        fault="the program's summary is of other steps, batches or times than the job's",
        figures=_summary_figures,
        judge=_is_summary_close,
        sentence=_summary_sentence,
        applies=_has_program,
    ),
    CheckRule[TrainingFacts](
        name="harness_step_times",
        fault="the program's steps took longer than the epoch",
        figures=_window_figures,
        judge=_fits_window,
        sentence=_window_sentence,
        applies=_has_program,
    ),
)
OBSERVED: tuple[Observed[TrainingFacts], ...] = (
    Observed(name="cold_cache", fault="the page cache held parts of the files before an epoch"),
    written_extents(),
    Observed(
        name="delivered_bytes",
        fault="the loader delivered other bytes than the files have",
        applies=_is_timed,
    ),
    Observed(
        name="files_verified",
        fault="a file is not the one that was written",
        applies=_has_program,
    ),
)
