"""The trace files of a run, written and read: Parquet, with the unit in each column's name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import RecordError
from wattload.core.files import open_folder
from wattload.core.io import IOKind, TracedOperations
from wattload.core.power import EVIDENCE_RANK, Channel, Evidence, Sample
from wattload.core.record.phase import TraceFile
from wattload.core.storage.targets import Target
from wattload.power.energy.trace import Trace, TraceBuilder, TraceKey
from wattload.reports.runs.traces import (
    OPERATION_COLUMNS,
    POWER_COLUMNS,
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
    import pyarrow.parquet as pq

_GROUP_ROWS = 1 << 15
"""Rows of a file that are in memory together."""

_NUMBERS = {
    "value": "float64",
    "rank": "int32",
    "target": "int32",
    **dict.fromkeys(
        (
            "time_ns",
            "spread_ns",
            "read_bytes",
            "written_bytes",
            "file_bytes",
            "offset_bytes",
            "latency_ns",
        ),
        "int64",
    ),
}
"""The types of columns that are not text."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacedOperations:
    """A sample of a rank's operations of one kind in one phase, with the targets of their files.

    ``rows`` have ``TRACE_DTYPE``; their ``file`` is an index into ``files``, each the number of a
    target, the file's name relative to it, and the file's size in bytes.
    """

    phase: str
    kind: IOKind
    rows: NDArray[np.void]
    files: tuple[tuple[int, str, int], ...]


def placed_operations(
    traced: Sequence[TracedOperations], targets: Sequence[Target]
) -> list[PlacedOperations]:
    """Return a rank's operations, by kind and time; file names are relative to their target."""
    return [
        PlacedOperations(
            phase=each.phase,
            kind=each.kind,
            rows=each.rows,
            files=tuple((*_place(file.path, targets), file.size_bytes) for file in each.files),
        )
        for each in traced
    ]


def _place(path: Path, targets: Sequence[Target]) -> tuple[int, str]:
    """Return the number of the target that holds a file, and the file's name relative to it."""
    for number, target in enumerate(targets):
        if path.is_relative_to(target.path):
            name = path.name if path == target.path else str(path.relative_to(target.path))
            return number, name
    return 0, path.name


class RunTraces:
    """Writes the traces of a run, host after host; the files appear when the block ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened = ExitStack()
        self._traces: dict[str, _Trace] = {}

    def __enter__(self) -> Self:
        self._open("throughput", THROUGHPUT_COLUMNS)
        self._open("power", POWER_COLUMNS)
        return self

    def __exit__(self, *failure: Any) -> None:
        self._opened.__exit__(*failure)

    def files(self) -> list[TraceFile]:
        """Describe the files, once the block has ended."""
        return [trace.file() for trace in self._traces.values()]

    def add_throughput(self, traffic: Sequence[PhaseTraffic]) -> None:
        """Write bytes per 100 ms bin, rank and phase, as the application counted them.

        The rows of a rank are in order of time.
        """
        ranks: dict[tuple[str, int], list[PhaseTraffic]] = {}
        for each in traffic:
            ranks.setdefault((each.host, each.rank), []).append(each)
        trace = self._traces["throughput"]
        for own in ranks.values():
            trace.add(_traffic_tables(trace.schema, own))

    def add_power(self, host: str, samples: Iterable[Sample]) -> None:
        """Write the readings of a host's sampler; a failed read is null, never zero."""
        rows = (
            (
                each.time_ns,
                each.spread_ns,
                host,
                each.source,
                each.device,
                str(each.channel),
                each.value,
                str(each.evidence),
            )
            for each in samples
        )
        trace = self._traces["power"]
        trace.add(_sample_tables(trace.schema, rows))

    def add_operations(self, host: str, rank: int, operations: Sequence[PlacedOperations]) -> None:
        """Write a rank's sample of single operations; without any in the run, there is no file."""
        for each in operations:
            if "operations" not in self._traces:
                self._open("operations", OPERATION_COLUMNS)
            trace = self._traces["operations"]
            trace.add(_operation_tables(trace.schema, host, rank, each))

    def _open(self, name: str, columns: Sequence[str]) -> None:
        import pyarrow as pa

        types = {column: getattr(pa, _NUMBERS.get(column, "string"))() for column in columns}
        trace = _Trace(self._folder, name, pa.schema(list(types.items())))
        self._traces[name] = self._opened.enter_context(trace.writing())


