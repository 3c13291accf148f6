"""A recorded trace: one device's readings over time, and what its file says of the sensor.

A trace file has a time column, ``time_s`` (from any zero), ``monotonic_ns`` (CLOCK_MONOTONIC of the
host that replays it) or ``unix_s`` (UTC), and readings: ``power_w`` or ``energy_j``, or bounds in
``lower_w`` and ``upper_w``; beside them ``power_state``, ``temperature_k`` and ``evidence``. Its
head names what no column can: see ``TraceHead``. An empty reading is a failed one.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from statistics import median
from typing import Any

from pydantic import Field, ValidationError

from wattload.core.errors import DataError
from wattload.core.power import Channel, Counter, Evidence, Instant, Scope, Sensor, weakest
from wattload.core.record.base import Frozen
from wattload.core.units import NS_PER_S

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
_LAST_POWER_STATE = 31
_LARGEST_TIME_NS = 1 << 63
_EVIDENCE_OF = {str(each): each for each in Evidence}

Row = Mapping[str, str | float | int | None]
"""One reading by column; a number may come as text."""


class TraceHead(Frozen):
    """What a file says of all its readings.

    ``evidence`` is how they are known; with a column of that name, each reading has the weaker of
    both. ``device`` is what was measured, ``origin`` the file that the trace was first read from.
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
    """Readings in order of time; ``time_ns`` is on the clock that ``time_column`` says.

    ``values`` has a column for each channel, NaN where there is no reading. ``evidence`` has one
    entry a reading, or is empty where the head's stands for all.
    """

    head: TraceHead
    time_column: str
    time_ns: array[int]
    values: Mapping[Channel, array[float]]
    evidence: Sequence[Evidence]

    @property
    def best_evidence(self) -> Evidence:
        """The strongest that any reading claims: none is stronger than this."""
        claimed = set(self.evidence)
        strongest = next((each for each in Evidence if each in claimed), None)
        return weakest(each for each in (self.head.evidence, strongest) if each is not None)

    def evidence_of(self, row: int) -> Evidence:
        """Return how a reading is known."""
        stated = self.evidence[row] if self.evidence else None
        return weakest(each for each in (self.head.evidence, stated) if each is not None)

    @property
    def period_s(self) -> float | None:
        """The usual time between two readings, ``None`` for fewer than two."""
        steps = [after - before for before, after in pairwise(self.time_ns) if after > before]
        return median(steps) / NS_PER_S if steps else None

    @property
    def seconds(self) -> float:
        """From the first reading to the last."""
        return (self.time_ns[-1] - self.time_ns[0]) / NS_PER_S if self.time_ns else 0.0


def parse_head(found: Mapping[str, str], place: str) -> TraceHead:
    """Return a head from its keys and values, both text.

    Raises:
        DataError: a key is unknown, or a value is none that the key can have.
    """
    unknown = sorted(set(found) - set(HEAD_KEYS))
    if unknown:
        raise DataError(f"{place}: {unknown[0]!r} is unknown; a head has {', '.join(HEAD_KEYS)}")
    fields: dict[str, Any] = {key: text for key, text in found.items() if key not in _SENSOR_KEYS}
    sensor = {key: text for key, text in found.items() if key in _SENSOR_KEYS}
    if sensor or "sensor" in fields:
        fields["sensor"] = {"kind": fields.get("sensor", "instant"), **sensor}
    try:
        return TraceHead.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataError(f"{place}: {where}: {first['msg']}, got {first['input']!r}") from error


