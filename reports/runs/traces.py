"""The Parquet traces of a run, as arrays, read at once or on demand.

An unreadable trace becomes a note, not an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Channel
from wattload.core.record.clocks import CommonClock
from wattload.core.record.phase import TRACE_NAMES, TraceFile
from wattload.core.record.results import Meter
from wattload.core.units import NS_PER_S
from wattload.results.tables import TraceTable

THROUGHPUT_COLUMNS = ("time_ns", "host", "rank", "phase", "read_bytes", "written_bytes")
POWER_COLUMNS = (
    *("time_ns", "spread_ns", "host", "source", "device", "channel", "value", "evidence"),
)
OPERATION_COLUMNS = (
    "time_ns",
    "host",
    "rank",
    "phase",
    "kind",
    "target",
    "file",
    "file_bytes",
    "offset_bytes",
    "latency_ns",
)
SPAN_NS_MAX = 30 * 86_400 * NS_PER_S
MOST_ROWS = 20_000_000
"""Five days of four channels at 10 Hz."""
MOST_BYTES = 2 << 30
_NOT_DRAWN = frozenset({"rank", "spread_ns", "evidence"})
"""Required columns that no page draws; the record has the evidence."""

_SIGNAL = ("host", "source", "device", "channel")
_NAME_COLUMNS = frozenset({"host", "phase", "kind", "file", "source", "device", "channel"})
_BATCH_ROWS = 1 << 16
Trace = TypeVar("Trace")
Mask = Callable[[str], str]
NotesAndDigests = tuple[tuple[str, ...], Mapping[str, str]]
_Part = tuple[NDArray[np.int64], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Categories:
    """A column with few distinct values, as the index of each row's value, shape (rows,).

    A day of samples names its device a million times: as text that needs more memory than all
    figures.
    """

    words: tuple[str, ...]
    numbers: NDArray[np.integer[Any]]

    def are(self, word: str) -> NDArray[np.bool_]:
        mine = [number for number, each in enumerate(self.words) if each == word]
        same = np.zeros(self.numbers.shape, dtype=np.bool_)
        for number in mine:  # nearly always one: comparing is ten times faster than searching
            same |= self.numbers == number
        return same


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputTrace:
    """Bytes that the application moved, per 100 ms bin; all arrays have shape (rows,).

    ``time_ns`` is the start of the bin on CLOCK_MONOTONIC of ``host``.
    """

    time_ns: NDArray[np.int64]
    host: Categories
    phase: Categories
    read_bytes: NDArray[np.int64]
    written_bytes: NDArray[np.int64]

    def rows(self, which: NDArray[np.bool_]) -> ThroughputTrace:
        """Return the rows that are true in ``which``, shape (rows,)."""
        return ThroughputTrace(
            time_ns=self.time_ns[which],
            host=Categories(self.host.words, self.host.numbers[which]),
            phase=Categories(self.phase.words, self.phase.numbers[which]),
            read_bytes=self.read_bytes[which],
            written_bytes=self.written_bytes[which],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One channel of one device by one source: times and values, both (samples,), in time order.

    Times are on CLOCK_MONOTONIC of ``host``. A failed read is NaN: a gap in the trace.
    """

    host: str
    source: str
    device: str
    channel: Channel
    time_ns: NDArray[np.int64]
    value: NDArray[np.float64]

    @property
    def meter(self) -> Meter:
        return self.host, self.source, self.device


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerTrace:
    """All signals of a run, in order of host, source, device and channel."""

    signals: tuple[Signal, ...]

    def of(self, channel: Channel) -> tuple[Signal, ...]:
        return tuple(signal for signal in self.signals if signal.channel is channel)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationTrace:
    """A sample of single operations; all arrays have shape (rows,).

    ``time_ns`` is the submission to the kernel, on CLOCK_MONOTONIC of ``host``. ``offset_bytes`` is
    in ``file``, of size ``file_bytes``; its name is relative to the folder of target number
    ``target`` in the record.
    """

    time_ns: NDArray[np.int64]
    host: Categories
    phase: Categories
    kind: Categories
    target: NDArray[np.int64]
    file: Categories
    file_bytes: NDArray[np.int64]
    offset_bytes: NDArray[np.int64]
    latency_ns: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """The traces of one record. ``notes`` states what is missing; ``digests`` are of the files.

    A run has a trace of ``operations`` only if its loader sampled them, so a missing one is not
    noted. It is not read if there are so many runs that no page draws it. ``tables`` are those that
    the results of its workload declare, by name and column.
    """

    throughput: ThroughputTrace | None
    power: PowerTrace | None
    notes: tuple[str, ...]
    digests: Mapping[str, str]
    operations: OperationTrace | None = None
    tables: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)


