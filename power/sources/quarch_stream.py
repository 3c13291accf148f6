"""A Quarch module's stream: reduced without losing energy, and timed on this host's clock.

A reading can only arrive after it was taken, so the least delayed readings bound the true
difference of the two clocks from above. The line below all points and nearest to them gives the
relative rate of the clocks (Moon, Skelly, Towsley: Estimation and Removal of Clock Skew from
Network Delay Measurements, INFOCOM 1999).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import PowerDataLostError, PowerError
from wattload.core.units import NS_PER_S
from wattload.power.sources.quarch_protocol import (
    Block,
    Qis,
    Rail,
    StreamHeader,
    parse_block,
    parse_header,
)

_LOG = logging.getLogger(__name__)

BIN_NS = 10 * NS_PER_S
"""The least delayed arrival of each interval of this length is kept."""

RATE_AFTER_NS = 60 * NS_PER_S
"""Over a shorter time, delays that vary by milliseconds would look like drift."""

RATE_MAX = 500e-6
"""No crystal oscillator deviates by more."""

_STREAM_TIMEOUT_S = 2.0
"""A slower server is given up, because the sampler has other sources to read."""

_HEADER_WAIT_S = 5.0
_STOP_WAIT_S = 10.0
_POLL_S = 0.02
_NO_HEADER = "header not available"
_PPM = 1e6


class Stream:
    """Drains QIS, which buffers about 8 million stripes: 33 s at the full rate.

    Raises:
        PowerError: the module does not start streaming.
    """

    def __init__(
        self, qis: Qis, header: StreamHeader, rails: Sequence[Rail], *, period_s: float
    ) -> None:
        self._qis = qis
        self._header = header
        self._rails = rails
        self._budget_ns = round(period_s * NS_PER_S)
        self._thinner = Thinner(period_ns=header.period_ns, interval_ns=self._budget_ns)
        self._lost = ""
        self._ended = ""
        self._last_ns = 0
        before_ns = time.monotonic_ns()
        record(qis)
        self._clock = DeviceClock(before_ns, time.monotonic_ns())

    @property
    def spread_ns(self) -> int:
        """The width of the uncertainty of the times, in ns."""
        return self._clock.spread_ns

    def host_ns(self, device_ns: int) -> int:
        """Return a time of the module's clock on this host's; times never decrease."""
        self._last_ns = max(self._last_ns, self._clock.host_ns(device_ns))
        return self._last_ns

    def drain(self) -> list[Interval]:
        """Return the intervals completed since the last call.

        It takes at most one read period, so that other sources are read in time; the rest stays in
        QIS.

        Raises:
            PowerDataLostError: readings were dropped; earlier calls returned those before.
            PowerError: the stream has ended for another reason, or the connection is lost.
        """
        if self._lost:
            raise PowerDataLostError(self._lost)
        if self._ended:
            raise PowerError(self._ended)
        ready: list[Interval] = []
        deadline_ns = time.monotonic_ns() + self._budget_ns
        try:
            while not self._take(ready) and time.monotonic_ns() < deadline_ns:
                pass
            self._check_state()
        except PowerDataLostError as error:
            self._lost = str(error)
        except PowerError as error:
            self._ended = str(error)
            _LOG.warning("%s", error)
        return ready

    def finish(self) -> None:
        """Stop the stream.

        Raises:
            PowerDataLostError: readings were dropped, as far as is known at the end.
        """
        try:
            self._check_state()
        except PowerDataLostError as error:
            self._lost = self._lost or str(error)
        except PowerError as error:
            _LOG.warning("%s", error)
        halt(self._qis)
        gained_ppm = self._clock.rate * _PPM
        _LOG.info("%s: this host's clock gained %+.1f ppm on it", self._qis.module, gained_ppm)
        if self._lost:
            raise PowerDataLostError(self._lost)

    def _take(self, ready: list[Interval]) -> bool:
        """Add the intervals of one block; return whether it was the last one available."""
        block = parse_block(
            self._qis.command("stream text all", timeout_s=_STREAM_TIMEOUT_S),
            self._header.column_count,
        )
        arrived_ns = time.monotonic_ns()
        if block.stripes.size:
            self._add(block, ready)
            self._clock.add_arrival(self._thinner.reached_ns, arrived_ns)
        return block.is_all

    def _add(self, block: Block, ready: list[Interval]) -> None:
        time_ns = np.rint(block.stripes[:, 0]).astype(np.int64) * self._header.time_unit_ns
        watts = np.zeros(time_ns.size)
        for rail in self._rails:
            watts += rail.watts(block.stripes)
        ready.extend(self._thinner.add(time_ns, watts))

    def _check_state(self) -> None:
        state = self._qis.stream_state(timeout_s=_STREAM_TIMEOUT_S)
        if state.lost_data:
            raise PowerDataLostError(
                f"{self._qis.module} reports {state.sentence!r}: its buffer was full and "
                "readings were dropped, so the run has no energy; move QIS nearer to this "
                "host, or have the module average (record:averaging)"
            )
        if not state.is_running:
            raise PowerError(f"{self._qis.module} has stopped streaming: {state.sentence!r}")


def record(qis: Qis) -> None:
    """Start the module's stream.

    Raises:
        PowerError: it refuses.
    """
    answer = qis.command("rec stream")
    if "OK" not in answer:
        raise PowerError(f"{qis.module} refuses to stream: {' '.join(answer.split())}")


def halt(qis: Qis) -> None:
    """Stop a stream and wait until it has ended; failures are logged."""
    try:
        qis.command("rec stop")
        _wait(lambda: not qis.stream_state().is_running, _STOP_WAIT_S)
    except PowerError as error:
        _LOG.warning("the stream of %s could not be stopped: %s", qis.module, error)


def read_header(qis: Qis) -> StreamHeader:
    """Return the header of the running stream, waiting until the module has one.

    Raises:
        PowerError: there is none in time, or it is invalid.
    """
    text = ""

    def is_there() -> bool:
        nonlocal text
        text = qis.command("stream text header")
        return _NO_HEADER not in text.lower()

    if not _wait(is_there, _HEADER_WAIT_S):
        raise PowerError(f"{qis.module} sent no header of its stream within {_HEADER_WAIT_S:g} s")
    return parse_header(text)


def _wait(condition: Callable[[], bool], most_s: float) -> bool:
    deadline_s = time.monotonic() + most_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


class Thinner:
    """Sums readings of ``period_ns`` each into intervals of ``interval_ns``, a multiple of it."""

    def __init__(self, *, period_ns: int, interval_ns: int) -> None:
        self._period_ns = period_ns
        self._interval_ns = max(1, round(interval_ns / period_ns)) * period_ns
        self._next_ns: int | None = None
        self._energy_j = 0.0
        self._pending = _Pending()

    @property
    def reached_ns(self) -> int:
        """The end of the last reading added, by the device's clock; 0 before the first."""
        return self._next_ns or 0

    def add(self, time_ns: NDArray[np.int64], watts: NDArray[np.float64]) -> list[Interval]:
        """Return the intervals that are now complete; both arrays have shape (n,).

        A reading at t covers ``[t, t + period)``.

        Raises:
            PowerDataLostError: readings are missing or out of order.
        """
        if time_ns.size == 0:
            return []
        self._check_order(time_ns)
        index = time_ns // self._interval_ns
        starts = np.flatnonzero(np.diff(index, prepend=index[0] - 1))
        sums = np.add.reduceat(watts, starts)
        lows = np.minimum.reduceat(watts, starts)
        highs = np.maximum.reduceat(watts, starts)
        self._next_ns = int(time_ns[-1]) + self._period_ns
        ready = []
        for which, start in enumerate(starts):
            self._pending.sum_w += float(sums[which])
            self._pending.min_w = min(self._pending.min_w, float(lows[which]))
            self._pending.max_w = max(self._pending.max_w, float(highs[which]))
            end_ns = (int(index[start]) + 1) * self._interval_ns
            if end_ns <= self._next_ns:
                ready.append(self._complete(end_ns))
        return ready

    def _complete(self, end_ns: int) -> Interval:
        pending, self._pending = self._pending, _Pending()
        self._energy_j += pending.sum_w * self._period_ns / NS_PER_S
        return Interval(
            start_ns=end_ns - self._interval_ns,
            end_ns=end_ns,
            energy_j=self._energy_j,
            min_w=pending.min_w,
            max_w=pending.max_w,
        )

    def _check_order(self, time_ns: NDArray[np.int64]) -> None:
        expected = int(time_ns[0]) if self._next_ns is None else self._next_ns
        steps = np.diff(time_ns, prepend=expected - self._period_ns)
        wrong = np.flatnonzero(steps != self._period_ns)
        if wrong.size:
            at = int(wrong[0])
            raise PowerDataLostError(
                f"the stream jumps by {int(steps[at]) / 1000:g} us at "
                f"{int(time_ns[at]) / 1000:.0f} us, but readings are "
                f"{self._period_ns / 1000:g} us apart: readings and their energy were lost"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One interval of the stream, by the device's clock.

    ``energy_j`` counts from the stream's first reading to ``end_ns``; ``min_w`` and ``max_w`` are
    the extremes of the readings in ``[start_ns, end_ns)``.
    """

    start_ns: int
    end_ns: int
    energy_j: float
    min_w: float
    max_w: float


@dataclass(slots=True, kw_only=True)
class _Pending:
    """The interval in progress."""

    sum_w: float = 0.0
    min_w: float = np.inf
    max_w: float = -np.inf


Point = tuple[int, int]
"""A time on the module's clock, and the host's clock minus it, both in ns."""


class DeviceClock:
    """Maps a stream's times, which start at 0, to CLOCK_MONOTONIC.

    ``before_ns`` and ``after_ns`` are the host's times around the command that started it.
    """

    def __init__(self, before_ns: int, after_ns: int) -> None:
        self._before_ns = before_ns
        self._after_ns = after_ns
        self._least: dict[int, Point] = {}
        self._touching_ns: float = after_ns
        self.rate = 0.0
        """Seconds that the host's clock gains on the module's, per second."""

    @property
    def spread_ns(self) -> int:
        """The difference between the earliest and the latest possible start of the stream."""
        return max(0, round(self._latest_ns() - self._before_ns))

    def add_arrival(self, device_ns: int, host_ns: int) -> None:
        """Record that data of ``device_ns`` arrived here at ``host_ns``."""
        ahead_ns = host_ns - device_ns
        which = device_ns // BIN_NS
        known = self._least.get(which)
        if known is not None and known[1] <= ahead_ns:
            return
        self._least[which] = (device_ns, ahead_ns)
        self._fit()

    def host_ns(self, device_ns: int) -> int:
        """Return the host's time for a time on the module's clock."""
        begin_ns = (min(self._before_ns, self._latest_ns()) + self._latest_ns()) / 2
        return round(begin_ns + device_ns * (1 + self.rate))

    def _latest_ns(self) -> float:
        return min(float(self._after_ns), self._touching_ns)

    def _fit(self) -> None:
        points = sorted(self._least.values())
        span_ns = points[-1][0] - points[0][0]
        if span_ns >= RATE_AFTER_NS:
            middle_ns = sum(device_ns for device_ns, _ in points) / len(points)
            rate = _rate_below(points, middle_ns)
            self.rate = max(-RATE_MAX, min(RATE_MAX, rate))
        self._touching_ns = min(ahead_ns - self.rate * device_ns for device_ns, ahead_ns in points)


def _rate_below(points: list[Point], middle_ns: float) -> float:
    """Return the slope of the lower convex hull's edge at ``middle_ns``."""
    hull: list[Point] = []
    for point in points:
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-1], point):
            hull.pop()
        hull.append(point)
    return next(_slope(a, b) for a, b in pairwise(hull) if a[0] <= middle_ns <= b[0])


def _slope(first: Point, second: Point) -> float:
    return (second[1] - first[1]) / (second[0] - first[0])