class TraceBuilder:
    """Takes readings one by one and refuses the first that can't be.

    ``place`` names a reading in messages, by its number from 0 on.

    Raises:
        DataError: the columns don't make a trace, or don't fit the head's sensor.
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
            DataError: a value is none, or contradicts the reading before.
        """
        time_ns = self._time_of(row)
        if self._time_ns and time_ns < self._time_ns[-1]:
            raise self._wrong(
                f"time goes back by {(self._time_ns[-1] - time_ns) / NS_PER_S:g} s; readings must "
                "be in order"
            )
        for channel, column in self._values.items():
            column.append(self._value_of(row, channel))
        if self._has_evidence:
            self._evidence.append(self._evidence_of(row))
        self._time_ns.append(time_ns)

    def build(self) -> RecordedTrace:
        """Return what was added."""
        return RecordedTrace(
            head=self._head,
            time_column=self._time_column,
            time_ns=self._time_ns,
            values=self._values,
            evidence=self._evidence,
        )

    def _check_columns(self, columns: Sequence[str]) -> None:
        foreign = [name for name in columns if name not in COLUMNS]
        twice = [name for name in columns if columns.count(name) > 1]
        times = [name for name in columns if name in TIME_COLUMNS]
        figures = {Channel.POWER_W, Channel.ENERGY_J} & set(columns)
        if foreign or twice:
            reason = f"has a column {foreign[0]!r}" if foreign else f"has {twice[0]} twice"
        elif len(times) != 1:
            reason = f"must have one of {', '.join(TIME_COLUMNS)}, and has {len(times)}"
        elif len(figures) > 1 or not (figures or Channel.UPPER_W in columns):
            reason = "must have power_w or energy_j, or else upper_w"
        elif (Channel.ENERGY_J in columns) != isinstance(self._head.sensor, Counter):
            reason = "must have energy_j with sensor: counter (and quantum_j), and only with it"
        elif self._head.evidence is None and EVIDENCE not in columns:
            reason = (
                "does not say how it is known; give it a column evidence, or a line "
                f"'# evidence: measured' (one of {', '.join(Evidence)})"
            )
        else:
            return
        raise DataError(f"{self._file} {reason}; a trace has columns of {', '.join(COLUMNS)}")

    def _time_of(self, row: Row) -> int:
        given = row[self._time_column]
        time = self._number(given, self._time_column)
        if math.isnan(time):
            raise self._wrong(f"{self._time_column} is empty")
        # A float would round UTC to 0.2 us, and what has run for 104 days to more than 1 ns.
        exact = Decimal(given) if isinstance(given, str) else time
        time_ns = round(exact * self._time_unit_ns)
        if abs(time_ns) >= _LARGEST_TIME_NS:
            raise self._wrong(f"{self._time_column} must be within 292 years, got {given!r}")
        return time_ns

    def _value_of(self, row: Row, channel: Channel) -> float:
        value = self._number(row[channel], channel)
        if math.isnan(value):
            return value
        if channel is Channel.ENERGY_J:
            self._check_counter(value)
        elif channel is Channel.POWER_STATE and value not in range(_LAST_POWER_STATE + 1):
            raise self._wrong(f"power_state must be 0 to {_LAST_POWER_STATE}, got {value:g}")
        elif channel is Channel.TEMPERATURE_K and value <= 0:
            raise self._wrong(f"temperature_k must be more than 0 K, got {value:g}")
        return value

    def _check_counter(self, value: float) -> None:
        """Refuse a counter that goes back with no range in which it could have wrapped."""
        wrap_j = self._head.sensor.wrap_j if isinstance(self._head.sensor, Counter) else None
        last, self._last_j = self._last_j, value
        if wrap_j is not None and not 0 <= value <= wrap_j:
            raise self._wrong(f"energy_j must be within wrap_j, 0 to {wrap_j:g}, got {value:g}")
        if last is not None and value < last and wrap_j is None:
            raise self._wrong(
                f"energy_j goes back from {last:g} to {value:g} J; if the counter wraps, say "
                "where by '# wrap_j: ', and if it was reset, cut the file there"
            )

    def _evidence_of(self, row: Row) -> Evidence:
        given = str(row[EVIDENCE] or "").strip()
        if given not in _EVIDENCE_OF:
            raise self._wrong(f"evidence must be one of {', '.join(Evidence)}, got {given!r}")
        return _EVIDENCE_OF[given]

    def _number(self, given: str | float | int | None, column: str) -> float:
        if given is None or given == "":
            return math.nan
        try:
            value = float(given)
        except (ValueError, TypeError):
            raise self._wrong(f"{column} must be a number, got {given!r}") from None
        if math.isinf(value):
            raise self._wrong(f"{column} must be finite, got {given!r}")
        return value

    def _wrong(self, reason: str) -> DataError:
        return DataError(f"{self._file}, {self._place(len(self._time_ns))}: {reason}")
