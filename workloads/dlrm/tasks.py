"""What a worker does: make a day file, turn a part into Parquet, turn that into packed rows."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wattload.core.errors import TargetError, WattloadError
from wattload.core.units import NS_PER_S
from wattload.loaders.criteo import columnar, packed, synthetic
from wattload.loaders.criteo.columnar import Columnar, ColumnarSettings
from wattload.loaders.criteo.files import CountedFile, Moved, Part
from wattload.loaders.criteo.tsv import find_fault
from wattload.loaders.datafolder.safefiles import sync_folder

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

CEILING_NS = NS_PER_S // 2
WRITE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class DayTask:
    """Make the day file of ``day`` with ``row_count`` rows at ``path``."""

    path: Path
    seed: int
    day: int
    row_count: int


@dataclass(frozen=True, slots=True)
class ColumnarTask:
    """Write ``part`` as the Parquet file ``path``."""

    part: Part
    path: Path
    settings: ColumnarSettings


@dataclass(frozen=True, slots=True)
class PackTask:
    """Write the Parquet file ``source``, which was made from ``part``, as packed rows."""

    part: Part
    source: Path
    path: Path


@dataclass(frozen=True, slots=True)
class CeilingTask:
    """Convert ``part`` against memory; it is one block long."""

    part: Part
    settings: ColumnarSettings


def make_day(task: DayTask, moved: Moved) -> int:
    """Write a synthetic day file, durable on return; return its size in bytes."""
    with (
        _target_errors(task.path),
        io.BufferedWriter(CountedFile(task.path, "wb", moved), WRITE_BYTES) as file,
    ):
        for text in synthetic.blocks(task.seed, task.day, task.row_count):
            file.write(text.data)
        file.flush()
        os.fsync(file.fileno())
        sync_folder(task.path.parent)
        return file.tell()


def to_parquet(task: ColumnarTask, moved: Moved) -> Columnar:
    """Convert one part; raises ``DataError`` with file, line and byte offset of a bad row."""
    with _target_errors(task.path):
        return columnar.tsv_to_parquet(task.part, task.path, task.settings, moved)


def to_binary(task: PackTask, moved: Moved) -> int:
    """Pack one Parquet file and return its rows; a bad id is named by its line in the TSV."""
    try:
        with _target_errors(task.path):
            return packed.parquet_to_binary(task.source, task.path, moved)
    except packed.BadIdError as error:
        raise (find_fault(task.part) or error) from error


def against_memory(task: CeilingTask, moved: Moved) -> float:
    """Return the TSV bytes per second of both steps on one block, with no target to wait for.

    The block is read from the page cache, the Parquet file lies in memory, packed rows are dropped.
    A first pass, which fills the page cache, is not counted.
    """
    _convert_in_memory(task, moved)
    done_bytes = 0
    start_ns = time.monotonic_ns()
    while (passed_ns := time.monotonic_ns() - start_ns) < CEILING_NS:
        _convert_in_memory(task, moved)
        done_bytes += task.part.size_bytes
    return done_bytes * NS_PER_S / passed_ns


def _convert_in_memory(task: CeilingTask, moved: Moved) -> None:
    with io.BytesIO() as file, _Discard() as sink:
        columnar.convert(task.part, file, task.settings, moved)
        packed.convert(file, sink, "memory")


class _Discard(io.RawIOBase):
    """Takes bytes and forgets them."""

    def write(self, data: ReadableBuffer, /) -> int:
        return memoryview(data).nbytes


@contextmanager
def _target_errors(path: Path) -> Iterator[None]:
    """Turn what the kernel refuses into one sentence about the target."""
    try:
        yield
    except WattloadError:
        raise
    except OSError as error:
        raise TargetError(
            f"{path} can't be written: {error.strerror or error}; "
            "free some room or choose another target with target.path="
        ) from error
