"""Training run by an external program that owns the loop, and the checks of what it read.

Files, sample order and page cache are wattload's; the times are the program's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from wattload.core.errors import ConfigError, DataError, RunError
from wattload.core.io import VerifiedSamples
from wattload.core.record.results import Check
from wattload.core.units import format_percent
from wattload.core.workload import Device, Outcome, Progress, RunContext
from wattload.loaders.data.cold_cache import RESIDENT_LIMIT, evict, residency
from wattload.loaders.data.record_formats import record_format
from wattload.loaders.data.verification import FileState, bad_file_blocks, open_regular
from wattload.loaders.samples import (
    SampleHarnessConfig,
    SampleSet,
    TrainedEpoch,
    Training,
    TrainingResult,
)
from wattload.results.training.facts import (
    BARRIER,
    COMPUTE,
    COPY,
    DECODE,
    HASH,
    LOAD,
    OPEN,
    PHASE,
    REST,
    STEPS,
    Program,
    ProgramEpoch,
)
from wattload.workloads.training.checks import (
    UNVERIFIED,
    ColdCache,
    bad_blocks_sentence,
    verified_clause,
)
from wattload.workloads.training.dataset import PreparedData
from wattload.workloads.training.facts import ceiling_remark, remarks, training_facts
from wattload.workloads.training.job import Division, Job, epoch_order
from wattload.workloads.training.loop import EpochTimes, ceiling_samples

OUTPUT, CEILING_OUTPUT = "dlio", "dlio-ceiling"

CEILING_STEPS, CEILING_STEPS_LEAST = 8, 4
"""Steps of a ceiling epoch over all accelerators, and the minimum for each of them."""
CEILING_EPOCHS = 2
"""The last one counts: the program's workers run by then."""
FILES = "files_verified"
_MISSING = {
    COPY: "dlio-benchmark does not copy to a device",
    BARRIER: "not reported by dlio-benchmark",
    REST: "not reported by dlio-benchmark",
    STEPS: "dlio-benchmark does not report whole steps",
    OPEN: "dlio-benchmark does not time opening apart from reading",
    HASH: "dlio-benchmark discards the bytes, so nothing was hashed",
}


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
    trainings = _trainings(job, data, samples, context.seed, loader)
    files = FilesRead(samples, trainings)
    cold = ColdCache(data, context)
    results = _run(loader, trainings, cold, context)
    epochs = [
        (training, epoch)
        for training, each in zip(trainings, results, strict=True)
        for epoch in each.epochs
    ]
    left = None if loader.is_cold_in_every_epoch else residency(data.paths).fraction
    first, written = cold.checks()
    cold_cache = cold_check(first, len(epochs), loader, left)
    context.end_job()
    with context.phase("harness_ceiling", timed=False):
        ceiling, reason = _ceiling(loader, trainings[0], context.output_folder(CEILING_OUTPUT))
    facts = training_facts(
        job,
        data,
        list(zip(*(_times(*each) for each in epochs), strict=True)),
        samples,
        loader,
        missing={**_MISSING, DECODE: loader.sample_decode_timed},
        ceiling_bytes_per_s=ceiling,
        ceiling_reason=reason,
        program=Program(
            version=results[0].version,
            command=results[0].command,
            epochs=tuple(_program_epoch(epoch) for _, epoch in epochs),
        ),
    )
    outcome = Outcome(
        facts=facts,
        paths=(results[0].path,),
        checks=(
            cold_cache,
            written,
            delivery_check(results, samples, facts.read_bytes, loader.sample_verified),
        ),
        remarks=(
            *remarks(job, samples, loader, cold=cold_cache),
            *loader.differences(trainings[0]),
            *ceiling_remark(facts),
        ),
    )
    return outcome, files


class FilesRead:
    """The files that an outside program reads, noted before it starts and verified afterwards.

    A program that hands over no bytes leaves only this: that its files were whole after the timed
    phase, and did not change since before it.
    """

    def __init__(self, samples: SampleSet, trainings: Sequence[Training]) -> None:
        read = {index for epoch in trainings for order in epoch.orders for index in order}
        self._nonce = samples.nonce
        self._layout = record_format(samples.record_format)
        self._sizes = {samples.paths[index]: samples.file_bytes[index] for index in sorted(read)}
        self._states = {path: FileState.of(path) for path in self._sizes}

    def check(self, progress: Progress) -> Check:
        """Read every file from the drive, and compare its blocks with their stamps and sums."""
        file_bytes = sum(self._sizes.values())
        progress.begin("verifying data", read_bytes=file_bytes)
        is_sealed = self._nonce is not None
        found = {path: self._fault(path, progress) for path in self._sizes}
        progress.end()
        faults = [f"{path} {fault}" for path, fault in found.items() if fault]
        figures = {
            "file_count": len(found),
            "file_bytes": file_bytes,
            "verified_bytes": is_sealed
            * sum(self._sizes[path] for path, fault in found.items() if not fault),
            "wrong_count": len(faults),
        }
        return Check(
            name=FILES,
            verdict="fail" if faults else "pass" if is_sealed else "warn",
            sentence=f"{faults[0]}; {len(faults)} of {len(found)} files are not as they were."
            if faults
            else f"None of {len(found)} files changed during the run. {UNVERIFIED}."
            if not is_sealed
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
            if self._nonce is None:
                return ""
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


def _trainings(
    job: Job, data: PreparedData, samples: SampleSet, seed: int, loader: SampleHarnessConfig
) -> list[Training]:
    """Return the calls of the program: each accelerator gets the shard of one rank of our own loop.

    With a cold cache in every epoch these are calls of one epoch, else one call of all.
    """
    division = Division(world_size=job.division.accelerators, per_rank=1)
    sizes = np.array(data.record_bytes, dtype=np.float64)
    epochs = job.config.epochs
    calls = epochs if loader.is_cold_in_every_epoch else 1
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
                    epoch=call,
                    most_steps=job.config.steps_per_epoch,
                )
                for accelerator in range(job.division.accelerators)
            ],
            model=job.config.model,
            accelerator=job.accelerator,
            step_s=job.step_s,
            record_mean_bytes=float(sizes.mean()),
            record_stdev_bytes=float(sizes.std()),
            epochs=epochs // calls,
        )
        for call in range(calls)
    ]


