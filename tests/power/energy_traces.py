"""Traces whose true energy is known in closed form, for the tests of integration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Bounds, Channel, Evidence, Sample, Scope, Sensor, SourceFacts
from wattload.power.energy.integration import Limits, WindowResult, window_result
from wattload.power.energy.profile import fill_holes, profile_of
from wattload.power.energy.trace import Trace, TraceBuilder, TraceKey

Floats = NDArray[np.float64]
T0_NS = 1_234_567_890_123_456
"""A host that has been up for two weeks: nothing may lean on small times."""
EVIDENCE = tuple(Evidence)


def ns(seconds: float) -> int:
    """Return the monotonic time that lies ``seconds`` after the start of every test."""
    return T0_NS + round(seconds * 1e9)


def traces(samples: Iterable[Sample]) -> dict[TraceKey, Trace]:
    """Return samples as traces."""
    builder = TraceBuilder()
    for _ in builder.adding(samples):
        pass
    return builder.traces()


def samples_of(
    times_s: Sequence[float] | Floats,
    values: Sequence[float | None] | Floats,
    *,
    channel: Channel = Channel.POWER_W,
    evidence: Evidence = Evidence.SELF_REPORTED,
    source: str = "meter",
    device: str = "SERIAL1",
    spread_ns: int = 0,
) -> list[Sample]:
    return [
        Sample(
            time_ns=ns(float(time_s)),
            spread_ns=spread_ns,
            source=source,
            device=device,
            channel=channel,
            value=None if value is None else float(value),
            evidence=evidence,
        )
        for time_s, value in zip(times_s, values, strict=True)
    ]


def trace_of(
    times_s: Sequence[float] | Floats,
    values: Sequence[float | None] | Floats,
    *,
    channel: Channel = Channel.POWER_W,
) -> Trace:
    """Return the trace of readings in order of time; ``None`` is a failed read."""
    time_ns = T0_NS + np.rint(np.asarray(times_s, dtype=np.float64) * 1e9).astype(np.int64)
    value = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    return Trace(
        key=TraceKey("meter", "SERIAL1", channel),
        time_ns=time_ns,
        spread_ns=np.zeros_like(time_ns),
        value=value,
        evidence_rank=np.full(time_ns.size, EVIDENCE.index(Evidence.SELF_REPORTED), np.int8),
    )


@dataclass(frozen=True)
class Bursts:
    """A square wave: ``high_w`` for ``on_s`` of every ``cycle_s``, from ``first_s`` on."""

    low_w: float
    high_w: float
    on_s: float
    cycle_s: float
    first_s: float = 0.0

    def power_w(self, time_s: Floats) -> Floats:
        into_s = np.mod(time_s - self.first_s, self.cycle_s)
        return np.where(into_s < self.on_s, self.high_w, self.low_w)

    def energy_j(self, time_s: Floats) -> Floats:
        """Return the antiderivative: joules from ``first_s`` to each time."""
        cycles, into_s = np.divmod(time_s - self.first_s, self.cycle_s)
        on_s = cycles * self.on_s + np.minimum(into_s, self.on_s)
        return self.low_w * (time_s - self.first_s) + (self.high_w - self.low_w) * on_s

    def between_j(self, start_s: float, end_s: float) -> float:
        at = self.energy_j(np.array([start_s, end_s]))
        return float(at[1] - at[0])


def boxcar(energy_j: Callable[[Floats], Floats], window_s: float, time_s: Floats) -> Floats:
    """Return the mean power of the ``window_s`` before each time, from the antiderivative."""
    return (energy_j(time_s) - energy_j(time_s - window_s)) / window_s


def integrate(
    trace: Trace,
    sensor: Sensor,
    start_ns: int,
    end_ns: int,
    *,
    period_s: float,
    resets_ns: Sequence[int] = (),
) -> WindowResult:
    """Return the energy of the trace on ``[start_ns, end_ns]``, as if its readings were not late.

    ``period_s`` is the configured time between reads; a time of more than three periods and more
    than 3 s without a reading is a hole. ``resets_ns`` are known restarts of the device in ns.
    """
    source = SourceFacts(
        name="meter",
        device="SERIAL1",
        device_name="nvme0",
        scope=Scope.DRIVE,
        evidence=Evidence.SELF_REPORTED,
        sensor=sensor,
        period_s=period_s,
    )
    profile = profile_of(trace, sensor, period_s=period_s, resets_ns=resets_ns)
    if isinstance(sensor, Bounds):
        return Limits.of(trace, profile, source).result([(start_ns, end_ns)])
    joules = fill_holes(profile).cumulative(np.array([start_ns, end_ns]))[0]
    return window_result(trace, profile, source, [(start_ns, end_ns)], float(joules[1] - joules[0]))
