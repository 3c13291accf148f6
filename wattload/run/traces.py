"""The trace files of a run, written and read: Parquet, with the unit in each column's name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wattload.core.errors import RecordError
from wattload.core.files import open_folder
from wattload.core.io import TracedOperations
from wattload.core.power import Channel, Evidence, Sample
from wattload.core.record.phase import TraceFile
from wattload.core.storage.targets import Target
from wattload.power.sampler.sample_writer import SAMPLE_COLUMNS
from wattload.reports.runs.traces import THROUGHPUT_COLUMNS, columns_of
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


def write_power(folder: Path, samples: Mapping[str, Iterable[Sample]]) -> TraceFile:
    """Write the readings of each host's sampler; a failed read is null, never zero."""
    import pyarrow as pa

    types = {"time_ns": pa.int64(), "spread_ns": pa.int64(), "value": pa.float64()}
    names = (*SAMPLE_COLUMNS, "host")
    schema = pa.schema([(name, types.get(name, pa.string())) for name in names])
    rows = [
        (s.time_ns, s.spread_ns, s.source, s.device, str(s.channel), s.value, str(s.evidence), host)
        for host, own in samples.items()
        for s in own
    ]
    return _write(folder, "power", _table(schema, rows))


def read_power(
    folder: Path, files: Sequence[TraceFile], hosts: Sequence[str]
) -> dict[str, list[Sample]]:
    """Return the samples of a run's power trace by host, in the order they were taken.

    Raises:
        RecordError: the trace is missing, unreadable, or not the one of the record; or the run had
            several hosts, and an older trace does not say which of them took a sample.
    """
    is_one = len(hosts) == 1
    if not is_one and any(each.name == "power" and "host" not in each.columns for each in files):
        raise RecordError(
            f"the power trace in {folder} does not say which of the run's {len(hosts)} hosts took "
            "each sample: an older wattload wrote it"
        )
    names = SAMPLE_COLUMNS if is_one else (*SAMPLE_COLUMNS, "host")
    columns = _columns(folder, files, "power", names)
    of_rows = repeat(hosts[0]) if is_one else columns["host"]
    samples: dict[str, list[Sample]] = {host: [] for host in hosts}
    rows = zip(*(columns[name] for name in SAMPLE_COLUMNS), strict=True)
    try:
        for (time_ns, spread_ns, source, device, channel, value, evidence), host in zip(
            rows, of_rows, strict=False
        ):
            samples[host].append(
                Sample(
                    time_ns=time_ns,
                    spread_ns=spread_ns,
                    source=source,
                    device=device,
                    channel=Channel(channel),
                    value=value,
                    evidence=Evidence(evidence),
                )
            )
    except (ValueError, KeyError) as error:
        raise RecordError(f"the power trace in {folder} has a row of no sample: {error}") from error
    return samples


def read_throughput(folder: Path, files: Iterable[TraceFile]) -> list[TrafficRow]:
    """Return the rows of a run's throughput trace; raises as ``read_power``."""
    columns = _columns(folder, files, "throughput", THROUGHPUT_COLUMNS)
    return list(zip(*(columns[name] for name in THROUGHPUT_COLUMNS), strict=True))


def _columns(
    folder: Path, files: Iterable[TraceFile], name: str, names: tuple[str, ...]
) -> dict[str, list[Any]]:
    """Return columns of one of a record's traces, whose digest must be that in the record."""
    named = next((each for each in files if each.name == name), None)
    if named is None or Path(named.file).name != named.file:
        raise RecordError(f"the record in {folder} names no {name} trace in its folder")
    path = folder / named.file
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        columns = columns_of(path, names, without=frozenset()) if digest == named.sha256 else None
    except (OSError, ValueError, KeyError, ArithmeticError, MemoryError) as error:
        why = getattr(error, "strerror", None) or (str(error) or repr(error)).splitlines()[0]
        raise RecordError(f"{path} can't be read: {why}") from error
    if columns is None:
        raise RecordError(
            f"{path} is not the {name} trace that the run wrote: its SHA-256 is not the record's"
        )
    return {each: column.to_pylist() for each, column in columns.items()}


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
