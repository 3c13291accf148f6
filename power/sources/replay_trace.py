"""A recorded trace: its format, its file (CSV or Parquet), its copy in the run's folder.

A trace file has a time column and readings. The time column is ``time_s`` (from any zero),
``monotonic_ns`` (CLOCK_MONOTONIC of the host that replays it) or ``unix_s`` (UTC). The readings are
``power_w`` or ``energy_j``, or bounds in ``lower_w`` and ``upper_w``; optional columns are
``power_state``, ``temperature_k`` and ``evidence``. The head holds what applies to all readings:
see ``TraceHead``. An empty reading is a failed one.

The sampler accepts no path from a client. The run reads the user's trace with its own rights and
copies it to its folder, so that the record keeps the source of its joules.
"""

from __future__ import annotations

import csv
import hashlib
import math
import os
import stat
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from io import StringIO
from itertools import chain, pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from wattload.core.base_models import Frozen, first_fault
from wattload.core.errors import DataError, PowerError
from wattload.core.files import open_folder
from wattload.core.power import Channel, Counter, Evidence, Instant, Scope, Sensor, weakest
from wattload.core.units import NS_PER_S
from wattload.power.config import LAST_POWER_STATE, START

if TYPE_CHECKING:
    from wattload.power.config import PowerConfig

TIME_COLUMNS: Mapping[str, int] = {"time_s": NS_PER_S, "monotonic_ns": 1, "unix_s": NS_PER_S}
"""Each time column with its unit in nanoseconds."""

CHANNELS = (
    Channel.POWER_W,
    Channel.ENERGY_J,
    Channel.LOWER_W,
    Channel.UPPER_W,
    Channel.POWER_STATE,
    Channel.TEMPERATURE_K,
)

EVIDENCE = "evidence"
COLUMNS = (*TIME_COLUMNS, *CHANNELS, EVIDENCE)
_SENSOR_KEYS = ("window_s", "update_period_s", "phase_s", "unseen_s", "quantum_j", "wrap_j")
_LARGEST_TIME_NS = 1 << 63
_EVIDENCE_OF = {str(each): each for each in Evidence}

Row = Mapping[str, str | float | int | None]
"""One reading by column; numbers may be text."""

CSV, PARQUET = ".csv", ".parquet"
_HEAD = "#"

MAX_TRACE_BYTES = 256 << 20
"""About seven hours of one channel at 100 Hz. A larger trace could fill the memory."""

MAX_TRACE_ROWS = 4_000_000
"""Eleven hours at 100 Hz."""

_SHA256_DIGITS = 12
STAGED_NAME = "replay.csv"


class TraceHead(Frozen):
    """What a file states for all its readings.

    ``evidence`` is the evidence of the readings; if there is a column of that name too, each
    reading has the weaker of both. ``device`` is what was measured, ``origin`` the file that the
    trace was first read from.
    """

    evidence: Evidence | None = None
    sensor: Sensor = Field(default_factory=Instant)
    scope: Scope = Scope.DRIVE
    device: str = ""
    resolution_w: float | None = Field(default=None, gt=0)
    accuracy_percent: float | None = Field(default=None, gt=0, lt=100)
    origin: str = ""
    note: str = ""