class LazyTraces(Traces):
    """The traces of one run, read from disk on demand; only notes and digests stay in memory.

    ``read`` should cache the latest traces, because a reader of one usually reads all. ``known``
    are notes and digests, if already read.
    """

    __slots__ = ("_known", "_read")
    _read: Callable[[], Traces]
    _known: NotesAndDigests | None

    def __init__(self, read: Callable[[], Traces], known: NotesAndDigests | None = None) -> None:
        object.__setattr__(self, "_read", read)
        object.__setattr__(self, "_known", known)

    @property
    def throughput(self) -> ThroughputTrace | None:
        return self._read().throughput

    @property
    def power(self) -> PowerTrace | None:
        return self._read().power

    @property
    def operations(self) -> OperationTrace | None:
        return self._read().operations

    @property
    def tables(self) -> Mapping[str, Mapping[str, NDArray[Any]]]:
        return self._read().tables

    @property
    def notes(self) -> tuple[str, ...]:
        return self._kept()[0]

    @property
    def digests(self) -> Mapping[str, str]:
        """The SHA-256 of each file."""
        return self._kept()[1]

    def _kept(self) -> NotesAndDigests:
        if self._known is not None:
            return self._known
        traces = self._read()
        known = (traces.notes, traces.digests)
        object.__setattr__(self, "_known", known)
        return known


def read_traces(
    folder: Path,
    files: tuple[TraceFile, ...],
    mask: Mask,
    *,
    clock: CommonClock,
    declared: Sequence[TraceTable] = (),
    operations: bool = True,
) -> Traces:
    """Return the traces that a record names.

    Args:
        folder: the run's.
        files: the traces of its record.
        mask: what text in the traces goes through.
        clock: the common clock of the run's hosts, by their names behind ``mask``.
        declared: the tables of its workload.
        operations: whether to return single operations; without, a file that is not the recorded
            one is still read, to note whether it is damaged.
    """
    notes: list[str] = []
    digests: dict[str, str] = {}
    named = {file.name: file for file in files}
    drawn = {
        table.name: table
        for table in declared
        if table.drawn
        and table.name in named
        and set(table.drawn) <= set(named[table.name].columns)
    }
    singles = {"operations", *(name for name, table in drawn.items() if table.of_operations)}

    def one(name: str, build: Callable[[Path, Mask], Trace | None]) -> Trace | None:
        if name not in named:
            notes.append(f"The record has no {name} trace.")
            return None
        path = folder / named[name].file
        if path.name != named[name].file:
            notes.append(f"The {name} trace {named[name].file} is outside the run's folder.")
            return None
        if not path.is_file():
            notes.append(f"The {name} trace {path.name} is missing from the run's folder.")
            return None
        try:
            _refuse_large(path)
            digests[name] = digest_of(path)
            is_single = name in singles
            if is_single and not operations and digests[name] == named[name].sha256:
                return None
            return build(path, mask)
        except (OSError, ValueError, KeyError, ArithmeticError, MemoryError) as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            notes.append(f"The {name} trace {path.name} can't be read: {first}")
            return None

    throughput = one("throughput", partial(_throughput, clock))
    power = one("power", partial(_power, clock))
    sampled = one("operations", partial(_operations, clock)) if "operations" in named else None
    tables = {name: one(name, partial(_table, table)) for name, table in drawn.items()}
    for name in named.keys() - {*TRACE_NAMES, *tables}:
        one(name, _readable)
    return Traces(
        throughput=throughput,
        power=power,
        operations=sampled if operations else None,
        tables={
            name: columns
            for name, columns in tables.items()
            if columns is not None and (operations or not drawn[name].of_operations)
        },
        notes=tuple(map(mask, notes)),
        digests=digests,
    )


