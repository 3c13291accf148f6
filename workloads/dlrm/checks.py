"""The checks of a dlrm run: rows, bytes and checksums, and row groups against a reference."""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.core.record.results import Check
from wattload.loaders.converters import (
    RARE_NUMBER,
    ConversionSettings,
    Converted,
    NumberedColumn,
    RowFiles,
    Scattered,
    Shuffled,
)
from wattload.loaders.data.cold_cache import evict
from wattload.loaders.data.crc32 import crc32_of, joined_crc32
from wattload.loaders.data.criteo_day_files import (
    CATEGORICALS,
    COLUMNS,
    ID_MODULUS,
    LABEL,
    ROW_BYTES,
    SPLIT_ROW_BYTES,
    Part,
    Span,
)
from wattload.loaders.data.gz_text import open_text
from wattload.loaders.data.verification import open_regular
from wattload.results.dlrm import (
    NUMBER_IDS,
    SCATTER_ROWS,
    TO_BINARY,
)
from wattload.workloads.dlrm.conversion import ColumnFiles, ConversionResult, Step
from wattload.workloads.dlrm.dataset import DayFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What moved on a rank, compared with its output files as they are now.

    ``tsv`` has the path and the span of each part in each round; only all ranks together have whole
    day files. ``different`` has what is wrong with a file, by its path.
    """

    tsv: Sequence[Sequence[tuple[Path, Span]]]
    different: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleComparison:
    """The comparison of a rank's drawn row groups: counts, and the hash of each side's packed rows.

    ``first_difference`` names the first row that differs, ``None`` if none does.
    """

    group_count: int
    groups_drawn: int
    row_count: int
    different_count: int
    expected_sha256: str
    found_sha256: str
    first_difference: str | None


@dataclass(frozen=True, slots=True)
class ReferenceRows:
    """Rows as Parquet must hold them, by column, and packed.

    ``packed`` has the bytes of each row in each packed file, shape (rows, bytes).
    """

    columns: dict[str, list[int | str | None]]
    packed: Sequence[NDArray[np.uint8]]

    @property
    def count(self) -> int:
        return len(self.packed[0])


def count_rows(
    converted: ConversionResult,
    parquet: Sequence[Path],
    binary: Sequence[Sequence[Path]],
    *,
    settings: ConversionSettings,
) -> Mapping[str, float]:
    """Return the rows of a rank's parts by independent counters, by name.

    They are from line ends in the TSV, of which dropped ones are not rows, from the footers of
    Parquet files, if there are any, and from the sizes of the packed files.
    """
    packed_bytes = sum(_size_bytes(path) for files in binary for path in files)
    row_bytes = SPLIT_ROW_BYTES if settings.splits_columns else ROW_BYTES
    columnar = {"parquet_row_count": sum(map(_parquet_rows, parquet))} if settings.columnar else {}
    return {
        "line_count": sum(each.row_count + each.dropped_count for each in converted.last),
        "dropped_count": sum(each.dropped_count for each in converted.last),
        **columnar,
        "packed_row_count": packed_bytes / row_bytes,
    }


def _parquet_rows(path: Path) -> int:
    """Return the rows in a Parquet file's footer, 0 if it has no valid one."""
    import pyarrow as pa
    from pyarrow.parquet import read_metadata

    try:
        with open(path, "rb", opener=open_regular) as file:
            return int(read_metadata(file).num_rows)
    except (pa.ArrowException, OSError):
        return 0


def _size_bytes(path: Path) -> int:
    """Return the size of a file, 0 if it is gone."""
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def rows_check(day_line_count: int, ranks: Sequence[Mapping[str, float]]) -> Check:
    """Compare the numbers of input and output rows over all ranks.

    ``day_line_count`` was counted when the day files were verified.
    """
    counts = {name: sum(rank[name] for rank in ranks) for name in ranks[0]}
    lines, dropped = counts["line_count"], counts["dropped_count"]
    packed, columnar = counts["packed_row_count"], counts.get("parquet_row_count")
    is_whole = lines == day_line_count and lines - dropped == packed > 0
    is_whole = is_whole and columnar in (None, packed)
    return Check(
        name="dlrm_rows",
        verdict="pass" if is_whole else "fail",
        sentence=(
            f"{lines} of the day files' {day_line_count} lines were read"
            + (f", {dropped} of them dropped as invalid," if dropped else "")
            + " and became "
            + ("" if columnar is None else f"{columnar} Parquet rows and ")
            + f"{packed:.10g} packed rows"
            + ("." if is_whole else ": rows were lost or duplicated.")
        ),
        figures={"day_line_count": day_line_count, **counts},
        mandatory=True,
    )


