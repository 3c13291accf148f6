"""The known load of a calibration: reads of a target's own data at known times.

The load is pulses and then a fast train (see ``wattload.power.energy.calibration``), by O_DIRECT
through the engine; nothing is written to the drive. All measured drives of a host are loaded and
calibrated at once.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from wattload.core.clock import utc_text
from wattload.core.errors import RunError, TargetError
from wattload.core.io import Extent, IOKind, IOOrder, IOPlan
from wattload.core.power import Boxcar, SourceFacts
from wattload.core.units import KIB, NS_PER_S
from wattload.loaders.aligned_io import direct_alignment
from wattload.loaders.engine.engine import IOEngine
from wattload.power.energy.calibration import PULSE_COUNT, PULSE_MIN_S

BLOCK_BYTES = 128 * KIB
DEPTH = 32
LEAST_BYTES = DEPTH * BLOCK_BYTES
"""With less data, each of the reads under way would not have a block of its own."""
LAG_S = 0.5
"""Readings may be so much later than declared without losing the end of the train."""
BASELINE_S = 15.0
"""The idle baseline behind a calibration is at least so long, even beyond the idle time."""

LEAST_SETTLED = 1.4
"""A pulse is at least so many times as long as its response, to show the power behind that."""
LONGEST_S = 60.0
"""A calibration that would take longer is not made: the sensor is too slow."""

_GOLDEN = ((math.sqrt(5) - 1) / 2, (3 - math.sqrt(5)) / 2)
_TRAIN_S = 5.0
_TRAIN_HZ = 5.0
_TRAIN_CLOCKS_S = (1 / 7, 1 / 4)
"""The train has the frequency of an update clock in this range, which shows whether it aliases."""

Times = tuple[tuple[float, float], ...]
"""Start and end of each interval of load, in seconds."""
Edges = tuple[tuple[int, int], ...]
"""Start and end of each interval of load, in ns of CLOCK_MONOTONIC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsePlan:
    """When to load which sources' drives; times in seconds from the start.

    ``settle_s`` is the pause after the train, in which readings return to idle.
    """

    sources: tuple[SourceFacts, ...]
    pulses: Times
    train: Times
    settle_s: float

    @property
    def seconds(self) -> float:
        return self.train[-1][1] + self.settle_s


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLoad:
    """The load as it was, from the first submission of an interval to its last completion."""

    utc: str
    origin_ns: int
    end_ns: int
    pulses: Edges
    train: Edges


def pulse_times(window_s: float, update_s: float) -> tuple[Times, Times] | None:
    """Return pulses and a train; ``None`` if a sensor is too slow for those of a minute.

    Times are in seconds from the start of a calibration, which begins and ends with a pause. Each
    pulse and each pause is twice as long as the response, or as long as a minute allows. Their
    edges meet the update clock of ``update_s`` (> 0) at many phases: they are the golden ratio of
    it beyond a multiple, or else by so much shorter than one that all phases are evenly spaced.
    """
    settle_s = window_s + update_s
    base_s = max(PULSE_MIN_S, 2 * settle_s)
    length_s = min(
        update_s * (max(0, math.ceil(base_s / update_s - part)) + part) for part in _GOLDEN
    )
    most_s = (LONGEST_S - _TRAIN_S - settle_s) / (2 * PULSE_COUNT + 1)
    if length_s > most_s:
        length_s = update_s * (math.floor(most_s / update_s) - 1 / (2 * PULSE_COUNT))
    if length_s < LEAST_SETTLED * settle_s:
        return None
    pulses = tuple(
        (number * length_s, (number + 1) * length_s) for number in range(1, 2 * PULSE_COUNT, 2)
    )
    start_s = pulses[-1][1] + length_s
    is_clock = _TRAIN_CLOCKS_S[0] <= update_s <= _TRAIN_CLOCKS_S[1]
    half_s = (update_s if is_clock else 1 / _TRAIN_HZ) / 2
    train = tuple(
        (start_s + number * half_s, start_s + (number + 1) * half_s)
        for number in range(0, 2 * round(_TRAIN_S / 2 / half_s), 2)
    )
    return pulses, train


