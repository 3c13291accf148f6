"""What converts Criteo's logs: the part of a loader that workload=dlrm uses.

A loader's configuration returns a ``Converter``, which is sent to the worker processes and does one
file at a time there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.core.io import DataPath, Extent
from wattload.core.workload import LoaderConfig
from wattload.loaders.data.criteo_day_files import (
    CATEGORICALS,
    COLUMNS,
    Bytes,
    Moved,
    Part,
    Span,
    split_rows,
    take_logarithms,
)

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData


@dataclass(frozen=True, slots=True)
class Converted:
    """What one part became: its rows, and where groups of them begin in the TSV.

    ``landmarks`` holds ``(offset in the day file in bytes, row in the part)`` of each row group of
    a Parquet file, or of each block of packed rows. ``read`` has the bytes of TSV that moved,
    ``written`` those of each output file. ``dropped_offset`` is the place of the first dropped line
    in the day file, in bytes.

    Of a gz file the bytes that moved are those of gz, and all other places are those in its text.
    ``unpack_cpu_s`` is the CPU time of the thread that unpacked it, in seconds.
    """

    row_count: int
    landmarks: tuple[tuple[int, int], ...]
    read: tuple[Span, ...]
    written: tuple[Span, ...]
    dropped_count: int
    dropped_offset: int | None
    unpack_cpu_s: float


class PartCount:
    """Counts the rows of a part while its blocks are converted, and the lines that are not rows."""

    def __init__(self) -> None:
        self._row_count = 0
        self._landmarks: list[tuple[int, int]] = []
        self._dropped_count = 0
        self._dropped_offset: int | None = None

    def add(self, offset_bytes: int, row_count: int) -> None:
        """Count the rows of a block, which is at this place in the day file."""
        if row_count:
            self._landmarks.append((offset_bytes, self._row_count))
            self._row_count += row_count

    def drop(self, line_count: int, first_offset_bytes: int) -> None:
        """Count lines that are left out; the first of them is at this place in the day file."""
        if self._dropped_offset is None:
            self._dropped_offset = first_offset_bytes
        self._dropped_count += line_count

    def converted(
        self, read: tuple[Span, ...], written: tuple[Span, ...], unpack_cpu_s: float
    ) -> Converted:
        return Converted(
            self._row_count,
            tuple(self._landmarks),
            read,
            written,
            self._dropped_count,
            self._dropped_offset,
            unpack_cpu_s,
        )


@dataclass(frozen=True, slots=True)
class Packed:
    """What one Parquet file became: its rows, what was read of it, and each output file."""

    row_count: int
    read: tuple[Span, ...]
    written: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionSettings:
    """How a part is written: the codec, and the bytes of TSV that become one row group.

    Without ``columnar`` a part becomes packed rows at once. With ``numeric_ids`` the Parquet file
    has ids as int32: the number modulo 40,000,000. With ``logarithms`` packed rows have log(x + 1)
    of the integers. With ``splits_columns``, which needs these, packed rows are in the files of
    ``packed_paths``. With ``whole_ids``, which needs split columns, these have the ids' 32 bits
    instead of their number modulo 40,000,000. With ``drops_bad_rows`` lines that are not rows are
    left out and counted instead of refused.
    """

    compression: str
    block_bytes: int
    columnar: bool = True
    numeric_ids: bool = False
    logarithms: bool = False
    splits_columns: bool = False
    whole_ids: bool = False
    drops_bad_rows: bool = False


def packed_bytes(rows: NDArray[np.int32], settings: ConversionSettings) -> Iterator[Bytes]:
    """Yield the bytes for each packed file; the rows, shape (rows, columns), may be changed."""
    if settings.logarithms:
        take_logarithms(rows)
    if settings.splits_columns:
        yield from split_rows(rows)
    else:
        yield rows.view(np.uint8).reshape(-1)


_MAGIC = b"PAR1"
_FRAME_BYTES = 8
"""The length of a Parquet file's footer and the magic number, at its end."""

RARE_NUMBER = 1
"""The number of all ids that appear less often than the threshold."""
FIRST_NUMBER = 2
ROW_ENTRY_BYTES = 48
"""Memory per row that is shuffled, beside the row."""
ID_ENTRY_BYTES = 16
"""Memory per id while a column is numbered."""
SPILL_COUNT = 64
"""Files that one column may be spilled to."""


@dataclass(frozen=True, slots=True)
class NumberedColumn:
    """What a column of ids became.

    ``known_count`` different ids have numbers of their own, ``rare_count`` share one. ``read`` has
    each time that each file of ids was read, ``written`` each file of numbers. ``spilled_bytes``
    are ids that memory had no room for.
    """

    known_count: int
    rare_count: int
    spilled_bytes: int
    read: tuple[tuple[Span, ...], ...]
    written: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class RowFiles:
    """The packed files of some rows, and the bytes of a row in each."""

    paths: tuple[Path, ...]
    widths: tuple[int, ...]
    row_count: int


@dataclass(frozen=True, slots=True)
class Scattered:
    """The rows of a part by bucket: how many, what was read of each file, and what was written."""

    row_count: int
    read: tuple[Span, ...]
    written: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Shuffled:
    """The rows of a bucket in random order: how many, their bytes, and what was written."""

    row_count: int
    size_bytes: int
    written: tuple[Span, ...]


class BadIdError(DataError):
    """A categorical id in a Parquet file is not 8 hex digits."""


