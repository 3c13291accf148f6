"""Whole record files by O_DIRECT, one at a time, with a journal of what was read."""

from __future__ import annotations

import json
import os
import time
from bisect import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from wattload.core.files import open_folder
from wattload.loaders.aligned_io import HUGE_PAGE_BYTES, aligned_buffer, round_up
from wattload.loaders.data.record_formats import record_format
from wattload.loaders.data.verification import bad_file_blocks
from wattload.loaders.direct.config import Config
from wattload.loaders.direct.loader import FileReader

SETTINGS_VARIABLE = "WATTLOAD_DLIO_READER"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSettings:
    """The settings of our reader, which the program's processes receive in their environment.

    ``journal`` is where the reader logs each file that it has read, ``largest_bytes`` the size of
    the largest; files are sealed under ``nonce``. The other fields are those of the loader's and
    the workload's configuration.
    """

    journal: str
    largest_bytes: int
    record_format: str
    block_bytes: int
    queue_depth: int
    check_crc: bool
    nonce: int | None

    def environment(self) -> dict[str, str]:
        return {SETTINGS_VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def from_environment(cls) -> Self:
        return cls(**json.loads(os.environ[SETTINGS_VARIABLE]))


class RecordFiles:
    """Reads record files one at a time into one buffer, made for the largest of them."""

    def __init__(self, settings: ReaderSettings) -> None:
        self._settings = settings
        self._layout = record_format(settings.record_format)
        # Room for the end of a file in the largest logical block of any drive.
        self._buffer = aligned_buffer(round_up(settings.largest_bytes, HUGE_PAGE_BYTES))
        self._reader = FileReader(
            Config(block_bytes=settings.block_bytes, queue_depth=settings.queue_depth),
            buffers=[self._buffer],
        )
        journal = Path(settings.journal)
        with open_folder(journal.parent) as folder:
            self._journal = folder.append(journal.name)
        path = self._reader.path()
        self._note({"engine": path.engine, "remarks": path.remarks})

    def payload(self, link: str) -> NDArray[np.uint8]:
        """Return a record's payload, a view that the next call overwrites; log what was read.

        Raises:
            DataError: the file is not a record.
            OSError: the file can't be read.
        """
        path = Path(link).resolve()  # DLIO reads links, which O_NOFOLLOW refuses
        size_bytes = path.stat().st_size
        done = self._reader.submit([(path, size_bytes)], self._buffer[np.newaxis]).result()
        note = {"at_ns": time.monotonic_ns(), "path": str(path), "read_bytes": done.moved_bytes}
        raw = self._buffer[:size_bytes]
        if self._settings.nonce is not None:
            bad = bad_file_blocks(self._layout, self._settings.nonce, path, raw)
            note |= {"verified_bytes": size_bytes, "bad_blocks": bad}
        self._note(note)
        return self._layout.payload(raw, str(path), check_crc=self._settings.check_crc)

    def close(self) -> None:
        self._reader.close()
        os.close(self._journal)

    def _note(self, line: dict[str, Any]) -> None:
        os.write(self._journal, json.dumps(line).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class ReaderSummary:
    """What our reader logged inside the program: bytes read and verified, and the engines used.

    ``read_bytes`` has those of each epoch, ``bad_blocks`` the count of each file with wrong blocks,
    by its name.
    """

    read_bytes: tuple[int, ...]
    verified_bytes: int
    bad_blocks: Mapping[str, int]
    engines: tuple[str, ...]
    remarks: tuple[str, ...]


def read_summary(path: Path, starts_ns: Sequence[int]) -> ReaderSummary:
    """Return what our reader logged; nothing if the journal does not exist.

    ``starts_ns`` has the start of each epoch on CLOCK_MONOTONIC: it ends where the next starts.
    """
    try:
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    except FileNotFoundError:
        lines = []
    opened = [line for line in lines if "engine" in line]
    read_bytes = [0] * len(starts_ns)
    bad = Counter[str]()
    for line in lines:
        if "read_bytes" in line:
            epoch = bisect(starts_ns, line["at_ns"], lo=1) - 1
            read_bytes[epoch] += int(line["read_bytes"])
        if line.get("bad_blocks"):
            bad[Path(line["path"]).name] += int(line["bad_blocks"])
    return ReaderSummary(
        read_bytes=tuple(read_bytes),
        verified_bytes=sum(int(line.get("verified_bytes", 0)) for line in lines),
        bad_blocks=bad,
        engines=tuple(dict.fromkeys(line["engine"] for line in opened)),
        remarks=tuple(dict.fromkeys(remark for line in opened for remark in line["remarks"])),
    )
