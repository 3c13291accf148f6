"""A recorded trace as a source: the readings of a file, at their own times.

A trace played from the start of sampling was measured in another run, and every page reports that.
A trace attached by its own times is a meter's log of this run.

The file is CSV or Parquet. It has a time column: ``time_s`` (from any zero), ``monotonic_ns``
(CLOCK_MONOTONIC of the host that replays it) or ``unix_s`` (UTC). The readings are ``power_w`` or
``energy_j``, or bounds in ``lower_w`` and ``upper_w``; optional columns are ``power_state``,
``temperature_k`` and ``evidence``. The head holds what applies to all readings: see ``TraceHead``.
An empty reading is a failed one.

The sampler accepts no path from a client. The run reads the user's trace with its own rights and
copies it to its folder, so that the record keeps the source of its joules.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from wattload.core.base_models import Frozen, first_fault
from wattload.core.clock import anchor
from wattload.core.errors import ConfigError, DataError, PowerError
from wattload.core.files import open_folder
from wattload.core.power import (
    EVIDENCE_RANK,
    Accuracy,
    Channel,
    Counter,
    Evidence,
    Instant,
    PowerSource,
    Sample,
    Scope,
    Sensor,
    SourceFacts,
    weakest,
)
from wattload.core.settings import shown
from wattload.core.units import NS_PER_S
from wattload.power.config import (
    LAST_POWER_STATE,
    MONOTONIC,
    START,
    WALL,
    PowerConfig,
    ReplayConfig,
)
from wattload.power.registry import Meter
from wattload.power.sources.base import PassiveSource, PowerDevice, single_device

if TYPE_CHECKING:  # a sampler without a trace loads neither
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

METER = Meter(scope=Scope.DRIVE)

NAME = "replay"

_LOG = logging.getLogger(__name__)

MONOTONIC_COLUMN = "monotonic_ns"
TIME_COLUMNS = ("time_s", MONOTONIC_COLUMN, "unix_s")
_TIME_COLUMN = {MONOTONIC: MONOTONIC_COLUMN, WALL: "unix_s"}
"""The time column that an alignment needs."""
_ALIGNMENT_TEXT = {
    START: "recorded in another run and played from the start of sampling",
    MONOTONIC: "recorded during the run and attached by this host's monotonic clock",
    WALL: "recorded during the run and attached by UTC",
}

_REQUIRED = (Channel.POWER_W, Channel.ENERGY_J, Channel.LOWER_W, Channel.UPPER_W)
"""Channels in which an empty value is a failed read; in the others it means nothing."""
CHANNELS = (*_REQUIRED, Channel.POWER_STATE, Channel.TEMPERATURE_K)

EVIDENCE = "evidence"
COLUMNS = (*TIME_COLUMNS, *CHANNELS, EVIDENCE)
_SENSOR_KEYS = ("lag_s", "window_s", "update_period_s", "quantum_j", "wrap_j")
_ACCURACY = re.compile(r"(\S+)\s*(% of reading|% of range|W)")
_ACCURACY_PARTS = {"% of reading": "reading_percent", "% of range": "range_percent", "W": "watts"}
_LARGEST_TIME_NS = 1 << 63

_SHA256_DIGITS = 12


class TraceHead(Frozen):
    """What a file states for all its readings.

    ``evidence`` is the evidence of the readings; if there is a column of that name too, each
    reading has the weaker of both. ``device`` is what was measured. ``accuracy`` is written as in a
    data sheet, ``0.1 % of reading + 0.05 % of range + 0.01 W``, with any of these parts.
    """

    evidence: Evidence | None = None
    sensor: Sensor = Field(default_factory=Instant)
    scope: Scope = Scope.DRIVE
    device: str = ""
    resolution_w: float | None = Field(default=None, gt=0)
    accuracy: Accuracy | None = None
    range_w: float | None = Field(default=None, gt=0)
    note: str = ""


HEAD_KEYS = (*TraceHead.model_fields, *_SENSOR_KEYS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedTrace:
    """Readings in order of time; ``time_ns`` is on the clock of ``time_column``.

    ``origin`` has the name and the hash of the file. ``values`` has a column for each channel, NaN
    where a reading is missing. ``evidence`` has one entry per reading.
    """

    head: TraceHead
    origin: str
    time_column: str
    time_ns: NDArray[np.int64]
    values: Mapping[Channel, NDArray[np.float64]]
    evidence: Sequence[Evidence]

    @property
    def best_evidence(self) -> Evidence:
        least = self.head.evidence or Evidence.NONE
        return min(set(self.evidence), key=EVIDENCE_RANK.__getitem__, default=least)

    @property
    def period_s(self) -> float | None:
        """The median time between two readings, ``None`` for fewer than two."""
        import numpy as np

        steps = np.diff(self.time_ns)
        steps = steps[steps > 0]
        return float(np.median(steps)) / NS_PER_S if steps.size else None

    @property
    def seconds(self) -> float:
        return int(self.time_ns[-1] - self.time_ns[0]) / NS_PER_S if self.time_ns.size else 0.0


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return the one source of the configured trace.

    Raises:
        ConfigError: no trace is configured, or the measured drive is not clear.
    """
    replay = config.replay
    replay.check()
    device = single_device(devices, replay.device, setting="power.replay.device")
    return [ReplaySource(device, replay, period_s=config.period_s)]