class Converter(Protocol):
    """Converts one file at a time in a worker process. It can be pickled.

    ``moved`` may be called from several threads. All methods raise ``DataError`` for bad input and
    ``OSError`` for a target that is full or failed. Memory grows with ``block_bytes`` and not with
    the part.
    """

    def tsv_to_parquet(
        self, part: Part, path: Path, settings: ConversionSettings, moved: Moved
    ) -> Converted:
        """Write one part of a day file as a new Parquet file, durable on return."""
        ...

    def tsv_to_binary(
        self, part: Part, path: Path, settings: ConversionSettings, moved: Moved
    ) -> Converted:
        """Write one part of a day file as packed rows, durable on return.

        They are in the ``packed_paths`` of ``path``, here and below.
        """
        ...

    def parquet_to_binary(
        self, source: Path, path: Path, settings: ConversionSettings, moved: Moved
    ) -> Packed:
        """Write a Parquet file of this converter as packed rows, durable on return.

        Raises ``BadIdError`` for a categorical id that is not 8 hex digits.
        """
        ...

    def in_memory(self, part: Part, settings: ConversionSettings) -> None:
        """Do all steps with a part that is one block long, or some of gz, without a target."""
        ...


@runtime_checkable
class IdNumberer(Protocol):
    """A converter that packs whole ids, and numbers them."""

    def number_column(
        self,
        sources: Sequence[Path],
        targets: Sequence[Path],
        spills: Sequence[Path],
        settings: ConversionSettings,
        *,
        threshold: int,
        table_limit: int,
        moved: Moved,
    ) -> NumberedColumn:
        """Write the numbers of one column's ids, a file for each file of ids, durable on return.

        Ids that appear less than ``threshold`` times are 1, others are numbered from 2 on in the
        order of first appearance. At most ``table_limit`` ids are in memory, of
        ``ID_ENTRY_BYTES`` each. More rows than that need ``SPILL_COUNT`` files for ``spills``.
        """
        ...


@runtime_checkable
class RowShuffler(Protocol):
    """A converter that shuffles packed rows through buckets."""

    def scatter_rows(
        self,
        source: RowFiles,
        target: Path,
        settings: ConversionSettings,
        *,
        seed: int,
        first_row: int,
        bucket_count: int,
        row_limit: int,
        moved: Moved,
    ) -> Scattered:
        """Write rows by random buckets, ``row_limit`` of them at a time, durable on return.

        ``first_row`` is the number of the first among all rows. How many each bucket has each time
        is at the end of the file, uint32.
        """
        ...

    def shuffle_rows(
        self,
        sources: Sequence[Extent],
        targets: Sequence[Path],
        widths: Sequence[int],
        settings: ConversionSettings,
        *,
        seed: int,
        bucket: int,
        moved: Moved,
    ) -> Shuffled:
        """Write a bucket's rows in random order, durable on return; all are in memory at once.

        ``sources`` have them in the order of the rows.
        """
        ...


@runtime_checkable
class ConverterConfig(LoaderConfig, Protocol):
    """The configuration of a loader that converts Criteo's logs."""

    @property
    def conversion_path(self) -> DataPath:
        """The path that the bytes of a conversion take, as requested."""
        ...

    @property
    def conversion_is_direct(self) -> bool:
        """Whether the target has to take O_DIRECT."""
        ...

    def converter(self) -> Converter:
        """Return what converts, for the workers."""
        ...

    def conversion_memory_bytes(self, block_bytes: int) -> int:
        """Return a bound on the memory of one worker with row groups of ``block_bytes`` of TSV."""
        ...


def read_metadata(name: str, size_bytes: int, read: Callable[[int, int], bytes]) -> FileMetaData:
    """Return what a Parquet file's footer says, of which each byte is read once.

    pyarrow's own reader takes the last 64 KiB at first. The pages in them would be read once more,
    from the page cache: by the application, but not from the drive.

    Args:
        name: the file, for errors.
        size_bytes: its size.
        read: returns the bytes at an offset, of a length.

    Raises:
        DataError: it is truncated or corrupt.
    """
    import pyarrow as pa
    from pyarrow import parquet

    if size_bytes < len(_MAGIC) + _FRAME_BYTES:
        raise corrupt(name, f"it has {size_bytes} bytes")
    frame_at = size_bytes - _FRAME_BYTES
    frame = read(frame_at, _FRAME_BYTES)
    footer_bytes = int.from_bytes(frame[:4], "little")
    if frame[4:] != _MAGIC or footer_bytes > frame_at - len(_MAGIC):
        raise corrupt(name, "it has no footer")
    footer = read(frame_at - footer_bytes, footer_bytes)
    try:
        return parquet.read_metadata(pa.BufferReader(_MAGIC + footer + frame))
    except (pa.ArrowException, OSError) as error:
        raise corrupt(name, error) from error


def require_columns(metadata: FileMetaData, name: str, *, numeric_ids: bool) -> None:
    """Raise ``DataError`` if a Parquet file lacks a column, or has one of another type."""
    schema = metadata.schema
    texts = () if numeric_ids else CATEGORICALS
    columns = (schema.column(index) for index in range(len(schema)))
    found = {column.name: column.physical_type for column in columns}
    for column in COLUMNS:
        kind = "BYTE_ARRAY" if column in texts else "INT32"
        if found.get(column) != kind:
            raise DataError(
                f"{name} has column {column} as {found.get(column, 'nothing')}, {kind} is needed; "
                f"a Criteo file has {len(COLUMNS)} columns, {COLUMNS[0]} to {COLUMNS[-1]}"
            )


def corrupt(name: str, error: Exception | str) -> DataError:
    """Return the error for a Parquet file that can't be read."""
    text = str(error).splitlines()[0]
    return DataError(f"{name} is not a complete Parquet file, it is truncated or corrupt: {text}")


def without_labels(name: str, row_count: int) -> DataError:
    """Return the error for a Parquet file with rows that have no label."""
    return DataError(f"{name} has {row_count} rows without a label")