def compare_moved(
    parts: Sequence[Part],
    converted: ConversionResult,
    parquet: Sequence[Path],
    binary: Sequence[Sequence[Path]],
    columns: Sequence[ColumnFiles],
) -> Moved:
    """Compare the checksums of what moved on a rank with its output files, read from the drive.

    What was written is that of the last round, whose output is still there; reads are of all.
    """
    different: dict[str, str] = {}

    def compare(
        path: Path, *, written: Iterable[Span] = (), read: Iterable[Iterable[Span]] = ()
    ) -> None:
        fault = _fault(path, set(written), set(chain.from_iterable(read)))
        if fault:
            different[str(path)] = fault

    for index, path in enumerate(parquet):
        compare(
            path,
            written=[of_round[index].written[0] for of_round in converted.converted],
            read=[of_round[index].read for of_round in converted.packed],
        )
    for index, files in enumerate(binary):
        by_round = [of_round[index].written for of_round in converted.written_rows]
        for path, *written in zip(files, *by_round, strict=True):
            compare(path, written=written)
    for index, column in enumerate(columns):
        made = [of_round[index] for of_round in converted.numbered]
        for path, *read in zip(column.ids, *(each.read for each in made), strict=True):
            compare(path, read=read)
        for path, *written in zip(column.categories, *(each.written for each in made), strict=True):
            compare(path, written=written)
    for scattered in zip(*converted.scattered, strict=True):
        files = scattered[0][0].paths
        for path, *spans in zip(files, *(each.read for _, each in scattered), strict=True):
            compare(path, read=[spans])
    for shuffled in zip(*converted.shuffled, strict=True):
        files = shuffled[0][0].paths
        for path, *written in zip(files, *(each.written for _, each in shuffled), strict=True):
            compare(path, written=written)
    return Moved(
        tsv=[
            [
                (part.source, span)
                for part, each in zip(parts, of_round, strict=True)
                for span in each.read
            ]
            for of_round in converted.converted
        ],
        different=different,
    )


def content_check(
    days: DayFiles, ranks: Sequence[Moved], phases: Sequence[Step], rounds: int
) -> Check:
    """Compare the checksums of all bytes that moved with the files, over all ranks."""
    different = {name: fault for rank in ranks for name, fault in rank.different.items()}
    for number in range(rounds):
        spans = [each for rank in ranks for each in rank.tsv[number]]
        for file in days.files:
            own = sorted(
                (span for path, span in spans if path == file.path),
                key=lambda span: span.offset_bytes,
            )
            if _joined(own) != Span(0, file.content.size_bytes, file.content.crc32):
                different[str(file.path)] = _OTHER_BYTES
    fault = next((f"{name} {fault}" for name, fault in different.items()), None)
    sources = {TO_BINARY: "Parquet files", NUMBER_IDS: "ids", SCATTER_ROWS: "packed rows"}
    names = [sources[phase.name] for phase in phases if phase.name in sources]
    source = " and of the ".join(["day files", *names])
    last_round = "the round" if rounds == 1 else f"the last of {rounds} rounds"
    return Check(
        name="dlrm_content",
        verdict="fail" if different else "pass",
        sentence=(
            f"{fault}; {len(different)} files differ."
            if fault
            else "By CRC-32, all bytes read in the timed phases are those of the verified "
            f"{source}, and the output of {last_round} was read back as written."
        ),
        figures={"different_count": len(different), "rounds": rounds},
        mandatory=True,
    )


