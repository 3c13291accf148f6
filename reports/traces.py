"""The Parquet traces beside a record, as arrays; one that can't be read is a sentence, no error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Channel
from wattload.core.record.phase import TraceFile
from wattload.core.units import NS_PER_S
from wattload.reports.parquet import array_of, batches_of, columns_of

THROUGHPUT_COLUMNS = ("time_ns", "host", "rank", "phase", "read_bytes", "written_bytes")
POWER_COLUMNS = ("time_ns", "spread_ns", "source", "device", "channel", "value", "evidence")
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

Trace = TypeVar("Trace")
Mask = Callable[[str], str]
_Part = tuple[NDArray[np.int64], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Words:
    """A column of few different words, as the number of each row's word, shape (rows,).

    A day of samples names its device a million times: as text that outweighs all figures.
    """

    words: tuple[str, ...]
    numbers: NDArray[np.integer[Any]]

    def are(self, word: str) -> NDArray[np.bool_]:
        """Return which rows hold this word."""
        mine = [number for number, each in enumerate(self.words) if each == word]
        same = np.zeros(self.numbers.shape, dtype=np.bool_)
        for number in mine:  # nearly always one: comparing is ten times as fast as searching
            same |= self.numbers == number
        return same


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputTrace:
    """Bytes that the application moved, per 100 ms bin; all arrays have shape (rows,).

    ``time_ns`` is the bin's start on CLOCK_MONOTONIC of ``host``.
    """

    time_ns: NDArray[np.int64]
    host: Words
    phase: Words
    read_bytes: NDArray[np.int64]
    written_bytes: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One channel of one device by one source: times and values, both (samples,), in time order.

    A failed read is NaN: a hole in the trace.
    """

    source: str
    device: str
    channel: Channel
    time_ns: NDArray[np.int64]
    value: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerTrace:
    """All signals of a run, in order of source, device and channel."""

    signals: tuple[Signal, ...]

    def of(self, channel: Channel) -> tuple[Signal, ...]:
        """Return the signals of one channel."""
        return tuple(signal for signal in self.signals if signal.channel is channel)

    def signal(self, channel: Channel, source: str, device: str) -> Signal | None:
        """Return one signal, or ``None`` where it was not sampled."""
        own = (s for s in self.of(channel) if (s.source, s.device) == (source, device))
        return next(own, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationTrace:
    """A sample of single operations; all arrays have shape (rows,).

    ``time_ns`` is when each was handed to the kernel, on CLOCK_MONOTONIC of ``host``;
    ``offset_bytes`` lies in ``file``, which has ``file_bytes`` and is named from the folder of the
    record's target number ``target``.
    """

    time_ns: NDArray[np.int64]
    host: Words
    phase: Words
    kind: Words
    target: NDArray[np.int64]
    file: Words
    file_bytes: NDArray[np.int64]
    offset_bytes: NDArray[np.int64]
    latency_ns: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What lay beside one record. ``notes`` says what is missing; ``digests`` are of the files.

    A run has a trace of ``operations`` only where its loader sampled them: none is no note.
    """

    throughput: ThroughputTrace | None
    power: PowerTrace | None
    notes: tuple[str, ...]
    digests: Mapping[str, str]
    operations: OperationTrace | None = None


def read_traces(folder: Path, files: tuple[TraceFile, ...], mask: Mask) -> Traces:
    """Return the traces that a record names; text in them goes through ``mask``."""
    notes: list[str] = []
    digests: dict[str, str] = {}
    named = {file.name: file for file in files}

    def one(name: str, build: Callable[[Path, Mask], Trace]) -> Trace | None:
        if name not in named:
            notes.append(f"The record names no {name} trace.")
            return None
        path = folder / named[name].file
        if path.name != named[name].file:
            notes.append(f"The {name} trace is named {named[name].file}, outside the run's folder.")
            return None
        if not path.is_file():
            notes.append(f"The {name} trace {path.name} is not beside the record.")
            return None
        try:
            digests[name] = _digest(path)
            return build(path, mask)
        except (OSError, ValueError, KeyError) as error:
            first = str(error).strip().splitlines()[0][:200]
            notes.append(f"The {name} trace {path.name} can't be read: {first}")
            return None

    return Traces(
        throughput=one("throughput", _throughput),
        power=one("power", _power),
        operations=one("operations", _operations) if "operations" in named else None,
        notes=tuple(map(mask, notes)),
        digests=digests,
    )


def _digest(path: Path) -> str:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _words(column: Any, mask: Mask) -> Words:  # noqa: ANN401 - an Arrow array
    if column.null_count:
        raise ValueError("a name in it is null")
    encoded = column.dictionary_encode()
    words = tuple(mask(str(word)) for word in encoded.dictionary.to_pylist())
    return Words(words, np.asarray(array_of(encoded.indices), dtype=np.int32))


def _integers(column: Any) -> NDArray[np.int64]:  # noqa: ANN401 - an Arrow array
    if column.null_count:
        raise ValueError("a count or a time in it is null")
    return np.asarray(array_of(column), dtype=np.int64)


def _times(columns: Mapping[str, Any]) -> NDArray[np.int64]:
    """Return the times, refused where no run could span them: bins are laid out over them."""
    time_ns = _integers(columns["time_ns"])
    if time_ns.size:
        _check_span(int(time_ns.min()), int(time_ns.max()))
    return time_ns


def _check_span(start_ns: int, end_ns: int) -> None:
    if end_ns - start_ns > SPAN_NS_MAX:
        raise ValueError("its times are more than 30 days apart")


def _throughput(path: Path, mask: Mask) -> ThroughputTrace:
    columns = columns_of(path, THROUGHPUT_COLUMNS)
    return ThroughputTrace(
        time_ns=_times(columns),
        host=_words(columns["host"], mask),
        phase=_words(columns["phase"], mask),
        read_bytes=_integers(columns["read_bytes"]),
        written_bytes=_integers(columns["written_bytes"]),
    )


def _power(path: Path, mask: Mask) -> PowerTrace:
    """Return the signals, gathered batch by batch: a day of them is never held twice."""
    parts: dict[tuple[str, str, str], list[_Part]] = {}
    for columns in batches_of(path, POWER_COLUMNS):
        time_ns = _times(columns)
        value = np.asarray(array_of(columns["value"]), dtype=np.float64)
        for name, rows in _by_signal(columns, mask):
            parts.setdefault(name, []).append((time_ns[rows], value[rows]))
    signals = [_signal(name, parts.pop(name)) for name in sorted(parts)]
    starts = [int(signal.time_ns[0]) for signal in signals]
    ends = [int(signal.time_ns[-1]) for signal in signals]
    _check_span(min(starts, default=0), max(ends, default=0))
    return PowerTrace(signals=tuple(signals))


def _by_signal(
    columns: Mapping[str, Any], mask: Mask
) -> Iterator[tuple[tuple[str, str, str], NDArray[np.intp]]]:
    """Yield the source, device and channel of each signal in a batch, and its rows in order."""
    source, device = _words(columns["source"], mask), _words(columns["device"], mask)
    channel = _words(columns["channel"], str)
    shape = tuple(max(len(one.words), 1) for one in (source, device, channel))
    keys = np.ravel_multi_index((source.numbers, device.numbers, channel.numbers), shape)
    order = np.argsort(keys, kind="stable")
    found, starts = np.unique(keys[order], return_index=True)
    for key, rows in zip(found.tolist(), np.split(order, starts[1:]), strict=False):
        at = [int(index) for index in np.unravel_index(key, shape)]
        yield (source.words[at[0]], device.words[at[1]], channel.words[at[2]]), rows


def _signal(name: tuple[str, str, str], parts: Sequence[_Part]) -> Signal:
    source, device, channel = name
    time_ns, value = parts[0]
    if len(parts) > 1:
        time_ns = np.concatenate([time for time, _ in parts])
        value = np.concatenate([part for _, part in parts])
    if (time_ns[1:] < time_ns[:-1]).any():
        order = np.argsort(time_ns, kind="stable")
        time_ns, value = time_ns[order], value[order]
    return Signal(
        source=source, device=device, channel=Channel(channel), time_ns=time_ns, value=value
    )


def _operations(path: Path, mask: Mask) -> OperationTrace:
    columns = columns_of(path, OPERATION_COLUMNS)
    return OperationTrace(
        time_ns=_times(columns),
        host=_words(columns["host"], mask),
        phase=_words(columns["phase"], mask),
        kind=_words(columns["kind"], mask),
        target=_integers(columns["target"]),
        file=_words(columns["file"], mask),
        file_bytes=_integers(columns["file_bytes"]),
        offset_bytes=_integers(columns["offset_bytes"]),
        latency_ns=_integers(columns["latency_ns"]),
    )
