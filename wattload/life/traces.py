"""Traces beside the record: Parquet files with the unit in each column's name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wattload.core.power import Sample
from wattload.core.record.phase import TraceFile
from wattload.life.operations import OperationRow
from wattload.life.phases import TrafficRow

if TYPE_CHECKING:
    import pyarrow as pa


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
    """Write the sample of single operations: when each was handed to the kernel, and where to."""
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
    """Write the sampler's readings; a failed read is a null, never a zero."""
    import pyarrow as pa

    schema = pa.schema(
        [
            ("time_ns", pa.int64()),
            ("spread_ns", pa.int64()),
            ("source", pa.string()),
            ("device", pa.string()),
            ("channel", pa.string()),
            ("value", pa.float64()),
            ("evidence", pa.string()),
        ]
    )
    rows = [
        (s.time_ns, s.spread_ns, s.source, s.device, str(s.channel), s.value, str(s.evidence))
        for s in samples
    ]
    return _write(folder, "power", _table(schema, rows))


def _table(schema: pa.Schema, rows: Sequence[tuple[object, ...]]) -> pa.Table:
    import pyarrow as pa

    arrays = [
        pa.array([row[index] for row in rows], type=field.type)
        for index, field in enumerate(schema)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _write(folder: Path, name: str, table: pa.Table) -> TraceFile:
    import pyarrow.parquet as pq

    path = folder / f"{name}.parquet"
    pq.write_table(table, path, compression="zstd")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return TraceFile(
        name=name,
        file=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        rows=table.num_rows,
        columns=tuple(table.column_names),
    )