class ReplaySource(PassiveSource):
    """The readings of one device in a file."""

    def __init__(self, device: PowerDevice, config: ReplayConfig, *, period_s: float) -> None:
        self._config = config
        self._path = Path(config.path)
        super().__init__(
            SourceFacts(
                name=NAME,
                device=device.key,
                device_name=device.name,
                scope=Scope.DRIVE,
                evidence=Evidence.NONE,
                sensor=Instant(),
                period_s=period_s,
                detail=f"replay of {self._path.name}, not read yet",
                is_recorded=True,
                is_attached=config.align != START,
            )
        )
        self._trace: RecordedTrace | None = None
        self._seen: tuple[int, int] | None = None
        self._shift_ns = 0
        self._next_row: int | None = None

    def open(self) -> None:
        """Read the file.

        Raises:
            ConfigError: the file lacks the time column that the alignment needs.
            DataError: it is not a valid trace.
        """
        trace = self._trace = configured_trace(self._config)
        head = trace.head
        subject = f" of {head.device}" if head.device else ""
        # Its hash and its number of readings are not known before the run's end.
        what = f"{self._path.name}{subject}"
        if not self._facts.is_attached:
            readings = f"{len(trace.time_ns):,} readings{subject} over {trace.seconds:.6g} s"
            what = f"{trace.origin}, {readings}"
        note = f"; {head.note}" if head.note else ""
        detail = f"replay, {_ALIGNMENT_TEXT[self._config.align]}: {what}{note}"
        self._facts = self._facts.model_copy(
            update={
                "sensor": head.sensor,
                "scope": head.scope,
                "evidence": trace.best_evidence,
                "period_s": trace.period_s or self._facts.period_s,
                "resolution_w": head.resolution_w,
                "accuracy": head.accuracy,
                "range_w": head.range_w,
                "detail": detail,
            }
        )

    def start(self) -> None:
        """Align the trace with the current time; later steps of the wall clock have no effect."""
        trace = self._opened()
        now = anchor()
        if self._config.align == WALL:
            self._shift_ns = now.monotonic_ns - now.realtime_ns
        elif self._config.align == START:
            self._shift_ns = now.monotonic_ns - int(trace.time_ns[0])
        self._next_row = int(trace.time_ns.searchsorted(now.monotonic_ns - self._shift_ns))

    def read(self) -> Sequence[Sample]:
        """Return the readings that have become due since the last read."""
        self._opened()
        if self._next_row is None:
            raise PowerError(f"{self._path.name} was read before its replay was started")
        if self._facts.is_attached:
            self._refresh()
        trace, first = self._opened(), self._next_row
        # The position is a row, not a time: a meter may write a reading later than it took it.
        due_ns = time.monotonic_ns() - self._shift_ns
        self._next_row = max(first, int(trace.time_ns.searchsorted(due_ns, side="right")))
        return [
            sample for row in range(first, self._next_row) for sample in self._samples(trace, row)
        ]

    def close(self) -> None:
        """Release the file's content; safe to call twice."""
        self._trace = None
        self._next_row = None

    def _opened(self) -> RecordedTrace:
        if self._trace is None:
            raise PowerError(f"{self._path.name} was used before it was opened")
        return self._trace

    def _refresh(self) -> None:
        """Read the file again if it has changed; one that was spoilt adds no readings."""
        try:
            found = self._path.stat()
            seen = (found.st_size, found.st_mtime_ns)
            if seen != self._seen:
                self._seen = seen
                self._trace = read_trace(self._path, growing=True)
        except (DataError, OSError) as error:
            _LOG.warning("%s", error)

    def _samples(self, trace: RecordedTrace, row: int) -> list[Sample]:
        time_ns, evidence = int(trace.time_ns[row]) + self._shift_ns, trace.evidence[row]
        return [
            self._sample(
                channel,
                None if math.isnan(column[row]) else float(column[row]),
                time_ns,
                evidence=evidence,
            )
            for channel, column in trace.values.items()
            if channel in _REQUIRED or not math.isnan(column[row])
        ]


