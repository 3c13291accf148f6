"""unet3d run by an external program that owns the loop, its metrics and its checks.

Files, sample order and page cache are wattload's; the times are the program's.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from wattload.core.errors import ConfigError, DataError, RunError
from wattload.core.record.results import Check, Metric, Verdict
from wattload.core.units import MIB, Unit, format_bytes, format_percent
from wattload.core.workload import Device, Outcome, Phase, Progress, RunContext
from wattload.loaders.data.cold_cache import RESIDENT_LIMIT, evict, residency, worst_of_each
from wattload.loaders.data.record_formats import record_format
from wattload.loaders.data.verification import FileState, bad_file_blocks, open_regular
from wattload.loaders.samples import (
    SampleHarnessConfig,
    SampleSet,
    TrainedEpoch,
    Training,
    TrainingResult,
)
from wattload.workloads.unet3d.checks import (
    RATIO_HIGH,
    RATIO_LOW,
    ROWS,
    ColdCache,
    are_files_whole,
    bad_blocks_sentence,
    ceiling_remark,
    details,
    is_delivered,
    is_read_by_program,
    is_summed_up,
    remarks,
    verified_clause,
    verified_reads,
)
from wattload.workloads.unet3d.dataset import PreparedData
from wattload.workloads.unet3d.job import Division, Job, epoch_order
from wattload.workloads.unet3d.loop import ceiling_samples
from wattload.workloads.unet3d.metrics import (
    PHASE,
    UNPACED,
    EpochTimes,
    JobTimes,
    are_steps_close,
    figure,
    fraction,
    metrics,
    seconds,
)

OUTPUT, CEILING_OUTPUT = "dlio", "dlio-ceiling"

CEILING_STEPS, CEILING_STEPS_LEAST = 8, 4
"""Steps of a ceiling epoch over all accelerators, and the minimum for each of them."""
READ, STORAGE, FILES = "harness_bytes", "harness_storage_bytes", "files_verified"
_MISSING_TIMES = {
    "copy_s": "dlio-benchmark does not copy to a device",
    "barrier_s": "not reported by dlio-benchmark",
    "rest_s": "not reported by dlio-benchmark",
    "step_s": "dlio-benchmark does not report whole steps",
}
_NOT_HASHED = "dlio-benchmark discards the bytes, so nothing was hashed"
_NO_MEMORY = "the kernel does not report the memory of its processes"


def check_harness(loader: SampleHarnessConfig, device: Device, world_size: int) -> None:
    """Raise ``ConfigError`` for several ranks and GPU copies, which are not supported."""
    if world_size > 1:
        raise ConfigError(
            f"loader={loader.name} starts one process per accelerator itself and needs a single "
            f"rank, got {world_size}; run without mpirun and with accelerator.count={world_size}"
        )
    if device is Device.cuda:
        raise ConfigError(
            f"accelerator.device=cuda is not supported by loader={loader.name}, which does not "
            "copy to a GPU; use accelerator.device=none or another loader"
        )


def run_harness(
    loader: SampleHarnessConfig,
    job: Job,
    data: PreparedData,
    samples: SampleSet,
    context: RunContext,
) -> tuple[Outcome, FilesRead]:
    """Run the program on the prepared data; needs a single rank.

    Returns the outcome, and the files to verify afterwards.

    Raises:
        RunError: the program failed, or its output is invalid.
    """
    training = _training(job, samples, context.seed)
    files = FilesRead(training)
    cold = ColdCache(data, context.communicator)
    result = _run(loader, training, cold, context)
    left = None if loader.is_cold_in_every_epoch else residency(data.paths).fraction
    first, written = worst_of_each(cold.checks())
    cold_cache = cold_check(first, training.epochs, loader, left)
    with context.phase("harness_ceiling", timed=False):
        ceiling, reason = _ceiling(loader, training, context.output_folder(CEILING_OUTPUT))
    times = _job_times(job, samples, result, loader)
    common_remarks = remarks(job, samples, loader, cold=cold_cache)
    outcome = Outcome(
        metrics=(*harness_metrics(times, result, training), ceiling_metric(ceiling, reason)),
        paths=(result.io.path,),
        checks=(
            cold_cache,
            written,
            *harness_checks(result, training, loader.sample_verified),
        ),
        details={
            **details(job, times, samples, loader, device=None),
            "harness": _harness_details(result),
        },
        remarks=(
            *common_remarks,
            *loader.differences(training),
            *([ceiling_remark(times, ceiling)] if ceiling is not None else []),
        ),
    )
    return outcome, files


class FilesRead:
    """The files that an outside program reads, noted before it starts and verified afterwards.

    A program that hands over no bytes leaves only this: that its files were whole after the timed
    phase, and did not change since before it.
    """

    def __init__(self, training: Training) -> None:
        samples = training.samples
        if samples.nonce is None:
            raise ValueError("the files have no stamps")
        read = {index for epoch in training.orders for order in epoch for index in order}
        self._nonce = samples.nonce
        self._layout = record_format(samples.record_format)
        self._sizes = {samples.paths[index]: samples.file_bytes[index] for index in sorted(read)}
        self._states = {path: FileState.of(path) for path in self._sizes}

    def check(self, progress: Progress) -> Check:
        """Read every file from the drive, and compare its blocks with their stamps and sums."""
        file_bytes = sum(self._sizes.values())
        progress.begin("verifying data", read_bytes=file_bytes)
        found = {path: self._fault(path, progress) for path in self._sizes}
        progress.end()
        faults = [f"{path} {fault}" for path, fault in found.items() if fault]
        figures = {
            "file_count": len(found),
            "file_bytes": file_bytes,
            "verified_bytes": sum(self._sizes[path] for path, fault in found.items() if not fault),
            "wrong_count": len(faults),
        }
        return Check(
            name=FILES,
            verdict="pass" if are_files_whole(figures) else "fail",
            sentence=f"{faults[0]}; {len(faults)} of {len(found)} files are not as they were."
            if faults
            else f"After the timed phase, {len(found)} files were read again from the drive: all "
            f"{file_bytes} bytes are those that were written, by stamps and sums, and no "
            "file changed during the run. This does not show which bytes the program received.",
            figures=figures,
            mandatory=True,
        )

    def _fault(self, path: Path, progress: Progress) -> str:
        """Return what is wrong with a file; empty if all of its bytes are right."""
        try:
            if FileState.of(path) != self._states[path]:
                return "was changed during the run"
            evict([path])
            with open(path, "rb", opener=open_regular) as file:
                raw = np.fromfile(file, np.uint8)
            wrong = bad_file_blocks(self._layout, self._nonce, path, raw)
        except (DataError, OSError) as error:
            return f"can't be verified ({error})"
        progress.advance(read_bytes=len(raw))
        if len(raw) != self._sizes[path]:
            return f"has {len(raw)} bytes instead of {self._sizes[path]}"
        return f"has {wrong} blocks that differ from what was written" if wrong else ""


def _training(job: Job, samples: SampleSet, seed: int) -> Training:
    """Return the program's job: each accelerator gets the shard of one rank of our own loop."""
    division = Division(world_size=job.division.accelerators, per_rank=1)
    distribution = job.config.distribution()
    return Training(
        samples=samples,
        orders=[
            [
                epoch_order(
                    job.dataset.file_count,
                    job.config.batch_samples,
                    division,
                    rank=accelerator,
                    seed=seed,
                    epoch=epoch,
                    most_steps=job.config.steps_per_epoch,
                )
                for accelerator in range(job.division.accelerators)
            ]
            for epoch in range(job.config.epochs)
        ],
        step_s=job.step_s,
        record_mean_bytes=distribution.mean_bytes,
        record_stdev_bytes=distribution.stdev_bytes,
    )