def _refuse_large(path: Path) -> None:
    """Refuse a trace that would fill the memory or take minutes to read."""
    size_bytes = path.stat().st_size
    if size_bytes > MOST_BYTES:
        raise ValueError(f"it has {size_bytes} bytes, more than {MOST_BYTES}")


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def categories_of(column: Any, mask: Mask = str) -> Categories:  # noqa: ANN401 - an Arrow array
    """Return a column of names, each through ``mask``; raises ``ValueError`` for a null."""
    if column.null_count:
        raise ValueError("a name is null")
    encoded = column.dictionary_encode()
    words = tuple(mask(str(word)) for word in encoded.dictionary.to_pylist())
    return Categories(words, np.asarray(array_of(encoded.indices), dtype=np.int32))


def integers_of(column: Any) -> NDArray[np.int64]:  # noqa: ANN401 - an Arrow array
    """Return a column of counts or times; raises ``ValueError`` for a null."""
    if column.null_count:
        raise ValueError("a count or a time is null")
    return np.asarray(array_of(column), dtype=np.int64)


def _times(
    columns: Mapping[str, Any], clock: CommonClock, mask: Mask
) -> tuple[NDArray[np.int64], Categories]:
    """Return the times of rows and their hosts."""
    time_ns, hosts = integers_of(columns["time_ns"]), categories_of(columns["host"], mask)
    own = ((host, time_ns[hosts.numbers == number]) for number, host in enumerate(hosts.words))
    _check_span(clock, own)
    return time_ns, hosts


def _check_span(clock: CommonClock, of_hosts: Iterable[tuple[str, NDArray[np.int64]]]) -> None:
    """Refuse times of over 30 days on the common clock: bins are allocated over the whole span."""
    ends = [
        clock.ns(host, int(end))
        for host, time_ns in of_hosts
        if time_ns.size
        for end in (time_ns.min(), time_ns.max())
    ]
    if ends and max(ends) - min(ends) > SPAN_NS_MAX:
        raise ValueError("its times span more than 30 days")


def _throughput(clock: CommonClock, path: Path, mask: Mask) -> ThroughputTrace:
    columns = columns_of(path, THROUGHPUT_COLUMNS)
    time_ns, hosts = _times(columns, clock, mask)
    return ThroughputTrace(
        time_ns=time_ns,
        host=hosts,
        phase=categories_of(columns["phase"], mask),
        read_bytes=integers_of(columns["read_bytes"]),
        written_bytes=integers_of(columns["written_bytes"]),
    )


def _power(clock: CommonClock, path: Path, mask: Mask) -> PowerTrace:
    """Return the signals, collected batch by batch: a day of samples is never in memory twice."""
    parts: dict[tuple[str, ...], list[_Part]] = {}
    for columns in batches_of(path, POWER_COLUMNS):
        time_ns = integers_of(columns["time_ns"])
        value = np.asarray(array_of(columns["value"]), dtype=np.float64)
        for name, rows in rows_by_name(columns, _SIGNAL, mask):
            parts.setdefault(name, []).append((time_ns[rows], value[rows]))
    signals = [_signal(name, parts.pop(name)) for name in sorted(parts)]
    _check_span(clock, ((signal.host, signal.time_ns) for signal in signals))
    return PowerTrace(signals=tuple(signals))


def rows_by_name(
    columns: Mapping[str, Any], names: Sequence[str], mask: Mask = str
) -> Iterator[tuple[tuple[str, ...], NDArray[np.intp]]]:
    """Yield each combination of the values of some columns in a batch, and its rows in order.

    Values go through ``mask``; those of ``channel`` are ours.
    """
    found = [categories_of(columns[name], str if name == "channel" else mask) for name in names]
    shape = tuple(max(len(one.words), 1) for one in found)
    keys = np.ravel_multi_index(tuple(one.numbers for one in found), shape)
    order = np.argsort(keys, kind="stable")
    present, starts = np.unique(keys[order], return_index=True)
    for key, rows in zip(present.tolist(), np.split(order, starts[1:]), strict=False):
        at = np.unravel_index(key, shape)
        yield tuple(one.words[int(i)] for one, i in zip(found, at, strict=True)), rows


def _signal(name: tuple[str, ...], parts: Sequence[_Part]) -> Signal:
    host, source, device, channel = name
    time_ns, value = parts[0]
    if len(parts) > 1:
        time_ns = np.concatenate([time for time, _ in parts])
        value = np.concatenate([part for _, part in parts])
    if (time_ns[1:] < time_ns[:-1]).any():
        order = np.argsort(time_ns, kind="stable")
        time_ns, value = time_ns[order], value[order]
    return Signal(
        host=host,
        source=source,
        device=device,
        channel=Channel(channel),
        time_ns=time_ns,
        value=value,
    )


