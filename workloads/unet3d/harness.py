"""unet3d run by an external program that owns the loop, its metrics and its checks.

Files, sample order and page cache are wattload's; the times are the program's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np

from wattload.core.errors import ConfigError, DataError, RunError
from wattload.core.io import VerifiedSamples
from wattload.core.record.results import Check, Metric, Verdict
from wattload.core.units import MIB, Unit, format_bytes, format_percent
from wattload.core.workload import Device, Outcome, Progress, RunContext
from wattload.loaders.data.cold_cache import RESIDENT_LIMIT, evict, residency, worst_of_each
from wattload.loaders.data.record_formats import record_format
from wattload.loaders.data.verification import FileState, bad_file_blocks, open_regular
from wattload.loaders.samples import (
    SampleHarnessConfig,
    SampleSet,
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
_NO_MEMORY = "the memory of its processes could not be read: a worker had ended, or an old kernel"


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
    trainings = _trainings(job, samples, context.seed)
    files = FilesRead(samples, trainings)
    cold = ColdCache(data, context.communicator)
    results = _run(loader, trainings, cold, context)
    left = None if loader.is_cold_in_every_epoch else residency(data.paths).fraction
    first, written = worst_of_each(cold.checks())
    cold_cache = cold_check(first, len(trainings), loader, left)
    with context.phase("harness_ceiling", timed=False):
        ceiling, reason = _ceiling(loader, trainings[0], context.output_folder(CEILING_OUTPUT))
    times = _job_times(job, trainings, results, loader)
    outcome = Outcome(
        metrics=(
            *harness_metrics(times, results, trainings[0]),
            ceiling_metric(ceiling, reason),
        ),
        paths=(results[0].path,),
        checks=(
            cold_cache,
            written,
            *harness_checks(results, trainings, loader.sample_verified),
        ),
        details={
            **details(job, times, samples, loader, device=None),
            "harness": _harness_details(results),
        },
        remarks=(
            *remarks(job, samples, loader, cold=cold_cache),
            *loader.differences(trainings[0]),
            *([ceiling_remark(times, ceiling)] if ceiling is not None else []),
        ),
    )
    return outcome, files


class FilesRead:
    """The files that an outside program reads, noted before it starts and verified afterwards.

    A program that hands over no bytes leaves only this: that its files were whole after the timed
    phase, and did not change since before it.
    """

    def __init__(self, samples: SampleSet, trainings: Sequence[Training]) -> None:
        if samples.nonce is None:
            raise ValueError("the files have no stamps")
        read = {index for epoch in trainings for order in epoch.orders for index in order}
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


def _trainings(job: Job, samples: SampleSet, seed: int) -> list[Training]:
    """Return the program's epochs: each accelerator gets the shard of one rank of our own loop."""
    division = Division(world_size=job.division.accelerators, per_rank=1)
    distribution = job.config.distribution()
    return [
        Training(
            samples=samples,
            orders=[
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
            ],
            step_s=job.step_s,
            record_mean_bytes=distribution.mean_bytes,
            record_stdev_bytes=distribution.stdev_bytes,
        )
        for epoch in range(job.config.epochs)
    ]


def _run(
    loader: SampleHarnessConfig,
    trainings: Sequence[Training],
    cold: ColdCache,
    context: RunContext,
) -> list[TrainingResult]:
    folder = context.output_folder(OUTPUT)
    folder.mkdir()
    context.progress.begin("reading", read_bytes=sum(map(_read_bytes, trainings)))
    results = []
    try:
        for number, training in enumerate(trainings, 1):
            if number == 1 or loader.is_cold_in_every_epoch:
                cold.before_epoch()
            results.append(
                loader.train(training, folder / f"epoch{number}", lambda: context.phase(PHASE))
            )
    finally:
        context.progress.end()
    return results


def _read_bytes(training: Training) -> int:
    return sum(map(training.bytes_read, range(training.accelerators)))


def _ceiling(
    loader: SampleHarnessConfig, training: Training, folder: Path
) -> tuple[float | None, str]:
    """Return the program's rate from memory in bytes per second, or ``None`` and the reason."""
    one = ceiling_samples(training.samples)
    steps = max(CEILING_STEPS // training.accelerators, CEILING_STEPS_LEAST)
    order = [0] * (one.batch_samples * steps)
    job = replace(training, samples=one, orders=[order] * training.accelerators, step_s=0.0)
    try:
        result = loader.train(job, folder, None)
    except RunError as error:
        return None, f"the program failed from memory: {error}"
    return _read_bytes(job) / max(rank.duration_s for rank in result.ranks), ""


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
    job: Job,
    trainings: Sequence[Training],
    results: Sequence[TrainingResult],
    loader: SampleHarnessConfig,
) -> JobTimes:
    epochs = [_times(*each) for each in zip(trainings, results, strict=True)]
    return JobTimes(
        ranks=list(zip(*epochs, strict=True)),
        per_rank=1,
        batch_samples=job.config.batch_samples,
        step_s=job.step_s,
        missing={**_MISSING_TIMES, "decode_s": loader.sample_decode_timed},
    )