def plan_pulses(
    sources: Sequence[SourceFacts], files: Sequence[Path] | None, *, idle_s: float = math.inf
) -> PulsePlan | str:
    """Return the pulses that suit all sources that are fast enough, or why there are none.

    ``sources`` measure drives, ``files`` are written data on them (``None``: not written yet), and
    ``idle_s`` is the time in which the calibration must fit.
    """
    live = [facts for facts in sources if not facts.is_of_another_run]
    if not live:
        return "no sensor reads the drive in this run"
    if files is not None and sum(map(length_bytes, files)) < LEAST_BYTES:
        return (
            f"there are less than {LEAST_BYTES // KIB} KiB of data on the drive to read; run "
            "wattload power calibrate target.path=DIRECTORY first"
        )
    fast = [facts for facts in live if pulse_times(*_speed(facts)) is not None]
    if not fast:
        slowest = ", ".join(dict.fromkeys(facts.name for facts in live))
        return f"{slowest} is too slow: its pulses would take longer than {LONGEST_S:.0f} s"
    window_s, update_s = (max(each) for each in zip(*map(_speed, fast), strict=True))
    if pulse_times(window_s, update_s) is None:  # one has the longest window, another the update
        fast = fast[:1]
        window_s, update_s = _speed(fast[0])
    times = pulse_times(window_s, update_s)
    assert times is not None
    plan = PulsePlan(
        sources=tuple(fast),
        pulses=times[0],
        train=times[1],
        settle_s=window_s + update_s + LAG_S,
    )
    if idle_s < plan.seconds:
        return f"power.idle_s is {idle_s:g} s, and a calibration needs {math.ceil(plan.seconds)} s"
    return plan


def _speed(facts: SourceFacts) -> tuple[float, float]:
    """Return the window of a source's mean and the time between its updates in seconds.

    A mean whose updates are not declared may be updated as seldom as its window is long.
    """
    window_s = facts.sensor.window_s if isinstance(facts.sensor, Boxcar) else 0.0
    declared_s = getattr(facts.sensor, "update_period_s", 0.0)
    return window_s, max(window_s if declared_s is None else declared_s, facts.period_s)


def load_drives(
    plan: PulsePlan, files: Sequence[Path], stop: threading.Event | None = None
) -> KnownLoad:
    """Read the files in the pulses and the train of a plan, and wait until readings settle.

    Raises:
        OSError: a file can't be read.
        WattloadError: the file system refuses O_DIRECT, the engine is not built, or ``stop`` was
            set.
    """
    stop = stop or threading.Event()
    lengths = {path: length_bytes(path) for path in files}
    extents = [Extent(path, 0, length) for path, length in lengths.items() if length]
    if not extents:
        raise TargetError("there is nothing to read on the drive")
    alignment_bytes = max(direct_alignment(extent.path) for extent in extents)
    engine = IOEngine(block_bytes=BLOCK_BYTES, depth=DEPTH)
    utc, origin_ns = utc_text(), time.monotonic_ns()

    def read(start_s: float, end_s: float, seed: int) -> tuple[int, int]:
        reads = IOPlan(
            kind=IOKind.READ,
            extents=extents,
            block_bytes=BLOCK_BYTES,
            depth=DEPTH,
            order=IOOrder.RANDOM,  # the drive must not have them in its cache
            duration_s=end_s - start_s,
            seed=seed,
        )
        _sleep_until(origin_ns, start_s, stop)
        ticket = engine.submit(reads, alignment_bytes=alignment_bytes)
        try:
            seconds = ticket.result().seconds
        finally:
            ticket.discard()
        end_ns = ticket.reading().time_ns
        return end_ns - round(seconds * NS_PER_S), end_ns

    with closing(engine):
        edges = [read(*each, seed) for seed, each in enumerate((*plan.pulses, *plan.train))]
    # A slow drive goes on reading for a while after each interval, so that the train ends late.
    trained_s = (edges[-1][1] - origin_ns) / NS_PER_S
    _sleep_until(origin_ns, trained_s + plan.settle_s, stop)
    count = len(plan.pulses)
    return KnownLoad(
        utc=utc,
        origin_ns=origin_ns,
        end_ns=time.monotonic_ns(),
        pulses=tuple(edges[:count]),
        train=tuple(edges[count:]),
    )


def _sleep_until(origin_ns: int, seconds: float, stop: threading.Event) -> None:
    if stop.wait(max(0.0, seconds - (time.monotonic_ns() - origin_ns) / NS_PER_S)):
        raise RunError("the load was interrupted")


def length_bytes(path: Path) -> int:
    """Return how much of a file or block device can be read in whole blocks, 0 if nothing."""
    try:
        with path.open("rb", buffering=0) as file:
            return file.seek(0, os.SEEK_END) // BLOCK_BYTES * BLOCK_BYTES
    except OSError:
        return 0
