"""What a run reports: its facts, and remarks on what makes its figures special."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from wattload.core.record.results import Check
from wattload.core.units import format_bytes, format_rate
from wattload.loaders.samples import SampleConfig, SampleSet
from wattload.results.training.facts import (
    COMPUTE,
    DECODE,
    LOAD,
    STEPS,
    Spread,
    TrainingFacts,
    TrainingSettings,
)
from wattload.workloads.training.config import (
    PUBLISHED_SETTINGS,
    PUBLISHED_STEP_S,
    Config,
    Sizes,
    payload_bytes,
)
from wattload.workloads.training.job import Job
from wattload.workloads.training.loop import EpochTimes


def training_facts(
    job: Job,
    ranks: Sequence[Sequence[EpochTimes]],
    samples: SampleSet,
    loader: SampleConfig,
    *,
    missing: Mapping[str, str],
    ceiling_bytes_per_s: float | None,
    **others: Any,
) -> TrainingFacts:
    """Return the facts of a run with these epochs on each rank, and ``others`` that it has."""
    sizes = np.array([payload_bytes(shape) for shape in job.dataset.shapes], dtype=np.float64)
    return TrainingFacts(
        settings=TrainingSettings.model_validate(job.config),
        file_count=job.dataset.file_count,
        epoch_files=job.epoch_files,
        record_mean_bytes=float(sizes.mean()),
        record_stdev_bytes=float(sizes.std()),
        accelerators=job.division.accelerators,
        steps_per_epoch=job.steps,
        step_s=job.step_s,
        crc_checked=loader.sample_checks_crc(samples),
        ranks=[[epoch.summed() for epoch in epochs] for epochs in ranks],
        spreads=spreads_of([epoch for epochs in ranks for epoch in epochs]),
        missing=missing,
        ceiling_bytes_per_s=ceiling_bytes_per_s,
        **{
            "device": None,
            "draw": None,
            "ceiling_reason": "",
            "program": None,
            **others,
        },
    )


def spreads_of(epochs: Sequence[EpochTimes]) -> dict[str, Spread]:
    """Return the spreads of single times, of the kinds that all epochs have."""
    of_kind: dict[str, list[Sequence[float] | None]] = {
        LOAD: [epoch.parts_s[LOAD] for epoch in epochs],
        COMPUTE: [epoch.parts_s[COMPUTE] for epoch in epochs],
        STEPS: [epoch.step_s for epoch in epochs],
        DECODE: [epoch.decode_s for epoch in epochs],
    }
    found = {}
    for kind, of_epochs in of_kind.items():
        known = [seconds for seconds in of_epochs if seconds]
        if len(known) == len(epochs):
            every = [value for seconds in known for value in seconds]
            found[kind] = Spread(p50_s=median(every), max_s=max(every))
    return found


def remarks(
    job: Job,
    samples: SampleSet,
    loader: SampleConfig,
    *,
    cold: Check,
) -> list[str]:
    config, division = job.config, job.division
    found = list(_differences(job))
    if config.record_divisor > 1:
        found.append(
            f"Records are shrunk to 1/{config.record_divisor} of MLPerf's "
            f"({format_bytes(config.distribution().mean_bytes)} on average instead of "
            f"{format_bytes(config.record_mean_bytes)}). This is a functional test: its figures "
            "do not describe a real job."
        )
    found.extend(_small_data_set(job, cold))
    if config.sizes is Sizes.dlio:
        found.append(
            "Record sizes are drawn as in DLIO: their standard deviation is about 1/sqrt(2) of the "
            "configured one."
        )
    if loader.sample_checks_crc(samples) and not config.check_crc:
        found.append(
            f"loader={loader.name} computes the CRC-32 of every npz record (as np.load does), "
            "although workload.check_crc is false."
        )
    if division.world_size > 1 and division.per_rank == 1:
        found.append(f"Each of the {division.world_size} ranks emulates one accelerator.")
    return found


def ceiling_remark(facts: TrainingFacts) -> Iterator[str]:
    """Yield the remark that compares the read rate with the ceiling of the harness, if known."""
    rate, ceiling = facts.read_bytes_per_s, facts.ceiling_bytes_per_s
    if ceiling is not None:
        paced = "paced by the emulated accelerators" if facts.step_s else "unpaced"
        yield (
            f"Files were read from the drive at {format_rate(rate)}, {paced}. From memory and "
            f"unpaced, the same loader and loop reach {format_rate(ceiling)}, "
            f"{ceiling / rate:.1f} times that rate."
        )


def _small_data_set(job: Job, cold: Check) -> Iterator[str]:
    """Yield a remark if the data set is smaller than MLPerf's rule requires."""
    rule = job.rule
    if job.epoch_files >= rule.files:
        return
    cache = (
        "Instead, the page cache was verified to be cold before every epoch."
        if cold.verdict == "pass"
        else "Reads may have come from memory, because the page cache was not verified to be cold "
        "before every epoch."
    )
    yield (
        f"Each epoch read {job.epoch_files} files. MLPerf Storage requires {rule.files} on this "
        f"job's hosts: the larger of {rule.by_memory} (5 x {format_bytes(rule.memory_bytes)} of "
        f"memory) and {rule.by_steps} (500 steps). {cache} Compare this run with similar runs, not "
        "with published results."
    )


def _differences(job: Job) -> Iterator[str]:
    """Yield a remark that lists the differences from the published job, if any."""
    published = Config()
    found = [
        f"workload.{name} is {getattr(job.config, name)} instead of {getattr(published, name)}"
        for name in PUBLISHED_SETTINGS
        if getattr(job.config, name) != getattr(published, name)
    ]
    step_s = PUBLISHED_STEP_S.get(job.accelerator)
    if step_s is None:
        found.append(
            f"accelerator {job.accelerator!r} with a step of {job.step_s} s is not one of MLPerf "
            "Storage's"
        )
    elif job.step_s != step_s:
        found.append(
            f"accelerator.step_s.unet3d is {job.step_s} s instead of {step_s} s for "
            f"{job.accelerator!r}"
        )
    if found:
        yield (
            f"This is not the published unet3d job: {'; '.join(found)}. Compare this run with "
            "similar runs, not with published results."
        )