def compare_sample(
    parts: Sequence[Part],
    converted: Sequence[Converted],
    parquet: Sequence[Path],
    binary: Sequence[Sequence[Path]],
    *,
    settings: ConversionSettings,
    group_count: int,
    draw: int,
) -> SampleComparison:
    """Convert ``group_count`` row groups again and compare them with both outputs.

    ``draw`` decides which. ``settings`` are those of the conversion.

    Raises:
        DataError: the TSV of a row group is invalid.
    """
    places = [
        (index, group)
        for index, found in enumerate(converted)
        for group in range(len(found.landmarks))
    ]
    drawn = sorted(random.Random(draw).sample(places, min(group_count, len(places))))
    expected, packed = hashlib.sha256(), hashlib.sha256()
    compared = different = 0
    first_difference: str | None = None
    for index, group in drawn:
        offset, first_row = converted[index].landmarks[group]
        source, following = parts[index].source, converted[index].landmarks[group + 1 :]
        end, end_row = (following or [(parts[index].end_bytes, converted[index].row_count)])[0]
        try:
            rows = _reference(source, offset, end, settings)
        except OSError as error:
            compared += end_row - first_row
            different += end_row - first_row
            first_difference = first_difference or (
                f"at byte {offset} of {source}, which can't be read ({error.strerror or error})"
            )
            continue
        wrongs = []
        if parquet:
            wrongs.append((parquet[index], _different_in_parquet(rows, parquet[index], group)))
        for path, wanted in zip(binary[index], rows.packed, strict=True):
            found = _packed_rows(path, first_row, wanted.shape)
            expected.update(wanted.tobytes())
            packed.update(found.tobytes())
            wrongs.append((path, (wanted != found).any(axis=1)))
        compared += rows.count
        for path, wrong in wrongs:
            different += int(wrong.sum())
            if wrong.any() and first_difference is None:
                first_difference = f"row {first_row + int(wrong.argmax())} of {path}"
    return SampleComparison(
        group_count=len(places),
        groups_drawn=len(drawn),
        row_count=compared,
        different_count=different,
        expected_sha256=expected.hexdigest(),
        found_sha256=packed.hexdigest(),
        first_difference=first_difference,
    )


