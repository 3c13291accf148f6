"""What the drive does over time: operations in turn, destaging, changes of state; event by event.

Nothing here sleeps: ``advance`` brings the drive to a given time through every event before it, so
the account does not depend on when a busy emulator gets round to calling it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tests.lab.virtual_ssd.curve import NS_PER_S, EnergyCurve
from tests.lab.virtual_ssd.design import Design, PowerState
from tests.lab.virtual_ssd.thermal import Thermal
from tests.lab.virtual_ssd.translation import TranslationLayer

TICK_NS = 100_000_000
"""How often the thermal thresholds are looked at."""
RATE_FLOOR = 0.05
"""A power limit leaves at least this share of a state's rate."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One read or write; ``done`` is called when the drive has finished it."""

    is_write: bool
    size_bytes: int
    done: Callable[[], None]
    start_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class _Service:
    operation: Operation
    end_ns: int
    watts: float
    media_bytes: int
    """What goes to the cache at its end: the write, and what garbage collection moves for it."""


@dataclass(frozen=True, kw_only=True)
class _Transition:
    old: int
    new: int
    begin_ns: int
    end_ns: int


class Engine:
    """The drive's insides, at ``now_ns`` on CLOCK_MONOTONIC."""

    def __init__(self, design: Design, start_ns: int) -> None:
        self.design = design
        self.layer = (
            None
            if design.spare_share is None
            else TranslationLayer(
                design.capacity_bytes,
                spare_share=design.spare_share,
                page_bytes=design.page_bytes,
            )
        )
        self.curve = EnergyCurve(start_ns)
        self.thermal = Thermal(design)
        self.state = 0
        self.change_count = 0
        self.limit_w: float | None = None
        self.speed = 1.0
        """Multiplies rates at the same watts: to prepare data at a multiple, outside of any run."""
        self.background_while_asleep = False
        self.idle_rules: dict[int, tuple[int, int]] = {}
        self.read_bytes = self.written_bytes = self.destaged_bytes = 0
        self.read_count = self.write_count = 0
        self.busy_ns = 0
        self._now_ns = start_ns
        self._last_operational = 0
        self._last_io_ns = start_ns
        self._dirty_bytes = 0.0
        self._queue: deque[Operation] = deque()
        self._service: _Service | None = None
        self._transitions: deque[_Transition] = deque()

    @property
    def now_ns(self) -> int:
        return self._now_ns

    @property
    def dirty_bytes(self) -> int:
        """Media bytes that wait in the cache."""
        return int(self._dirty_bytes)

    @property
    def used_bytes(self) -> int:
        """Bytes of the namespace that hold data."""
        if self.layer is not None:
            return self.layer.valid_bytes
        return min(self.written_bytes, self.design.capacity_bytes)

    @property
    def wake_ns(self) -> int | None:
        """When something comes to an end that somebody may wait for; ``None``: nothing will."""
        if self._service is not None:
            return self._service.end_ns
        return self._transitions[0].end_ns if self._transitions else None

    def submit(self, operation: Operation, now_ns: int) -> None:
        """Queue an operation; a sleeping drive wakes for it."""
        self.advance(now_ns)
        self._queue.append(operation)
        self._last_io_ns = self._now_ns
        if not self._coming().operational:
            self.request_state(self._last_operational, now_ns)
        self._start()

    def request_state(self, state: int, now_ns: int) -> int:
        """Begin to change into a state and return when it is reached; the I/O in hand ends first.

        The change takes the latencies that the descriptors state; no I/O begins meanwhile.
        """
        self.advance(now_ns)
        old = self._transitions[-1].new if self._transitions else self.state
        begin_ns = self._now_ns
        if self._transitions:
            begin_ns = self._transitions[-1].end_ns
        elif self._service is not None:
            begin_ns = self._service.end_ns
        if state == old:
            return begin_ns if self._transitions else self._now_ns
        latency_us = self.design.states[old].exit_us + self.design.states[state].entry_us
        change = _Transition(
            old=old, new=state, begin_ns=begin_ns, end_ns=begin_ns + latency_us * 1000
        )
        self._transitions.append(change)
        return change.end_ns

    def force_state(self, state: int, now_ns: int) -> None:
        """Be in a state at once, as after a reset; what was under way is forgotten."""
        self.advance(now_ns)
        self._transitions.clear()
        self._enter(state)
        self._start()

    def drop_queue(self) -> None:
        """Forget the operations that have not begun."""
        self._queue.clear()

    def advance(self, to_ns: int) -> None:
        """Live through everything up to a time; an earlier time is no step back."""
        while self._now_ns < to_ns:
            self._start()
            end_ns = min(to_ns, self._next_change_ns())
            self._spend(end_ns)
            self._settle()
        self._start()

    def _coming(self) -> PowerState:
        last = self._transitions[-1].new if self._transitions else self.state
        return self.design.states[last]

    def _start(self) -> None:
        """Take the next operation into service unless the drive is at something else."""
        current = self.design.states[self.state]
        if self._service or self._transitions or not self._queue or not current.operational:
            return
        operation = self._queue.popleft()
        media_bytes = self._media_bytes(operation)
        rate = self._rate(operation, media_bytes, current)
        per_byte = (
            self.design.write_j_per_byte if operation.is_write else self.design.read_j_per_byte
        )
        length_ns = max(1, round(operation.size_bytes / rate * NS_PER_S))
        self._service = _Service(
            operation=operation,
            end_ns=self._now_ns + length_ns,
            watts=per_byte * operation.size_bytes / (length_ns / NS_PER_S) / self.speed,
            media_bytes=media_bytes,
        )

    def _media_bytes(self, operation: Operation) -> int:
        """Give a write its place on the media and return what it costs there."""
        if not operation.is_write:
            return 0
        if self.layer is None:
            return operation.size_bytes
        return self.layer.write(operation.start_bytes, operation.size_bytes)

    def _rate(self, operation: Operation, media_bytes: int, state: PowerState) -> float:
        """Return bytes per second for an operation: state, full cache, heat and power limit.

        With a full cache a write waits until its media bytes have found room.
        """
        waiting = 1.0
        if operation.is_write:
            full = state.write_bytes_per_s
            per_byte = self.design.write_j_per_byte
            excess = self._dirty_bytes + media_bytes - self.design.cache_bytes
            rate = full if excess <= 0 else full * self.design.destage_share
            waiting = max(1.0, excess / operation.size_bytes)
        else:
            rate = full = state.read_bytes_per_s
            per_byte = self.design.read_j_per_byte
        rate *= self.thermal.share
        if self.limit_w is not None:
            left_w = self.limit_w - state.idle_w - self._destage_w()
            rate = min(rate, left_w / per_byte)
        return max(rate, RATE_FLOOR * full) * self.speed / waiting

    def _destage_rate(self) -> float:
        """Return bytes per second that go from the cache to the media now."""
        if self._dirty_bytes <= 0:
            return 0.0
        state = self.design.states[self.state]
        if not state.operational:
            if not self.background_while_asleep:
                return 0.0
            state = self.design.states[self._last_operational]
        rate = state.write_bytes_per_s * self.design.destage_share * self.thermal.share
        if self.limit_w is not None:
            half_w = (self.limit_w - state.idle_w) / 2
            rate = min(rate, half_w / self.design.destage_j_per_byte)
        return max(rate, RATE_FLOOR * state.write_bytes_per_s) * self.speed

    def _destage_w(self) -> float:
        return self._destage_rate() * self.design.destage_j_per_byte / self.speed

    def _base_w(self) -> float:
        idle_w = self.design.states[self.state].idle_w
        if self._transitions and self._transitions[0].begin_ns <= self._now_ns:
            return max(idle_w, self.design.states[self._transitions[0].new].idle_w)
        return idle_w

    def _next_change_ns(self) -> int:
        times_ns = [(self._now_ns // TICK_NS + 1) * TICK_NS]
        if self._service is not None:
            times_ns.append(self._service.end_ns)
        if self._transitions:
            change = self._transitions[0]
            times_ns.append(change.begin_ns if change.begin_ns > self._now_ns else change.end_ns)
        if rate := self._destage_rate():
            times_ns.append(self._now_ns + max(1, math.ceil(self._dirty_bytes / rate * NS_PER_S)))
        return min(times_ns)

    def _spend(self, end_ns: int) -> None:
        """Draw power at a constant rate from now to ``end_ns``."""
        seconds = (end_ns - self._now_ns) / NS_PER_S
        destaged = min(self._dirty_bytes, self._destage_rate() * seconds)
        watts = self._base_w() + self._destage_w()
        if self._service is not None:
            watts += self._service.watts
            self.busy_ns += end_ns - self._now_ns
        self.curve.add(end_ns, watts)
        self.thermal.spend(watts, seconds)
        self._dirty_bytes -= destaged
        if self._dirty_bytes < 1:
            self._dirty_bytes = 0.0
        self.destaged_bytes += round(destaged)
        self._now_ns = end_ns

    def _settle(self) -> None:
        """Do what is due now."""
        if self._service is not None and self._service.end_ns <= self._now_ns:
            ended, self._service = self._service, None
            self._last_io_ns = self._now_ns
            self._count(ended)
            ended.operation.done()
        if self._transitions and self._transitions[0].end_ns <= self._now_ns:
            self._enter(self._transitions.popleft().new)
        if self._now_ns % TICK_NS == 0:
            self.thermal.judge()
            self._fall_asleep()

    def _count(self, ended: _Service) -> None:
        operation = ended.operation
        if operation.is_write:
            self.written_bytes += operation.size_bytes
            self.write_count += 1
            self._dirty_bytes += ended.media_bytes
        else:
            self.read_bytes += operation.size_bytes
            self.read_count += 1

    def _enter(self, state: int) -> None:
        if state != self.state:
            self.change_count += 1
        self.state = state
        if self.design.states[state].operational:
            self._last_operational = state

    def _fall_asleep(self) -> None:
        """Follow the host's rule for an idle drive in this state, if it has set one."""
        rule = self.idle_rules.get(self.state)
        if rule is None or self._service or self._queue or self._transitions:
            return
        target, idle_ns = rule
        if self._now_ns - self._last_io_ns >= idle_ns:
            self.request_state(target, self._now_ns)
