"""How busy a host is between two moments, as a ``LoadLevel``."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import partial

from wattload.core.host.counters import PRESSURES, ProcessTree, pressure_s
from wattload.core.host.cpu_time import CpuShares, CpuTime
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
        self, stretch: Stretch, first: Reading, last: Reading, peak_bytes_per_s: float | None
    ) -> LoadLevel:
        """Return the level between two readings; its memory share is of the peak."""
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
            end_ns=last.cpu.time_ns,
            cpu_share=cpu.busy,
            steal_share=cpu.steal,
            load_cpu_share=load,
            run_cpu_share=run,
            other_cpu_share=max(cpu.busy - load - run, 0.0),
        )

    def close(self) -> None:
        """Stop counting."""
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
