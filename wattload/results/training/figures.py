"""The figures of training on whole records.

Some follow DLIO's formulas, the others only need bytes and seconds.

DLIO's formulas are those of ``dlio_benchmark/utils/statscounter.py`` (``compute_metrics_train``,
``end_train``, ``end_run``) in 2.0.1, main and branch mlperf_storage_v2.0, with
``metric_exclude_start_steps`` 1 and ``..._end_steps`` 0. Release 2.0.0 (the one on PyPI) and branch
mlperf_storage_v1.0 differ: AU sums the configured step time, like ``au_nominal``, and throughput is
all steps over the whole block. An epoch is one of DLIO's blocks, because no checkpoint divides it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean

from wattload.core.mlperf import formulas
from wattload.core.units import Unit
from wattload.results.facts import divided, sum_if_known
from wattload.results.figures import Figure
from wattload.results.training.as_published import published_facts
from wattload.results.training.facts import (
    COMPUTE,
    COPY,
    DECODE,
    HASH,
    LOAD,
    OPEN,
    PARTS,
    PHASE,
    STEPS,
    Epoch,
    ProgramEpoch,
    Run,
    TrainingFacts,
)

WHOLE = "an accelerator's time in all epochs"
"""The whole that the parts in seconds sum to."""

_ONE_STEP = "an epoch of one step has no window, because the first step is excluded"
_UNPACED = "the step time is 0, so no accelerator was emulated"
_NO_MEMORY = "the memory of its processes could not be read: a worker had ended, or an old kernel"

figure = partial(Figure[TrainingFacts], phase=PHASE)
seconds = partial(figure, unit=Unit.SECONDS, better="lower")


def _missing(name: str) -> Callable[[Run], str]:
    return lambda run: run.facts.missing.get(name, "not reported by this loop")


def _sum(run: Run, of: Callable[[Epoch], float | None]) -> float | None:
    """Return a sum over ranks and epochs; ``None`` if some of it is unknown."""
    return sum_if_known(map(of, run.facts.all_epochs))


def _share(part: str) -> Callable[[Run], float | None]:
    return lambda run: divided(run.facts.part_s(part), _sum(run, lambda epoch: epoch.duration_s))


compute_fraction = _share(COMPUTE)


def _parts(run: Run) -> Sequence[Figure[TrainingFacts]]:
    """Return the seconds and shares of the parts of a step."""

    def of_one(part: str) -> Callable[[Run], float | None]:
        return lambda run: divided(run.facts.part_s(part), len(run.facts.ranks))

    is_paced = run.facts.step_s > 0
    times = [
        seconds(
            name=f"{name}_s",
            of=of_one(part),
            meaning=f"Seconds of an accelerator in all epochs: {what}.",
            part_of=WHOLE,
            reason=_missing(part),
        )
        for part, (name, what) in PARTS.items()
    ]
    shares = [
        figure(
            name=f"{name}_fraction",
            of=_share(part),
            unit=Unit.FRACTION,
            better="higher" if part == COMPUTE else "lower",
            meaning=f"Share of the epochs' seconds: {what}.",
            headline=part == COMPUTE and is_paced,
            reason=_missing(part),
        )
        for part, (name, what) in PARTS.items()
    ]
    return [*times, *shares]


def _p50(kind: str) -> Callable[[Run], float | None]:
    return lambda run: spread.p50_s if (spread := run.facts.spreads.get(kind)) else None


def _longest(kind: str) -> Callable[[Run], float | None]:
    return lambda run: spread.max_s if (spread := run.facts.spreads.get(kind)) else None


def _has_window(run: Run) -> bool:
    return run.facts.steps_per_epoch > 1 and run.facts.step_s > 0


def _no_window(run: Run) -> str:
    if run.facts.steps_per_epoch > 1:
        return _UNPACED
    file_count = 2 * run.facts.accelerators * run.facts.settings.batch_samples
    return f"{_ONE_STEP}; use workload.file_count={file_count} or more"


def au_dlio(run: Run) -> float | None:
    """Return DLIO's AU: the mean over ranks, then over epochs."""
    return formulas.au(published_facts(run)).value if _has_window(run) else None


def au_nominal(run: Run) -> float | None:
    """Return the steps in the windows times the nominal step, over the windows' wall time.

    Unlike DLIO's AU, it does not count oversleeping as computation. The sums go over all ranks and
    epochs.
    """
    if not _has_window(run):
        return None
    facts = run.facts
    nominal_s = len(facts.all_epochs) * (facts.steps_per_epoch - 1) * facts.step_s
    return divided(nominal_s, _sum(run, lambda epoch: epoch.window_s))