def _times(training: Training, result: TrainingResult) -> list[EpochTimes]:
    """Return the times of each accelerator; CPU time is known for all processes together."""
    return [
        EpochTimes(
            duration_s=rank.duration_s,
            load_s=rank.load_s,
            compute_s=tuple(
                processed_s - load_s
                for processed_s, load_s in zip(rank.processed_s, rank.load_s, strict=True)
            ),
            processed_s=rank.processed_s,
            payload_bytes=0,
            read_bytes=training.bytes_read(accelerator),
            cpu_s=result.counts.cpu_s / training.accelerators,
            hash_cpu_s=0.0,
        )
        for accelerator, rank in enumerate(result.ranks)
    ]


def _harness_details(results: Sequence[TrainingResult]) -> dict[str, object]:
    """Return the identity and the own report of the program, as JSON values; lists by epoch."""
    return {
        "version": results[0].version,
        "command": list(results[0].command),
        "output": OUTPUT,
        "summary": [dict(result.reported) for result in results],
        "called_bytes": [result.counts.called_bytes for result in results],
        "storage_bytes": [result.counts.storage_bytes for result in results],
        "plugged_bytes": _sum([result.plugged_bytes for result in results]),
    }


def _sum(counts: Sequence[int | None]) -> int | None:
    """Return the sum of a count over epochs; ``None`` if one is unknown."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def harness_metrics(
    times: JobTimes, results: Sequence[TrainingResult], training: Training
) -> list[Metric]:
    """Return the unet3d metrics available from the program's times, then its own."""
    ours = [
        seconds(metric.name, None, metric.meaning, reason=_NOT_HASHED)
        if metric.name == "hash_cpu_s"
        else metric
        for metric in metrics(times, training.record_mean_bytes)
    ]
    return [*ours, *_reported(results, training), _memory(results)]


def _reported(results: Sequence[TrainingResult], training: Training) -> list[Metric]:
    """Return the figures that the program prints, in SI units: means over its epochs."""

    def mean(name: str) -> float:
        return fmean(float(result.reported[name]) for result in results)

    return [
        fraction(
            "dlio_reported_au",
            mean("train_au_mean_percentage") / 100 if training.step_s else None,
            UNPACED,
            "Accelerator utilisation as printed by dlio-benchmark; 2.0.0 sums the configured step "
            "time.",
            headline=True,
        ),
        figure(
            "dlio_reported_samples_per_s",
            mean("train_throughput_mean_samples_per_second"),
            Unit.SAMPLES_PER_SECOND,
            "higher",
            "Throughput as printed by dlio-benchmark: the mean over epochs.",
        ),
        figure(
            "dlio_reported_nominal_bytes_per_s",
            mean("train_io_mean_MB_per_second") * MIB,
            Unit.BYTES_PER_SECOND,
            "higher",
            "Its samples per second times the configured mean record size. It prints this as MB/s "
            "but means MiB/s. These are nominal bytes, not bytes that moved.",
        ),
    ]


def _memory(results: Sequence[TrainingResult]) -> Metric:
    peaks = [result.counts.peak_bytes for result in results]
    return figure(
        "harness_peak_bytes",
        max((peak for peak in peaks if peak is not None), default=None)
        if None not in peaks
        else None,
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


def harness_checks(
    results: Sequence[TrainingResult], trainings: Sequence[Training], how: str
) -> list[Check]:
    """Return the checks that replace those on our own loop."""
    file_bytes = sum(map(_read_bytes, trainings))
    return [
        read_check(results, file_bytes),
        storage_check(results, file_bytes),
        summary_check(results),
        times_check(results),
        delivery_check(results, trainings[0].samples, file_bytes, how),
    ]


def read_check(results: Sequence[TrainingResult], file_bytes: int) -> Check:
    """Compare the sizes of the program's files with the bytes that it read.

    With our reader plugged in, its journal counts exactly. Otherwise the kernel's count of the
    processes' read calls is used, which also covers other files.
    """
    plugged_bytes = _sum([result.plugged_bytes for result in results])
    if plugged_bytes is not None:
        return _plugged_check(plugged_bytes, file_bytes)
    called_bytes = _sum([result.counts.called_bytes for result in results])
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


def storage_check(results: Sequence[TrainingResult], file_bytes: int) -> Check:
    """Compare the sizes of the files with the bytes fetched from storage for the program.

    The kernel counts them per process, so other load on the drive is excluded.
    """
    storage_bytes = _sum([result.counts.storage_bytes for result in results])
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


def summary_check(results: Sequence[TrainingResult]) -> Check:
    """Compare the program's summary with its times of single steps."""
    difference = max(
        abs(ours - theirs) / max(abs(theirs), 1e-12)
        for result in results
        for name, ours in result.recomputed.items()
        for theirs in result.reported[name]
    )
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


def times_check(results: Sequence[TrainingResult]) -> Check:
    """Compare the program's times of single steps with the timed window of the epoch.

    The program uses the wall clock, which may be adjusted; the epoch is timed by CLOCK_MONOTONIC.
    Steps exclude the barriers after them, so only an excess is a contradiction.
    """
    each = [(sum(rank.processed_s), result.window_s) for result in results for rank in result.ranks]
    steps_s, epoch_s = max(each, key=lambda times: times[0] / times[1])
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


def delivery_check(
    results: Sequence[TrainingResult], samples: SampleSet, read_bytes: int, how: str
) -> Check:
    """Return what our reader verified inside the program; its own reader hands over no bytes."""
    verified = VerifiedSamples()
    for result in results:
        verified.add(result.verified or VerifiedSamples())
    if results[0].verified is None:
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
    wrong = sorted(samples.paths[index].name for index in verified.bad_blocks)
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