def compare_numbers(
    columns: Sequence[ColumnFiles],
    made: Sequence[NumberedColumn],
    *,
    threshold: int,
    draw: int,
) -> tuple[str, Counter[str]] | None:
    """Compare a drawn column of a rank with its ids; ``None`` if it has no column.

    All of its numbers are read, and every occurrence of about ``DRAWN_IDS`` ids. Returns its name
    and the counts of ``dlrm_numbers``: a wrong id does not have one number, or not that of how
    often it appears; a gap is a number that first appears out of order; ``known_count`` is how many
    different numbers the conversion says that there are.
    """
    if not columns:
        return None
    index = random.Random(draw).randrange(len(columns))
    files, column = columns[index], made[index]
    share = max((column.known_count + column.rare_count) // DRAWN_IDS, 1)
    found: dict[tuple[int, int], int] = {}
    row_count = gap_count = unread_count = 0
    highest = RARE_NUMBER
    for ids_path, numbers_path, span in zip(
        files.ids, files.categories, column.written, strict=True
    ):
        rows = ids_path.stat().st_size // _ID_BYTES
        kind = np.dtype(f"<i{max(span.size_bytes // max(rows, 1), 1)}")
        for first in range(0, rows, _NUMBERS_AT_A_TIME):
            count = min(_NUMBERS_AT_A_TIME, rows - first)
            ids = np.fromfile(ids_path, "<u4", count, offset=first * _ID_BYTES)
            numbers = _numbers(numbers_path, kind, first, count)
            row_count += count
            unread_count += count - len(numbers)
            so_far = np.maximum.accumulate(np.concatenate([[highest], numbers.astype(np.int64)]))
            gap_count += int((np.diff(so_far) > 1).sum()) + int((numbers < RARE_NUMBER).sum())
            highest = int(so_far[-1])
            ids = ids[: len(numbers)]
            is_drawn = (ids * np.uint32(0x9E3779B1) ^ np.uint32(draw & 0xFFFFFFFF)) % share == 0
            pairs, counts = np.unique(
                np.stack([ids[is_drawn], numbers[is_drawn].astype(np.uint32)]),
                axis=1,
                return_counts=True,
            )
            for (own, number), times in zip(pairs.T.tolist(), counts.tolist(), strict=True):
                found[own, number] = found.get((own, number), 0) + times
    by_id: dict[int, list[tuple[int, int]]] = {}
    for (own, number), times in found.items():
        by_id.setdefault(own, []).append((number, times))
    wrong_count = sum(
        len(each) != 1 or (each[0][0] == RARE_NUMBER) != (each[0][1] < threshold)
        for each in by_id.values()
    )
    figures = {
        "row_count": row_count,
        "id_count": len(by_id),
        "wrong_count": wrong_count + unread_count,
        "gap_count": gap_count,
        "highest_sum": highest,
        "known_count": column.known_count,
    }
    return files.name, Counter(figures)


def numbers_check(
    found: Sequence[tuple[str, Counter[str]] | None], threshold: int, draw: int
) -> Check:
    """Return the check of the drawn columns of numbers, over all ranks."""
    columns = [each for each in found if each]
    names = " ".join(name for name, _ in columns)
    counts: Counter[str] = Counter()
    for _, own in columns:
        counts.update(own)
    # In each column the highest number is 1 for rare ids, and one more for each known id.
    is_whole = counts["highest_sum"] == counts["known_count"] + len(columns)
    is_right = counts["id_count"] > 0 == counts["wrong_count"] + counts["gap_count"]
    return Check(
        name="dlrm_numbers",
        verdict="pass" if is_whole and is_right else "fail",
        sentence=(
            f"In {names}, drawn by this run, {counts['wrong_count']} of {counts['id_count']} drawn "
            f"ids have a wrong number for their count and the threshold of {threshold}; of all "
            f"numbers there, {counts['gap_count']} first appear out of order."
        ),
        figures={
            "draw": f"{draw:016x}",
            "columns": names,
            "column_count": len(columns),
            **counts,
        },
        mandatory=True,
    )


RowSum = tuple[int, int]
"""How many rows there are, and the sum of their hashes modulo 2^64."""


def compare_rows(
    scattered: Sequence[tuple[RowFiles, Scattered]],
    shuffled: Sequence[tuple[RowFiles, Shuffled]],
) -> tuple[RowSum, RowSum]:
    """Count and add up a rank's rows in the packed files, and those in the shuffled ones."""
    packed = [_row_sum(files) for files, _ in scattered]
    return _added(packed), _added([_row_sum(files) for files, _ in shuffled])


def _added(sums: Iterable[RowSum]) -> RowSum:
    count = total = 0
    for own_count, own_total in sums:
        count, total = count + own_count, (total + own_total) % _WORD
    return count, total


def shuffle_check(ranks: Sequence[tuple[RowSum, RowSum]]) -> Check:
    """Compare the rows before and after the shuffle over all ranks, whatever their order."""
    packed, shuffled = _added(each for each, _ in ranks), _added(each for _, each in ranks)
    is_same = packed == shuffled and packed[0] > 0
    return Check(
        name="dlrm_shuffle",
        verdict="pass" if is_same else "fail",
        sentence=(
            f"{packed[0]} packed rows became {shuffled[0]} shuffled ones, and the sums of their "
            "hashes "
            + ("are equal." if is_same else "differ: rows were lost, duplicated or changed.")
        ),
        figures={
            "packed_row_count": packed[0],
            "shuffled_row_count": shuffled[0],
            "packed_sum": f"{packed[1]:016x}",
            "shuffled_sum": f"{shuffled[1]:016x}",
        },
        mandatory=True,
    )


def sample_check(samples: Sequence[SampleComparison], draw: int) -> Check:
    """Return the check of the drawn row groups against the reference, over all ranks."""
    compared = sum(found.row_count for found in samples)
    different = sum(found.different_count for found in samples)
    drawn = sum(found.groups_drawn for found in samples)
    groups = sum(found.group_count for found in samples)
    first = next((s.first_difference for s in samples if s.first_difference), None)
    expected_sha256 = " ".join(found.expected_sha256 for found in samples)
    found_sha256 = " ".join(found.found_sha256 for found in samples)
    is_equal = compared > 0 == different and expected_sha256 == found_sha256
    return Check(
        name="dlrm_sample",
        verdict="pass" if is_equal else "fail",
        sentence=(
            f"{drawn} of {groups} row groups, drawn by this run, were converted again in plain "
            f"Python: {different} of their {compared} rows differ from the output"
            + (f"; the first is {first}." if first else ".")
        ),
        figures={
            "draw": f"{draw:016x}",
            "group_count": groups,
            "groups_drawn": drawn,
            "compared_count": compared,
            "different_count": different,
            "expected_sha256": expected_sha256,
            "found_sha256": found_sha256,
        },
        mandatory=True,
    )


def bytes_check(ranks: Sequence[Moved], tsv_bytes: int, rounds: int, first: Step) -> Check:
    """Compare the bytes of TSV that were converted with the size of the day files.

    It fails for a run that kept parts of an earlier start in its ``first`` phase: its time and
    energy are not those of a conversion. O_DIRECT reads whole blocks, so that a few bytes at the
    edges of parts move twice; they are converted once.
    """
    read_bytes = sum(
        span.size_bytes for rank in ranks for of_round in rank.tsv for _, span in of_round
    )
    read_bytes -= first.kept_read_bytes
    resumed = (
        f" An earlier start had converted {first.kept_count} of {first.work.part_count} parts: the "
        "output is complete, but the run measured only the rest; run again to measure all."
    )
    return Check(
        name="dlrm_tsv_bytes",
        verdict="pass" if read_bytes == tsv_bytes * rounds > 0 else "fail",
        sentence=(
            f"{read_bytes} bytes of TSV were read; the day files have {tsv_bytes * rounds} in "
            f"{rounds} rounds." + (resumed if first.kept_count else "")
        ),
        figures={"read_bytes": read_bytes, "file_bytes": tsv_bytes, "rounds": rounds},
        mandatory=True,
    )


_ROW = re.compile(rb"[01](\t(-?[0-9]+)?){13}(\t([0-9a-fA-F]{8})?){26}\r?")
_INT32 = range(-(1 << 31), 1 << 31)


def reference_rows(text: bytes, settings: ConversionSettings) -> ReferenceRows:
    """Convert whole lines of TSV in plain Python; shares no code with the timed conversion.

    Raises:
        ValueError: a line is not a Criteo row.
    """
    lines = text.removesuffix(b"\n").split(b"\n")
    if settings.drops_bad_rows:
        lines = [line for line in lines if _is_row(line)]
    fields = [line.removesuffix(b"\r").decode("ascii").split("\t") for line in lines]
    if any(len(row) != len(COLUMNS) for row in fields):
        raise ValueError(f"a line does not have {len(COLUMNS)} columns")
    columns: dict[str, list[int | str | None]] = {}
    packed = np.empty((len(fields), len(COLUMNS)), dtype="<i4")
    for place, (name, texts) in enumerate(zip(COLUMNS, zip(*fields, strict=True), strict=True)):
        if name in CATEGORICALS:
            modulus = 1 << 32 if settings.whole_ids else ID_MODULUS
            numbers = [int(text, 16) % modulus if text else None for text in texts]
            as_text = [text or None for text in texts]
            columns[name] = list(numbers) if settings.numeric_ids else as_text
            packed[:, place] = np.array([number or 0 for number in numbers], "<u4").view("<i4")
        else:
            numbers = [int(text) if text else None for text in texts]
            columns[name] = list(numbers)
            counts = [max(number or 0, 0) for number in numbers]
            packed[:, place] = counts
            if settings.logarithms and name != LABEL:
                logarithms = [math.log(count + 1) for count in counts]
                packed[:, place] = np.array(logarithms, "<f4").view("<i4")
    files = [packed]
    if settings.splits_columns:
        integers, ids = packed[:, 1:14].view("<f4").astype("<f2"), np.hsplit(packed[:, 14:], 26)
        files = [packed[:, :1].astype("u1"), integers, *map(np.ascontiguousarray, ids)]
    return ReferenceRows(columns, [file.view(np.uint8) for file in files])


def _is_row(line: bytes) -> bool:
    if not _ROW.fullmatch(line):
        return False
    return all(int(text) in _INT32 for text in line.split(b"\t")[1:14] if text)


DRAWN_IDS = 10_000
_ID_BYTES = 4
_NUMBERS_AT_A_TIME = 1 << 20
_ROWS_AT_A_TIME = 1 << 14
_ROW_WORDS = ROW_BYTES // 8
_WORD = 1 << 64
_OTHER_BYTES = "does not have the bytes that were read or written in the timed phases, by CRC-32"


def _fault(path: Path, written: Set[Span], read: Set[Span]) -> str:
    """Return how a file, read from the drive, differs from spans of it; empty if it does not.

    What was written is the whole file.
    """
    if not (written or read):
        return ""
    try:
        evict([path])
        with open(path, "rb", opener=open_regular) as file:
            content = np.fromfile(file, np.uint8)
    except OSError as error:
        return f"can't be read after the timed phases ({error.strerror or error})"
    is_whole = all((each.offset_bytes, each.end_bytes) == (0, len(content)) for each in written)
    is_same = all(
        each.end_bytes <= len(content)
        and crc32_of(content[each.offset_bytes : each.end_bytes]) == each.crc32
        for each in written | read
    )
    return "" if is_whole and is_same else _OTHER_BYTES


def _joined(spans: Sequence[Span]) -> Span:
    """Return spans that follow one another as one; an empty span if they do not."""
    whole = spans[0] if spans else Span(0)
    for span in spans[1:]:
        if span.offset_bytes != whole.end_bytes:
            return Span(0)
        crc32 = joined_crc32(whole.crc32, span.crc32, span.size_bytes)
        whole = Span(whole.offset_bytes, whole.size_bytes + span.size_bytes, crc32)
    return whole


def _reference(
    source: Path, start_bytes: int, end_bytes: int, settings: ConversionSettings
) -> ReferenceRows:
    """Convert lines of a day file; an invalid one passed the converter, which is then at fault."""
    with open_text(source, start_bytes) as file:
        text = file.read(end_bytes - start_bytes)
    try:
        return reference_rows(text, settings)
    except ValueError as error:
        raise DataError(f"{source}: the converter accepted an invalid line: {error}") from error


def _packed_rows(path: Path, first_row: int, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return rows of a packed file, shape (rows, bytes); missing ones are 255s, which none is."""
    rows = np.full(shape, 255, np.uint8)
    with suppress(OSError), open(path, "rb", opener=open_regular) as file:
        found = np.fromfile(file, np.uint8, rows.size, offset=first_row * shape[1])
        rows.reshape(-1)[: len(found)] = found
    return rows


def _numbers(
    path: Path, kind: np.dtype[np.signedinteger], first: int, count: int
) -> NDArray[np.signedinteger]:
    """Return numbers of a column, shape (n,); fewer than ``count`` if they are not all there."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            return np.fromfile(file, kind, count, offset=first * kind.itemsize)
    except OSError:
        return np.empty(0, kind)


def _row_sum(files: RowFiles) -> RowSum:
    """Return how many whole rows files have, and the sum of their hashes modulo 2^64."""
    words = np.random.SeedSequence(0).generate_state(_ROW_WORDS, np.uint64) | np.uint64(1)
    row_count = total = 0
    with ExitStack() as opened:
        try:
            opens = [
                opened.enter_context(open(path, "rb", opener=open_regular)) for path in files.paths
            ]
        except OSError:
            return 0, 0
        while True:
            parts = [
                np.fromfile(file, np.dtype((np.uint8, width)), _ROWS_AT_A_TIME)
                for file, width in zip(opens, files.widths, strict=True)
            ]
            count = min(map(len, parts))
            if not count:
                return row_count, total % _WORD
            rows = np.zeros((count, _ROW_WORDS * 8), np.uint8)
            rows[:, : sum(files.widths)] = np.hstack([part[:count] for part in parts])
            # Nonlinear, so that values that change places between rows change the sum.
            hashes = (rows.view("<u8") * words).sum(axis=1)
            hashes = (hashes ^ hashes >> np.uint64(29)) * words[0]
            total += int((hashes ^ hashes >> np.uint64(32)).sum())
            row_count += count


def _different_in_parquet(rows: ReferenceRows, path: Path, group: int) -> NDArray[np.bool_]:
    """Return which rows of a row group differ from the reference; all if it can't be read."""
    import pyarrow as pa
    from pyarrow import parquet

    wrong = np.zeros(rows.count, dtype=np.bool_)
    try:
        with open(path, "rb", opener=open_regular) as file:
            table = parquet.ParquetFile(file).read_row_group(group)
    except (pa.ArrowException, OSError, IndexError):
        return ~wrong
    if table.column_names != list(rows.columns) or table.num_rows != len(wrong):
        return ~wrong
    for name, wanted in rows.columns.items():
        found = table.column(name).to_pylist()
        if found != wanted:
            wrong |= [a != b for a, b in zip(found, wanted, strict=True)]
    return wrong