def _run(
    loader: SampleHarnessConfig, training: Training, cold: ColdCache, context: RunContext
) -> TrainingResult:
    epochs = EpochWatch(context, cold, always_cold=loader.is_cold_in_every_epoch)
    each = range(training.accelerators)
    total_bytes = sum(
        training.epoch_bytes_read(epoch, accelerator)
        for epoch in range(training.epochs)
        for accelerator in each
    )
    context.progress.begin("reading", read_bytes=total_bytes)
    try:
        return loader.training_harness(training).run(context.output_folder(OUTPUT), epochs)
    finally:
        epochs.abandon()
        context.progress.end()


class EpochWatch:
    """A ``HarnessWatch``: each stretch is an epoch, a span of the timed phase with a cold cache."""

    def __init__(self, context: RunContext, cold: ColdCache, *, always_cold: bool) -> None:
        self._context = context
        self._cold = cold
        self._always_cold = always_cold
        self._open = ExitStack()
        self._phase: Phase | None = None

    def before(self, stretch: int) -> None:
        """Empty the page cache, verify that, and open the phase."""
        if stretch == 0 or self._always_cold:
            self._cold.before_epoch()
        self._phase = self._open.enter_context(self._context.phase(PHASE))

    def moved(self, *, read_bytes: int = 0, written_bytes: int = 0) -> None:
        if self._phase is not None:
            self._phase.moved(read_bytes=read_bytes, written_bytes=written_bytes)

    def after(self, stretch: int) -> None:
        self._phase = None
        self._open.close()

    def abandon(self) -> None:
        self._open.close()


