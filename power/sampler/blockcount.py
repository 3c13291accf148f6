"""Bytes that block devices have moved, sampled on the clock of the power samples."""

from __future__ import annotations

import time
from collections.abc import Sequence

from wattload.core.blockstat import read_block_stat
from wattload.core.errors import PowerError, TargetError
from wattload.core.power import Channel, Evidence, Sample

SOURCE = "block"


class BlockCounter:
    """One device's counters from ``/sys/class/block/<name>/stat``; some 30 us a read."""

    def __init__(self, name: str) -> None:
        self.name = name

    def open(self) -> None:
        """Try a first read; raises ``PowerError`` with one sentence if there is nothing to read."""
        try:
            read_block_stat(self.name)
        except TargetError as error:
            raise PowerError(str(error)) from error

    def read(self) -> Sequence[Sample]:
        """Return bytes read and written since the device appeared; no value if it is gone."""
        start_ns = time.monotonic_ns()
        try:
            stat = read_block_stat(self.name)
            counts: tuple[int | None, int | None] = (stat.read_bytes, stat.write_bytes)
        except TargetError:
            counts = (None, None)
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
