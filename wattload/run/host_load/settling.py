"""How busy a host is between two moments, and settling a load to its shares.

A load's peak is measured first, then the quotas at which a host is as busy as was asked for. CPU
time and memory traffic are those of the whole host, so that what else runs there is part of both.
Arithmetic is added or taken away by the CPU time that lacks, copies in proportion to traffic.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from wattload.core.errors import RunError
from wattload.core.host.cgroups import cpu_limit
from wattload.core.host.counters import PRESSURES, CpuShares, CpuTime, ProcessTree, pressure_s
from wattload.core.host.memory_traffic import FoundMeter
from wattload.core.record.host import CPU_BAND, MEMORY_BAND, LoadLevel, LoadWindow, MemoryMeter
from wattload.core.sysfs import LIVE, Observation, Roots, explain
from wattload.core.units import NS_PER_S
from wattload.loaders.engine.load import PERIOD_US, LoadCounts
from wattload.run.host_load.config import Busy
from wattload.run.host_load.process import LoadProcess

NO_COUNTS = "a program other than wattload's load does not count its work"
NO_TRAFFIC = (
    "this host has no counters of memory traffic that can be read, and a program other than "
    "wattload's load does not count its own"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """What all CPUs together reach: memory traffic by the meter, copied bytes, and arithmetic."""

    traffic_bytes_per_s: float
    copied_bytes_per_s: float
    units_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The counters at one moment; a reason stands in place of a pressure that can't be read."""

    cpu: CpuTime
    load_cpu_s: float
    run_cpu_s: float
    traffic_bytes: float | None
    counts: LoadCounts | None
    waiting_s: dict[str, float | str] = field(default_factory=dict)

    def less(self, first: Reading, last: Reading) -> Reading:
        """Return this reading without what was counted from an earlier one to another."""
        return Reading(
            cpu=replace(
                self.cpu,
                time_ns=self.cpu.time_ns - (last.cpu.time_ns - first.cpu.time_ns),
                idle_s=self.cpu.idle_s - (last.cpu.idle_s - first.cpu.idle_s),
                steal_s=self.cpu.steal_s - (last.cpu.steal_s - first.cpu.steal_s),
            ),
            load_cpu_s=self.load_cpu_s - (last.load_cpu_s - first.load_cpu_s),
            run_cpu_s=self.run_cpu_s - (last.run_cpu_s - first.run_cpu_s),
            traffic_bytes=_less(self.traffic_bytes, first.traffic_bytes, last.traffic_bytes),
            counts=_counts_less(self.counts, first.counts, last.counts),
            waiting_s={
                name: _less_waiting(own, first.waiting_s[name], last.waiting_s[name])
                for name, own in self.waiting_s.items()
            },
        )


def _less(own: float | None, first: float | None, last: float | None) -> float | None:
    if own is None or first is None or last is None:
        return None
    return own - (last - first)


def _less_waiting(own: float | str, first: float | str, last: float | str) -> float | str:
    """Return the difference, or the reason why one is missing."""
    for each in (own, first, last):
        if isinstance(each, str):
            return each
    return float(own) - (float(last) - float(first))


def _counts_less(
    own: LoadCounts | None, first: LoadCounts | None, last: LoadCounts | None
) -> LoadCounts | None:
    if own is None or first is None or last is None:
        return None
    before, after, counts = asdict(first), asdict(last), asdict(own)
    return LoadCounts(**{name: counts[name] - (after[name] - before[name]) for name in counts})