def dlio_samples_per_s(run: Run) -> float | None:
    """Return DLIO's throughput by v2.0, the sum over accelerators and the mean over epochs.

    ``(len(compute) - 2) / window * batch``: the count always excludes two steps, whatever the
    window excludes. Short epochs are therefore understated (by half at 4 steps, below 0 at 1).
    """
    return formulas.samples_per_s(published_facts(run), "v2.0").value


def _samples(run: Run) -> int:
    """Return the samples that all accelerators received; a file holds one."""
    facts = run.facts
    steps = len(facts.all_epochs) * facts.steps_per_epoch
    return steps * facts.per_rank * facts.settings.batch_samples


def samples_per_s(run: Run) -> float:
    return _samples(run) / sum(run.facts.epochs_s)


def _open_s(run: Run) -> float | None:
    return _sum(run, lambda epoch: epoch.open_s)


def _dlio_bytes_per_s(run: Run) -> float | None:
    rate = dlio_samples_per_s(run)
    return None if rate is None else rate * run.facts.nominal_bytes


def _overshoot_s(run: Run) -> float | None:
    steps = len(run.facts.all_epochs) * run.facts.steps_per_epoch
    mean_s = divided(run.facts.part_s(COMPUTE), steps)
    return None if mean_s is None else mean_s - run.facts.step_s


def _longest_overshoot_s(run: Run) -> float | None:
    longest_s = _longest(COMPUTE)(run)
    return None if longest_s is None else longest_s - run.facts.step_s


def _copied(of: Callable[[Epoch], float]) -> Callable[[Run], float | None]:
    return lambda run: None if run.facts.part_s(COPY) is None else _sum(run, of)


_copied_bytes = _copied(lambda epoch: epoch.copied_bytes)
_device_copy_s = _copied(lambda epoch: epoch.device_copy_s)


def _of_program(run: Run) -> Sequence[Figure[TrainingFacts]]:
    """Return the figures that a program that owns the loop prints, in SI units, and its memory."""
    program = run.facts.program
    if program is None:
        return ()
    peaks = [epoch.peak_bytes for epoch in program.epochs]
    known = [peak for peak in peaks if peak is not None]

    def mean(of: Callable[[ProgramEpoch], float]) -> float:
        return fmean(map(of, program.epochs))

    return [
        figure(
            name="dlio_reported_au",
            of=lambda run: mean(lambda epoch: epoch.au) if run.facts.step_s else None,
            unit=Unit.FRACTION,
            better="higher",
            meaning="Accelerator utilisation as printed by dlio-benchmark; 2.0.0 sums the "
            "configured step time.",
            headline=True,
            reason=_UNPACED,
        ),
        figure(
            name="dlio_reported_samples_per_s",
            of=lambda _: mean(lambda epoch: epoch.samples_per_s),
            unit=Unit.SAMPLES_PER_SECOND,
            better="higher",
            meaning="Throughput as printed by dlio-benchmark: the mean over epochs.",
        ),
        figure(
            name="dlio_reported_nominal_bytes_per_s",
            of=lambda _: mean(lambda epoch: epoch.nominal_bytes_per_s),
            unit=Unit.BYTES_PER_SECOND,
            better="higher",
            meaning="Its samples per second times the configured mean record size. It prints this "
            "as MB/s but means MiB/s. These are nominal bytes, not bytes that moved.",
        ),
        figure(
            name="harness_peak_bytes",
            of=lambda _: max(known) if len(known) == len(peaks) else None,
            unit=Unit.BYTES,
            better="lower",
            meaning="Peak memory of the program's processes: the sum of their own peaks, with "
            "shared pages counted once.",
            reason=_NO_MEMORY,
        ),
    ]


def _ceiling(run: Run) -> Sequence[Figure[TrainingFacts]]:
    return [
        Figure(
            name="harness_ceiling_bytes_per_s",
            of=lambda run: run.facts.ceiling_bytes_per_s,
            unit=Unit.BYTES_PER_SECOND,
            better="higher",
            meaning="The same loader and loop with files in memory and step time 0, verification "
            "included; batches are copied to the device if the run copies them."
            if run.facts.program is None
            else "The same program and reader with files in memory and step time 0, in its second "
            "epoch.",
            reason=run.facts.ceiling_reason or "it was not measured",
        )
    ]