class _Trace:
    """One trace file while it is written."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema) -> None:
        self.schema = schema
        self._name = name
        self._path = folder / f"{name}.parquet"
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._row_count = 0

    @contextmanager
    def writing(self) -> Iterator[Self]:
        """Write the tables that are added in the block."""
        import pyarrow.parquet as pq

        with (
            open_folder(self._path.parent) as folder,
            folder.replacing(self._path.name) as file,
            pq.ParquetWriter(file, self.schema, compression="zstd") as self._writer,
        ):
            yield self
            self._flush()

    def file(self) -> TraceFile:
        """Describe the file, once it is written."""
        return TraceFile(
            name=self._name,
            file=self._path.name,
            sha256=digest_of(self._path),
            rows=self._row_count,
            columns=tuple(self.schema.names),
        )

    def add(self, tables: Iterable[pa.Table]) -> None:
        """Write tables, small ones together: each call of the writer makes a row group."""
        for table in tables:
            self._waiting.append(table)
            if sum(each.num_rows for each in self._waiting) >= _GROUP_ROWS:
                self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._waiting and self._writer is not None:
            table = pa.concat_tables(self._waiting)
            self._writer.write_table(table)
            self._row_count += table.num_rows
        self._waiting = []


def _traffic_tables(schema: pa.Schema, own: Sequence[PhaseTraffic]) -> Iterator[pa.Table]:
    sizes = [each.time_ns.size for each in own]
    order = np.argsort(np.concatenate([each.time_ns for each in own]), kind="stable")
    phase_of = np.repeat(np.arange(len(own), dtype=np.int32), sizes)
    starts = np.cumsum([0, *sizes])
    for at in range(0, order.size, _GROUP_ROWS):
        rows = order[at : at + _GROUP_ROWS]
        numbers = phase_of[rows]
        figures = np.empty((3, rows.size), dtype=np.int64)
        for number, each in enumerate(own):
            mine = numbers == number
            places = rows[mine] - starts[number]
            figures[0, mine] = each.time_ns[places]
            figures[1, mine] = each.read_bytes[places]
            figures[2, mine] = each.written_bytes[places]
        yield _table(
            schema,
            figures[0],
            own[0].host,
            np.full(rows.size, own[0].rank),
            ([each.phase for each in own], numbers),
            figures[1],
            figures[2],
        )


def _operation_tables(
    schema: pa.Schema, host: str, rank: int, operations: PlacedOperations
) -> Iterator[pa.Table]:
    targets, names, sizes = zip(*operations.files, strict=True) if operations.files else ((),) * 3
    for at in range(0, operations.rows.size, _GROUP_ROWS):
        rows = operations.rows[at : at + _GROUP_ROWS]
        file = rows["file"]
        yield _table(
            schema,
            rows["submit_ns"],
            host,
            np.full(rows.size, rank),
            operations.phase,
            str(operations.kind),
            np.array(targets)[file],
            (names, file),
            np.array(sizes)[file],
            rows["offset_bytes"],
            rows["latency_ns"],
        )


def write_named(folder: Path, name: str, table: pa.Table) -> TraceFile:
    trace = _Trace(folder, name, table.schema)
    with trace.writing():
        trace.add([table])
    return trace.file()


def read_power(
    folder: Path, files: Sequence[TraceFile], hosts: Sequence[str]
) -> dict[str, dict[TraceKey, Trace]]:
    """Return the samples of a run's power trace by host.

    Raises:
        RecordError: the trace is missing, unreadable, or does not match the record.
    """
    builders = {host: TraceBuilder() for host in hosts}
    for columns in _batches(folder, files, "power", POWER_COLUMNS):
        try:
            _add_samples(columns, builders)
        except (ValueError, KeyError) as error:
            raise RecordError(
                f"the power trace in {folder} has a row of no sample: {error}"
            ) from error
    return {host: builder.traces() for host, builder in builders.items()}


def _add_samples(columns: Mapping[str, Any], builders: Mapping[str, TraceBuilder]) -> None:
    """Add a batch of rows to the builders of their hosts."""
    times, spreads = integers_of(columns["time_ns"]), integers_of(columns["spread_ns"])
    values = np.asarray(array_of(columns["value"]), dtype=np.float64)
    evidence = categories_of(columns["evidence"])
    ranks = np.array([EVIDENCE_RANK[Evidence(word)] for word in evidence.words], dtype=np.int8)
    names = ("host", "source", "device", "channel")
    for (host, source, device, channel), rows in rows_by_name(columns, names):
        builders[host].extend(
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


def _sample_tables(schema: pa.Schema, rows: Iterable[tuple[object, ...]]) -> Iterator[pa.Table]:
    """Yield the rows as tables that are small: a run of days has millions."""
    import pyarrow as pa

    left = iter(rows)
    while batch := list(islice(left, _GROUP_ROWS)):
        arrays = [_column([row[i] for row in batch], field.type) for i, field in enumerate(schema)]
        yield pa.Table.from_arrays(arrays, schema=schema)


def _table(schema: pa.Schema, *columns: Any) -> pa.Table:
    """Return a table of known figures, as arrays of shape (rows,), and of names.

    A column of names is one name for all rows, or the names and the number of each row's.
    """
    import pyarrow as pa

    count = columns[0].size
    arrays = []
    for field, column in zip(schema, columns, strict=True):
        if isinstance(column, np.ndarray):
            values = pa.py_buffer(np.ascontiguousarray(column, field.type.to_pandas_dtype()))
            arrays.append(pa.Array.from_buffers(field.type, count, [None, values]))
            continue
        names, numbers = ([column], np.zeros(count)) if isinstance(column, str) else column
        indices = pa.py_buffer(np.ascontiguousarray(numbers, np.int32))
        codes = pa.Array.from_buffers(pa.int32(), count, [None, indices])
        words = _column(names, field.type)
        arrays.append(pa.DictionaryArray.from_arrays(codes, words).dictionary_decode())
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
