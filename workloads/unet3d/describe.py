"""What a reader needs to judge a unet3d run: details for the record, sentences for the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from wattload.core.units import format_bytes
from wattload.loaders.samples import SampleLoaderConfig, SampleSet
from wattload.workloads.unet3d.accounting import Account
from wattload.workloads.unet3d.config import Sizes
from wattload.workloads.unet3d.job import Job
from wattload.workloads.unet3d.metrics import dlio_summary
from wattload.workloads.unet3d.sizes import payload_bytes


def details(
    job: Job, account: Account, samples: SampleSet, *, checks_crc: bool, required_files: int
) -> Mapping[str, Any]:
    """Return the details of a run, plain values only; sizes are payload bytes."""
    sizes = np.array([payload_bytes(shape) for shape in job.dataset.shapes], dtype=np.float64)
    distribution = job.config.distribution()
    return {
        "record_format": job.config.record_format,
        "file_count": job.dataset.file_count,
        "mlperf_file_count": required_files,
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
        "crc_checked": checks_crc,
        "crc_asked": job.config.check_crc,
        "dlio": dlio_summary(account, distribution.mean_bytes),
        "epoch_s": [
            max(e.duration_s for e in epochs) for epochs in zip(*account.ranks, strict=True)
        ],
    }


def remarks(
    job: Job, samples: SampleSet, loader: SampleLoaderConfig, *, required_files: int
) -> list[str]:
    """Return the sentences that the page must print."""
    config, division = job.config, job.division
    found = []
    if config.record_divisor > 1:
        found.append(
            f"Records are shrunk to 1/{config.record_divisor} of MLPerf's "
            f"({format_bytes(config.distribution().mean_bytes)} on average instead of "
            f"{format_bytes(config.record_mean_bytes)}): this run shows that everything works, "
            "its figures describe no real job."
        )
    if job.dataset.file_count < required_files:
        found.append(
            f"{job.dataset.file_count} files were read where MLPerf Storage asks for "
            f"{required_files} on this host; compare this run with others like it, not with "
            "published results."
        )
    if config.sizes is Sizes.dlio:
        found.append(
            "Record sizes are drawn as DLIO draws them: their stdev is about 1/sqrt(2) of the one "
            "configured."
        )
    if loader.sample_checks_crc(samples) and not config.check_crc:
        found.append(
            "np.load computes the CRC-32 of every npz record, which nobody asked for; "
            "loader=direct does so only with workload.check_crc=true."
        )
    if division.world_size > 1 and division.per_rank == 1:
        found.append(f"Each of the {division.world_size} ranks emulates one accelerator.")
    return found
