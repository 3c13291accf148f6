"""Trace files: CSV with a head of ``# key: value`` lines, or Parquet with the same as metadata."""

from __future__ import annotations

import csv
import hashlib
import math
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

from wattload.core.errors import DataError
from wattload.power.replay.trace import (
    COLUMNS,
    EVIDENCE,
    HEAD_KEYS,
    TIME_COLUMNS,
    RecordedTrace,
    Row,
    TraceBuilder,
    TraceHead,
    parse_head,
)

CSV, PARQUET = ".csv", ".parquet"
_HEAD = "#"
MOST_TRACE_BYTES = 256 << 20
"""Some seven hours of one channel at 100 Hz. More would fill the memory of whoever reads it."""
_SHA256_DIGITS = 12


def read_trace(
    path: Path,
    *,
    growing: bool = False,
    rights: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> RecordedTrace:
    """Return the trace in a file; its ``origin`` is the file's name and hash unless it has one.

    ``growing`` leaves out a last line that has no end yet, and allows for no reading so far.
    ``rights`` are those in which the file is read.

    Raises:
        DataError: it can't be read, or is no trace; one sentence with the line and the value.
    """
    if path.suffix not in (CSV, PARQUET):
        raise DataError(f"{path} must end in {CSV} or {PARQUET} to be replayed")
    with rights():
        data = _bytes_of(path)
    digest = hashlib.sha256(data).hexdigest()[:_SHA256_DIGITS]
    origin = f"{path.name} (sha256 {digest})"
    if path.suffix == PARQUET:
        trace = _from_parquet(path, data, origin)
    else:
        trace = _from_csv(path, data, origin, growing=growing)
    if not trace.time_ns and not growing:
        raise DataError(f"{path} holds no reading")
    return trace


def write_trace(trace: RecordedTrace, path: Path) -> None:
    """Write a trace as CSV, at once: whoever reads it meanwhile finds the one before."""
    text = StringIO()
    for key, value in _head_fields(trace.head).items():
        text.write(f"# {key}: {value}\n")
    columns = list(trace.values.items())
    names = [trace.time_column, *(str(channel) for channel, _ in columns)]
    text.write(",".join([*names, EVIDENCE] if trace.evidence else names) + "\n")
    unit_ns = TIME_COLUMNS[trace.time_column]
    for row, time_ns in enumerate(trace.time_ns):
        time = str(time_ns) if unit_ns == 1 else f"{time_ns // unit_ns}.{time_ns % unit_ns:09d}"
        cells = [time, *("" if math.isnan(c[row]) else repr(c[row]) for _, c in columns)]
        text.write(",".join([*cells, *trace.evidence[row : row + 1]]) + "\n")
    new = path.with_name(f".{path.name}.new")
    new.write_text(text.getvalue(), encoding="utf-8")
    new.replace(path)


def _bytes_of(path: Path) -> bytes:
    """Return a regular file's content; a link is not followed, for it may lead anywhere."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DataError(f"{path} is no file, so it can't be replayed")
            data = file.read(MOST_TRACE_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path} can't be replayed: {error.strerror}") from error
    if len(data) > MOST_TRACE_BYTES:
        raise DataError(
            f"{path} is longer than {MOST_TRACE_BYTES} bytes: thin it, e.g. to ten means a second"
        )
    return data


def _from_csv(path: Path, data: bytes, origin: str, *, growing: bool) -> RecordedTrace:
    try:
        lines = data.decode("utf-8-sig").splitlines(keepends=True)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no UTF-8 text, so no CSV trace: {error.reason}") from error
    if growing and lines and not lines[-1].endswith("\n"):
        lines.pop()
    head_count = next((at for at, line in enumerate(lines) if line[:1] != _HEAD), len(lines))
    if head_count == len(lines):
        raise DataError(f"{path} has no line that names its columns; allowed: {', '.join(COLUMNS)}")
    head = parse_head({"origin": origin, **_head_lines(path, lines[:head_count])}, str(path))
    reader = csv.reader(lines[head_count:], strict=True)
    columns = [name.strip() for name in next(reader)]
    builder = TraceBuilder(
        head, columns, str(path), lambda _: f"line {head_count + reader.line_num}"
    )
    try:
        for cells in reader:
            if len(cells) != len(columns):
                raise DataError(
                    f"{path}, line {head_count + reader.line_num}: has {len(cells)} values for "
                    f"{len(columns)} columns"
                )
            builder.add(dict(zip(columns, cells, strict=True)))
    except csv.Error as error:
        raise DataError(f"{path}, line {head_count + reader.line_num}: {error}") from error
    return builder.build()


def _head_lines(path: Path, lines: list[str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        key, colon, value = line[1:].partition(":")
        if not colon:
            raise DataError(f"{path}, line {number}: a head line is '# key: value', got {line!r}")
        found[key.strip()] = value.strip()
    return found


def _from_parquet(path: Path, data: bytes, origin: str) -> RecordedTrace:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is no Parquet file that can be read: {error}") from error
    metadata = {
        key.decode(): value.decode()
        for key, value in (table.schema.metadata or {}).items()
        if key.decode(errors="replace") in HEAD_KEYS
    }
    head = parse_head({"origin": origin, **metadata}, str(path))
    builder = TraceBuilder(head, table.column_names, str(path), lambda row: f"row {row + 1}")
    for row in _rows(table):
        builder.add(row)
    return builder.build()


def _rows(table: Any) -> Iterator[Row]:  # noqa: ANN401 - pyarrow has no types
    return chain.from_iterable(batch.to_pylist() for batch in table.to_batches())


def _head_fields(head: TraceHead) -> Mapping[str, object]:
    """Return a head as the keys and values of its lines; those that say nothing are left out."""
    fields = head.model_dump(mode="json", exclude={"sensor"})
    sensor = head.sensor.model_dump(mode="json", exclude={"kind"})
    named = {"sensor": head.sensor.kind, **sensor, **fields}
    return {key: value for key, value in named.items() if value not in (None, "")}
