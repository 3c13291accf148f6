"""One run's load on one host: settled without the workload, then left as it is, then checked."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from wattload.core.host.counters import format_cpus
from wattload.core.host.memory_traffic import find_meter, memory_rate
from wattload.core.record.host import (
    NONE,
    LoadLevel,
    LoadRecord,
    LoadWindow,
    MemoryMeter,
    kept_fraction,
)
from wattload.core.sysfs import Observation
from wattload.run.host_load.config import Busy, thread_bytes
from wattload.run.host_load.process import LoadProcess
from wattload.run.host_load.settling import (
    NO_COUNTS,
    HostMeter,
    Peak,
    Reading,
    Settled,
    Settling,
    measure_peak,
)
from wattload.run.phases import PhaseRecorder

SETTLE_PHASE, ALONE_PHASE, AFTER_PHASE = "load_settle", "load_alone", "load_after"

NO_SHARES = "this program takes no shares"
NO_PEAK = "this program has no phase in which it only copies"
NO_QUOTAS = "this program takes no quotas"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A process of the run on this host, and the CPUs that it may use."""

    pid: int
    cpus: frozenset[int]


def is_wanted(config: Any) -> bool:  # noqa: ANN401 - the Config of any load
    return bool(config.name != NONE)


class LoadSession:
    """The load of one host, on the CPUs that the run's ranks there may use."""

    def __init__(
        self,
        config: Any,  # noqa: ANN401 - the Config of any load
        *,
        host: str,
        ranks: Sequence[Rank],
        recorder: PhaseRecorder,
    ) -> None:
        """Plan a load for all ``ranks`` of the host; nothing is started yet."""
        self._config, self._host, self._recorder = config, host, recorder
        self._cpus: Collection[int] = sorted(frozenset().union(*(rank.cpus for rank in ranks)))
        self._pids = [rank.pid for rank in ranks]
        self._process: LoadProcess | None = None
        self._meter: HostMeter | None = None
        self._peak: Peak | None = None
        self._theoretical, self._no_theory = memory_rate()
        self._settled: Settled | None = None
        self._levels: list[LoadLevel] = []
        self._kind: MemoryMeter = "self_reported"
        self._remarks: tuple[str, ...] = ()
        self._settled_at: Reading | None = None
        self._edges: list[Reading] = []
        """Where windows with a timed phase began and ended, in turn."""
        self._open_count = 0
        self._lock = threading.Lock()

    def settle(self) -> None:
        """Start the load, bring it to its shares, and measure its level alone.

        Raises:
            RunError: it can't be started, does not reach its shares, or dies.
        """
        config = self._config
        with self._phase(SETTLE_PHASE, config.expected_s - config.alone_s):
            process, meter = self._start()
            if isinstance(config, Busy):
                self._settled = self._settle_shares(config, process, meter)
                alone = self._settled.alone
            else:
                time.sleep(config.warm_up_s)
                alone = self._level("alone", meter, config.alone_s)
        self._recorder.add_span(ALONE_PHASE, alone.start_ns, alone.end_ns)
        self._levels.append(alone)
        self._settled_at = meter.read()
        self._recorder.at_timed_edge = self._see_edge

    def _start(self) -> tuple[LoadProcess, HostMeter]:
        config, found = self._config, find_meter()
        if isinstance(config, Busy):
            process = LoadProcess(list(self._cpus), thread_bytes=thread_bytes(self._cpus))
        else:
            process = LoadProcess(list(self._cpus), program=config.program())
        self._process = process
        self._recorder.tree.exclude(process.pid)
        self._remarks = found.remarks
        self._meter = HostMeter(
            process, host=self._host, cpus=self._cpus, ranks=self._pids, found=found
        )
        self._kind = self._meter.kind
        return process, self._meter

    def _settle_shares(self, config: Busy, process: LoadProcess, meter: HostMeter) -> Settled:
        self._peak = meter.peak = measure_peak(process, meter)
        return Settling(
            config,
            cpu_count=len(self._cpus),
            peak=self._peak,
            reference_bytes_per_s=self._reference() or self._peak.traffic_bytes_per_s,
            set_quotas=lambda copied, units: process.set("QUOTAS", copy_bytes=copied, units=units),
            measure=lambda seconds: self._level("alone", meter, seconds),
        ).settle()

    def _reference(self) -> float | None:
        if getattr(self._config, "memory_of", "theoretical") == "theoretical":
            return self._theoretical
        return self._peak.traffic_bytes_per_s if self._peak is not None else None

    def _see_edge(self, begins: bool) -> None:
        """Read the counters where the first of the timed phases begins or the last one ends."""
        if self._meter is None or self._process is None or self._process.died_s is not None:
            return
        with self._lock:
            if not (self._open_count if begins else self._open_count - 1):
                self._edges.append(self._meter.read())
            self._open_count += 1 if begins else -1

    def end(self) -> None:
        """Measure the level during the workload and the level alone again, and end the load.

        Raises:
            RunError: the load has died.
        """
        settled_at, meter = self._settled_at, self._meter
        if settled_at is None or meter is None:
            return
        self._recorder.at_timed_edge = None
        edges = self._edges or [settled_at]
        if len(edges) % 2:  # a phase did not end, or none was timed
            edges.append(meter.read())
        gaps = list(zip(edges[1:-1:2], edges[2::2], strict=True))
        self._levels.append(
            meter.level("during", edges[0], edges[-1], self._reference(), gaps=gaps)
        )
        with self._phase(AFTER_PHASE, self._config.alone_s):
            self._levels.append(self._level("after", meter, self._config.alone_s))
        self.close()

    def _level(self, window: LoadWindow, meter: HostMeter, seconds: float) -> LoadLevel:
        first = meter.read()
        time.sleep(seconds)
        return meter.level(window, first, meter.read(), self._reference())

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Raise ``RunError`` if the load dies in the block, in place of what that causes."""
        try:
            yield
        except BaseException as error:
            death = self._process.death() if self._process is not None else None
            if death is None or death is error:
                raise
            raise death from error
        if self._process is not None and (death := self._process.death()) is not None:
            raise death

    def _phase(self, name: str, expected_s: float) -> AbstractContextManager[Any]:
        return self._recorder.phase(name, timed=False, expected_s=expected_s)

    def close(self) -> None:
        """End the load, however far it came."""
        self._recorder.at_timed_edge = None
        if self._process is not None:
            self._process.close()
        if self._meter is not None:
            self._meter.close()
            self._meter = None

    def record(self) -> LoadRecord | None:
        """Return the load's record; ``None`` if it was not started."""
        if self._process is None or not self._levels:
            return None
        config, peak, settled = self._config, self._peak, self._settled
        is_busy = isinstance(config, Busy)
        observation = Observation()
        put = observation.put
        put("cpu_share_asked", config.cpu_share if is_busy else None, NO_SHARES)
        put("memory_share_asked", config.memory_share if is_busy else None, NO_SHARES)
        measured = peak.traffic_bytes_per_s if peak is not None else None
        put("measured_peak_bytes_per_s", measured, NO_PEAK)
        put("theoretical_peak_bytes_per_s", self._theoretical, self._no_theory)
        put("peak_bytes_per_s", self._reference(), self._no_theory)
        put("settle_s", settled.seconds if settled else None, NO_SHARES)
        quotas = settled.quotas if settled is not None else None
        put("copy_bytes_per_s_quota", quotas.copied_bytes_per_s if quotas else None, NO_QUOTAS)
        put("arithmetic_per_s_quota", quotas.units_per_s if quotas else None, NO_QUOTAS)
        put("kept_fraction", kept_fraction(self._levels), NO_COUNTS)
        return observation.build(
            LoadRecord,
            host=self._host,
            name=config.name,
            program=self._process.words if is_busy else " ".join(config.program()),
            cpus=format_cpus(set(self._cpus)),
            thread_count=len(self._cpus) if is_busy else config.thread_count,
            meter=self._kind,
            peak_of=config.memory_of if is_busy else "theoretical",
            remarks=self._remarks,
            levels=tuple(self._levels),
        )
