"""Plans of reads over files with a stamp per sector, and what every loader must report."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.loaders.faults import breaking_file
from wattload.core.io import DataPath, Stamps
from wattload.loaders.block_reads import BlockReadConfig, ReadFile, ReadPlan, ReadResult
from wattload.loaders.stamps import seal

SECTOR = 512
FILE_BYTES = 1 << 20


def stamps_of(word: int) -> Stamps:
    """Return the stamps of a file."""
    return Stamps(nonce=7, word=word, first_block=5, unit_bytes=SECTOR)


def stamped_content(word: int, size: int) -> bytes:
    """Return random bytes in which every sector has its stamp."""
    stamps = stamps_of(word)
    content = np.random.default_rng(word).integers(0, 256, size, dtype=np.uint8)
    seal(content, stamps, first_block=stamps.first_block, unit_bytes=SECTOR)
    return content.tobytes()


def stamped_file(
    path: Path, word: int = 1, size: int = FILE_BYTES, *, gpu: str | None = None
) -> ReadFile:
    """Write a file of ``stamped_content``."""
    path.write_bytes(stamped_content(word, size))
    return ReadFile(path=path, size_bytes=size, stamps=stamps_of(word), gpu=gpu)


def plan_of(*files: ReadFile, requesters: int = 64, **changes: Any) -> ReadPlan:
    """Return a plan of a fraction of a second with so many requesters per file."""
    values: dict[str, Any] = {
        "files": files, "block_bytes": SECTOR, "in_flight": requesters * len(files),
        "queue_pairs": 2, "queue_size": 64, "duration_s": 0.2, "seed": 11,
    } | changes  # fmt: skip
    return ReadPlan(**{"read_bytes": values["block_bytes"]} | values)


def change_byte(path: Path, offset: int) -> None:
    """Change one byte of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0xFF]))


class Watch:
    """Counts the reads of the timed window, and how often it begins and ends."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.edges_ns = (0, 0)
        self.reads = self.read_bytes = 0

    def begin(self) -> None:
        self.events.append("begin")

    def moved(self, reads: int, read_bytes: int) -> None:
        assert self.events == ["begin"]
        self.reads += reads
        self.read_bytes += read_bytes

    def end(self, start_ns: int, end_ns: int) -> None:
        self.events.append("end")
        self.edges_ns = (start_ns, end_ns)


class Reading(NamedTuple):
    """A result, what a watch saw of it, and its path."""

    result: ReadResult
    watch: Watch
    path: DataPath


def read(config: BlockReadConfig, plan: ReadPlan, folder: Path) -> Reading:
    """Make the reads of a plan, and check what every loader reports alike."""
    config.check()
    reader, watch = config.block_reader(plan, folder), Watch()
    try:
        result, path = reader.run(watch), reader.path()
    finally:
        reader.close()
        reader.close()
    assert watch.events == ["begin", "end"]
    assert watch.edges_ns == (result.start_ns, result.end_ns)
    assert watch.reads == result.operations == sum(result.file_operations)
    assert len(result.file_operations) == len(plan.files)
    assert path.counts is None
    return Reading(result, watch, path)


def read_beside_a_broken_drive(config: BlockReadConfig, folder: Path) -> ReadResult:
    """Read pages of two files, the first of them on a drive that breaks in the middle."""
    size = 8 << 20
    with breaking_file(folder, size, stamped_content(0, size)) as path:
        broken = ReadFile(path=path, size_bytes=size, stamps=stamps_of(0))
        whole = stamped_file(folder / "whole")
        plan = plan_of(broken, whole, duration_s=0.4, read_bytes=4096)
        return read(config, plan, folder).result
