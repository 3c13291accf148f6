"""A recorded trace: its format, its import from CSV or Parquet, its copy in the run's folder.

A trace has a time column and readings. The time column is ``time_s`` (from any zero),
``monotonic_ns`` (CLOCK_MONOTONIC of the host that replays it) or ``unix_s`` (UTC). The readings are
``power_w`` or ``energy_j``, or bounds in ``lower_w`` and ``upper_w``; optional columns are
``power_state``, ``temperature_k`` and ``evidence``. The head holds what applies to all readings:
see ``TraceHead``. An empty reading is a failed one.

The sampler accepts no path from a client. The run reads the user's trace with its own rights and
copies it to its folder, so that the record keeps the source of its joules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from wattload.core.base_models import Frozen, first_fault
from wattload.core.errors import DataError
from wattload.core.files import open_folder
from wattload.core.power import Channel, Counter, Evidence, Instant, Scope, Sensor, weakest
from wattload.core.units import NS_PER_S
from wattload.power.config import LAST_POWER_STATE, START

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from wattload.power.config import PowerConfig

MONOTONIC_COLUMN = "monotonic_ns"
TIME_COLUMNS = ("time_s", MONOTONIC_COLUMN, "unix_s")

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

CSV, PARQUET = ".csv", ".parquet"

MAX_TRACE_BYTES = 256 << 20
"""About seven hours of one channel at 100 Hz. A larger trace could fill the memory."""

_SHA256_DIGITS = 12
STAGED_PREFIX = "replay-"


class TraceHead(Frozen):
    """What a file states for all its readings.

    ``evidence`` is the evidence of the readings; if there is a column of that name too, each
    reading has the weaker of both. ``device`` is what was measured.
    """

    evidence: Evidence | None = None
    sensor: Sensor = Field(default_factory=Instant)
    scope: Scope = Scope.DRIVE
    device: str = ""
    resolution_w: float | None = Field(default=None, gt=0)
    accuracy_percent: float | None = Field(default=None, gt=0, lt=100)
    note: str = ""


HEAD_KEYS = (*TraceHead.model_fields, *_SENSOR_KEYS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedTrace:
    """Readings in order of time; ``time_ns`` is on the clock of ``time_column``.

    ``origin`` has the name and the hash of the file. ``values`` has a column for each channel, NaN
    where a reading is missing. ``evidence`` has one entry per reading, or is empty if only the head
    states it.
    """

    head: TraceHead
    origin: str
    time_column: str
    time_ns: NDArray[np.int64]
    values: Mapping[Channel, NDArray[np.float64]]
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
        import numpy as np

        steps = np.diff(self.time_ns)
        steps = steps[steps > 0]
        return float(np.median(steps)) / NS_PER_S if steps.size else None

    @property
    def seconds(self) -> float:
        return int(self.time_ns[-1] - self.time_ns[0]) / NS_PER_S if self.time_ns.size else 0.0


def read_trace(path: Path, *, growing: bool = False) -> RecordedTrace:
    """Return the trace in a file.

    ``growing`` skips an incomplete last line and permits a trace without readings.

    Raises:
        DataError: it can't be read or is not a valid trace; the message names the first fault.
    """
    return _imported(path, _content_of(path), growing=growing)


def _content_of(path: Path) -> bytes:
    if path.suffix not in (CSV, PARQUET):
        raise DataError(f"{path} must end in {CSV} or {PARQUET} to be replayed")
    try:
        size_bytes = path.stat().st_size
        if size_bytes <= MAX_TRACE_BYTES:
            return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} can't be replayed: {error.strerror}") from error
    raise DataError(
        f"{path} has {size_bytes} bytes, at most {MAX_TRACE_BYTES} can be replayed: reduce it, "
        "e.g. to ten means per second"
    )


def _imported(path: Path, content: bytes, *, growing: bool) -> RecordedTrace:
    import pyarrow as pa

    try:
        if path.suffix == PARQUET:
            fields, table = _from_parquet(content)
        else:
            fields, table = _from_csv(path, content, growing=growing)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a readable trace: {error}") from error
    if not table.num_rows and not growing:
        raise DataError(f"{path} has no readings")
    head = _head_of(path, fields)
    _check_columns(path, table.column_names, head)
    columns = _Columns(path, table)
    digest = hashlib.sha256(content).hexdigest()[:_SHA256_DIGITS]
    (time_column,) = set(table.column_names) & set(TIME_COLUMNS)
    return RecordedTrace(
        head=head,
        origin=f"{path.name.removeprefix(STAGED_PREFIX)} (sha256 {digest})",
        time_column=time_column,
        time_ns=columns.times_ns(time_column),
        values={
            channel: columns.readings(channel, head.sensor)
            for channel in CHANNELS
            if channel in table.column_names
        },
        evidence=columns.evidence(),
    )


def _from_csv(path: Path, content: bytes, *, growing: bool) -> tuple[dict[str, str], pa.Table]:
    import pyarrow as pa
    from pyarrow.csv import ConvertOptions, read_csv

    file = BytesIO(content.removeprefix(b"\xef\xbb\xbf"))
    fields: dict[str, str] = {}
    while (line := file.readline()).startswith(b"#"):
        key, colon, value = line[1:].decode(errors="replace").strip().partition(":")
        if not colon:
            raise DataError(f"{path}: a head line must be '# key: value', got '#{key}'")
        fields[key.strip()] = value.strip()
    rows = line + file.read()
    if growing:
        rows = rows[: rows.rfind(b"\n") + 1]
    if not rows.strip():
        raise DataError(f"{path} has no line that names its columns; allowed: {', '.join(COLUMNS)}")
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


def _head_of(path: Path, found: Mapping[str, str]) -> TraceHead:
    unknown = sorted(set(found) - set(HEAD_KEYS))
    if unknown:
        raise DataError(
            f"{path}: unknown head line {unknown[0]!r}; allowed: {', '.join(HEAD_KEYS)}"
        )
    fields: dict[str, Any] = {key: text for key, text in found.items() if key not in _SENSOR_KEYS}
    sensor = {key: text for key, text in found.items() if key in _SENSOR_KEYS}
    if sensor or "sensor" in fields:
        fields["sensor"] = {"kind": fields.get("sensor", "instant"), **sensor}
    try:
        return TraceHead.model_validate(fields)
    except ValidationError as error:
        where, message, value = first_fault(error)
        raise DataError(f"{path}: {where}: {message}, got {value!r}") from error


def _check_columns(path: Path, columns: Sequence[str], head: TraceHead) -> None:
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
    elif (Channel.ENERGY_J in columns) != isinstance(head.sensor, Counter):
        reason = "must have energy_j with sensor: counter (and quantum_j), and only with it"
    elif head.evidence is None and EVIDENCE not in columns:
        reason = (
            "does not state its evidence; add a column evidence, or a line '# evidence: "
            f"measured' (one of {', '.join(Evidence)})"
        )
    else:
        return
    raise DataError(f"{path} {reason}; allowed columns: {', '.join(COLUMNS)}")


class _Columns:
    """The columns of a table as numbers; the first invalid value raises ``DataError``."""

    def __init__(self, path: Path, table: pa.Table) -> None:
        self._path = path
        self._table = table

    def times_ns(self, name: str) -> NDArray[np.int64]:
        import numpy as np
        import pyarrow as pa

        column = self._cast(name, pa.int64() if name == MONOTONIC_COLUMN else pa.float64())
        self._refuse(column.is_null().to_numpy(), f"{name} is empty")
        times: NDArray[Any] = column.to_numpy()
        if name != MONOTONIC_COLUMN:
            self._refuse(
                ~(np.abs(times) < _LARGEST_TIME_NS / NS_PER_S), f"{name} must be within 292 years"
            )
            times = np.round(times * NS_PER_S)
        went_back = np.diff(times, prepend=times[:1]) < 0
        self._refuse(went_back, "time goes back; readings must be in order")
        return times.astype(np.int64, copy=False)

    def readings(self, channel: Channel, sensor: Sensor) -> NDArray[np.float64]:
        import numpy as np
        import pyarrow as pa

        values: NDArray[np.float64] = self._cast(channel, pa.float64()).to_numpy()
        self._refuse(np.isinf(values), f"{channel} must be finite")
        if channel is Channel.POWER_STATE:
            states = np.arange(LAST_POWER_STATE + 1)
            invalid = ~np.isnan(values) & ~np.isin(values, states)
            self._refuse(invalid, f"power_state must be 0 to {LAST_POWER_STATE}")
        elif channel is Channel.TEMPERATURE_K:
            self._refuse(values <= 0, "temperature_k must be more than 0 K")
        elif channel is Channel.ENERGY_J:
            self._check_counter(values, sensor.wrap_j if isinstance(sensor, Counter) else None)
        return values

    def _check_counter(self, values: NDArray[np.float64], wrap_j: float | None) -> None:
        """Refuse a counter that decreases without a range in which it could have wrapped."""
        import numpy as np

        if wrap_j is not None:
            outside = (values < 0) | (values > wrap_j)
            self._refuse(outside, f"energy_j must be within wrap_j, 0 to {wrap_j:g}")
            return
        known = np.flatnonzero(~np.isnan(values))
        decreases = np.zeros(values.shape, bool)
        decreases[known[1:]] = np.diff(values[known]) < 0
        self._refuse(
            decreases,
            "energy_j decreases; if the counter wraps, add '# wrap_j: ' with its range; if it was "
            "reset, split the file there",
        )

    def evidence(self) -> Sequence[Evidence]:
        if EVIDENCE not in self._table.column_names:
            return ()
        stated = [str(each or "").strip() for each in self._table[EVIDENCE].to_pylist()]
        unknown = next((each for each in stated if each not in set(Evidence)), None)
        if unknown is not None:
            raise DataError(
                f"{self._path}, reading {stated.index(unknown) + 1}: evidence must be one of "
                f"{', '.join(Evidence)}, got {unknown!r}"
            )
        return [Evidence(each) for each in stated]

    def _cast(self, name: str, kind: pa.DataType) -> pa.ChunkedArray:
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self._table[name]
        try:
            if pa.types.is_string(column.type):
                column = pc.utf8_trim_whitespace(column)
            return column.cast(kind)
        except pa.ArrowException as error:
            raise DataError(f"{self._path}: {name} must be a number: {error}") from error

    def _refuse(self, invalid: NDArray[np.bool_], reason: str) -> None:
        if invalid.any():
            raise DataError(f"{self._path}, reading {int(invalid.argmax()) + 1}: {reason}")


def stage(config: PowerConfig, folder: Path) -> PowerConfig:
    """Copy a replayed trace to the run's folder; return the configuration with the copy's path.

    Raises:
        DataError: the file is not a valid trace.
    """
    if config.source != "replay" or config.replay is None:
        return config
    path = Path(config.replay.path)
    content = _content_of(path)
    _imported(path, content, growing=config.replay.align != START)
    name = f"{STAGED_PREFIX}{path.name}"
    with open_folder(folder) as own:
        own.write(name, content)
    return replace(config, replay=replace(config.replay, path=str(folder / name)))


def stage_again(config: PowerConfig, folder: Path) -> None:
    """Copy what a meter has written since, if its log is attached to the run.

    Raises:
        DataError: the file is not a valid trace any more.
    """
    if config.replay is not None and config.replay.align != START:
        stage(config, folder)
