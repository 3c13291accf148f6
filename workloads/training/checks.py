"""The checks that a run makes: of delivered data, and of the page cache before each epoch."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from wattload.core.checks.io import written_extents_check
from wattload.core.errors import DataError
from wattload.core.io import VerifiedSamples
from wattload.core.record.results import Check
from wattload.core.workload import Communicator, RunContext
from wattload.loaders.data.cold_cache import cold_cache_check, evict, worst_over_hosts
from wattload.workloads.training.dataset import PreparedData
from wattload.workloads.training.loop import Delivered, DeliveredRow

UNVERIFIED = "Wattload did not write the files, so their contents are unverified"


class ColdCache:
    """Evicts the files before each epoch and keeps its check; one rank per host does this."""

    def __init__(self, data: PreparedData, context: RunContext) -> None:
        self._paths = data.paths
        self._file_bytes = data.dataset.file_bytes
        self._remedy = data.dataset.remedy
        self._world = context.communicator
        self._leads_host = context.local.rank == 0
        self._checks: list[Check] = []

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
            self._checks.append(written_extents_check(self._paths, remedy=self._remedy))
        self._world.barrier()

    def _require_sizes(self) -> None:
        for path, size_bytes in zip(self._paths, self._file_bytes, strict=True):
            found_bytes = path.stat().st_size
            if found_bytes != size_bytes:
                what = "is truncated" if found_bytes < size_bytes else "was changed"
                raise DataError(
                    f"{path} {what}: expected {size_bytes} bytes, got {found_bytes}; {self._remedy}"
                )

    def checks(self) -> list[Check]:
        """Return the worst checks of all epochs and hosts on rank 0, none on the other ranks."""
        return worst_over_hosts(self._world.gather((os.uname().nodename, self._checks)))


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
        is_sealed = self._data.dataset.sealed
        is_right = found.is_right(sealed=is_sealed)
        clause = UNVERIFIED
        if is_sealed:
            clause = verified_clause(verified.verified_bytes, found.read_bytes, self._how)
        check = Check(
            name="delivered_bytes",
            verdict="fail" if not is_right else "pass" if is_sealed else "warn",
            sentence=_sentence(found, wrong, clause, device=self._device),
            figures=figures,
            mandatory=True,
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

    def is_right(self, *, sealed: bool) -> bool:
        """Whether all drawn rows were hashed, and nothing that was verified differs.

        Of files that are not ``sealed``, the drawn rows alone are compared.
        """
        has_all_rows = self.row_count == self.expected_count > 0
        has_bad = self.verified.bad_blocks or self.bad_rows or self.bad_device_rows
        has_bytes = not sealed or 0 < self.verified.verified_bytes <= self.read_bytes
        return has_all_rows and has_bytes and not has_bad

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


def _sentence(found: _Delivery, wrong: Sequence[str], verified: str, *, device: bool) -> str:
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
    return f"{verified}. {found.row_count} drawn rows of batches match their files{back}."
