"""The trace files of a run, written and read: Parquet, with the unit in each column's name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import RecordError
from wattload.core.files import open_folder
from wattload.core.io import TracedOperations
from wattload.core.power import EVIDENCE_RANK, Channel, Evidence, Sample
from wattload.core.record.phase import TraceFile
from wattload.core.storage.targets import Target
from wattload.power.energy.trace import Trace, TraceBuilder, TraceKey
from wattload.power.sampler.samples import SAMPLE_COLUMNS
from wattload.reports.runs.traces import (
    THROUGHPUT_COLUMNS,
    array_of,
    batches_of,
    categories_of,
    digest_of,
    integers_of,
    rows_by_name,
)
from wattload.run.phases import PhaseTraffic

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP_ROWS = 1 << 15
"""Rows of a file that are in memory together."""

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
        if path.is_relative_to(target.path):
            name = path.name if path == target.path else str(path.relative_to(target.path))
            return number, name
    return 0, path.name


def write_throughput(folder: Path, traffic: Sequence[PhaseTraffic]) -> TraceFile:
    """Write bytes per 100 ms bin, rank and phase, as the application counted them.

    The rows of a rank are in order of time.
    """
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
    ranks: dict[tuple[str, int], list[PhaseTraffic]] = {}
    for each in traffic:
        ranks.setdefault((each.host, each.rank), []).append(each)
    tables = (table for own in ranks.values() for table in _traffic_tables(schema, own))
    return _write(folder, "throughput", schema, tables)


def _traffic_tables(schema: pa.Schema, own: Sequence[PhaseTraffic]) -> Iterator[pa.Table]:
    import pyarrow as pa

    sizes = [each.time_ns.size for each in own]
    order = np.argsort(np.concatenate([each.time_ns for each in own]), kind="stable")
    phase_of = np.repeat(np.arange(len(own), dtype=np.int32), sizes)
    starts = np.cumsum([0, *sizes])
    for at in range(0, order.size, _GROUP_ROWS):
        rows = order[at : at + _GROUP_ROWS]
        numbers = phase_of[rows]
        columns = np.empty((3, rows.size), dtype=np.int64)
        for number, each in enumerate(own):
            mine = numbers == number
            places = rows[mine] - starts[number]
            columns[0, mine] = each.time_ns[places]
            columns[1, mine] = each.read_bytes[places]
            columns[2, mine] = each.written_bytes[places]
        values: Sequence[Any] = (
            columns[0],
            [own[0].host] * rows.size,
            np.full(rows.size, own[0].rank),
            [own[number].phase for number in numbers.tolist()],
            columns[1],
            columns[2],
        )
        arrays = [_column(each, field.type) for each, field in zip(values, schema, strict=True)]
        yield pa.Table.from_arrays(arrays, schema=schema)


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
    return _write(folder, "operations", schema, _tables(schema, rows))


def write_power(folder: Path, samples: Mapping[str, Iterable[Sample]]) -> TraceFile:
    """Write the readings of each host's sampler; a failed read is null, never zero."""
    import pyarrow as pa

    types = {"time_ns": pa.int64(), "spread_ns": pa.int64(), "value": pa.float64()}
    names = (*SAMPLE_COLUMNS, "host")
    schema = pa.schema([(name, types.get(name, pa.string())) for name in names])
    rows = (
        (s.time_ns, s.spread_ns, s.source, s.device, str(s.channel), s.value, str(s.evidence), host)
        for host, own in samples.items()
        for s in own
    )
    return _write(folder, "power", schema, _tables(schema, rows))


def write_named(folder: Path, name: str, table: pa.Table) -> TraceFile:
    return _write(folder, name, table.schema, [table])


def read_power(
    folder: Path, files: Sequence[TraceFile], hosts: Sequence[str]
) -> dict[str, dict[TraceKey, Trace]]:
    """Return the samples of a run's power trace by host.

    Raises:
        RecordError: the trace is missing, unreadable, or does not match the record; or the run had
            several hosts, and an older trace does not say which of them took a sample.
    """
    is_one = len(hosts) == 1
    if not is_one and any(each.name == "power" and "host" not in each.columns for each in files):
        raise RecordError(
            f"the power trace in {folder} does not say which of the run's {len(hosts)} hosts took "
            "each sample: an older wattload wrote it"
        )
    names = SAMPLE_COLUMNS if is_one else (*SAMPLE_COLUMNS, "host")
    builders = {host: TraceBuilder() for host in hosts}
    for columns in _batches(folder, files, "power", names):
        try:
            _add_samples(columns, builders, hosts[0] if is_one else None)
        except (ValueError, KeyError) as error:
            raise RecordError(
                f"the power trace in {folder} has a row of no sample: {error}"
            ) from error
    return {host: builder.traces() for host, builder in builders.items()}


