"""Bytes that block devices have moved, sampled on the clock of the power samples."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from wattload.core.blockstat import read_block_stat
from wattload.core.errors import PowerError, TargetError
from wattload.core.power import Channel, Evidence, Sample
from wattload.core.sysfs import LIVE, SECTOR_BYTES, Roots

SOURCE = "block"

_STAT_BYTES = 512
_READ, _WRITTEN = 2, 6
"""Sectors read and written (Linux ``Documentation/block/stat.rst``)."""


class BlockCounter:
    """One device's counters from ``/sys/class/block/<name>/stat``, held open; some 5 us a read."""

    def __init__(self, name: str, roots: Roots = LIVE) -> None:
        self.name = name
        self._roots = roots
        self._descriptor = -1

    def open(self) -> None:
        """Try a first read; raises ``PowerError`` with one sentence if there is nothing to read."""
        try:
            read_block_stat(self.name, self._roots)
        except TargetError as error:
            raise PowerError(str(error)) from error

    def read(self) -> Sequence[Sample]:
        """Return bytes read and written since the device appeared; no value if it is gone."""
        start_ns = time.monotonic_ns()
        counts = self._counts()
        end_ns = time.monotonic_ns()
        return [
            Sample(
                time_ns=(start_ns + end_ns) // 2,
                spread_ns=end_ns - start_ns,
                source=SOURCE,
                device=self.name,
                channel=channel,
                value=count,
                evidence=Evidence.MEASURED,
            )
            for channel, count in zip(
                (Channel.READ_BYTES, Channel.WRITTEN_BYTES), counts, strict=True
            )
        ]

    def close(self) -> None:
        """Give the descriptor back; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _counts(self) -> tuple[int | None, int | None]:
        """Return bytes read and written; a device that came back is found by its name again."""
        try:
            if self._descriptor < 0:
                path = self._roots.sys / "class/block" / self.name / "stat"
                self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            fields = os.pread(self._descriptor, _STAT_BYTES, 0).split()
            return int(fields[_READ]) * SECTOR_BYTES, int(fields[_WRITTEN]) * SECTOR_BYTES
        except (OSError, ValueError, IndexError):
            self.close()
            return None, None