class HostMeter:
    """Reads a host's counters: its CPUs, the load, the run's processes, and memory."""

    def __init__(
        self,
        process: LoadProcess,
        *,
        host: str,
        cpus: Collection[int],
        ranks: Iterable[int],
        found: FoundMeter,
        roots: Roots = LIVE,
    ) -> None:
        """Measure ``cpus``; ``ranks`` are the processes of the run on this host."""
        self._process, self._host, self._cpus, self._roots = process, host, cpus, roots
        self._traffic = found.meter
        self._load = ProcessTree(root=process.pid)
        apart = frozenset([process.pid])
        self._run = [ProcessTree(apart, root=pid) for pid in ranks]
        self._lock = threading.Lock()
        self.peak: Peak | None = None
        """What the load reaches; the part of its quotas that it did is unknown without it."""
        self.kind: MemoryMeter = self._traffic.kind if self._traffic else "self_reported"

    def read(self) -> Reading:
        """Return the counters now; takes about a millisecond.

        Raises:
            RunError: the load has died.
        """
        with self._lock:
            counts = self._process.counts()
            if self._traffic is not None:
                traffic: float | None = self._traffic.read_bytes()
            else:
                traffic = None if counts is None else 2.0 * counts.copied_bytes
            return Reading(
                cpu=CpuTime.read(self._cpus, self._roots),
                load_cpu_s=self._load.cpu_s(),
                run_cpu_s=sum(tree.cpu_s() for tree in self._run),
                traffic_bytes=traffic,
                counts=counts,
                waiting_s={name: self._waiting(name) for name in PRESSURES},
            )

    def _waiting(self, resource: str) -> float | str:
        try:
            return pressure_s(resource, self._roots)
        except (OSError, ValueError) as error:
            return explain(error)

    def level(
        self,
        window: LoadWindow,
        first: Reading,
        last: Reading,
        peak_bytes_per_s: float | None,
        *,
        gaps: Sequence[tuple[Reading, Reading]] = (),
    ) -> LoadLevel:
        """Return the level between two readings, without the gaps between pairs of others.

        Its memory share is of the peak.
        """
        end_ns = last.cpu.time_ns
        for gap in gaps:
            last = last.less(*gap)
        seconds = max((last.cpu.time_ns - first.cpu.time_ns) / NS_PER_S, 1e-9)
        cpu = CpuShares.between(first.cpu, last.cpu)
        load = max(last.load_cpu_s - first.load_cpu_s, 0.0) / cpu.cpu_s
        run = max(last.run_cpu_s - first.run_cpu_s, 0.0) / cpu.cpu_s
        observation = Observation()
        traffic = None
        if first.traffic_bytes is not None and last.traffic_bytes is not None:
            traffic = max(last.traffic_bytes - first.traffic_bytes, 0.0) / seconds
        observation.put("memory_bytes_per_s", traffic, NO_TRAFFIC)
        is_known = traffic is not None and bool(peak_bytes_per_s)
        share = (traffic or 0.0) / (peak_bytes_per_s or 1.0) if is_known else None
        reason = "the peak of memory traffic is unknown" if traffic is not None else NO_TRAFFIC
        observation.put("memory_share", share, reason)
        copied = fraction = None
        if first.counts is not None and last.counts is not None:
            copied = (last.counts.copied_bytes - first.counts.copied_bytes) / seconds
            if self.peak is not None:
                fraction = work_fraction(first.counts, last.counts, self.peak)
        observation.put("copied_bytes_per_s", copied, NO_COUNTS)
        without = NO_COUNTS if copied is None else "no quota was due, or the peak is unknown"
        observation.put("work_fraction", fraction, without)
        for name in PRESSURES:
            read = partial(_pressure_share, first.waiting_s[name], last.waiting_s[name], seconds)
            observation.read(f"pressure_{name}_share", read)
        return observation.build(
            LoadLevel,
            host=self._host,
            window=window,
            start_ns=first.cpu.time_ns,
            end_ns=end_ns,
            cpu_share=cpu.busy,
            steal_share=cpu.steal,
            load_cpu_share=load,
            run_cpu_share=run,
            other_cpu_share=max(cpu.busy - load - run, 0.0),
        )

    def close(self) -> None:
        if self._traffic is not None:
            self._traffic.close()


def _pressure_share(first: float | str, last: float | str, seconds: float) -> float:
    """Return the share; raises ``ValueError`` with the reason why a reading has none."""
    if isinstance(first, float) and isinstance(last, float):
        return min(max((last - first) / seconds, 0.0), 1.0)
    raise ValueError(first if isinstance(first, str) else last)


