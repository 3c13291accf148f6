"""A recorded trace as a source: what a file says, at the times it says, and no more than it says.

Played from the start of sampling it was measured in another run, and every page says so; attached
by its own times it is a meter's log of this one.
"""

from __future__ import annotations

import logging
import math
import time
from bisect import bisect_left, bisect_right
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
from wattload.power.config import PowerConfig
from wattload.power.replay.config import MONOTONIC, START, WALL, ReplayConfig
from wattload.power.replay.files import read_trace
from wattload.power.replay.trace import RecordedTrace
from wattload.power.sources import PowerDevice
from wattload.power.sources.onedevice import the_device

NAME = "replay"

_LOG = logging.getLogger(__name__)

_NEEDS = {MONOTONIC: "monotonic_ns", WALL: "unix_s"}
"""The time column that an alignment reads."""
_ALIGNED = {
    START: "recorded in another run and played from the start of sampling",
    MONOTONIC: "recorded beside the run and attached by this host's monotonic clock",
    WALL: "recorded beside the run and attached by UTC",
}
_FIGURES = (Channel.POWER_W, Channel.ENERGY_J, Channel.LOWER_W, Channel.UPPER_W)
"""Channels in which an empty value is a failed read; of the others it says nothing."""


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return the one source of the configured trace.

    Raises:
        ConfigError: no trace is named, or it is not clear whose it is.
    """
    replay = config.replay
    if replay is None:
        raise ConfigError("power=replay needs a trace: power.replay.path=trace.csv (or .parquet)")
    device = the_device(devices, replay.device, setting="power.replay.device")
    return [ReplaySource(device, replay, period_s=config.period_s)]


class ReplaySource:
    """One device's readings out of a file."""

    def __init__(self, device: PowerDevice, config: ReplayConfig, *, period_s: float) -> None:
        self._device = device
        self._config = config
        self._path = Path(config.path)
        self._period_s = period_s
        self._facts = self._described(None)
        self._trace: RecordedTrace | None = None
        self._seen: tuple[int, int, int] | None = None
        self._is_broken = False
        self._shift_ns = 0
        self._next_row: int | None = None

    def facts(self) -> SourceFacts:
        """Return what the file says; valid after ``open``."""
        return self._facts

    def open(self) -> None:
        """Read the file.

        Raises:
            ConfigError: the file has no times of the kind that the alignment reads.
            DataError: it is no trace.
        """
        self._config.check()
        rights = self._device.rights
        with rights():
            self._seen = _identity(self._path)
        trace = read_trace(self._path, growing=self._is_attached, rights=rights)
        needed = _NEEDS.get(self._config.align, trace.time_column)
        if trace.time_column != needed:
            raise ConfigError(
                f"power.replay.align={self._config.align} needs a column {needed}; "
                f"{self._path.name} has {trace.time_column}"
            )
        self._trace = trace
        self._facts = self._described(trace)
        self._is_broken = False

    def start(self) -> None:
        """Line the trace up with this moment; from here on the wall clock has no say."""
        trace = self._opened()
        now = anchor()
        if self._config.align == WALL:
            self._shift_ns = now.monotonic_ns - now.realtime_ns
        elif self._config.align == START:
            self._shift_ns = now.monotonic_ns - trace.time_ns[0]
        self._next_row = bisect_left(trace.time_ns, now.monotonic_ns - self._shift_ns)

    def read(self) -> Sequence[Sample]:
        """Return the readings that have become due since the last read."""
        self._opened()
        if self._next_row is None:
            raise PowerError(f"{self._path.name} is read before its replay was started")
        if self._is_attached and not self._refresh():
            return self._failed()
        return self._due(self._opened(), self._next_row, time.monotonic_ns() - self._shift_ns)

    def stop(self) -> Sequence[WindowEnergy]:
        """Return nothing: what the file says is integrated from its readings."""
        return ()

    def restore(self) -> None:
        """Nothing to undo: a file is read."""

    def close(self) -> None:
        """Forget the file; safe to call twice."""
        self._trace = None
        self._next_row = None

    @property
    def _is_attached(self) -> bool:
        return self._config.align != START

    def _opened(self) -> RecordedTrace:
        if self._trace is None:
            raise PowerError(f"{self._path.name} is used before it was opened")
        return self._trace

    def _described(self, trace: RecordedTrace | None) -> SourceFacts:
        sensor: Sensor = Instant()
        scope, evidence, resolution_w, accuracy = Scope.DRIVE, Evidence.NONE, None, None
        detail = f"replay of {self._path.name}, not read yet"
        if trace is not None:
            head = trace.head
            sensor, scope, evidence = head.sensor, head.scope, trace.best_evidence
            resolution_w, accuracy = head.resolution_w, head.accuracy_percent
            whose = f" of {head.device}" if head.device else ""
            detail = (
                f"replay, {_ALIGNED[self._config.align]}: {head.origin}, {len(trace.time_ns):,} "
                f"readings{whose} over {trace.seconds:.6g} s"
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

    def _refresh(self) -> bool:
        """Read the file again if it has changed; returns whether it still is a trace."""
        if self._is_broken:
            return False
        try:
            with self._device.rights():
                seen = _identity(self._path)
            if seen != self._seen:
                self._trace = read_trace(self._path, growing=True, rights=self._device.rights)
                self._seen = seen
        except DataError as error:
            _LOG.warning("%s", error)
            self._is_broken = True
        return not self._is_broken

    def _due(self, trace: RecordedTrace, first: int, until_ns: int) -> list[Sample]:
        """Return the samples of the rows from ``first`` up to a moment on the trace's clock.

        Rows are counted, not times: a meter may write down late what it has read in time.
        """
        last = bisect_right(trace.time_ns, until_ns)
        self._next_row = max(first, last)
        return [sample for row in range(first, last) for sample in self._samples(trace, row)]

    def _samples(self, trace: RecordedTrace, row: int) -> list[Sample]:
        time_ns, evidence = trace.time_ns[row] + self._shift_ns, trace.evidence_of(row)
        taken = []
        for channel, column in trace.values.items():
            value = column[row]
            if not math.isnan(value):
                taken.append(self._sample(time_ns, channel, value, evidence))
            elif channel in _FIGURES:
                taken.append(self._sample(time_ns, channel, None, evidence))
        return taken

    def _failed(self) -> list[Sample]:
        channels = [channel for channel in self._opened().values if channel in _FIGURES]
        now_ns, evidence = time.monotonic_ns(), self._facts.evidence
        return [self._sample(now_ns, channel, None, evidence) for channel in channels]

    def _sample(
        self, time_ns: int, channel: Channel, value: float | None, evidence: Evidence
    ) -> Sample:
        return Sample(
            time_ns=time_ns,
            spread_ns=0,
            source=NAME,
            device=self._device.key,
            channel=channel,
            value=value,
            evidence=evidence,
        )


def _identity(path: Path) -> tuple[int, int, int]:
    """Return what changes with a file's content; raises ``DataError`` where it is gone."""
    try:
        found = path.stat(follow_symlinks=False)
    except OSError as error:
        raise DataError(f"{path} can't be replayed: {error.strerror}") from error
    return found.st_ino, found.st_size, found.st_mtime_ns
