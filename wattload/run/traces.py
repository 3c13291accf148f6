"""The trace files of a run: Parquet, with the unit in each column's name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wattload.core.files import open_folder
from wattload.core.io import TracedOperations
from wattload.core.power import Sample
from wattload.core.record.phase import TraceFile
from wattload.core.storage.targets import Target
from wattload.power.sampler.sample_writer import SAMPLE_COLUMNS
from wattload.run.phases import TrafficRow

if TYPE_CHECKING:
    import pyarrow as pa

OperationRow = tuple[int, str, int, str, str, int, str, int, int, int]
"""Submission in ns (monotonic), host, rank, phase, kind, number of the target, file, its bytes,
offset in it in bytes, latency in ns."""


def operation_rows(
    traced: Sequence[TracedOperations], targets: Sequence[Target], *, host: str, rank: int
) -> list[OperationRow]:
    """Return a rank's operations, by kind and time; file names are relative to their target."""
    return [row for each in traced for row in _rows(each, targets, host, rank)]


def _rows(
    traced: TracedOperations, targets: Sequence[Target], host: str, rank: int
) -> Iterator[OperationRow]:
    places = [_place(file.path, targets) for file in traced.files]
    for submit_ns, offset_bytes, latency_ns, number in traced.rows.tolist():
        target, name = places[number]
        size_bytes = traced.files[number].size_bytes
        yield (
            submit_ns,
            host,
            rank,
            traced.phase,
            str(traced.kind),
            target,
            name,
            size_bytes,
            offset_bytes,
            latency_ns,
        )


def _place(path: Path, targets: Sequence[Target]) -> tuple[int, str]:
    """Return the number of the target that holds a file, and the file's name relative to it."""
    for number, target in enumerate(targets):
        if target.path is not None and path.is_relative_to(target.path):
            return number, str(path.relative_to(target.path))
    return 0, path.name


def write_throughput(folder: Path, rows: Sequence[TrafficRow]) -> TraceFile:
    """Write bytes per 100 ms bin, rank and phase, as the application counted them."""
    import pyarrow as pa

    schema = pa.schema(
        [
            ("time_ns", pa.int64()),
            ("host", pa.string()),
            ("rank", pa.int32()),
            ("phase", pa.string()),
            ("read_bytes", pa.int64()),
            ("written_bytes", pa.int64()),
        ]
    )
    return _write(folder, "throughput", _table(schema, rows))


def write_operations(folder: Path, rows: Sequence[OperationRow]) -> TraceFile:
    """Write the sample of single operations: when and where each was submitted to the kernel."""
    import pyarrow as pa

    schema = pa.schema(
        [
            ("time_ns", pa.int64()),
            ("host", pa.string()),
            ("rank", pa.int32()),
            ("phase", pa.string()),
            ("kind", pa.string()),
            ("target", pa.int32()),
            ("file", pa.string()),
            ("file_bytes", pa.int64()),
            ("offset_bytes", pa.int64()),
            ("latency_ns", pa.int64()),
        ]
    )
    return _write(folder, "operations", _table(schema, rows))


def write_power(folder: Path, samples: Iterable[Sample]) -> TraceFile:
    """Write the sampler's readings; a failed read is null, never zero."""
    import pyarrow as pa

    types = {"time_ns": pa.int64(), "spread_ns": pa.int64(), "value": pa.float64()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in SAMPLE_COLUMNS])
    rows = [
        (s.time_ns, s.spread_ns, s.source, s.device, str(s.channel), s.value, str(s.evidence))
        for s in samples
    ]
    return _write(folder, "power", _table(schema, rows))


def _table(schema: pa.Schema, rows: Sequence[tuple[object, ...]]) -> pa.Table:
    import pyarrow as pa

    arrays = [_column([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return a column of text or of numbers, of which some may be ``None``.

    ``pa.array`` would import pandas, to recognise its objects: 0.2 s and 40 MB.
    """
    import pyarrow as pa

    if pa.types.is_string(kind):
        texts = [value.encode() for value in values]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        content = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    else:
        is_known = np.array([value is not None for value in values], dtype=bool)
        numbers = np.array(values, dtype=kind.to_pandas_dtype())
        content = [pa.py_buffer(np.packbits(is_known, bitorder="little")), pa.py_buffer(numbers)]
    return pa.Array.from_buffers(kind, len(values), content)


def _write(folder: Path, name: str, table: pa.Table) -> TraceFile:
    import pyarrow.parquet as pq

    path = folder / f"{name}.parquet"
    with open_folder(folder) as own, own.replacing(path.name) as file:
        pq.write_table(table, file, compression="zstd")
    return TraceFile(
        name=name,
        file=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        rows=table.num_rows,
        columns=tuple(table.column_names),
    )