def read_trace(path: Path, *, growing: bool = False) -> RecordedTrace:
    """Return the trace in a file.

    ``growing`` skips an incomplete last line and permits a trace without readings.

    Raises:
        DataError: it can't be read or is not a valid trace; the message names the first fault.
    """
    return _imported(path, _content_of(path), growing=growing)


def configured_trace(config: ReplayConfig) -> RecordedTrace:
    """Return the trace to replay, which has the time column that its alignment needs.

    Raises:
        ConfigError: it lacks this column.
        DataError: it can't be read or is not a valid trace.
    """
    path = Path(config.path)
    trace = read_trace(path, growing=config.align != START)
    column = _TIME_COLUMN.get(config.align, trace.time_column)
    if trace.time_column != column:
        raise ConfigError(
            f"power.replay.align={config.align} needs a column {column}; "
            f"{path.name} has {trace.time_column}"
        )
    return trace


def stage(config: PowerConfig, folder: Path) -> PowerConfig:
    """Copy a replayed trace to a folder, made if missing; return the configuration for the copy.

    The folder is this host's alone: hosts may have traces of one name in one folder of runs.

    Raises:
        DataError: the file is not a valid trace.
    """
    _stage(config.replay, folder)
    path = folder / Path(config.replay.path).name
    return replace(config, replay=replace(config.replay, path=str(path)))


def stage_again(config: PowerConfig, folder: Path) -> str:
    """Copy what a meter has written since, if its log is attached to the run.

    Returns a sentence on when the log was read, empty if nothing was copied.

    Raises:
        DataError: the file is not a valid trace any more.
    """
    replay = config.replay
    if replay.align == START:
        return ""
    times_ns = _stage(replay, folder).time_ns
    if not times_ns.size:
        return "The log has no readings."
    first, last = (_time_text(int(each), replay.align) for each in times_ns[[0, -1]])
    return f"The readings of the log are from {first} to {last}."


def _time_text(time_ns: int, align: str) -> str:
    if align != WALL:
        return f"{time_ns / NS_PER_S:.3f} s (CLOCK_MONOTONIC)"
    utc = datetime.fromtimestamp(time_ns / NS_PER_S, UTC)
    return f"{utc:%Y-%m-%d %H:%M:%S} UTC"


def _stage(replay: ReplayConfig, folder: Path) -> RecordedTrace:
    path = Path(replay.path)
    content = _content_of(path)
    trace = _imported(path, content, growing=replay.align != START)
    with open_folder(folder.parent) as run, run.make(folder.name) as own:
        own.write(path.name, content)
    return trace


def _content_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path} can't be replayed: {error.strerror}; set power.replay.path to a trace that "
            "this host can read"
        ) from error


def _imported(path: Path, content: bytes, *, growing: bool) -> RecordedTrace:
    import pyarrow as pa

    digest = hashlib.sha256(content).hexdigest()[:_SHA256_DIGITS]
    origin = f"{path.name} (sha256 {digest})"
    try:
        if path.suffix == ".parquet":
            fields, table = _from_parquet(content)
        else:
            fields, table = _from_csv(content, growing=growing)
        return _trace_of(table, _head_of(fields), origin, may_be_empty=growing)
    except ValidationError as error:
        where, message, value = first_fault(error)
        fault = f"{where}: {message}, got {value!r}"
        raise DataError(f"{path} is not a readable trace: {fault}") from error
    except (ValueError, OSError, pa.ArrowException) as error:
        raise DataError(f"{path} is not a readable trace: {error}") from error