FIGURES = (
    figure(
        name="read_bytes_per_s",
        of=lambda run: run.facts.read_bytes_per_s,
        unit=Unit.BYTES_PER_SECOND,
        better="higher",
        meaning="Bytes read from all files, divided by the seconds of all epochs.",
        headline=True,
    ),
    figure(
        name="samples_per_s",
        of=samples_per_s,
        unit=Unit.SAMPLES_PER_SECOND,
        better="higher",
        meaning="Samples delivered to all accelerators, divided by the seconds of all epochs.",
    ),
    _parts,
    seconds(
        name="load_wait_p50_s",
        of=_p50(LOAD),
        meaning="The median of the waits for the next batch.",
        reason=_missing(LOAD),
    ),
    seconds(
        name="load_wait_max_s",
        of=_longest(LOAD),
        meaning="The longest of the waits for the next batch.",
        reason=_missing(LOAD),
    ),
    seconds(
        name="step_p50_s",
        of=_p50(STEPS),
        meaning="The median of the steps.",
        reason=_missing(STEPS),
    ),
    seconds(
        name="step_max_s",
        of=_longest(STEPS),
        meaning="The longest of the steps.",
        reason=_missing(STEPS),
    ),
    seconds(
        name="decode_s",
        of=lambda run: _sum(run, lambda epoch: epoch.decode_s),
        meaning="Seconds that the loaders' workers spent on turning the bytes of files into rows, "
        "summed over workers. They run in parallel with each other and with the loop.",
        reason=_missing(DECODE),
    ),
    seconds(
        name="decode_p50_s",
        of=_p50(DECODE),
        meaning="The median decoding time of a batch.",
        reason=_missing(DECODE),
    ),
    seconds(
        name="open_s",
        of=_open_s,
        meaning="Seconds that the loader spent on opening and closing files, and on what else it "
        "asked of them besides their bytes, summed over workers. They run in parallel with each "
        "other and with reading.",
        reason=_missing(OPEN),
    ),
    seconds(
        name="open_mean_s",
        of=lambda run: divided(_open_s(run), _samples(run)),
        meaning="The mean of these seconds for a file.",
        reason=_missing(OPEN),
    ),
    figure(
        name="au_dlio",
        of=au_dlio,
        unit=Unit.FRACTION,
        better="higher",
        meaning="Accelerator utilisation in MLPerf Storage's form, as in DLIO 2.0.1 and later: "
        "actual computation divided by the epoch without its first step; mean over ranks, then "
        "over epochs. It is above the share of the whole time that computed.",
        label="AU in MLPerf's form",
        headline=True,
        reason=_no_window,
    ),
    figure(
        name="au_nominal",
        of=au_nominal,
        unit=Unit.FRACTION,
        better="higher",
        meaning="Steps in the same windows times the nominal step time, divided by their wall "
        "time.",
        label="AU by nominal step time",
        headline=True,
        reason=_no_window,
    ),
    figure(
        name="dlio_samples_per_s",
        of=dlio_samples_per_s,
        unit=Unit.SAMPLES_PER_SECOND,
        better="higher",
        meaning="Throughput as in DLIO 2.0.1 and later, (steps - 2) / window x batch; mean over "
        "epochs, understated in short epochs.",
        reason=_ONE_STEP,
    ),
    figure(
        name="dlio_nominal_bytes_per_s",
        of=_dlio_bytes_per_s,
        unit=Unit.BYTES_PER_SECOND,
        better="higher",
        meaning="dlio_samples_per_s times the configured mean record size. DLIO prints it as MB/s "
        "but means MiB/s. These are nominal bytes, not bytes that moved.",
        reason=_ONE_STEP,
    ),
    seconds(
        name="sleep_overshoot_mean_s",
        of=_overshoot_s,
        meaning="By how much an emulated computation exceeded the step time, on average.",
    ),
    seconds(
        name="sleep_overshoot_max_s",
        of=_longest_overshoot_s,
        meaning="By how much the longest emulated computation exceeded the step time.",
    ),
    figure(
        name="copied_bytes",
        of=_copied_bytes,
        unit=Unit.BYTES,
        better="neither",
        meaning="Bytes of batches that arrived on the device.",
        reason=_missing(COPY),
    ),
    seconds(
        name="device_copy_s",
        of=_device_copy_s,
        meaning="Seconds that the device spent on these copies, by its own clock. Copies overlap "
        "with computation and loading, so they are not part of the epoch's sum.",
        reason=_missing(COPY),
    ),
    figure(
        name="device_copy_bytes_per_s",
        of=lambda run: divided(_copied_bytes(run), _device_copy_s(run)),
        unit=Unit.BYTES_PER_SECOND,
        better="higher",
        meaning="Bytes copied to the device, divided by the seconds of the copies.",
        reason=_missing(COPY),
    ),
    figure(
        name="read_cpu_s_per_byte",
        of=lambda run: divided(_sum(run, lambda epoch: epoch.cpu_s), run.facts.read_bytes),
        unit=Unit.SECONDS_PER_BYTE,
        better="lower",
        meaning="CPU seconds of the ranks and the loaders' processes per byte read, including "
        "verification.",
    ),
    seconds(
        name="hash_cpu_s",
        of=lambda run: _sum(run, lambda epoch: epoch.hash_cpu_s),
        meaning="CPU seconds spent on verification within the timed window: of blocks in the "
        "loader's workers, and of 1 in 16 rows, at most 256 an epoch, in the loop.",
        reason=_missing(HASH),
    ),
    _of_program,
    _ceiling,
)
