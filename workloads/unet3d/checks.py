"""The checks, details and remarks of a unet3d run.

The checks compare delivered with written data and cover the page cache before each epoch.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattload.core.errors import DataError
from wattload.core.io import VerifiedSamples
from wattload.core.record.results import Check, VerifiedBytes, amount
from wattload.core.storage.extents import written_extents_check
from wattload.core.units import format_bytes, format_rate
from wattload.core.workload import Communicator, DeclaredCheck, Figures
from wattload.loaders.data.cold_cache import cold_cache_check, evict
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
from wattload.workloads.unet3d.loop import Delivered, DeliveredRow
from wattload.workloads.unet3d.metrics import (
    PHASE,
    JobTimes,
    dlio_summary,
    step_series,
)

RATIO_LOW, RATIO_HIGH = 0.98, 1.02
"""Bytes counted for an outside program over those of its files."""

SUMMARY_TOLERANCE = 1e-6

ROWS = ("hashed_samples", "expected_samples", "altered_rows", "altered_device_rows")
"""Figures of the rows of batches."""

_OUTSIDE = ("dlio",)
"""Loaders that are programs of their own."""


def is_delivered(figures: Figures) -> bool:
    """Return whether nothing that was verified differs from what was written.

    Every drawn sample's row was hashed. A program that owns the loop hands over no rows, so their
    counts are ``None``; then every byte was verified.
    """
    has_rows = any(figures[name] is not None for name in ROWS)
    if amount(figures, "altered_samples") or (has_rows and not _are_rows_right(figures)):
        return False
    read_bytes, verified_bytes = amount(figures, "read_bytes"), amount(figures, "verified_bytes")
    is_verified = 0 < verified_bytes <= read_bytes and amount(figures, "bad_blocks") == 0
    return is_verified and (has_rows or verified_bytes == read_bytes)


def _are_rows_right(figures: Figures) -> bool:
    are_hashed = amount(figures, "hashed_samples") == amount(figures, "expected_samples") > 0
    on_device = figures["altered_device_rows"]
    is_device_right = on_device is None or amount(figures, "altered_device_rows") == 0
    return are_hashed and amount(figures, "altered_rows") == 0 and is_device_right


def are_files_whole(figures: Figures) -> bool:
    is_whole = amount(figures, "verified_bytes") == amount(figures, "file_bytes") > 0
    return is_whole and amount(figures, "wrong_count") == 0


def is_read_by_program(figures: Figures) -> bool:
    """Return whether an outside program read its files, and nothing else."""
    file_bytes = amount(figures, "file_bytes")
    if "plugged_bytes" in figures:
        return amount(figures, "plugged_bytes") == file_bytes > 0
    return RATIO_LOW <= amount(figures, "called_bytes") / file_bytes <= RATIO_HIGH


def is_from_storage(figures: Figures) -> bool:
    """Return whether an outside program's bytes came from storage, each once."""
    ratio = amount(figures, "storage_bytes") / amount(figures, "file_bytes")
    return RATIO_LOW <= ratio <= RATIO_HIGH


def is_summed_up(figures: Figures) -> bool:
    """Return whether an outside program's summary follows from its times of single steps."""
    return amount(figures, "apart_fraction") <= SUMMARY_TOLERANCE


CHECKS = {
    "cold_cache": DeclaredCheck(fault="the page cache held parts of the files before an epoch"),
    "written_extents": DeclaredCheck(
        fault="the file system has no data for parts of the files", optional=True
    ),
    "delivered_bytes": DeclaredCheck(
        fault="the loader delivered other bytes than the files have", not_made_by=_OUTSIDE
    ),
    "step_times_close": DeclaredCheck(
        fault="a part of the steps is in no stage of them", optional=True
    ),
    "files_verified": DeclaredCheck(
        fault="a file is not the one that was written", made_only_by=_OUTSIDE
    ),
    "harness_bytes": DeclaredCheck(
        fault="the program read other bytes than its files have", made_only_by=_OUTSIDE
    ),
    "harness_storage_bytes": DeclaredCheck(
        fault="bytes came from the page cache, or were read twice",
        optional=True,
        made_only_by=_OUTSIDE,
    ),
    "harness_summary": DeclaredCheck(
        fault="the program's summary is not that of its single steps", made_only_by=_OUTSIDE
    ),
}
"""The checks that only a unet3d run can make."""


