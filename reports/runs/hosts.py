"""What each host of a run did: its drives, bytes and energy; and which host was the slowest."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.reports.runs.energy import Energy, phase_energies, whole_energy
from wattload.reports.runs.phases import leading
from wattload.results.identity_cache import cache_by_identity

SAME_END_SHARE = 0.01
"""Hosts that end a phase within this share of its length are equally late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostShare:
    """The part that hosts had in the timed phases of a run: one host, or all of them.

    ``energy`` is that of their drives in all timed phases; ``None`` without a timed phase, and for
    phases that share time. ``active_s`` is the time in which any of their ranks was in a phase.
    ``clock_bound_s`` is how far their times may be off on the clock of the first host, which has
    none; ``None``, too, if it was not measured.
    """

    name: str
    rank_count: int
    drives: tuple[str, ...]
    read_bytes: int
    written_bytes: int
    active_s: float
    energy: Energy | None
    clock_bound_s: float | None

    @property
    def bytes_per_s(self) -> float | None:
        moved_bytes = self.read_bytes + self.written_bytes
        return moved_bytes / self.active_s if moved_bytes and self.active_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowest:
    """The slowest host in the timed phase whose ends are farthest apart.

    ``behind_s`` is how much later the last host ended than ``first``, ``seconds`` the length of the
    phase; of a phase of several ``parts``, such as epochs, the sums over these. If it is more than
    ``SAME_END_SHARE`` of that, and than the clocks are known, the slowest host is the last to end.
    Else hosts waited for each other, or worked for a fixed time: then it is the one whose drives
    moved the least per busy second, or the least by rank if that was not counted. ``rates`` has the
    bytes per second of each host that was in the phase, ``busy_rates`` those of its drives while
    they had requests in flight; empty if not all were counted.
    """

    phase: str
    host: str
    first: str
    behind_s: float
    seconds: float
    parts: int
    is_last: bool
    rates: Mapping[str, float]
    busy_rates: Mapping[str, float]

    @property
    def spread(self) -> float:
        """The range of the hosts' rates, as a share of their mean."""
        rates = self.rates.values()
        return (max(rates) - min(rates)) * len(rates) / sum(rates)


@cache_by_identity
def shares_of(record: RunRecord) -> tuple[HostShare, ...]:
    """Return what each host did, in the order of the record; empty for a run of one host."""
    if len(record.hosts) == 1:
        return ()
    return tuple(
        _share(
            _of_host(record, host.facts.name), host.facts.name, _bound_s(record, host.facts.name)
        )
        for host in record.hosts
    )


def whole_share(record: RunRecord) -> HostShare:
    """Return what all hosts did together."""
    bounds = [_bound_s(record, host.facts.name) for host in record.hosts[1:]]
    known = [bound for bound in bounds if bound is not None]
    name = f"all {len(record.hosts)} hosts"
    return _share(record, name, max(known) if known and len(known) == len(bounds) else None)


def _of_host(record: RunRecord, host: str) -> RunRecord:
    """Return the parts of a record that are of one host, as if it had been the only one."""
    power = record.power.model_copy(
        update={
            name: tuple(each for each in getattr(record.power, name) if each.host == host)
            for name in ("sources", "energy", "states", "hosts")
        }
    )
    choices = [each.choice for each in power.hosts]
    power = power.model_copy(update={"choice": choices[0] if choices else power.choice})
    own = {
        name: tuple(each for each in getattr(record, name) if each.host == host)
        for name in ("ranks", "spans", "halves", "counters")
    }
    facts = {
        name: tuple(each for each in getattr(record, name) if each.facts.host == host)
        for name in ("targets", "controllers")
    }
    hosts = tuple(each for each in record.hosts if each.facts.name == host)
    return record.model_copy(update={**own, **facts, "hosts": hosts, "power": power})


def _share(record: RunRecord, name: str, bound_s: float | None) -> HostShare:
    phases, energies = leading(record), phase_energies(record)
    return HostShare(
        name=name,
        rank_count=len({span.rank for span in record.spans}),
        drives=tuple(dict.fromkeys(_drives(record))),
        read_bytes=sum(phase.read_bytes for phase in phases),
        written_bytes=sum(phase.written_bytes for phase in phases),
        active_s=sum(phase.active_s for phase in phases),
        energy=whole_energy(record) or (energies[0] if len(phases) == 1 else None),
        clock_bound_s=bound_s,
    )


def _drives(record: RunRecord) -> list[str]:
    """Return a host's drives by model and serial, or else the block devices of its targets."""
    drives = [f"{each.facts.model or 'NVMe'} {each.facts.serial}" for each in record.controllers]
    return drives or [device for each in record.targets for device in each.facts.devices]


def _bound_s(record: RunRecord, host: str) -> float | None:
    bound_ns = record.clock.bound_ns(host)
    return None if bound_ns is None else bound_ns / NS_PER_S


@cache_by_identity
def slowest_of(record: RunRecord) -> Slowest | None:
    """Return the slowest host of a run; ``None`` for one host, and if no host moved bytes."""
    found = [slowest for phase in leading(record) if (slowest := _slowest(record, phase.name))]
    return max(found, key=lambda each: each.behind_s, default=None)


def _slowest(record: RunRecord, phase: str) -> Slowest | None:
    windows = [
        window
        for window in record.windows
        if window.name == phase and window.active_s and window.read_bytes + window.written_bytes
    ]
    if len(windows) < 2:  # noqa: PLR2004 - nothing to compare
        return None
    rates = {each.host: (each.read_bytes + each.written_bytes) / each.active_s for each in windows}
    by_rank = {each.host: rates[each.host] / each.rank_count for each in windows}
    busy_rates = _busy_rates(record, phase)
    speeds = busy_rates if busy_rates.keys() == rates.keys() else by_rank
    parts = len(windows[0].intervals)
    if any(len(each.intervals) != parts for each in windows):
        parts = 1  # only the last end is that of one part
    ends_s = {
        each.host: [
            record.clock.ns(each.host, end_ns) / NS_PER_S for _, end_ns in each.intervals[-parts:]
        ]
        for each in windows
    }
    late_s = {host: math.fsum(own) for host, own in ends_s.items()}
    first, last = min(late_s, key=late_s.__getitem__), max(late_s, key=late_s.__getitem__)
    behind_s, seconds = late_s[last] - late_s[first], max(each.active_s for each in windows)
    known_s = parts * sum(_bound_s(record, host) or 0.0 for host in (first, last))
    is_last = behind_s > max(SAME_END_SHARE * seconds, known_s)
    return Slowest(
        phase=phase,
        host=last if is_last else min(speeds, key=speeds.__getitem__),
        first=first,
        behind_s=behind_s,
        seconds=seconds,
        parts=parts,
        is_last=is_last,
        rates=rates,
        busy_rates=busy_rates if speeds is busy_rates else {},
    )


def _busy_rates(record: RunRecord, phase: str) -> dict[str, float]:
    """Return the bytes per second of the drives of hosts while they had requests in flight."""
    moved_bytes: defaultdict[str, int] = defaultdict(int)
    busy_s: defaultdict[str, float] = defaultdict(float)
    for counter in record.counters:
        if counter.phase == phase and None not in (counter.read_bytes, counter.written_bytes):
            moved_bytes[counter.host] += (counter.read_bytes or 0) + (counter.written_bytes or 0)
            busy_s[counter.host] += counter.busy_s or 0.0
    return {host: moved_bytes[host] / seconds for host, seconds in busy_s.items() if seconds}
