"""Whole record files by O_DIRECT, one at a time, with a journal of what was read."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.loaders.aligned import HUGE_PAGE_BYTES, aligned_buffer, round_up
from wattload.loaders.direct import Config
from wattload.loaders.direct.reader import DirectReader
from wattload.loaders.dlio.errand import Errand
from wattload.loaders.formats import record_format


class RecordFiles:
    """Reads record files one at a time into one buffer, made for the largest of them."""

    def __init__(self, errand: Errand) -> None:
        self._errand = errand
        self._layout = record_format(errand.record_format)
        # Room for a file's end in the largest logical block that drives have.
        self._buffer = aligned_buffer(round_up(errand.largest_bytes, HUGE_PAGE_BYTES))
        self._reader = DirectReader(
            Config(block_bytes=errand.block_bytes, queue_depth=errand.queue_depth),
            buffers=[self._buffer],
        )
        self._journal = os.open(
            errand.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
        )
        path = self._reader.path()
        self._note({"engine": path.engine, "remarks": path.remarks})

    def payload(self, link: str) -> NDArray[np.uint8]:
        """Return a record's payload, a view that the next call overwrites; notes what was read.

        Raises ``DataError`` for a file that is no record, ``OSError`` for one that can't be read.
        """
        path = Path(link).resolve()  # DLIO is given links, which O_NOFOLLOW refuses
        size_bytes = path.stat().st_size
        read_bytes = self._reader.submit(path, self._buffer, size_bytes).result()
        at_ns = time.monotonic_ns()
        self._note({"at_ns": at_ns, "path": str(path), "read_bytes": read_bytes})
        return self._layout.payload(
            self._buffer[:size_bytes], str(path), check_crc=self._errand.check_crc
        )

    def close(self) -> None:
        """Give the reader and the journal back."""
        self._reader.close()
        os.close(self._journal)

    def _note(self, line: dict[str, Any]) -> None:
        os.write(self._journal, json.dumps(line).encode() + b"\n")