def _operations(clock: CommonClock, path: Path, mask: Mask) -> OperationTrace:
    columns = columns_of(path, OPERATION_COLUMNS)
    time_ns, hosts = _times(columns, clock, mask)
    return OperationTrace(
        time_ns=time_ns,
        host=hosts,
        phase=categories_of(columns["phase"], mask),
        kind=categories_of(columns["kind"], mask),
        target=integers_of(columns["target"]),
        file=categories_of(columns["file"], mask),
        file_bytes=integers_of(columns["file_bytes"]),
        offset_bytes=integers_of(columns["offset_bytes"]),
        latency_ns=integers_of(columns["latency_ns"]),
    )


def _table(table: TraceTable, path: Path, mask: Mask) -> Mapping[str, NDArray[Any]]:
    """Return the columns of a workload's table that pages draw."""
    found: dict[str, NDArray[Any]] = {}
    for name, column in columns_of(path, table.drawn).items():
        kind = table.kind(name)
        if kind == "string":
            found[name] = np.array([mask(str(each)) for each in column.to_pylist()])
        elif kind == "int64" and name in table.interval:
            found[name] = integers_of(column)
        else:
            found[name] = np.asarray(array_of(column), dtype=bool if kind == "bool" else np.float64)
    if table.interval:
        start_ns, end_ns = (found[name] for name in table.interval)
        if (end_ns < start_ns).any():
            raise ValueError("a row ends before it starts")
        has_gaps = (start_ns[1:] != end_ns[:-1]).any() or (start_ns == end_ns).any()
        if table.is_gapless and has_gaps:
            raise ValueError("its rows do not follow each other in time")
    return found


def _readable(path: Path, mask: Mask) -> None:
    """Return nothing: no page draws the table, so only its digest is checked."""


def columns_of(
    path: Path, names: tuple[str, ...], *, without: Collection[str] = _NOT_DRAWN
) -> dict[str, Any]:
    """Return the Arrow arrays of columns of a file by name: of those that a page draws by default.

    Raises:
        ValueError: a column of ``names`` is missing, or the file is not Parquet.
        OSError: the file can't be read.
    """
    with _opened(path, names, without) as (file, drawn):
        table = file.read(columns=drawn, use_threads=False)
        return {name: table.column(name).combine_chunks() for name in drawn}


def batches_of(
    path: Path,
    names: tuple[str, ...],
    *,
    without: Collection[str] = _NOT_DRAWN,
) -> Iterator[dict[str, Any]]:
    """Yield the columns in batches; raises as ``columns_of``."""
    with _opened(path, names, without) as (file, drawn):
        for batch in file.iter_batches(_BATCH_ROWS, columns=drawn, use_threads=False):
            yield {name: batch.column(name) for name in drawn}


@contextmanager
def _opened(
    path: Path,
    names: tuple[str, ...],
    without: Collection[str],
) -> Iterator[tuple[Any, list[str]]]:
    """Open a file; names are read as dictionary codes, in a third of the time of text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Arrow's errors are ValueError, OSError or KeyError by inheritance.
    drawn = [name for name in names if name not in without]
    encoded = [name for name in drawn if name in _NAME_COLUMNS]
    # As bytes: Arrow accepts only UTF-8 text, but a folder's name can be any bytes.
    with ExitStack() as opened:
        stored = opened.enter_context(pa.OSFile(os.fsencode(path)))
        if missing := sorted(set(names) - set(pq.read_schema(stored).names)):
            raise ValueError(f"missing columns: {', '.join(missing)}")
        file = opened.enter_context(
            pq.ParquetFile(stored, read_dictionary=encoded, pre_buffer=False)
        )
        metadata = file.metadata
        groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
        size_bytes = sum(group.total_byte_size for group in groups)
        if metadata.num_rows > MOST_ROWS or size_bytes > MOST_BYTES:
            raise ValueError(
                f"it has {metadata.num_rows} rows of {size_bytes} bytes; at most {MOST_ROWS} rows "
                f"of {MOST_BYTES} bytes are read"
            )
        yield file, drawn


def array_of(column: Any) -> NDArray[Any]:  # noqa: ANN401 - an Arrow array
    """Return a column's values; a null in a numeric column is NaN."""
    import pyarrow as pa

    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if is_number and not column.null_count:
        return np.from_dlpack(column)  # to_numpy would import pandas: 0.3 s and 40 MB
    found: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found
