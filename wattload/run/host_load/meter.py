"""How busy a host is between two moments, as a ``LoadLevel``."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from wattload.core.host.counters import PRESSURES, CpuShares, CpuTime, ProcessTree, pressure_s
from wattload.core.host.memory_traffic import FoundMeter
from wattload.core.record.load import LoadLevel, MemoryMeter, Stretch
from wattload.core.sysfs import LIVE, Observation, Roots, explain
from wattload.core.units import NS_PER_S
from wattload.loaders.engine.load import LoadCounts
from wattload.run.host_load.client import LoadProcess

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
        stretch: Stretch,
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
            stretch=stretch,
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