def _add_samples(
    columns: Mapping[str, Any], builders: Mapping[str, TraceBuilder], host: str | None
) -> None:
    """Add a batch of rows to the builders of their hosts; all are of ``host``, if it is given."""
    times, spreads = integers_of(columns["time_ns"]), integers_of(columns["spread_ns"])
    values = np.asarray(array_of(columns["value"]), dtype=np.float64)
    evidence = categories_of(columns["evidence"])
    ranks = np.array([EVIDENCE_RANK[Evidence(word)] for word in evidence.words], dtype=np.int8)
    names = ("source", "device", "channel", *(() if host is not None else ("host",)))
    for (source, device, channel, *other), rows in rows_by_name(columns, names):
        builders[host if host is not None else other[0]].extend(
            TraceKey(source, device, Channel(channel)),
            times[rows],
            spreads[rows],
            values[rows],
            ranks[evidence.numbers[rows]],
        )


def read_throughput(folder: Path, files: Iterable[TraceFile]) -> list[PhaseTraffic]:
    """Return a run's throughput trace by rank and phase; raises as ``read_power``."""
    parts: dict[tuple[str, int, str], list[NDArray[np.int64]]] = {}
    for columns in _batches(folder, files, "throughput", THROUGHPUT_COLUMNS):
        try:
            figures = np.stack(
                [integers_of(columns[name]) for name in ("time_ns", "read_bytes", "written_bytes")]
            )
            ranks = integers_of(columns["rank"])
            named = list(rows_by_name(columns, ("host", "phase")))
        except ValueError as error:
            raise RecordError(
                f"the throughput trace in {folder} has a row without a figure: {error}"
            ) from error
        for (host, phase), rows in named:
            for rank in np.unique(ranks[rows]).tolist():
                own = figures[:, rows[ranks[rows] == rank]]
                parts.setdefault((host, rank, phase), []).append(own)
    return [_phase_traffic(*key, found) for key, found in parts.items()]


def _phase_traffic(
    host: str, rank: int, phase: str, parts: Sequence[NDArray[np.int64]]
) -> PhaseTraffic:
    time_ns, read_bytes, written_bytes = np.concatenate(parts, axis=1)
    return PhaseTraffic(
        host=host,
        rank=rank,
        phase=phase,
        time_ns=time_ns,
        read_bytes=read_bytes,
        written_bytes=written_bytes,
    )


def _batches(
    folder: Path, files: Iterable[TraceFile], name: str, names: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    """Yield columns of one of a record's traces in batches; its digest must be the record's."""
    named = next((each for each in files if each.name == name), None)
    if named is None or Path(named.file).name != named.file:
        raise RecordError(f"the record in {folder} names no {name} trace in its folder")
    path = folder / named.file
    try:
        if digest_of(path) != named.sha256:
            raise RecordError(
                f"{path} is not the {name} trace that the run wrote: its SHA-256 is not the "
                "record's"
            )
        yield from batches_of(path, names, without=frozenset())
    except (OSError, ValueError, KeyError, ArithmeticError, MemoryError) as error:
        why = getattr(error, "strerror", None) or (str(error) or repr(error)).splitlines()[0]
        raise RecordError(f"{path} can't be read: {why}") from error


def _tables(schema: pa.Schema, rows: Iterable[tuple[object, ...]]) -> Iterator[pa.Table]:
    """Yield the rows as tables that are small: a run of days has millions."""
    import pyarrow as pa

    left = iter(rows)
    while batch := list(islice(left, _GROUP_ROWS)):
        arrays = [_column([row[i] for row in batch], field.type) for i, field in enumerate(schema)]
        yield pa.Table.from_arrays(arrays, schema=schema)


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


def _write(folder: Path, name: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> TraceFile:
    import pyarrow.parquet as pq

    path, row_count = folder / f"{name}.parquet", 0
    with (
        open_folder(folder) as own,
        own.replacing(path.name) as file,
        pq.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        for table in tables:
            writer.write_table(table)
            row_count += table.num_rows
    return TraceFile(
        name=name,
        file=path.name,
        sha256=digest_of(path),
        rows=row_count,
        columns=tuple(schema.names),
    )