HEAD_KEYS = (*(key for key in TraceHead.model_fields), *_SENSOR_KEYS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedTrace:
    """Readings in order of time; ``time_ns`` is on the clock of ``time_column``.

    ``values`` has a column for each channel, NaN where a reading is missing. ``evidence`` has one
    entry per reading, or is empty if only the head states it.
    """

    head: TraceHead
    time_column: str
    time_ns: array[int]
    values: Mapping[Channel, array[float]]
    evidence: Sequence[Evidence]

    @property
    def best_evidence(self) -> Evidence:
        claimed = set(self.evidence)
        strongest = next((each for each in Evidence if each in claimed), None)
        return weakest(each for each in (self.head.evidence, strongest) if each is not None)

    def evidence_of(self, row: int) -> Evidence:
        stated = self.evidence[row] if self.evidence else None
        return weakest(each for each in (self.head.evidence, stated) if each is not None)

    @property
    def period_s(self) -> float | None:
        """The median time between two readings, ``None`` for fewer than two."""
        steps = [after - before for before, after in pairwise(self.time_ns) if after > before]
        return median(steps) / NS_PER_S if steps else None

    @property
    def seconds(self) -> float:
        return (self.time_ns[-1] - self.time_ns[0]) / NS_PER_S if self.time_ns else 0.0


def parse_head(found: Mapping[str, str], place: str) -> TraceHead:
    """Return a head from its keys and values, both text.

    Raises:
        DataError: a key is unknown, or a value is invalid.
    """
    unknown = sorted(set(found) - set(HEAD_KEYS))
    if unknown:
        raise DataError(
            f"{place}: unknown head line {unknown[0]!r}; allowed: {', '.join(HEAD_KEYS)}"
        )
    fields: dict[str, Any] = {key: text for key, text in found.items() if key not in _SENSOR_KEYS}
    sensor = {key: text for key, text in found.items() if key in _SENSOR_KEYS}
    if sensor or "sensor" in fields:
        fields["sensor"] = {"kind": fields.get("sensor", "instant"), **sensor}
    try:
        return TraceHead.model_validate(fields)
    except ValidationError as error:
        where, message, value = first_fault(error)
        raise DataError(f"{place}: {where}: {message}, got {value!r}") from error


class TraceBuilder:
    """Collects readings one by one and refuses the first invalid one.

    ``place`` names a reading in messages, by its number from 0 on.

    Raises:
        DataError: the columns are not those of a trace, or don't fit the head's sensor.
    """

    def __init__(
        self, head: TraceHead, columns: Sequence[str], file: str, place: Callable[[int], str]
    ) -> None:
        self._head = head
        self._place = place
        self._file = file
        self._check_columns(columns)
        (self._time_column,) = set(columns) & set(TIME_COLUMNS)
        self._time_unit_ns = TIME_COLUMNS[self._time_column]
        self._time_ns: array[int] = array("q")
        self._values = {channel: array("d") for channel in CHANNELS if channel in columns}
        self._has_evidence = EVIDENCE in columns
        self._evidence: list[Evidence] = []
        self._last_j: float | None = None

    def add(self, row: Row) -> None:
        """Add a reading.

        Raises:
            DataError: a value is invalid, or contradicts the reading before.
        """
        time_ns = self._time_of(row)
        if self._time_ns and time_ns < self._time_ns[-1]:
            raise self._error(
                f"time goes back by {(self._time_ns[-1] - time_ns) / NS_PER_S:g} s; readings "
                "must be in order"
            )
        for channel, column in self._values.items():
            column.append(self._value_of(row, channel))
        if self._has_evidence:
            self._evidence.append(self._evidence_of(row))
        self._time_ns.append(time_ns)

    def build(self) -> RecordedTrace:
        return RecordedTrace(
            head=self._head,
            time_column=self._time_column,
            time_ns=self._time_ns,
            values=self._values,
            evidence=self._evidence,
        )

    def _check_columns(self, columns: Sequence[str]) -> None:
        unknown = [name for name in columns if name not in COLUMNS]
        repeated = [name for name in columns if columns.count(name) > 1]
        times = [name for name in columns if name in TIME_COLUMNS]
        figures = {Channel.POWER_W, Channel.ENERGY_J} & set(columns)
        if unknown or repeated:
            reason = f"has a column {unknown[0]!r}" if unknown else f"has {repeated[0]} twice"
        elif len(times) != 1:
            reason = f"must have one of {', '.join(TIME_COLUMNS)}, and has {len(times)}"
        elif len(figures) > 1 or not (figures or Channel.UPPER_W in columns):
            reason = "must have power_w or energy_j, or else upper_w"
        elif (Channel.ENERGY_J in columns) != isinstance(self._head.sensor, Counter):
            reason = "must have energy_j with sensor: counter (and quantum_j), and only with it"
        elif self._head.evidence is None and EVIDENCE not in columns:
            reason = (
                "does not state its evidence; add a column evidence, or a line '# evidence: "
                f"measured' (one of {', '.join(Evidence)})"
            )
        else:
            return
        raise DataError(f"{self._file} {reason}; allowed columns: {', '.join(COLUMNS)}")

    def _time_of(self, row: Row) -> int:
        given = row[self._time_column]
        time = self._number(given, self._time_column)
        if math.isnan(time):
            raise self._error(f"{self._time_column} is empty")
        # A float would round UTC to 0.2 us, and a clock that has run for 104 days to more than 1
        # ns.
        exact = Decimal(given) if isinstance(given, str) else time
        time_ns = round(exact * self._time_unit_ns)
        if abs(time_ns) >= _LARGEST_TIME_NS:
            raise self._error(f"{self._time_column} must be within 292 years, got {given!r}")
        return time_ns

    def _value_of(self, row: Row, channel: Channel) -> float:
        value = self._number(row[channel], channel)
        if math.isnan(value):
            return value
        if channel is Channel.ENERGY_J:
            self._check_counter(value)
        elif channel is Channel.POWER_STATE and value not in range(LAST_POWER_STATE + 1):
            raise self._error(f"power_state must be 0 to {LAST_POWER_STATE}, got {value:g}")
        elif channel is Channel.TEMPERATURE_K and value <= 0:
            raise self._error(f"temperature_k must be more than 0 K, got {value:g}")
        return value

    def _check_counter(self, value: float) -> None:
        """Refuse a counter that decreases without a range in which it could have wrapped."""
        wrap_j = self._head.sensor.wrap_j if isinstance(self._head.sensor, Counter) else None
        last, self._last_j = self._last_j, value
        if wrap_j is not None and not 0 <= value <= wrap_j:
            raise self._error(f"energy_j must be within wrap_j, 0 to {wrap_j:g}, got {value:g}")
        if last is not None and value < last and wrap_j is None:
            raise self._error(
                f"energy_j decreases from {last:g} to {value:g} J; if the counter wraps, add "
                "'# wrap_j: ' with its range; if it was reset, split the file there"
            )

    def _evidence_of(self, row: Row) -> Evidence:
        given = str(row[EVIDENCE] or "").strip()
        if given not in _EVIDENCE_OF:
            raise self._error(f"evidence must be one of {', '.join(Evidence)}, got {given!r}")
        return _EVIDENCE_OF[given]

    def _number(self, given: str | float | int | None, column: str) -> float:
        if given is None or given == "":
            return math.nan
        try:
            value = float(given)
        except (ValueError, TypeError):
            raise self._error(f"{column} must be a number, got {given!r}") from None
        if math.isinf(value):
            raise self._error(f"{column} must be finite, got {given!r}")
        return value

    def _error(self, reason: str) -> DataError:
        return DataError(f"{self._file}, {self._place(len(self._time_ns))}: {reason}")


def read_trace(
    path: Path,
    *,
    growing: bool = False,
) -> RecordedTrace:
    """Return the trace in a file; its ``origin`` is the file's name and hash unless it states one.

    ``growing`` skips an incomplete last line and permits a trace without readings.

    Raises:
        DataError: it can't be read or is not a valid trace; the message gives line and value.
    """
    if path.suffix not in (CSV, PARQUET):
        raise DataError(f"{path} must end in {CSV} or {PARQUET} to be replayed")
    data = _bytes_of(path)
    digest = hashlib.sha256(data).hexdigest()[:_SHA256_DIGITS]
    origin = f"{path.name} (sha256 {digest})"
    if path.suffix == PARQUET:
        trace = _from_parquet(path, data, origin)
    else:
        trace = _from_csv(path, data, origin, growing=growing)
    if not trace.time_ns and not growing:
        raise DataError(f"{path} has no readings")
    return trace


def write_trace(trace: RecordedTrace, path: Path) -> None:
    """Write a trace as CSV atomically: a concurrent reader finds the previous file."""
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
    with open_folder(path.parent) as folder:
        folder.write(path.name, text.getvalue())


def _bytes_of(path: Path) -> bytes:
    """Return a regular file's content; links are not followed, since they may lead anywhere."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DataError(f"{path} is not a regular file, so it can't be replayed")
            data = file.read(MAX_TRACE_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path} can't be replayed: {error.strerror}") from error
    if len(data) > MAX_TRACE_BYTES:
        raise DataError(
            f"{path} is longer than {MAX_TRACE_BYTES} bytes: reduce it, e.g. to ten "
            "means per second"
        )
    return data


def _from_csv(path: Path, data: bytes, origin: str, *, growing: bool) -> RecordedTrace:
    try:
        lines = data.decode().removeprefix("\ufeff").splitlines(keepends=True)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a CSV trace in UTF-8: {error.reason}") from error
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
            raise DataError(
                f"{path}, line {number}: a head line must be '# key: value', got {line!r}"
            )
        found[key.strip()] = value.strip()
    return found


def _from_parquet(path: Path, data: bytes, origin: str) -> RecordedTrace:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            _refuse_large(path, file.metadata)
            table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a readable Parquet file: {error}") from error
    metadata = {
        key.decode(): value.decode()
        for key, value in (table.schema.metadata or {}).items()
        if key.decode(errors="replace") in HEAD_KEYS
    }
    head = parse_head({"origin": origin, **metadata}, str(path))
    builder = TraceBuilder(head, table.column_names, str(path), lambda row: f"row {row + 1}")
    for row in chain.from_iterable(batch.to_pylist() for batch in table.to_batches()):
        builder.add(row)
    return builder.build()


def _refuse_large(path: Path, metadata: Any) -> None:  # noqa: ANN401 - of pyarrow
    """Refuse a trace that would fill the memory, before its columns are decompressed."""
    groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
    size_bytes = sum(group.total_byte_size for group in groups)
    if metadata.num_rows > MAX_TRACE_ROWS or size_bytes > MAX_TRACE_BYTES:
        raise DataError(
            f"{path} has {metadata.num_rows} readings of {size_bytes} bytes, at most "
            f"{MAX_TRACE_ROWS} of {MAX_TRACE_BYTES} can be replayed: reduce it, e.g. to ten means "
            "per second"
        )


def _head_fields(head: TraceHead) -> Mapping[str, object]:
    """Return a head as the keys and values of its lines, without empty ones."""
    fields = head.model_dump(mode="json", exclude={"sensor"})
    sensor = head.sensor.model_dump(mode="json", exclude={"kind"})
    named = {"sensor": head.sensor.kind, **sensor, **fields}
    return {key: value for key, value in named.items() if value not in (None, "")}


def stage(config: PowerConfig, folder: Path) -> PowerConfig:
    """Copy a replayed trace to the run's folder; return the configuration for the sampler.

    Raises:
        DataError: the file is not a valid trace.
    """
    if config.source != "replay" or config.replay is None:
        return config

    trace = read_trace(Path(config.replay.path).resolve(), growing=config.replay.align != START)
    write_trace(trace, folder / STAGED_NAME)
    return replace(config, replay=replace(config.replay, path=STAGED_NAME))


def stage_again(config: PowerConfig, folder: Path) -> None:
    """Copy what a meter has written since, if its log is attached to the run.

    Raises:
        DataError: the file is not a valid trace any more.
    """
    if config.replay is not None and config.replay.align != START:
        stage(config, folder)


def is_staged(config: PowerConfig) -> bool:
    """Return whether the configured trace is the copy in the run's folder."""
    return config.replay is not None and config.replay.path == STAGED_NAME


def unstage(config: PowerConfig, folder: Path) -> PowerConfig:
    """Return the configuration with the path of the copy: the sampler's counterpart of ``stage``.

    Raises:
        PowerError: the configuration names another file.
    """
    if config.replay is None:
        return config
    if not is_staged(config):
        raise PowerError(
            f"the sampler replays only {STAGED_NAME} in the run's folder, got "
            f"{config.replay.path!r}"
        )
    return replace(config, replay=replace(config.replay, path=str(folder / STAGED_NAME)))