def _from_csv(content: bytes, *, growing: bool) -> tuple[dict[str, str], pa.Table]:
    import pyarrow as pa
    from pyarrow.csv import ConvertOptions, read_csv

    file = BytesIO(content.removeprefix(b"\xef\xbb\xbf"))
    fields: dict[str, str] = {}
    while (line := file.readline()).startswith(b"#"):
        key, colon, value = line[1:].decode(errors="replace").strip().partition(":")
        if not colon:
            raise ValueError(f"a head line must be '# key: value', got '#{key}'")
        fields[key.strip()] = value.strip()
    rows = line + file.read()
    if growing:
        rows = rows[: rows.rfind(b"\n") + 1]
    if not rows.strip():
        raise ValueError(f"it has no line that names its columns; allowed: {', '.join(COLUMNS)}")
    unknown = sorted(set(fields) - set(HEAD_KEYS))
    if unknown:
        raise ValueError(f"unknown head line {unknown[0]!r}; allowed: {', '.join(HEAD_KEYS)}")
    as_text = ConvertOptions(
        column_types=dict.fromkeys(COLUMNS, pa.string()), strings_can_be_null=True
    )
    table = read_csv(BytesIO(rows), convert_options=as_text)
    return fields, table.rename_columns([name.strip() for name in table.column_names])


def _from_parquet(content: bytes) -> tuple[dict[str, str], pa.Table]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(pa.BufferReader(content))
    metadata = {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in (table.schema.metadata or {}).items()
    }
    return {key: value for key, value in metadata.items() if key in HEAD_KEYS}, table


def _head_of(found: Mapping[str, str]) -> TraceHead:
    fields: dict[str, Any] = {key: text for key, text in found.items() if key not in _SENSOR_KEYS}
    sensor = {key: text for key, text in found.items() if key in _SENSOR_KEYS}
    if sensor or "sensor" in fields:
        usual = "boxcar" if "window_s" in sensor else "instant"
        fields["sensor"] = {"kind": fields.get("sensor", usual), **sensor}
    if "accuracy" in fields:
        fields["accuracy"] = _accuracy_of(fields["accuracy"])
    head = TraceHead.model_validate(fields)
    if head.accuracy and head.accuracy.range_percent is not None and head.range_w is None:
        raise ValueError("its accuracy has a share of the range; add '# range_w: ' with the range")
    return head


def _accuracy_of(text: str) -> Mapping[str, str]:
    """Return the parts of an accuracy as a data sheet states it; see ``TraceHead``."""
    found = [_ACCURACY.fullmatch(part) for part in re.split(r"\s+\+\s+", text)]
    parts = {_ACCURACY_PARTS[each.group(2)]: each.group(1) for each in found if each}
    if len(parts) < len(found):
        raise ValueError(
            "accuracy must be a sum of parts, each at most once, such as "
            f"'0.1 % of reading + 0.05 % of range + 0.01 W', got {shown(text)}"
        )
    return parts


def _trace_of(
    table: pa.Table, head: TraceHead, origin: str, *, may_be_empty: bool
) -> RecordedTrace:
    """Return the trace in a table; raises ``ValueError`` with the first fault."""
    if not table.num_rows and not may_be_empty:
        raise ValueError("it has no readings")
    fault = _column_fault(table.column_names, head)
    if fault:
        raise ValueError(f"it {fault}; allowed columns: {', '.join(COLUMNS)}")
    (time_column,) = set(table.column_names) & set(TIME_COLUMNS)
    time_ns = _times_ns(table, time_column)
    if not may_be_empty:
        table, time_ns = _in_order(table, time_ns)
    _refuse(_back_ns(time_ns) > 0, "time goes back; readings must be in order")
    return RecordedTrace(
        head=head,
        origin=origin,
        time_column=time_column,
        time_ns=time_ns,
        values={
            channel: _readings(table, channel, head.sensor)
            for channel in CHANNELS
            if channel in table.column_names
        },
        evidence=_evidence(table, head.evidence),
    )


def _column_fault(columns: Sequence[str], head: TraceHead) -> str:
    """Return what is wrong with the columns of a trace; empty if nothing is."""
    unknown = [name for name in columns if name not in COLUMNS]
    repeated = [name for name in columns if columns.count(name) > 1]
    times = [name for name in columns if name in TIME_COLUMNS]
    figures = {Channel.POWER_W, Channel.ENERGY_J} & set(columns)
    if unknown or repeated:
        return f"has a column {unknown[0]!r}" if unknown else f"has {repeated[0]} twice"
    if len(times) != 1:
        return f"must have one of {', '.join(TIME_COLUMNS)}, and has {len(times)}"
    if len(figures) > 1 or not (figures or Channel.UPPER_W in columns):
        return "must have power_w or energy_j, or else upper_w"
    if (Channel.ENERGY_J in columns) != isinstance(head.sensor, Counter):
        return "must have energy_j with sensor: counter (and quantum_j), and only with it"
    if head.evidence is None and EVIDENCE not in columns:
        return (
            "does not state its evidence; add a column evidence, or a line '# evidence: "
            f"measured' (one of {', '.join(Evidence)})"
        )
    return ""


