"""Checks on an outside program: did it read the files, does its summary fit its lists."""

from __future__ import annotations

from wattload.core.record.check import Check, Verdict
from wattload.core.units import format_bytes
from wattload.loaders.sampleharness import Training, TrainingResult

READ = "harness_bytes"
RATIO_LOW, RATIO_HIGH = 0.98, 1.02
SUMMARY_TOLERANCE = 1e-6
TIMES_TOLERANCE, TIMES_TOLERANCE_S = 0.005, 0.010
"""By how much the program's steps may exceed the epoch that they are in: the larger of both."""


def harness_checks(result: TrainingResult, training: Training) -> list[Check]:
    """Return the checks that take the place of those on our own loop."""
    return [
        read_check(result),
        storage_check(result),
        summary_check(result, training),
        times_check(result),
        delivery_check(),
    ]


def read_check(result: TrainingResult) -> Check:
    """Compare the sizes of the files that the program was given with what it really read.

    By the journal of our reader where it is plugged in, byte for byte; else by what the kernel
    counts of its processes' read calls, which take in more than the files.
    """
    file_bytes = result.io.moved_bytes
    if result.plugged_bytes is not None:
        return _plugged_check(result.plugged_bytes, file_bytes)
    called_bytes = _total(result, "called_bytes")
    if called_bytes is None:
        return Check(
            name=READ,
            verdict="not_checked",
            sentence="The kernel does not tell what the program's processes read.",
            figures={"file_bytes": file_bytes},
            mandatory=True,
        )
    return _called_check(called_bytes, file_bytes)


def _plugged_check(plugged_bytes: int, file_bytes: int) -> Check:
    agree = plugged_bytes == file_bytes
    return Check(
        name=READ,
        verdict="pass" if agree else "fail",
        sentence=(
            f"Our reader read {format_bytes(plugged_bytes)} inside the program, whose files have "
            f"{format_bytes(file_bytes)}" + ("." if agree else ": it did not read each file once.")
        ),
        figures={"file_bytes": file_bytes, "plugged_bytes": plugged_bytes},
        mandatory=True,
    )


def _called_check(called_bytes: int, file_bytes: int) -> Check:
    ratio = called_bytes / file_bytes
    verdict = _verdict(ratio)
    endings = {
        "pass": ".",
        "warn": ": code, settings and messages between its processes are in it.",
        "fail": ": it did not read its files whole.",
    }
    return Check(
        name=READ,
        verdict=verdict,
        sentence=(
            f"The kernel counted {ratio:.4f} of the files' bytes in the program's read calls"
            + endings[verdict]
        ),
        figures={"file_bytes": file_bytes, "called_bytes": called_bytes, "ratio": ratio},
        mandatory=True,
    )


def storage_check(result: TrainingResult) -> Check:
    """Compare the sizes of the files with what was fetched from storage for the program.

    The kernel counts it for each process, so other load on the drive is not in it.
    """
    name, file_bytes = "harness_storage_bytes", result.io.moved_bytes
    storage_bytes = _total(result, "storage_bytes")
    if storage_bytes is None:
        return Check(
            name=name,
            verdict="not_checked",
            sentence="The kernel does not tell what was fetched from storage for the program.",
            figures={"file_bytes": file_bytes},
        )
    ratio = storage_bytes / file_bytes
    proved = RATIO_LOW <= ratio <= RATIO_HIGH
    other = "the rest came from memory" if ratio < RATIO_LOW else "some came more than once"
    return Check(
        name=name,
        verdict="pass" if proved else "warn",
        sentence=(
            f"The kernel fetched {ratio:.4f} of the files' bytes from storage for the program's "
            + ("processes." if proved else f"processes: {other}.")
        ),
        figures={"file_bytes": file_bytes, "storage_bytes": storage_bytes, "ratio": ratio},
    )


def summary_check(result: TrainingResult, training: Training) -> Check:
    """Compare what the program's summary says with what follows from its times of single steps."""
    apart = 0.0
    for name, values in result.recomputed.items():
        if name == "train_au_percentage" and not training.step_s:
            continue  # the program calls it 0 where nothing was computed
        pairs = zip(values, result.reported[name], strict=True)
        apart = max(apart, *(_apart(ours, theirs) for ours, theirs in pairs))
    closes = apart <= SUMMARY_TOLERANCE
    return Check(
        name="harness_summary",
        verdict="pass" if closes else "fail",
        sentence=(
            "What dlio-benchmark's summary says of utilisation and throughput is "
            + ("" if closes else "not ")
            + "what its own times of single steps give."
        ),
        figures={"apart_fraction": apart},
    )


def times_check(result: TrainingResult) -> Check:
    """Compare the program's times of single steps with the epoch as it was seen from outside.

    The program has the wall clock, which may be set; the epoch is timed by CLOCK_MONOTONIC. Its
    steps lack the barriers behind them, so that only their excess is a contradiction.
    """
    each = [trained for epoch in result.epochs for trained in epoch]
    worst = max(each, key=lambda trained: sum(trained.processed_s) / trained.duration_s)
    steps_s, epoch_s = sum(worst.processed_s), worst.duration_s
    fits = steps_s - epoch_s <= max(epoch_s * TIMES_TOLERANCE, TIMES_TOLERANCE_S)
    return Check(
        name="harness_times",
        verdict="pass" if fits else "fail",
        sentence=(
            f"The program's steps sum to {steps_s:.3f} s by the wall clock in the epoch that fits "
            f"worst, which lasted {epoch_s:.3f} s by the monotonic one"
            + ("." if fits else ": its times do not describe this run.")
        ),
        figures={"steps_s": steps_s, "epoch_s": epoch_s},
    )


def delivery_check() -> Check:
    """Return the check that can't be made: the program hands no bytes over."""
    return Check(
        name="delivered_bytes",
        verdict="not_checked",
        sentence=(
            "dlio-benchmark owns the loop and hands no bytes over, so none could be hashed; "
            "that it read its files is what harness_bytes compares."
        ),
    )


def _total(result: TrainingResult, name: str) -> int | None:
    """Return the sum of a count over epochs and accelerators; ``None`` if a part is missing."""
    counts = [getattr(trained, name) for epoch in result.epochs for trained in epoch]
    return None if None in counts else sum(counts)


def _verdict(ratio: float) -> Verdict:
    if ratio < RATIO_LOW:
        return "fail"
    return "pass" if ratio <= RATIO_HIGH else "warn"


def _apart(ours: float, theirs: float) -> float:
    """Return by what share two figures differ."""
    return abs(ours - theirs) / max(abs(theirs), 1e-12)