def _ceiling(
    loader: SampleHarnessConfig, training: Training, folder: Path
) -> tuple[float | None, str]:
    """Return the program's rate from memory in bytes per second, or ``None`` and the reason.

    The second of two epochs counts, because the program may start its workers in the first.
    """
    one = ceiling_samples(training.samples)
    steps = max(CEILING_STEPS // training.accelerators, CEILING_STEPS_LEAST)
    order = [0] * (one.batch_samples * steps)
    job = replace(training, samples=one, orders=[[order] * training.accelerators] * 2, step_s=0.0)
    try:
        result = loader.training_harness(job).run(folder, NullWatch())
    except RunError as error:
        return None, f"the program failed from memory: {error}"
    last = result.epochs[-1]
    seconds = max(trained.duration_s for trained in last)
    return sum(trained.read_bytes for trained in last) / seconds, ""


class NullWatch:
    """A ``HarnessWatch`` for work outside of the timed run."""

    def before(self, stretch: int) -> None:
        """Do nothing."""

    def moved(self, *, read_bytes: int = 0, written_bytes: int = 0) -> None:
        """Count nothing."""

    def after(self, stretch: int) -> None:
        """Do nothing."""


def cold_check(first: Check, epochs: int, loader: SampleHarnessConfig, left: float | None) -> Check:
    """Return the check of the page cache over all epochs.

    If only the first epoch began with an empty cache, ``left`` is the share of the files in the
    cache after the last one. Later epochs may not have read that share from the drive.
    """
    if first.verdict != "pass" or epochs == 1 or loader.is_cold_in_every_epoch:
        return first
    if left is not None and left <= RESIDENT_LIMIT:
        return first
    share = "an unknown share" if left is None else f"{format_percent(left, 1)}"
    return first.model_copy(
        update={
            "verdict": "not_checked",
            "sentence": (
                "The page cache was cold before the first epoch. It was not emptied between "
                f"epochs (loader.cold_epochs=false). After the last epoch it held {share} of "
                "the files, so later epochs came partly from memory."
            ),
            "figures": {**first.figures, "resident_after_fraction": left},
        }
    )


def _job_times(
    job: Job, samples: SampleSet, result: TrainingResult, loader: SampleHarnessConfig
) -> JobTimes:
    return JobTimes(
        ranks=[[_times(epoch) for epoch in rank] for rank in zip(*result.epochs, strict=True)],
        per_rank=1,
        batch_samples=samples.batch_samples,
        step_s=job.step_s,
        missing={**_MISSING_TIMES, "decode_s": loader.sample_decode_timed},
    )


def _times(epoch: TrainedEpoch) -> EpochTimes:
    return EpochTimes(
        duration_s=epoch.duration_s,
        load_s=epoch.load_s,
        compute_s=epoch.compute_s,
        processed_s=epoch.processed_s,
        payload_bytes=0,
        read_bytes=epoch.read_bytes,
        cpu_s=epoch.cpu_s,
        hash_cpu_s=0.0,
    )


def _harness_details(result: TrainingResult) -> dict[str, object]:
    """Return the identity and the own report of the program, as JSON values."""
    return {
        "version": result.version,
        "command": list(result.command),
        "output": OUTPUT,
        "summary": dict(result.reported),
        "called_bytes": _per_epoch(result, "called_bytes"),
        "storage_bytes": _per_epoch(result, "storage_bytes"),
        "plugged_bytes": result.plugged_bytes,
    }


def _per_epoch(result: TrainingResult, name: str) -> list[int | None]:
    sums: list[int | None] = []
    for epoch in result.epochs:
        parts: Sequence[int | None] = [getattr(trained, name) for trained in epoch]
        known = [part for part in parts if part is not None]
        sums.append(sum(known) if len(known) == len(parts) else None)
    return sums


def harness_metrics(times: JobTimes, result: TrainingResult, training: Training) -> list[Metric]:
    """Return the unet3d metrics available from the program's times, then its own."""
    ours = [
        seconds(metric.name, None, metric.meaning, reason=_NOT_HASHED)
        if metric.name == "hash_cpu_s"
        else metric
        for metric in metrics(times, training.record_mean_bytes)
    ]
    return [*ours, *_reported(result, training), _memory(result)]


def _reported(result: TrainingResult, training: Training) -> list[Metric]:
    """Return the figures that the program prints, in SI units."""
    reported = result.reported
    utilisation = float(reported["train_au_mean_percentage"]) / 100
    return [
        fraction(
            "dlio_reported_au",
            utilisation if training.step_s else None,
            UNPACED,
            "Accelerator utilisation as printed by dlio-benchmark; 2.0.0 sums the configured step "
            "time.",
            headline=True,
        ),
        figure(
            "dlio_reported_samples_per_s",
            float(reported["train_throughput_mean_samples_per_second"]),
            Unit.SAMPLES_PER_SECOND,
            "higher",
            "Throughput as printed by dlio-benchmark: the mean over epochs.",
        ),
        figure(
            "dlio_reported_nominal_bytes_per_s",
            float(reported["train_io_mean_MB_per_second"]) * MIB,
            Unit.BYTES_PER_SECOND,
            "higher",
            "Its samples per second times the configured mean record size. It prints this as MB/s "
            "but means MiB/s. These are nominal bytes, not bytes that moved.",
        ),
    ]


def _memory(result: TrainingResult) -> Metric:
    sums = [
        [trained.peak_bytes for trained in epoch if trained.peak_bytes is not None]
        for epoch in result.epochs
    ]
    known = all(len(part) == len(epoch) for part, epoch in zip(sums, result.epochs, strict=True))
    return figure(
        "harness_peak_bytes",
        max(map(sum, sums)) if known else None,
        Unit.BYTES,
        "lower",
        "Peak memory of the program's processes: the sum of their own peaks, with shared pages "
        "counted once.",
        reason=_NO_MEMORY,
    )


def ceiling_metric(bytes_per_s: float | None, reason: str) -> Metric:
    """Return the rate of the same program from memory without computation."""
    return figure(
        "harness_ceiling_bytes_per_s",
        bytes_per_s,
        Unit.BYTES_PER_SECOND,
        "higher",
        "The same program and reader with files in memory and step time 0, in its second epoch.",
        phase="",
        reason=reason,
    )


def harness_checks(result: TrainingResult, training: Training, how: str) -> list[Check]:
    """Return the checks that replace those on our own loop."""
    return [
        read_check(result),
        storage_check(result),
        summary_check(result, training),
        times_check(result),
        delivery_check(result, training, how),
    ]


def read_check(result: TrainingResult) -> Check:
    """Compare the sizes of the program's files with the bytes that it read.

    With our reader plugged in, its journal counts exactly. Otherwise the kernel's count of the
    processes' read calls is used, which also covers other files.
    """
    file_bytes = result.io.moved_bytes
    if result.plugged_bytes is not None:
        return _plugged_check(result.plugged_bytes, file_bytes)
    called_bytes = _total(result, "called_bytes")
    if called_bytes is None:
        return Check(
            name=READ,
            verdict="not_checked",
            sentence="The kernel does not report the reads of the program's processes.",
            figures={"file_bytes": file_bytes},
            mandatory=True,
        )
    return _called_check(called_bytes, file_bytes)


def _plugged_check(plugged_bytes: int, file_bytes: int) -> Check:
    figures = {"file_bytes": file_bytes, "plugged_bytes": plugged_bytes}
    agree = is_read_by_program(figures)
    return Check(
        name=READ,
        verdict="pass" if agree else "fail",
        sentence=(
            f"wattload's reader read {format_bytes(plugged_bytes)} inside the program; its files "
            f"have {format_bytes(file_bytes)}"
            + ("." if agree else ": not every file was read once.")
        ),
        figures=figures,
        mandatory=True,
    )


def _called_check(called_bytes: int, file_bytes: int) -> Check:
    ratio = called_bytes / file_bytes
    verdict = _verdict(ratio)
    endings = {
        "pass": ".",
        "warn": ": this includes code, settings and messages between its processes.",
        "fail": ": some files were not read completely.",
    }
    return Check(
        name=READ,
        verdict=verdict,
        sentence=(
            f"By the kernel's count, the program's read calls returned {ratio:.4f} of the files' "
            "bytes" + endings[verdict]
        ),
        figures={"file_bytes": file_bytes, "called_bytes": called_bytes, "ratio": ratio},
        mandatory=True,
    )


def _verdict(ratio: float) -> Verdict:
    if ratio < RATIO_LOW:
        return "fail"
    return "pass" if ratio <= RATIO_HIGH else "warn"


def storage_check(result: TrainingResult) -> Check:
    """Compare the sizes of the files with the bytes fetched from storage for the program.

    The kernel counts them per process, so other load on the drive is excluded.
    """
    file_bytes = result.io.moved_bytes
    storage_bytes = _total(result, "storage_bytes")
    if storage_bytes is None:
        return Check(
            name=STORAGE,
            verdict="not_checked",
            sentence="The kernel does not report the bytes fetched from storage for the program.",
            figures={"file_bytes": file_bytes},
        )
    ratio = storage_bytes / file_bytes
    proved = RATIO_LOW <= ratio <= RATIO_HIGH
    other = "the rest came from memory" if ratio < RATIO_LOW else "some were fetched more than once"
    return Check(
        name=STORAGE,
        verdict="pass" if proved else "warn",
        sentence=(
            f"The kernel fetched {ratio:.4f} of the files' bytes from storage for the program's "
            + ("processes." if proved else f"processes: {other}.")
        ),
        figures={"file_bytes": file_bytes, "storage_bytes": storage_bytes, "ratio": ratio},
    )


def summary_check(result: TrainingResult, training: Training) -> Check:
    """Compare the program's summary with its times of single steps."""
    difference = 0.0
    for name, values in result.recomputed.items():
        if name == "train_au_percentage" and not training.step_s:
            continue  # the program reports 0 without computation
        for ours, theirs in zip(values, result.reported[name], strict=True):
            difference = max(difference, abs(ours - theirs) / max(abs(theirs), 1e-12))
    figures = {"apart_fraction": difference}
    closes = is_summed_up(figures)
    return Check(
        name="harness_summary",
        verdict="pass" if closes else "fail",
        sentence=(
            "Utilisation and throughput in dlio-benchmark's summary "
            + ("agree" if closes else "do not agree")
            + " with its own times of single steps."
        ),
        figures=figures,
    )


def times_check(result: TrainingResult) -> Check:
    """Compare the program's times of single steps with the duration of the epoch.

    The program uses the wall clock, which may be adjusted; the epoch is timed by CLOCK_MONOTONIC.
    Steps exclude the barriers after them, so only an excess is a contradiction.
    """
    each = [trained for epoch in result.epochs for trained in epoch]
    worst = max(each, key=lambda trained: sum(trained.processed_s) / trained.duration_s)
    steps_s, epoch_s = sum(worst.processed_s), worst.duration_s
    figures = {"steps_s": steps_s, "epoch_s": epoch_s}
    fits = are_steps_close(figures)
    return Check(
        name="step_times_close",
        verdict="pass" if fits else "fail",
        sentence=(
            f"In the worst epoch, the program's steps sum to {steps_s:.3f} s by the wall clock; "
            f"the epoch took {epoch_s:.3f} s by the monotonic clock"
            + ("." if fits else ": the program's times are wrong.")
        ),
        figures=figures,
    )


def delivery_check(result: TrainingResult, training: Training, how: str) -> Check:
    """Return what our reader verified inside the program; its own reader hands over no bytes."""
    read_bytes, verified = result.io.moved_bytes, result.verified
    if verified is None:
        return Check(
            name="delivered_bytes",
            verdict="not_checked",
            sentence=(
                f"0 of {read_bytes} bytes were verified as they were read: dlio-benchmark owns the "
                f"loop and does not hand over bytes. {READ} compares how many it read with its "
                f"files, which {FILES} reads again afterwards."
            ),
            verified=(verified_reads(read_bytes, 0),),
        )
    wrong = sorted(training.samples.paths[index].name for index in verified.bad_blocks)
    verified_bytes = min(verified.verified_bytes, read_bytes)
    block_count = sum(verified.bad_blocks.values())
    figures = {
        "read_bytes": read_bytes,
        "verified_bytes": verified_bytes,
        "bad_blocks": block_count,
        "altered_samples": len(wrong),
        **dict.fromkeys(ROWS),
    }
    return Check(
        name="delivered_bytes",
        verdict="pass" if is_delivered(figures) else "fail",
        sentence=bad_blocks_sentence(wrong, block_count)
        if wrong
        else f"{verified_clause(verified_bytes, read_bytes, how)}.",
        figures=figures,
        mandatory=True,
        verified=(verified_reads(read_bytes, verified_bytes),),
    )


def _total(result: TrainingResult, name: str) -> int | None:
    """Return the sum of a count over epochs and accelerators; ``None`` if a part is missing."""
    counts = [getattr(trained, name) for epoch in result.epochs for trained in epoch]
    return None if None in counts else sum(counts)
