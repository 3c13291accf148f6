"""A stream under way: what QIS has gathered, thinned, with times on this host's clock."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import numpy as np

from wattload.core.errors import PowerDataLostError, PowerError
from wattload.core.units import NS_PER_S
from wattload.power.quarch.clock import DeviceClock
from wattload.power.quarch.header import Rail, StreamHeader, parse_header
from wattload.power.quarch.qis import Qis
from wattload.power.quarch.stripes import Block, parse_block
from wattload.power.quarch.thinning import Interval, Thinner

_LOG = logging.getLogger(__name__)

_STREAM_TIMEOUT_S = 2.0
"""A server that takes longer is given up: the sampler has other sources to read meanwhile."""
_HEADER_WAIT_S = 5.0
_STOP_WAIT_S = 10.0
_POLL_S = 0.02
_NO_HEADER = "header not available"
_PPM = 1e6


class Stream:
    """Drains QIS, which holds some 8 million stripes meanwhile: 33 s at the full rate.

    Raises:
        PowerError: the module does not begin to stream.
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
        """How far the times may be off, from end to end."""
        return self._clock.spread_ns

    def host_ns(self, device_ns: int) -> int:
        """Return a moment of the module's clock on this host's, never before the one before."""
        self._last_ns = max(self._last_ns, self._clock.host_ns(device_ns))
        return self._last_ns

    def drain(self) -> list[Interval]:
        """Return the intervals that are complete since the last call.

        It takes no longer than one read period, so that other sources are read in time: what
        is left then stays in QIS.

        Raises:
            PowerDataLostError: readings were dropped; what came before has been returned.
            PowerError: the stream has ended otherwise, or the connection is lost.
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
            self._look_at_state()
        except PowerDataLostError as error:
            self._lost = str(error)
        except PowerError as error:
            self._ended = str(error)
            _LOG.warning("%s", error)
        return ready

    def finish(self) -> None:
        """End the stream.

        Raises:
            PowerDataLostError: readings were dropped, as far as is known at the end.
        """
        try:
            self._look_at_state()
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
        """Add the intervals of one block; returns whether it was all there is."""
        block = parse_block(
            self._qis.ask("stream text all", timeout_s=_STREAM_TIMEOUT_S), self._header.column_count
        )
        arrived_ns = time.monotonic_ns()
        if block.stripes.size:
            self._add(block, ready)
            self._clock.heard(self._thinner.reached_ns, arrived_ns)
        return block.is_all

    def _add(self, block: Block, ready: list[Interval]) -> None:
        time_ns = np.rint(block.stripes[:, 0]).astype(np.int64) * self._header.time_unit_ns
        watts = np.zeros(time_ns.size)
        for rail in self._rails:
            watts += rail.watts(block.stripes)
        ready.extend(self._thinner.add(time_ns, watts))

    def _look_at_state(self) -> None:
        state = self._qis.stream_state(timeout_s=_STREAM_TIMEOUT_S)
        if state.lost_data:
            raise PowerDataLostError(
                f"{self._qis.module} says {state.sentence!r}: its buffer was full and readings "
                "were dropped, so the run has no energy; bring QIS nearer to this host, or have "
                "the module average (record:averaging)"
            )
        if not state.is_running:
            raise PowerError(f"{self._qis.module} streams no more: {state.sentence!r}")


def record(qis: Qis) -> None:
    """Have the module stream.

    Raises:
        PowerError: it refuses.
    """
    answer = qis.ask("rec stream")
    if "OK" not in answer:
        raise PowerError(f"{qis.module} does not stream: {' '.join(answer.split())}")


def halt(qis: Qis) -> None:
    """End a stream and wait until it has ended; what is gone needs no end."""
    try:
        qis.ask("rec stop")
        _wait(lambda: not qis.stream_state().is_running, _STOP_WAIT_S)
    except PowerError as error:
        _LOG.warning("the stream of %s could not be ended: %s", qis.module, error)


def read_header(qis: Qis) -> StreamHeader:
    """Return the header of the stream that runs; it takes the module a moment to have one.

    Raises:
        PowerError: there is none, or it is not understood.
    """
    text = ""

    def is_there() -> bool:
        nonlocal text
        text = qis.ask("stream text header")
        return _NO_HEADER not in text.lower()

    if not _wait(is_there, _HEADER_WAIT_S):
        raise PowerError(f"{qis.module} gives no header of its stream within {_HEADER_WAIT_S:g} s")
    return parse_header(text)


def _wait(condition: Callable[[], bool], most_s: float) -> bool:
    deadline_s = time.monotonic() + most_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True