class ColdCache:
    """Evicts the files before each epoch and keeps its check; one rank per host does this."""

    def __init__(self, data: PreparedData, world: Communicator) -> None:
        self._paths = data.paths
        self._file_bytes = data.dataset.file_bytes
        self._world = world
        self._checks: list[Check] = []
        hosts = world.all_gather(os.uname().nodename)
        self._leads_host = hosts.index(os.uname().nodename) == world.rank

    def before_epoch(self) -> None:
        """Evict the files from the page cache on every host, and check that they are gone.

        Raises:
            DataError: a file has another size, or bytes of it are on no device.
            OSError: a file can't be opened.
        """
        self._world.barrier()
        if self._leads_host:
            evict(self._paths)
            self._require_sizes()
            self._checks.append(cold_cache_check(self._paths))
            self._checks.append(written_extents_check(self._paths, remedy=HOLES_REMEDY))
        self._world.barrier()

    def _require_sizes(self) -> None:
        for path, size_bytes in zip(self._paths, self._file_bytes, strict=True):
            found_bytes = path.stat().st_size
            if found_bytes != size_bytes:
                what = "is truncated" if found_bytes < size_bytes else "was changed"
                raise DataError(
                    f"{path} {what}: expected {size_bytes} bytes, got {found_bytes}; {HOLES_REMEDY}"
                )

    def checks(self) -> list[Check]:
        """Return the checks of all epochs and hosts on rank 0, none on the other ranks."""
        return [check for checks in self._world.gather(self._checks) for check in checks]


