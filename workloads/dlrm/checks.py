"""The checks of a dlrm run: row counts, bytes read, and sampled rows against a reference."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattload.core.errors import DataError
from wattload.core.record.results import Check
from wattload.loaders.data.criteo_conversion import Columnar
from wattload.loaders.data.criteo_day_files import ROW_BYTES, Part, pack_row, parse_line
from wattload.workloads.dlrm.conversion import ConversionResult
from wattload.workloads.dlrm.verdicts import are_rows_kept, is_read_whole, is_sample_equal

ROWS_PER_BLOCK = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Rows of a rank's parts by three independent counters.

    ``line_count`` from line ends in the TSV, ``parquet_count`` from the Parquet files' footers,
    ``packed_bytes`` from the sizes of the packed files.
    """

    line_count: int
    parquet_count: int
    packed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleComparison:
    """The comparison of a rank's sampled rows: counts, and the hash of each side.

    ``first_difference`` names the first row that differs, ``None`` if none does.
    """

    row_count: int
    different_count: int
    expected_sha256: str
    found_sha256: str
    first_difference: str | None


def count_rows(
    converted: ConversionResult, parquet: Sequence[Path], binary: Sequence[Path]
) -> Counts:
    """Return a rank's rows by each counter."""
    from pyarrow.parquet import read_metadata

    return Counts(
        line_count=sum(columnar.row_count for columnar in converted.columnar),
        parquet_count=sum(read_metadata(path).num_rows for path in parquet),
        packed_bytes=sum(path.stat().st_size for path in binary),
    )


def rows_check(counts: Sequence[Counts]) -> Check:
    """Compare the numbers of input and output rows over all ranks."""
    lines = sum(count.line_count for count in counts)
    columns = sum(count.parquet_count for count in counts)
    packed_bytes = sum(count.packed_bytes for count in counts)
    figures = {
        "line_count": lines,
        "parquet_row_count": columns,
        "packed_row_count": packed_bytes / ROW_BYTES,
    }
    agree = are_rows_kept(figures)
    return Check(
        name="dlrm_rows",
        verdict="pass" if agree else "fail",
        sentence=(
            f"{lines} lines of TSV became {columns} Parquet rows and "
            f"{packed_bytes / ROW_BYTES:.10g} packed rows"
            + ("." if agree else ": rows were lost or duplicated.")
        ),
        figures=figures,
        mandatory=True,
    )


def compare_sample(
    parts: Sequence[Part],
    columnar: Sequence[Columnar],
    binary: Sequence[Path],
    *,
    row_count: int,
    seed: int,
) -> SampleComparison:
    """Compare about ``row_count`` rows, selected by ``seed``, with the packed files.

    Blocks are drawn first, then rows in them. Finding a row's position in its part then only needs
    the line ends of one block.
    """
    draw = random.Random(seed)
    places = [
        (part, start, end, first_row, path)
        for part, found, path in zip(parts, columnar, binary, strict=True)
        for start, end, first_row in _blocks(part, found)
    ]
    expected, packed = hashlib.sha256(), hashlib.sha256()
    compared = different = 0
    first_difference: str | None = None
    block_count = min(len(places), -(-row_count // ROWS_PER_BLOCK))
    for part, start, end, first_row, path in sorted(draw.sample(places, block_count), key=str):
        for index, line in _lines(part.source, start, end, -(-row_count // block_count), draw):
            wanted_row, found_row = _reference(line, part), _row(path, first_row + index)
            expected.update(wanted_row)
            packed.update(found_row)
            compared += 1
            if wanted_row != found_row:
                different += 1
                first_difference = first_difference or f"row {first_row + index} of {path}"
    return SampleComparison(
        row_count=compared,
        different_count=different,
        expected_sha256=expected.hexdigest(),
        found_sha256=packed.hexdigest(),
        first_difference=first_difference,
    )


def sample_check(samples: Sequence[SampleComparison]) -> Check:
    """Return the check of sampled rows against the reference, over all ranks."""
    compared = sum(found.row_count for found in samples)
    different = sum(found.different_count for found in samples)
    first = next((s.first_difference for s in samples if s.first_difference), None)
    figures: dict[str, float | int | str | None] = {
        "compared_count": compared,
        "different_count": different,
        "expected_sha256": " ".join(found.expected_sha256 for found in samples),
        "found_sha256": " ".join(found.found_sha256 for found in samples),
    }
    equal = is_sample_equal(figures)
    return Check(
        name="dlrm_sample",
        verdict="pass" if equal else "fail",
        sentence=(
            f"{compared - different} of {compared} sampled rows equal their TSV lines as packed by "
            "a reference implementation (label, integers and ids)"
            + ("." if equal else f"; the first difference is {first}.")
        ),
        figures=figures,
        mandatory=True,
    )


def bytes_check(read_bytes: int, tsv_bytes: int, rounds: int) -> Check:
    """Compare the bytes read in the first phase with the size of the day files."""
    figures = {"read_bytes": read_bytes, "file_bytes": tsv_bytes, "rounds": rounds}
    return Check(
        name="dlrm_tsv_bytes",
        verdict="pass" if is_read_whole(figures) else "fail",
        sentence=(
            f"{read_bytes} bytes of TSV were read; the day files have {tsv_bytes * rounds} in "
            f"{rounds} rounds."
        ),
        figures=figures,
        mandatory=True,
    )


def _blocks(part: Part, found: Columnar) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and first row of each block of a part."""
    ends = [offset for offset, _ in found.landmarks[1:]] + [part.end_bytes]
    for (start, first_row), end in zip(found.landmarks, ends, strict=True):
        yield start, end, first_row


def _lines(
    source: Path, start: int, end: int, count: int, draw: random.Random
) -> Iterator[tuple[int, bytes]]:
    """Yield ``count`` lines of a block with their index in it, in order."""
    with source.open("rb") as file:
        file.seek(start)
        lines = file.read(end - start).splitlines()
    for index in sorted(draw.sample(range(len(lines)), min(count, len(lines)))):
        yield index, lines[index]


def _reference(line: bytes, part: Part) -> bytes:
    """Pack a line; an invalid one passed the converter, which is then at fault."""
    try:
        return pack_row(parse_line(line))
    except ValueError as error:
        raise DataError(
            f"{part.source}: the converter accepted an invalid line: {error}"
        ) from error


def _row(path: Path, row: int) -> bytes:
    with path.open("rb") as file:
        file.seek(row * ROW_BYTES)
        return file.read(ROW_BYTES)
