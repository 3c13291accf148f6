"""The checks, details and remarks of a unet3d run.

The checks compare delivered with written data and cover the page cache before each epoch.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wattload.core.record.results import Check
from wattload.core.units import format_bytes, format_rate
from wattload.core.workload import Communicator
from wattload.loaders.data.cold_cache import cold_cache_check, evict
from wattload.loaders.data.written_extents import written_extents_check
from wattload.loaders.samples import SampleConfig, SampleSet
from wattload.workloads.unet3d.config import (
    PUBLISHED_SETTINGS,
    PUBLISHED_STEP_S,
    Config,
    Sizes,
    payload_bytes,
)
from wattload.workloads.unet3d.dataset import HOLES_REMEDY, PreparedData
from wattload.workloads.unet3d.job import Job
from wattload.workloads.unet3d.loop import DeliveredSample
from wattload.workloads.unet3d.metrics import JobTimes, dlio_summary, step_series
from wattload.workloads.unet3d.verdicts import is_delivered


class ColdCache:
    """Evicts the files before each epoch and keeps its check; one rank per host does this."""

    def __init__(self, paths: Sequence[Path], world: Communicator) -> None:
        self._paths = paths
        self._world = world
        self._checks: list[Check] = []
        hosts = world.all_gather(os.uname().nodename)
        self._leads_host = hosts.index(os.uname().nodename) == world.rank

    def before_epoch(self) -> None:
        """Evict the files from the page cache on every host, and check that they are gone.

        Raises:
            DataError: bytes of a file are on no device.
            OSError: a file can't be opened.
        """
        self._world.barrier()
        if self._leads_host:
            evict(self._paths)
            self._checks.append(cold_cache_check(self._paths))
            self._checks.append(written_extents_check(self._paths, remedy=HOLES_REMEDY))
        self._world.barrier()

    def checks(self) -> list[Check]:
        """Return the checks of all epochs and hosts on rank 0, none on the other ranks."""
        return [check for checks in self._world.gather(self._checks) for check in checks]


class Delivery:
    """Collects the digests of the samples that a rank hashes.

    The loader's digest of the whole decoded payload must match the manifest. The digest of the
    batch row must match the start of the record in its file. If batches are copied to a device, so
    must the digest of the row as read back from there. A missing digest fails like a wrong one.
    """

    def __init__(self, data: PreparedData, hashed: Collection[int], *, device: bool) -> None:
        self._data = data
        self._hashed = hashed
        self._device = device
        self._delivered: list[DeliveredSample] = []
        self._expected_count = 0

    def add(self, order: Sequence[int], delivered: Sequence[DeliveredSample]) -> None:
        """Keep the digests of one epoch that loaded the samples in ``order``."""
        self._delivered.extend(delivered)
        self._expected_count += sum(index in self._hashed for index in order)

    def checks(self, world: Communicator) -> tuple[Check, ...]:
        """Return the check of all ranks' digests on rank 0, none on the other ranks.

        Every rank has to call this.
        """
        of_ranks = world.gather(self._compared())
        if world.rank:
            return ()
        count, expected = (sum(part[place] for part in of_ranks) for place in (0, 1))
        wrong = _Mismatches(*([n for part in of_ranks for n in part[place]] for place in (2, 3, 4)))
        figures = {
            "hashed_samples": count,
            "expected_samples": expected,
            "altered_samples": len(wrong.payloads),
            "altered_rows": len(wrong.rows),
            "altered_device_rows": len(wrong.device_rows) if self._device else None,
        }
        check = Check(
            name="delivered_bytes",
            verdict="pass" if is_delivered(figures) else "fail",
            sentence=_sentence(count, expected, wrong, device=self._device),
            figures=figures,
            mandatory=True,
        )
        return (check,)

    def _compared(self) -> tuple[int, int, list[str], list[str], list[str]]:
        """Return this rank's actual and expected counts of digests, and the differing samples."""
        hashed = [sample for sample in self._delivered if sample.payload_digest is not None]
        row = self._data.row_digest
        return (
            len(hashed),
            self._expected_count,
            [self._name(s) for s in hashed if s.payload_digest != self._data.digest(s.index)],
            [self._name(s) for s in self._delivered if s.row_digest != row(s.index)],
            [
                self._name(s)
                for s in self._delivered
                if self._device and s.device_digest != row(s.index)
            ],
        )

    def _name(self, sample: DeliveredSample) -> str:
        return self._data.dataset.names[sample.index]


class _Mismatches(NamedTuple):
    """Names of the samples whose bytes differ from those written, by where that was found."""

    payloads: Sequence[str]
    rows: Sequence[str]
    device_rows: Sequence[str]


def _sentence(count: int, expected: int, wrong: _Mismatches, *, device: bool) -> str:
    if not count or count != expected:
        return (
            f"{count} of the {expected} samples to hash have a digest, so the delivered bytes are "
            "unproven."
        )
    if wrong.payloads:
        return (
            f"{len(wrong.payloads)} of {count} hashed samples differ from what was written, "
            f"{wrong.payloads[0]} first: the data was changed, or its path corrupts data."
        )
    if wrong.rows:
        return (
            f"{len(wrong.rows)} of {count} rows in the batches differ from their samples, "
            f"{wrong.rows[0]} first: the loader does not deliver what it reads."
        )
    if wrong.device_rows:
        return (
            f"{len(wrong.device_rows)} of {count} rows read back from the device differ or are "
            f"missing, {wrong.device_rows[0]} first: the copies to it are not reliable."
        )
    back = ", and so do their rows read back from the device" if device else ""
    return f"All {count} hashed samples match what was written{back}."


def details(
    job: Job,
    times: JobTimes,
    samples: SampleSet,
    loader: SampleConfig,
    *,
    device: str | None,
) -> Mapping[str, Any]:
    """Return the details of a run as JSON values; sizes are payload bytes.

    ``device`` is the device that batches were copied to.
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
        "steps": step_series(times),
        "dlio": dlio_summary(times, distribution.mean_bytes),
        "epoch_s": [max(e.duration_s for e in epochs) for epochs in zip(*times.ranks, strict=True)],
    }


def remarks(
    job: Job,
    samples: SampleSet,
    loader: SampleConfig,
    *,
    cold: Check,
) -> list[str]:
    """Return the remarks for the page."""
    config, division = job.config, job.division
    found = list(_differences(job))
    if config.record_divisor > 1:
        found.append(
            f"Records are shrunk to 1/{config.record_divisor} of MLPerf's "
            f"({format_bytes(config.distribution().mean_bytes)} on average instead of "
            f"{format_bytes(config.record_mean_bytes)}). This is a functional test; its figures "
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


def ceiling_remark(times: JobTimes, ceiling_bytes_per_s: float) -> str:
    """Return the remark that compares the read rate with the ceiling of the harness."""
    rate = times.total("read_bytes") / times.active_s()
    paced = "paced by the emulated accelerators" if times.step_s else "unpaced"
    return (
        f"Files were read from the drive at {format_rate(rate)}, {paced}. From memory and unpaced, "
        f"the same loader and loop reach {format_rate(ceiling_bytes_per_s)} on this host, "
        f"{ceiling_bytes_per_s / rate:.1f} times that rate."
    )


def _rule(job: Job) -> Mapping[str, Any]:
    """Return MLPerf's data set rule and the figures behind it."""
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
        f"Each epoch read {job.epoch_files} files; MLPerf Storage requires {rule.files} for this "
        f"job's hosts, the larger of {rule.by_memory} (5 x {format_bytes(rule.memory_bytes)} of "
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
