"""What the loader delivered against what was written, payload by payload and row by row."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from wattload.core.record.check import Check
from wattload.core.workload import Communicator
from wattload.workloads.unet3d.dataset import PreparedData
from wattload.workloads.unet3d.loop import Delivered


class Delivery:
    """Collects what a rank's loader handed over of the samples that were chosen for hashing.

    Two digests must agree: the loader's, of the whole decoded payload, with the manifest's; and
    that of the batch row as it was handed over, with the front of the record in its file. A chosen
    sample without digests is as bad as one with other bytes.
    """

    def __init__(self, data: PreparedData, hashed: Collection[int]) -> None:
        self._data = data
        self._hashed = hashed
        self._delivered: list[Delivered] = []
        self._expected_count = 0

    def add(self, order: Sequence[int], delivered: Sequence[Delivered]) -> None:
        """Keep the digests of one epoch, which loaded the samples in ``order``."""
        self._delivered.extend(delivered)
        self._expected_count += sum(index in self._hashed for index in order)

    def check(self, world: Communicator) -> Check:
        """Return whether all ranks' digests are as they must be; every rank must call it."""
        hashed = [sample for sample in self._delivered if sample.payload_digest is not None]
        of_ranks = world.gather(
            (
                len(hashed),
                self._expected_count,
                [self._name(s) for s in hashed if s.payload_digest != self._data.digest(s.index)],
                [
                    self._name(s)
                    for s in self._delivered
                    if s.row_digest != self._data.row_digest(s.index)
                ],
            )
        )
        count, expected = (sum(part[place] for part in of_ranks) for place in (0, 1))
        altered, rows = ([n for part in of_ranks for n in part[place]] for place in (2, 3))
        return Check(
            name="delivered_bytes",
            verdict="fail" if altered or rows or not count or count != expected else "pass",
            sentence=_sentence(count, expected, altered, rows),
            figures={
                "hashed_samples": count,
                "expected_samples": expected,
                "altered_samples": len(altered),
                "altered_rows": len(rows),
            },
            mandatory=True,
        )

    def _name(self, sample: Delivered) -> str:
        return self._data.dataset.names[sample.index]


def _sentence(count: int, expected: int, altered: Sequence[str], rows: Sequence[str]) -> str:
    if not count or count != expected:
        return (
            f"{count} of the {expected} samples chosen for hashing came with a digest, so nothing "
            "proves that the right bytes came."
        )
    if altered:
        return (
            f"{len(altered)} of {count} hashed samples were delivered with other bytes than were "
            f"written, {altered[0]} first: the data was changed, or the path to it is not sound."
        )
    if rows:
        return (
            f"{len(rows)} of {count} rows in the batches hold other bytes than their samples, "
            f"{rows[0]} first: the loader does not hand over what it reads."
        )
    return f"All {count} hashed samples were delivered with the bytes that were written."
