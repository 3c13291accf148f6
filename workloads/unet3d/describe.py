"""What a reader needs to judge a unet3d run: details for the record, sentences for the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from wattload.core.record.check import Check
from wattload.core.units import format_bytes, format_rate
from wattload.loaders.samples import SampleConfig, SampleSet
from wattload.workloads.unet3d.accounting import Account
from wattload.workloads.unet3d.config import (
    PUBLISHED_SETTINGS,
    PUBLISHED_STEP_S,
    Config,
    Sizes,
)
from wattload.workloads.unet3d.job import Job
from wattload.workloads.unet3d.metrics import dlio_summary
from wattload.workloads.unet3d.sizes import payload_bytes
from wattload.workloads.unet3d.stepmetrics import step_series


def details(
    job: Job,
    account: Account,
    samples: SampleSet,
    loader: SampleConfig,
    *,
    device: str | None,
) -> Mapping[str, Any]:
    """Return the details of a run, plain values only; sizes are payload bytes.

    ``device`` is what batches were copied to.
    """
    sizes = np.array([payload_bytes(shape) for shape in job.dataset.shapes], dtype=np.float64)
    distribution = job.config.distribution()
    return {
        "record_format": job.config.record_format,
        "file_count": job.dataset.file_count,
        "data_set_rule": _rule(job),
        "record_divisor": job.config.record_divisor,
        "record_mean_bytes_configured": distribution.mean_bytes,
        "record_stdev_bytes_configured": distribution.stdev_bytes,
        "record_mean_bytes": float(sizes.mean()),
        "record_stdev_bytes": float(sizes.std()),
        "record_least_bytes": int(sizes.min()),
        "record_most_bytes": int(sizes.max()),
        "resize_bytes": job.config.row_bytes,
        "batch_samples": job.config.batch_samples,
        "accelerators": job.division.accelerators,
        "accelerators_per_rank": job.division.per_rank,
        "steps_per_epoch": job.steps,
        "epochs": job.config.epochs,
        "step_s": job.step_s,
        "hashed_samples": len(samples.hashed),
        "crc_checked": loader.sample_checks_crc(samples),
        "crc_asked": job.config.check_crc,
        "read_bytes_counted": loader.sample_bytes_counted,
        "decode_timed": loader.sample_decode_timed,
        "device": device,
        "steps": step_series(account),
        "dlio": dlio_summary(account, distribution.mean_bytes),
        "epoch_s": [
            max(e.duration_s for e in epochs) for epochs in zip(*account.ranks, strict=True)
        ],
    }


def remarks(
    job: Job,
    samples: SampleSet,
    loader: SampleConfig,
    *,
    cold: Check,
    hollow_count: int,
) -> list[str]:
    """Return the sentences that the page must print; ``hollow_count`` files were made again."""
    config, division = job.config, job.division
    found = list(_departures(job))
    if hollow_count:
        found.append(
            f"{hollow_count} of the {job.dataset.file_count} data files that were there had holes "
            "or blocks that were never written, which read as zeros without the drive; they were "
            "made again before the run."
        )
    if config.record_divisor > 1:
        found.append(
            f"Records are shrunk to 1/{config.record_divisor} of MLPerf's "
            f"({format_bytes(config.distribution().mean_bytes)} on average instead of "
            f"{format_bytes(config.record_mean_bytes)}): this run shows that everything works, "
            "its figures describe no real job."
        )
    found.extend(_small_data_set(job, cold))
    if config.sizes is Sizes.dlio:
        found.append(
            "Record sizes are drawn as DLIO draws them: their stdev is about 1/sqrt(2) of the one "
            "configured."
        )
    if loader.sample_checks_crc(samples) and not config.check_crc:
        found.append(
            "Loading by np.load computes the CRC-32 of every npz record, which nobody asked for; "
            "loader=direct does so only with workload.check_crc=true."
        )
    if division.world_size > 1 and division.per_rank == 1:
        found.append(f"Each of the {division.world_size} ranks emulates one accelerator.")
    return found


def ceiling_remark(account: Account, ceiling_bytes_per_s: float) -> str:
    """Return the sentence that puts the score beside what the harness does without a drive."""
    rate = account.total("read_bytes") / account.active_s()
    paced = "paced by the emulated accelerators" if account.step_s else "unpaced"
    return (
        f"The drive's files were read at {format_rate(rate)}, {paced}; without a drive and unpaced "
        f"the same loader and loop do {format_rate(ceiling_bytes_per_s)} on this host, "
        f"{ceiling_bytes_per_s / rate:.1f} times that."
    )


def _rule(job: Job) -> Mapping[str, Any]:
    """Return MLPerf's data set rule with the figures that it is computed from."""
    rule = job.rule
    return {
        "files": rule.files,
        "files_by_memory": rule.by_memory,
        "files_by_steps": rule.by_steps,
        "hosts_memory_bytes": rule.memory_bytes,
        "record_bytes": rule.record_bytes,
        "epoch_files": job.epoch_files,
        "holds": job.epoch_files >= rule.files,
    }


def _small_data_set(job: Job, cold: Check) -> Iterator[str]:
    """Yield what stands in for MLPerf's data set rule where the data set is smaller."""
    rule = job.rule
    if job.epoch_files >= rule.files:
        return
    stead = (
        "in the rule's stead the page cache was proved cold before every epoch"
        if cold.verdict == "pass"
        else "nothing stands in for the rule, as the page cache was not proved cold before every "
        "epoch"
    )
    yield (
        f"{job.epoch_files} files were read in an epoch where MLPerf Storage asks for "
        f"{rule.files} on this job's hosts: the larger of {rule.by_memory} (5 x "
        f"{format_bytes(rule.memory_bytes)} of memory) and {rule.by_steps} (500 steps); {stead}. "
        "Compare this run with others like it, not with published results."
    )


def _departures(job: Job) -> Iterator[str]:
    """Yield a sentence on whatever makes this another job than the published one."""
    published = Config()
    changed = [
        f"workload.{name} is {getattr(job.config, name)} instead of {getattr(published, name)}"
        for name in PUBLISHED_SETTINGS
        if getattr(job.config, name) != getattr(published, name)
    ]
    step_s = PUBLISHED_STEP_S.get(job.accelerator)
    if step_s is None:
        changed.append(
            f"accelerator {job.accelerator!r} with a step of {job.step_s} s stands for none that "
            "MLPerf Storage names"
        )
    elif job.step_s != step_s:
        changed.append(
            f"accelerator.step_s.unet3d is {job.step_s} s instead of {step_s} s for "
            f"{job.accelerator!r}"
        )
    if changed:
        yield (
            f"This is not the published unet3d job: {'; '.join(changed)}. Compare this run with "
            "others like it, not with published results."
        )