def _run(
    loader: SampleHarnessConfig,
    trainings: Sequence[Training],
    cold: ColdCache,
    context: RunContext,
) -> list[TrainingResult]:
    folder = context.output_folder(OUTPUT)
    folder.mkdir()
    total_bytes = sum(training.epochs * training.epoch_bytes for training in trainings)
    context.progress.begin("reading", read_bytes=total_bytes)
    results = []
    try:
        for number, training in enumerate(trainings, 1):
            cold.before_epoch()
            own = folder / (f"epoch{number}" if training.epochs == 1 else "epochs")
            results.append(loader.train(training, own, lambda: context.phase(PHASE)))
    finally:
        context.progress.end()
    return results


def _ceiling(
    loader: SampleHarnessConfig, training: Training, folder: Path
) -> tuple[float | None, str]:
    """Return the program's rate from memory in bytes per second, or ``None`` and the reason."""
    one = ceiling_samples(training.samples)
    steps = max(CEILING_STEPS // training.accelerators, CEILING_STEPS_LEAST)
    order = [0] * (one.batch_samples * steps)
    orders = [order] * training.accelerators
    job = replace(training, samples=one, orders=orders, step_s=0.0, epochs=CEILING_EPOCHS)
    try:
        last = loader.train(job, folder, None).epochs[-1]
    except RunError as error:
        return None, f"the program failed from memory: {error}"
    return job.epoch_bytes / max(rank.duration_s for rank in last.ranks), ""


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


def _times(training: Training, epoch: TrainedEpoch) -> list[EpochTimes]:
    """Return an epoch of each accelerator; CPU time is known for all processes together."""
    return [
        EpochTimes(
            duration_s=rank.duration_s,
            parts_s={
                LOAD: rank.load_s,
                COMPUTE: tuple(
                    processed_s - load_s
                    for processed_s, load_s in zip(rank.processed_s, rank.load_s, strict=True)
                ),
            },
            processed_s=rank.processed_s,
            read_bytes=training.bytes_read(accelerator),
            cpu_s=epoch.counts.cpu_s / training.accelerators,
        )
        for accelerator, rank in enumerate(epoch.ranks)
    ]


def _program_epoch(epoch: TrainedEpoch) -> ProgramEpoch:
    return ProgramEpoch(
        window_s=epoch.window_s,
        called_bytes=epoch.counts.called_bytes,
        storage_bytes=epoch.counts.storage_bytes,
        peak_bytes=epoch.counts.peak_bytes,
        plugged_bytes=epoch.plugged_bytes,
        au=epoch.reported.au,
        samples_per_s=epoch.reported.samples_per_s,
        nominal_bytes_per_s=epoch.reported.nominal_bytes_per_s,
    )


def delivery_check(
    results: Sequence[TrainingResult], samples: SampleSet, read_bytes: int, how: str
) -> Check:
    """Return what our reader verified inside the program; its own reader hands over no bytes."""
    verified = VerifiedSamples()
    for result in results:
        verified.add(result.verified or VerifiedSamples())
    if results[0].verified is None:
        afterwards = f", which {FILES} reads again afterwards" if samples.nonce is not None else ""
        return Check(
            name="delivered_bytes",
            verdict="not_checked",
            sentence=(
                f"0 of {read_bytes} bytes were verified as they were read: dlio-benchmark owns the "
                "loop and does not hand over bytes. harness_bytes compares how many it read with "
                f"its files{afterwards}."
            ),
        )
    wrong = sorted(samples.paths[index].name for index in verified.bad_blocks)
    verified_bytes = min(verified.verified_bytes, read_bytes)
    block_count = sum(verified.bad_blocks.values())
    figures = {
        "read_bytes": read_bytes,
        "verified_bytes": verified_bytes,
        "bad_blocks": block_count,
        "altered_samples": len(wrong),
    }
    return Check(
        name="delivered_bytes",
        verdict="pass" if not wrong and verified_bytes == read_bytes else "fail",
        sentence=bad_blocks_sentence(wrong, block_count)
        if wrong
        else f"{verified_clause(verified_bytes, read_bytes, how)}.",
        figures=figures,
        mandatory=True,
    )
