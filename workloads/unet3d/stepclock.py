"""Where the seconds of a step go: every moment of the loop belongs to one of five parts."""

from __future__ import annotations

import time
from enum import Enum

from wattload.core.units import NS_PER_S


class Part(Enum):
    """What the loop does; a step is the sum of these."""

    LOAD = "load"
    """Waiting for the loader's next batch."""
    COPY = "copy"
    """Staging batches for the device, and waiting for earlier copies."""
    COMPUTE = "compute"
    """The emulated computation, as long as it really lasted."""
    BARRIER = "barrier"
    """Waiting for the other ranks."""
    REST = "rest"
    """Everything else, most of it hashing for the proof."""


class StepClock:
    """Times the parts of each step by CLOCK_MONOTONIC, and whole steps by CLOCK_MONOTONIC_RAW.

    Raw time comes from the same counter and is not steered by NTP, which changes CLOCK_MONOTONIC by
    500 ppm at most (adjtimex(2)): the two totals of an epoch have to agree to that, whatever the
    laps in between did.
    """

    def __init__(self) -> None:
        self._steps: list[dict[Part, int]] = []
        self._raw_ns: list[int] = []
        self._step: dict[Part, int] = dict.fromkeys(Part, 0)
        self._start_ns = self._mark_ns = self._raw_mark_ns = 0

    def start(self) -> None:
        """Begin the epoch and its first step."""
        self._raw_mark_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        self._start_ns = self._mark_ns = time.monotonic_ns()

    def lap(self, part: Part) -> None:
        """Say what the time since the last lap was spent on."""
        now_ns = time.monotonic_ns()
        self._step[part] += now_ns - self._mark_ns
        self._mark_ns = now_ns

    def end_step(self) -> None:
        """End a step and begin the next."""
        raw_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        self._raw_ns.append(raw_ns - self._raw_mark_ns)
        self._raw_mark_ns = raw_ns
        self._steps.append(self._step)
        self._step = dict.fromkeys(Part, 0)

    @property
    def duration_ns(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC from the start to the last lap."""
        return self._mark_ns - self._start_ns

    def seconds(self, part: Part) -> tuple[float, ...]:
        """Return the seconds of one part, per step."""
        return tuple(step[part] / NS_PER_S for step in self._steps)

    def processed_s(self) -> tuple[float, ...]:
        """Return what DLIO calls processing, per step: all but the barrier."""
        return tuple((sum(step.values()) - step[Part.BARRIER]) / NS_PER_S for step in self._steps)

    def steps_s(self) -> tuple[float, ...]:
        """Return the seconds of each step by CLOCK_MONOTONIC_RAW."""
        return tuple(raw_ns / NS_PER_S for raw_ns in self._raw_ns)
