"""Writing the samples file: a line that names the columns, then one JSON array per sample.

Each round is written with one ``write()`` and no fsync. So the file survives the death of every
process of the run, and only its last line may be truncated. ``samples`` reads it. Imports little,
because a run waits for the process that writes.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from wattload.core.errors import PowerError

if TYPE_CHECKING:
    from wattload.core.power import Channel, Sample

SCHEMA_VERSION = 1
SAMPLE_COLUMNS = ("time_ns", "spread_ns", "source", "device", "channel", "value", "evidence")


class SampleLines:
    """Formats samples as lines of the file."""

    def __init__(self) -> None:
        self._middles: dict[tuple[str, str, Channel], str] = {}

    def of(self, samples: Iterable[Sample]) -> list[str]:
        return [self._line(sample) for sample in samples]

    def _line(self, sample: Sample) -> str:
        key = (sample.source, sample.device, sample.channel)
        middle = self._middles.get(key)
        if middle is None:
            middle = ",".join(json.dumps(part) for part in key)
            self._middles[key] = middle
        value = sample.value
        text = "null" if value is None or not math.isfinite(value) else repr(value)
        return f'[{sample.time_ns},{sample.spread_ns},{middle},{text},"{sample.evidence}"]\n'


class SampleFile:
    """Appends rounds of samples to a descriptor that it owns.

    ``clock`` has the fields of a ``core.clock.ClockAnchor``.

    Raises:
        PowerError: the first line can't be written.
    """

    def __init__(
        self, descriptor: int, *, host: str, period_s: float, clock: Mapping[str, int]
    ) -> None:
        self._descriptor = descriptor
        self._size_bytes = 0
        self.sample_count = 0
        self.lost_count = 0
        """Samples that could not be written, for example on a full disk."""
        head = {
            "schema_version": SCHEMA_VERSION,
            "host": host,
            "period_s": period_s,
            "clock": clock,
            "columns": SAMPLE_COLUMNS,
        }
        if not self._append(json.dumps(head, separators=(",", ":")) + "\n"):
            self.close()
            raise PowerError(
                "the samples file can't be written; is the disk of the runs folder full?"
            )

    def write(self, lines: Sequence[str]) -> None:
        """Append one round as a whole; if that fails, its samples count as lost."""
        if self._append("".join(lines)):
            self.sample_count += len(lines)
        else:
            self.lost_count += len(lines)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _append(self, text: str) -> bool:
        data = text.encode()
        try:
            written = os.write(self._descriptor, data)
        except OSError:
            written = 0
        if written == len(data):
            self._size_bytes += written
            return True
        if written:
            # A truncated line in the middle of the file would damage the next one.
            os.ftruncate(self._descriptor, self._size_bytes)
        return False