def work_fraction(first: LoadCounts, last: LoadCounts, peak: Peak) -> float | None:
    """Return the part of its quotas that a load did, both weighted by their time at the peak.

    ``None`` if neither copies nor arithmetic were due.
    """
    # Bytes ÷ bytes per second and units ÷ units per second, with both rates multiplied out.
    byte_weight, unit_weight = peak.units_per_s, peak.copied_bytes_per_s
    done = (last.copied_bytes - first.copied_bytes) * byte_weight
    done += (last.units - first.units) * unit_weight
    due = (last.due_bytes - first.due_bytes) * byte_weight
    due += (last.due_units - first.due_units) * unit_weight
    return done / due if due else None


PEAK_WINDOWS, PEAK_S = 5, 0.5
STEP_S = 1.0
CLOSE = 0.5
"""The part of a band in which a step must be before the shares are held."""
STUCK_STEPS = 10
"""So many steps in a row without an effect show that the shares are out of reach."""
UNMET = 0.95
NOTABLE = 0.02

_PERIODS_PER_S = 1e6 / PERIOD_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The work per second over all threads."""

    copied_bytes_per_s: float
    units_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The quotas at which the shares held, the level while they did, and the seconds it took."""

    quotas: Quotas
    alone: LoadLevel
    seconds: float


def measure_peak(process: LoadProcess, meter: HostMeter) -> Peak:
    """Return the best of five short windows in which all threads copy, and one of arithmetic."""
    process.set("COPY")
    time.sleep(PEAK_S)
    windows = [_window(meter) for _ in range(PEAK_WINDOWS)]
    process.set("COMPUTE")
    computing = _window(meter)
    process.set("STOP")
    return Peak(
        traffic_bytes_per_s=max(_traffic(*window) for window in windows),
        copied_bytes_per_s=max(_rate(*window, "copied_bytes") for window in windows),
        units_per_s=_rate(*computing, "units"),
    )


def _window(meter: HostMeter) -> tuple[Reading, Reading]:
    first = meter.read()
    time.sleep(PEAK_S)
    return first, meter.read()


def _seconds(first: Reading, last: Reading) -> float:
    return max((last.cpu.time_ns - first.cpu.time_ns) / NS_PER_S, 1e-9)


def _traffic(first: Reading, last: Reading) -> float:
    return ((last.traffic_bytes or 0.0) - (first.traffic_bytes or 0.0)) / _seconds(first, last)


def _rate(first: Reading, last: Reading, name: str) -> float:
    return float(getattr(last.counts, name) - getattr(first.counts, name)) / _seconds(first, last)