def _times_ns(table: pa.Table, name: str) -> NDArray[np.int64]:
    import numpy as np
    import pyarrow as pa

    column = _numbers(table, name, pa.int64() if name == MONOTONIC_COLUMN else pa.float64())
    _refuse(column.is_null().to_numpy(), f"{name} is empty")
    times: NDArray[Any] = column.to_numpy()
    if name != MONOTONIC_COLUMN:
        too_far = ~(np.abs(times) < _LARGEST_TIME_NS / NS_PER_S)
        _refuse(too_far, f"{name} must be within 292 years")
        times = np.round(times * NS_PER_S)
    return times.astype(np.int64, copy=False)


def _back_ns(time_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how far each time lies before the latest one so far, shape (n,)."""
    import numpy as np

    back_ns: NDArray[np.int64] = np.maximum.accumulate(time_ns) - time_ns
    return back_ns


def _in_order(table: pa.Table, time_ns: NDArray[np.int64]) -> tuple[pa.Table, NDArray[np.int64]]:
    """Return table and times, sorted if no time goes back by more than the usual step."""
    import numpy as np

    back_ns, steps_ns = _back_ns(time_ns), np.diff(time_ns)
    if not back_ns.any() or back_ns.max() > np.median(np.abs(steps_ns)):
        return table, time_ns
    order = np.argsort(time_ns, kind="stable")
    return table.take(order), time_ns[order]


def _readings(table: pa.Table, channel: Channel, sensor: Sensor) -> NDArray[np.float64]:
    import numpy as np
    import pyarrow as pa

    values: NDArray[np.float64] = _numbers(table, channel, pa.float64()).to_numpy()
    _refuse(np.isinf(values), f"{channel} must be finite")
    if channel is Channel.POWER_STATE:
        invalid = ~np.isnan(values) & ~np.isin(values, np.arange(LAST_POWER_STATE + 1))
        _refuse(invalid, f"power_state must be 0 to {LAST_POWER_STATE}")
    elif channel is Channel.TEMPERATURE_K:
        _refuse(values <= 0, "temperature_k must be more than 0 K")
    elif channel is Channel.ENERGY_J and isinstance(sensor, Counter):
        _check_counter(values, sensor.wrap_j)
    return values


def _check_counter(values: NDArray[np.float64], wrap_j: float | None) -> None:
    """Refuse a counter that decreases without a range in which it could have wrapped."""
    import numpy as np

    if wrap_j is not None:
        outside = (values < 0) | (values > wrap_j)
        _refuse(outside, f"energy_j must be within wrap_j, 0 to {wrap_j:g}")
        return
    known = np.flatnonzero(~np.isnan(values))
    decreases = np.zeros(values.shape, bool)
    decreases[known[1:]] = np.diff(values[known]) < 0
    _refuse(
        decreases,
        "energy_j decreases; if the counter wraps, add '# wrap_j: ' with its range; if it was "
        "reset, split the file there",
    )


def _evidence(table: pa.Table, stated: Evidence | None) -> Sequence[Evidence]:
    """Return the evidence of each reading: that of its row, or the head's if it is weaker."""
    least = Evidence.MEASURED if stated is None else stated
    if EVIDENCE not in table.column_names:
        return [least] * table.num_rows
    names = [str(each or "").strip() for each in table[EVIDENCE].to_pylist()]
    unknown = next((each for each in names if each not in set(Evidence)), None)
    if unknown is not None:
        raise ValueError(
            f"reading {names.index(unknown) + 1}: evidence must be one of {', '.join(Evidence)}, "
            f"got {unknown!r}"
        )
    return [weakest((least, Evidence(each))) for each in names]


def _numbers(table: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table[name]
    try:
        if pa.types.is_string(column.type):
            column = pc.utf8_trim_whitespace(column)
        return column.cast(kind)
    except pa.ArrowException as error:
        raise ValueError(f"{name} must be a number: {error}") from error


def _refuse(invalid: NDArray[np.bool_], reason: str) -> None:
    if invalid.any():
        raise ValueError(f"reading {int(invalid.argmax()) + 1}: {reason}")
