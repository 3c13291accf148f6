"""A recorded trace as a source: the readings of a file, at their own times.

A trace played from the start of sampling was measured in another run, and every page reports that.
A trace attached by its own times is a meter's log of this run.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path

from wattload.core.clock import anchor
from wattload.core.errors import ConfigError, DataError, PowerError
from wattload.core.power import (
    Channel,
    Evidence,
    Instant,
    PowerSource,
    Sample,
    Scope,
    Sensor,
    SourceFacts,
    WindowEnergy,
)
from wattload.power.config import MONOTONIC, START, WALL, PowerConfig, ReplayConfig
from wattload.power.registry import Meter
from wattload.power.sources.base import PassiveSource, PowerDevice, single_device
from wattload.power.sources.replay_trace import RecordedTrace, read_trace

METER = Meter(scope=Scope.DRIVE)

NAME = "replay"

_LOG = logging.getLogger(__name__)

_TIME_COLUMN = {MONOTONIC: "monotonic_ns", WALL: "unix_s"}
"""The time column that an alignment needs."""
_ALIGNMENT_TEXT = {
    START: "recorded in another run and played from the start of sampling",
    MONOTONIC: "recorded during the run and attached by this host's monotonic clock",
    WALL: "recorded during the run and attached by UTC",
}
_REQUIRED = (Channel.POWER_W, Channel.ENERGY_J, Channel.LOWER_W, Channel.UPPER_W)
"""Channels in which an empty value is a failed read; in the others it means nothing."""


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return the one source of the configured trace.

    Raises:
        ConfigError: no trace is configured, or the measured drive is not clear.
    """
    replay = config.replay
    if replay is None:
        raise ConfigError("power=replay needs a trace: power.replay.path=trace.csv (or .parquet)")
    device = single_device(devices, replay.device, setting="power.replay.device")
    return [ReplaySource(device, replay, period_s=config.period_s)]


class ReplayedElsewhere(PassiveSource):
    """A trace that the process which writes the samples reads itself; here it gives none.

    Its facts are what that process has found in the file.
    """


class ReplaySource:
    """The readings of one device in a file."""

    def __init__(self, device: PowerDevice, config: ReplayConfig, *, period_s: float) -> None:
        self._device = device
        self._config = config
        self._path = Path(config.path)
        self._period_s = period_s
        self._facts = self._build_facts(None)
        self._trace: RecordedTrace | None = None
        self._seen: tuple[int, int] | None = None
        self._shift_ns = 0
        self._next_row: int | None = None

    def facts(self) -> SourceFacts:
        """Return the facts in the file; valid after ``open``."""
        return self._facts

    def open(self) -> None:
        """Read the file.

        Raises:
            ConfigError: the file lacks the time column that the alignment needs.
            DataError: it is not a valid trace.
        """
        self._config.check()
        trace = read_trace(self._path, growing=self._is_attached)
        column = _TIME_COLUMN.get(self._config.align, trace.time_column)
        if trace.time_column != column:
            raise ConfigError(
                f"power.replay.align={self._config.align} needs a column {column}; "
                f"{self._path.name} has {trace.time_column}"
            )
        self._trace = trace
        self._facts = self._build_facts(trace)

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
        if self._is_attached:
            self._refresh()
        trace, first = self._opened(), self._next_row
        # The position is a row, not a time: a meter may write a reading later than it took it.
        due_ns = time.monotonic_ns() - self._shift_ns
        self._next_row = max(first, int(trace.time_ns.searchsorted(due_ns, side="right")))
        return [
            sample for row in range(first, self._next_row) for sample in self._samples(trace, row)
        ]

    def stop(self) -> Sequence[WindowEnergy]:
        """Return nothing: the energy is integrated from the readings."""
        return ()

    def restore(self) -> None:
        """Nothing to undo: the source only reads a file."""

    def close(self) -> None:
        """Release the file's content; safe to call twice."""
        self._trace = None
        self._next_row = None

    @property
    def _is_attached(self) -> bool:
        return self._config.align != START

    def _opened(self) -> RecordedTrace:
        if self._trace is None:
            raise PowerError(f"{self._path.name} was used before it was opened")
        return self._trace

    def _build_facts(self, trace: RecordedTrace | None) -> SourceFacts:
        sensor: Sensor = Instant()
        scope, evidence, resolution_w, accuracy = Scope.DRIVE, Evidence.NONE, None, None
        detail = f"replay of {self._path.name}, not read yet"
        if trace is not None:
            head = trace.head
            sensor, scope, evidence = head.sensor, head.scope, trace.best_evidence
            resolution_w, accuracy = head.resolution_w, head.accuracy_percent
            subject = f" of {head.device}" if head.device else ""
            detail = (
                f"replay, {_ALIGNMENT_TEXT[self._config.align]}: {trace.origin}, "
                f"{len(trace.time_ns):,} readings{subject} over {trace.seconds:.6g} s"
                + (f"; {head.note}" if head.note else "")
            )
        return SourceFacts(
            name=NAME,
            device=self._device.key,
            device_name=self._device.name,
            scope=scope,
            evidence=evidence,
            sensor=sensor,
            period_s=(trace.period_s if trace else None) or self._period_s,
            resolution_w=resolution_w,
            accuracy_percent=accuracy,
            detail=detail,
            is_recorded=True,
            is_attached=self._is_attached,
        )

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
        return [
            Sample(
                time_ns=int(trace.time_ns[row]) + self._shift_ns,
                spread_ns=0,
                source=NAME,
                device=self._device.key,
                channel=channel,
                value=None if math.isnan(column[row]) else float(column[row]),
                evidence=trace.evidence_of(row),
            )
            for channel, column in trace.values.items()
            if channel in _REQUIRED or not math.isnan(column[row])
        ]
