"""What the loader delivered against what was written, payload by payload and row by row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from wattload.core.record.check import Check
from wattload.core.workload import Communicator
from wattload.workloads.unet3d.dataset import PreparedData
from wattload.workloads.unet3d.loop import Delivered


class Delivery:
    """Collects what a rank's loader handed over of the samples that were chosen for hashing.

    Two digests must agree: the loader's, of the whole decoded payload, with the manifest's; and
    that of the batch row as it was handed over, with the front of the record in its file. Where
    batches are copied to a device, so must that of the row as it came back from there. A chosen
    sample without digests is as bad as one with other bytes.
    """

    def __init__(self, data: PreparedData, hashed: Collection[int], *, device: bool) -> None:
        self._data = data
        self._hashed = hashed
        self._device = device
        self._delivered: list[Delivered] = []
        self._expected_count = 0

    def add(self, order: Sequence[int], delivered: Sequence[Delivered]) -> None:
        """Keep the digests of one epoch, which loaded the samples in ``order``."""
        self._delivered.extend(delivered)
        self._expected_count += sum(index in self._hashed for index in order)

    def check(self, world: Communicator) -> Check:
        """Return whether all ranks' digests are as they must be; every rank must call it."""
        of_ranks = world.gather(self._compared())
        count, expected = (sum(part[place] for part in of_ranks) for place in (0, 1))
        wrong = _Wrong(*([n for part in of_ranks for n in part[place]] for place in (2, 3, 4)))
        right = count == expected != 0 and not any(wrong)
        return Check(
            name="delivered_bytes",
            verdict="pass" if right else "fail",
            sentence=_sentence(count, expected, wrong, device=self._device),
            figures={
                "hashed_samples": count,
                "expected_samples": expected,
                "altered_samples": len(wrong.payloads),
                "altered_rows": len(wrong.rows),
                "altered_device_rows": len(wrong.device_rows) if self._device else None,
            },
            mandatory=True,
        )

    def _compared(self) -> tuple[int, int, list[str], list[str], list[str]]:
        """Return this rank's counts of digests made and expected, and the samples that differ."""
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

    def _name(self, sample: Delivered) -> str:
        return self._data.dataset.names[sample.index]


class _Wrong(NamedTuple):
    """Names of the samples with other bytes than were written, by where those were met."""

    payloads: Sequence[str]
    rows: Sequence[str]
    device_rows: Sequence[str]


def _sentence(count: int, expected: int, wrong: _Wrong, *, device: bool) -> str:
    if not count or count != expected:
        return (
            f"{count} of the {expected} samples chosen for hashing came with a digest, so nothing "
            "proves that the right bytes came."
        )
    if wrong.payloads:
        return (
            f"{len(wrong.payloads)} of {count} hashed samples were delivered with other bytes than "
            f"were written, {wrong.payloads[0]} first: the data was changed, or the path to it is "
            "not sound."
        )
    if wrong.rows:
        return (
            f"{len(wrong.rows)} of {count} rows in the batches hold other bytes than their "
            f"samples, {wrong.rows[0]} first: the loader does not hand over what it reads."
        )
    if wrong.device_rows:
        return (
            f"{len(wrong.device_rows)} of {count} rows came back from the device with other bytes, "
            f"or not at all, {wrong.device_rows[0]} first: the copies to it can't be trusted."
        )
    back = ", and their rows came back from the device with the same" if device else ""
    return f"All {count} hashed samples were delivered with the bytes that were written{back}."
