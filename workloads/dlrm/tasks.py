"""The tasks of a worker.

Generate a day file, convert a part to Parquet and that to packed rows, or the part to packed rows
at once, number a column's ids, shuffle packed rows, or do the conversion in memory.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from wattload.core.errors import TargetError, WattloadError, remedy
from wattload.core.io import Extent
from wattload.core.units import NS_PER_S
from wattload.loaders.aligned_io import PAGE_BYTES, aligned_buffer, round_up
from wattload.loaders.converters import (
    BadIdError,
    ConversionSettings,
    Converted,
    Converter,
    IdNumberer,
    NumberedColumn,
    Packed,
    RowFiles,
    RowShuffler,
    Scattered,
    Shuffled,
)
from wattload.loaders.data.criteo_day_files import Moved, Part, find_fault
from wattload.loaders.data.criteo_synthetic import MEAN_ROW_BYTES, SyntheticDay
from wattload.loaders.data.data_folder import open_data_folder
from wattload.loaders.data.media import DirectMedium

WRITE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class DayTask:
    """Generate the day file of ``day`` with ``row_count`` rows at ``path``, on ``medium``."""

    path: Path
    medium: DirectMedium
    seed: int
    day: int
    row_count: int


@dataclass(frozen=True, slots=True)
class PartTask:
    """Write ``part`` as the Parquet file or as the packed rows ``path``."""

    part: Part
    path: Path
    settings: ConversionSettings
    converter: Converter

    @property
    def inputs(self) -> Sequence[tuple[Path, int]]:
        """The file that is read, and the bytes of it."""
        return [(self.part.source, self.part.size_bytes)]


@dataclass(frozen=True, slots=True)
class PackTask:
    """Write the Parquet file ``source``, made from ``part``, as packed rows."""

    part: Part
    source: Path
    path: Path
    settings: ConversionSettings
    converter: Converter

    @property
    def inputs(self) -> Sequence[tuple[Path, int]]:
        """The file that is read, and its size in bytes."""
        return [(self.source, self.source.stat().st_size)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTask:
    """Write the numbers of one column's ids: a file of ``targets`` for each of ``sources``."""

    sources: Sequence[Path]
    targets: Sequence[Path]
    spills: Sequence[Path]
    settings: ConversionSettings
    threshold: int
    table_limit: int
    numberer: IdNumberer

    @property
    def path(self) -> Path:
        return self.targets[0]

    @property
    def inputs(self) -> Sequence[tuple[Path, int]]:
        """The files that are read, and the bytes of them, which are read twice."""
        return [(path, 2 * path.stat().st_size) for path in self.sources]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterTask:
    """Write the rows of a part by bucket; ``first_row`` is the number of its first among all."""

    source: RowFiles
    path: Path
    settings: ConversionSettings
    seed: int
    first_row: int
    bucket_count: int
    row_limit: int
    shuffler: RowShuffler

    @property
    def inputs(self) -> Sequence[tuple[Path, int]]:
        """The packed files that are read, and the bytes of each."""
        paths, widths = self.source.paths, self.source.widths
        return [
            (path, width * self.source.row_count) for path, width in zip(paths, widths, strict=True)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleTask:
    """Write the rows of a bucket, which ``sources`` have, in random order.

    ``path`` names the packed files ``targets``, in which a row has ``widths`` bytes.
    """

    sources: Sequence[Extent]
    path: Path
    targets: Sequence[Path]
    widths: Sequence[int]
    settings: ConversionSettings
    seed: int
    bucket: int
    shuffler: RowShuffler

    @property
    def inputs(self) -> Sequence[tuple[Path, int]]:
        """The files that parts of are read, and the bytes of these parts."""
        return [(extent.path, extent.length_bytes) for extent in self.sources]


@dataclass(frozen=True, slots=True)
class CeilingTask:
    """Convert ``part``, which is one block long, or some of gz, in memory for ``duration_ns``."""

    part: Part
    settings: ConversionSettings
    converter: Converter
    duration_ns: int


@dataclass(frozen=True, slots=True)
class MadeDay:
    """A generated day file, as counted while it was written."""

    size_bytes: int
    sha256: str


def make_day(task: DayTask, moved: Moved) -> MadeDay:
    """Write a synthetic day file, its bytes durably, and return its digest."""
    text = SyntheticDay(task.seed, task.day, task.row_count)
    buffer = aligned_buffer(WRITE_BYTES)
    sha256, size_bytes = hashlib.sha256(), 0
    with _target_errors(task.path):
        with open_data_folder(task.path.parent) as folder:
            expected_bytes = task.row_count * MEAN_ROW_BYTES
            handle = task.medium.create(folder, task.path.name, expected_bytes)
        try:
            while count := text.readinto(buffer.data):
                sha256.update(buffer[:count].data)
                blocks = buffer[: round_up(count, PAGE_BYTES)]
                task.medium.write(handle, task.path, blocks, size_bytes)
                size_bytes += count
                moved(0, blocks.size, 1)
            task.medium.finish(handle, task.path, size_bytes)
        finally:
            os.close(handle)
    return MadeDay(size_bytes, sha256.hexdigest())


def to_parquet(task: PartTask, moved: Moved) -> Converted:
    """Convert one part; raise ``DataError`` with file, line and byte offset of an invalid row."""
    with _target_errors(task.path):
        return task.converter.tsv_to_parquet(task.part, task.path, task.settings, moved)


def to_rows(task: PartTask, moved: Moved) -> Converted:
    """Pack one part; raises as ``to_parquet``."""
    with _target_errors(task.path):
        return task.converter.tsv_to_binary(task.part, task.path, task.settings, moved)


def to_binary(task: PackTask, moved: Moved) -> Packed:
    """Pack one Parquet file; an invalid id is reported by its TSV line."""
    try:
        with _target_errors(task.path):
            return task.converter.parquet_to_binary(task.source, task.path, task.settings, moved)
    except BadIdError as error:
        raise (find_fault(task.part) or error) from error


def number_ids(task: ColumnTask, moved: Moved) -> NumberedColumn:
    """Number one column's ids; raise ``DataError`` if there are too many for the memory."""
    with _target_errors(task.path):
        return task.numberer.number_column(
            task.sources,
            task.targets,
            task.spills,
            task.settings,
            threshold=task.threshold,
            table_limit=task.table_limit,
            moved=moved,
        )


def scatter_rows(task: ScatterTask, moved: Moved) -> Scattered:
    with _target_errors(task.path):
        return task.shuffler.scatter_rows(
            task.source,
            task.path,
            task.settings,
            seed=task.seed,
            first_row=task.first_row,
            bucket_count=task.bucket_count,
            row_limit=task.row_limit,
            moved=moved,
        )


def shuffle_rows(task: ShuffleTask, moved: Moved) -> Shuffled:
    with _target_errors(task.path):
        return task.shuffler.shuffle_rows(
            task.sources,
            task.targets,
            task.widths,
            task.settings,
            seed=task.seed,
            bucket=task.bucket,
            moved=moved,
        )


def against_memory(task: CeilingTask, moved: Moved) -> float:
    """Return the TSV bytes per second of all steps on one block, without a target.

    A first pass fills the page cache and is not counted. Raises as ``to_binary``.
    """
    del moved
    try:
        task.converter.in_memory(task.part, task.settings)
    except BadIdError as error:
        raise (find_fault(task.part) or error) from error
    done_bytes = passed_ns = 0
    start_ns = time.monotonic_ns()
    while passed_ns < task.duration_ns:
        task.converter.in_memory(task.part, task.settings)
        done_bytes += task.part.size_bytes
        passed_ns = time.monotonic_ns() - start_ns
    return done_bytes * NS_PER_S / passed_ns


@contextmanager
def _target_errors(path: Path) -> Iterator[None]:
    """Raise errors of the kernel as ``TargetError``."""
    try:
        yield
    except WattloadError:
        raise
    except OSError as error:
        raise TargetError(
            f"writing {path} failed: {error.strerror or error}; {remedy(error.errno)}, "
            "or choose another target with target.path="
        ) from error