class Delivery:
    """Collects what a rank verified of the samples that it was delivered.

    The loader compares the blocks that it decodes with their stamps and sums. The digest of a drawn
    row of a batch must match the start of the record in its file. If batches are copied to a
    device, so must the digest of the row as read back from there; a missing one is wrong.
    """

    def __init__(
        self, data: PreparedData, drawn: Collection[int], *, how: str, device: bool
    ) -> None:
        self._data = data
        self._drawn = drawn
        self._how = how
        self._device = device
        self._read_bytes = 0
        self._verified = VerifiedSamples()
        self._rows: list[DeliveredRow] = []
        self._expected_count = 0

    def add(self, order: Sequence[int], delivered: Delivered) -> None:
        """Keep what was verified of one epoch that loaded the samples in ``order``."""
        self._read_bytes += delivered.read_bytes
        self._verified.add(delivered.verified)
        self._rows.extend(delivered.rows)
        self._expected_count += sum(index in self._drawn for index in order)

    def checks(self, world: Communicator) -> tuple[Check, ...]:
        """Return the check of all ranks on rank 0, none on the other ranks.

        Every rank has to call this.
        """
        names = self._data.dataset.names
        found = _Delivery.joined(world.gather(self._compared()))
        if world.rank:
            return ()
        verified = found.verified
        wrong = sorted(names[index] for index in verified.bad_blocks)
        figures = {
            "read_bytes": found.read_bytes,
            "verified_bytes": verified.verified_bytes,
            "bad_blocks": sum(verified.bad_blocks.values()),
            "altered_samples": len(wrong),
            "hashed_samples": found.row_count,
            "expected_samples": found.expected_count,
            "altered_rows": len(found.bad_rows),
            "altered_device_rows": len(found.bad_device_rows) if self._device else None,
        }
        check = Check(
            name="delivered_bytes",
            verdict="pass" if is_delivered(figures) else "fail",
            sentence=_sentence(found, wrong, self._how, device=self._device),
            figures=figures,
            mandatory=True,
            verified=(verified_reads(found.read_bytes, verified.verified_bytes),),
        )
        return (check,)

    def _compared(self) -> _Delivery:
        names, digests, faults = self._data.dataset.names, dict[int, str](), list[str]()
        for index in dict.fromkeys(row.index for row in self._rows):
            try:
                digests[index] = self._data.row_digest(index)
            except DataError as error:
                faults.append(str(error))
        wrong = [row for row in self._rows if row.row_digest != digests.get(row.index)]
        return _Delivery(
            read_bytes=self._read_bytes,
            verified=self._verified,
            row_count=len(self._rows),
            expected_count=self._expected_count,
            faults=faults,
            bad_rows=[names[row.index] for row in wrong],
            bad_device_rows=[
                names[row.index]
                for row in self._rows
                if self._device and row.device_digest != digests.get(row.index)
            ],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Delivery:
    """What ranks compared; the rows that differ, by the names of their samples.

    ``faults`` are the errors of files that are no longer records, so that no row can be theirs.
    """

    read_bytes: int
    verified: VerifiedSamples
    row_count: int
    expected_count: int
    faults: Sequence[str]
    bad_rows: Sequence[str]
    bad_device_rows: Sequence[str]

    @classmethod
    def joined(cls, ranks: Sequence[_Delivery]) -> _Delivery:
        """Return what all of them compared; no ranks compared nothing."""
        verified = VerifiedSamples()
        for rank in ranks:
            verified.add(rank.verified)
        return cls(
            read_bytes=sum(rank.read_bytes for rank in ranks),
            verified=verified,
            row_count=sum(rank.row_count for rank in ranks),
            expected_count=sum(rank.expected_count for rank in ranks),
            faults=[fault for rank in ranks for fault in rank.faults],
            bad_rows=[name for rank in ranks for name in rank.bad_rows],
            bad_device_rows=[name for rank in ranks for name in rank.bad_device_rows],
        )


def verified_reads(read_bytes: int, verified_bytes: int) -> VerifiedBytes:
    """Return how many of the bytes read in the timed phase were verified."""
    return VerifiedBytes(
        phase=PHASE, kind="read", moved_bytes=read_bytes, verified_bytes=verified_bytes
    )


def bad_blocks_sentence(wrong: Sequence[str], block_count: int) -> str:
    """Return the sentence on samples with wrong blocks, named in ``wrong``."""
    return (
        f"{len(wrong)} sample{'s' * (len(wrong) > 1)} had {block_count} "
        f"block{'s that differ' if block_count > 1 else ' that differs'} from what was written, "
        f"{wrong[0]} first: the data was changed, or its path corrupts data."
    )


def verified_clause(verified_bytes: int, read_bytes: int, how: str) -> str:
    """Return the clause on how many bytes were verified, and how."""
    return f"{verified_bytes} of {read_bytes} bytes read were verified by stamps and sums ({how})"


def _sentence(found: _Delivery, wrong: Sequence[str], how: str, *, device: bool) -> str:
    if wrong:
        return bad_blocks_sentence(wrong, sum(found.verified.bad_blocks.values()))
    if not found.row_count or found.row_count != found.expected_count:
        return (
            f"{found.row_count} of the {found.expected_count} rows to hash were delivered, so the "
            "delivered bytes are unproven."
        )
    if found.faults:
        return (
            f"{len(found.bad_rows)} of {found.row_count} rows in the batches have no valid file to "
            f"be compared with: {found.faults[0]}."
        )
    if found.bad_rows:
        return (
            f"{len(found.bad_rows)} of {found.row_count} rows in the batches differ from their "
            f"samples, {found.bad_rows[0]} first: the loader does not deliver what it reads."
        )
    if found.bad_device_rows:
        return (
            f"{len(found.bad_device_rows)} of {found.row_count} rows read back from the device "
            f"differ or are missing, {found.bad_device_rows[0]} first: the copies to it are not "
            "reliable."
        )
    back = ", and so do these rows read back from the device" if device else ""
    verified = verified_clause(found.verified.verified_bytes, found.read_bytes, how)
    return f"{verified}. {found.row_count} drawn rows of batches match their files{back}."


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
        "hashed_rows": len(samples.drawn),
        "verified": loader.sample_verified,
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
