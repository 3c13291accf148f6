"""What the loader delivered against what was written, by SHA-256 of whole payloads."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.record.check import Check
from wattload.core.workload import Communicator
from wattload.workloads.unet3d.dataset import PreparedData
from wattload.workloads.unet3d.loop import Delivered


class Delivery:
    """Collects the digests that a rank's loader made of what it handed over."""

    def __init__(self, data: PreparedData) -> None:
        self._data = data
        self._delivered: list[Delivered] = []

    def add(self, delivered: Sequence[Delivered]) -> None:
        """Keep the digests of one epoch."""
        self._delivered.extend(delivered)

    def check(self, world: Communicator) -> Check:
        """Return whether all ranks' digests are the manifest's; every rank must call it."""
        altered = [
            self._data.dataset.names[index]
            for index, digest in self._delivered
            if digest != self._data.digest(index)
        ]
        sizes = [self._data.dataset.file_bytes[index] for index, _ in self._delivered]
        of_ranks = world.gather((len(sizes), sum(sizes), altered))
        count = sum(part[0] for part in of_ranks)
        names = [name for part in of_ranks for name in part[2]]
        return Check(
            name="delivered_bytes",
            verdict="fail" if names or not count else "pass",
            sentence=_sentence(count, names),
            figures={
                "hashed_samples": count,
                "hashed_file_bytes": sum(part[1] for part in of_ranks),
                "altered_samples": len(names),
            },
            mandatory=True,
        )


def _sentence(count: int, altered: Sequence[str]) -> str:
    if not count:
        return "No delivered sample was hashed, so nothing proves that the right bytes came."
    if altered:
        return (
            f"{len(altered)} of {count} hashed samples were delivered with other bytes than were "
            f"written, {altered[0]} first: the data was changed, or the path to it is not sound."
        )
    return f"All {count} hashed samples were delivered with the bytes that were written."