class Settling:
    """Adjusts the quotas until both shares hold; then nothing changes them."""

    def __init__(
        self,
        config: Busy,
        *,
        cpu_count: int,
        peak: Peak,
        reference_bytes_per_s: float,
        set_quotas: Callable[[int, int], None],
        measure: Callable[[float], LoadLevel],
    ) -> None:
        """Settle to shares of the CPUs and of ``reference_bytes_per_s`` of memory traffic.

        ``set_quotas`` sets the bytes and the units of each thread and period; ``measure`` returns
        the level over so many seconds.
        """
        self._config, self._cpu_count, self._peak = config, cpu_count, peak
        self._set_quotas, self._measure = set_quotas, measure
        copies = config.memory_share * reference_bytes_per_s / max(peak.traffic_bytes_per_s, 1.0)
        self._copied = min(copies, 1.0) * peak.copied_bytes_per_s
        self._units = 0.0

    def settle(self) -> Settled:
        """Return the quotas that hold the shares, which stay in force.

        Raises:
            RunError: the shares are not reached in ``load.settle_max_s``, what else runs takes more
                CPU time than was asked for, or the load has died.
        """
        start_s, stuck = time.monotonic(), 0
        while True:
            self._set_quotas(*self._per_thread())
            level = self._measure(STEP_S)
            if (level.other_cpu_share or 0.0) > self._config.cpu_share + CPU_BAND:
                raise RunError(self._sentence(level))
            if self._is_in_band(level, CLOSE):
                level = self._measure(self._config.alone_s)
                if self._is_in_band(level, 1.0):
                    seconds = time.monotonic() - start_s
                    return Settled(quotas=self._quotas(), alone=level, seconds=seconds)
            stuck = stuck + 1 if self._is_stuck(level) else 0
            if stuck >= STUCK_STEPS or time.monotonic() - start_s >= self._config.settle_max_s:
                raise RunError(self._sentence(level))
            self._adjust(level)

    def _per_thread(self) -> tuple[int, int]:
        """Return the quotas of each thread and period, in whole pieces."""
        parts = self._cpu_count * _PERIODS_PER_S
        return round(self._copied / parts), round(self._units / parts)

    def _quotas(self) -> Quotas:
        copied, units = self._per_thread()
        parts = self._cpu_count * _PERIODS_PER_S
        return Quotas(copied_bytes_per_s=copied * parts, units_per_s=units * parts)

    def _apart(self, level: LoadLevel) -> tuple[float, float]:
        """Return how far CPU and memory share are above what was asked for."""
        cpu, memory = level.cpu_share or 0.0, level.memory_share or 0.0
        return cpu - self._config.cpu_share, memory - self._config.memory_share

    def _is_in_band(self, level: LoadLevel, part: float) -> bool:
        cpu, memory = self._apart(level)
        return abs(cpu) <= CPU_BAND * part and abs(memory) <= MEMORY_BAND * part

    def _is_stuck(self, level: LoadLevel) -> bool:
        """Return whether more quota, or less, would change nothing."""
        cpu, memory = self._apart(level)
        lacks = cpu < -CPU_BAND or memory < -MEMORY_BAND
        is_too_busy = cpu > CPU_BAND and not self._units
        return (_is_unmet(level) and lacks) or is_too_busy

    def _adjust(self, level: LoadLevel) -> None:
        cpu, _ = self._apart(level)
        memory = level.memory_share or 0.0
        if memory:
            ratio = min(max(self._config.memory_share / memory, 0.5), 2.0)
            self._copied = min(self._copied * ratio, self._peak.copied_bytes_per_s)
        most = self._peak.units_per_s
        self._units = min(max(self._units - cpu * most, 0.0), most)

    def _sentence(self, level: LoadLevel) -> str:
        cpu, _ = self._apart(level)
        if abs(cpu) > CPU_BAND:
            what, share, asked = "CPU", level.cpu_share, self._config.cpu_share
        else:
            what, share, asked = "memory traffic", level.memory_share, self._config.memory_share
        reached = f"the host reached {share or 0.0:.2f} of {what}, {asked:.2f} asked"
        return f"{reached}: {self._reason(level)}"

    def _reason(self, level: LoadLevel) -> str:
        """Return the clause on what keeps the load from its shares.

        Others' CPU time counts towards the share, so they can make a host too busy, or leave too
        little time for copies, but they can't be why its CPUs are idle.
        """
        cpu, memory = self._apart(level)
        limit, _ = cpu_limit(LIVE)
        if cpu < 0 and limit is not None and limit < self._config.cpu_share * self._cpu_count:
            return f"a CPU quota of {limit:g} cores binds"
        other = level.other_cpu_share or 0.0
        is_too_busy = cpu > CPU_BAND and cpu - other <= CPU_BAND
        lacks_time = abs(cpu) <= CPU_BAND and memory < -MEMORY_BAND and _is_unmet(level)
        if other > NOTABLE and (is_too_busy or lacks_time):
            return (
                f"other processes take {other:.2f} of the CPUs; stop them, or give the run CPUs of "
                "its own (taskset)"
            )
        if (level.steal_share or 0.0) > NOTABLE:
            return f"the hypervisor takes {level.steal_share:.2f} of the CPUs"
        return self._own_reason(level)

    def _own_reason(self, level: LoadLevel) -> str:
        """Return the clause where nothing but the load and its settings can be the reason."""
        cpu, memory = self._apart(level)
        if cpu > CPU_BAND and not self._units:
            return "copies alone take more; use a smaller load.memory_share"
        if abs(cpu) <= CPU_BAND and memory < -MEMORY_BAND:
            return "copies need more CPU time; use a larger load.cpu_share"
        if cpu < -CPU_BAND and _is_unmet(level):
            return f"the load's threads did only {level.work_fraction:.2f} of their work"
        return f"it did not hold still within load.settle_max_s={self._config.settle_max_s:g}"


def _is_unmet(level: LoadLevel) -> bool:
    """Return whether the load's threads had no time for part of their work."""
    return level.work_fraction is not None and level.work_fraction < UNMET
