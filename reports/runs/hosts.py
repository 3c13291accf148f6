"""What each host of a run did: its drives, bytes and energy; and which host ended last."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.reports.runs.energy import Energy, phase_energies, whole_energy
from wattload.reports.runs.phases import leading
from wattload.results.identity_cache import cache_by_identity
from wattload.results.quantity import counted, listed

SAME_END_SHARE = 0.01
"""Hosts that end a phase within this share of its length are equally late."""

SAME_BYTES_SHARE = 0.01
"""Hosts whose bytes differ by up to this share moved as much."""

SIMILAR_BYTES_SHARE = 0.1
"""Drives of hosts whose bytes differ by more than this share had different work."""

SAME_RATE_SHARE = 0.05
"""Rates of hosts that differ by up to this share are the same."""

DRIVE_BUSY = 0.7
"""The least share of the time in which a drive that limits a rate has requests in flight."""

_NAMED_MAX = 4
"""The most hosts that a sentence names; of more, it has only their number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostShare:
    """The part that hosts had in the timed phases of a run: one host, or all of them.

    ``energy`` is that of their drives in all timed phases; ``None`` without a timed phase, and for
    phases that share time. That of a drive of several hosts is in the share of each, and once in
    that of all. ``reading_s`` and ``writing_s`` are the time in which any of their ranks was in a
    phase that read, or that wrote. ``clock_bound_s`` is how far their times may be off on the clock
    of the first host, which has none; ``None``, too, if it was not measured.
    """

    name: str
    rank_count: int
    drives: tuple[str, ...]
    read_bytes: int
    written_bytes: int
    reading_s: float
    writing_s: float
    energy: Energy | None
    clock_bound_s: float | None

    @property
    def reading_bytes_per_s(self) -> float | None:
        return self.read_bytes / self.reading_s if self.reading_s else None

    @property
    def writing_bytes_per_s(self) -> float | None:
        return self.written_bytes / self.writing_s if self.writing_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """How far apart hosts ended a timed phase, on the clock of the first host.

    ``behind_s`` is how much later ``last`` ended than ``first``, ``seconds`` the length of the
    phase; of a phase of several ``parts``, such as epochs, the sums over these. ``known_s`` is how
    far ``behind_s`` may be off. ``rates`` has the bytes per second of each host that was in the
    phase, ``moved_bytes`` its bytes. ``busy_rates`` are those of its drives while they had requests
    in flight; empty if not all were counted or hosts had different work.
    """

    phase: str
    first: str
    last: str
    behind_s: float
    known_s: float
    seconds: float
    parts: int
    moved_bytes: Mapping[str, int]
    rates: Mapping[str, float]
    busy_rates: Mapping[str, float]

    @property
    def is_apart(self) -> bool:
        """Whether hosts ended more than ``SAME_END_SHARE`` of the phase apart."""
        return self.behind_s > SAME_END_SHARE * self.seconds

    @property
    def late_host(self) -> str | None:
        """The host that ended last; ``None`` if all ended together as far as clocks are known."""
        return self.last if self.is_apart and self.behind_s > self.known_s else None

    @property
    def has_uneven_bytes(self) -> bool:
        """Whether the last host to end moved other bytes than the first."""
        return not _alike([self.moved_bytes[self.first], self.moved_bytes[self.last]])

    @property
    def slow_drives_host(self) -> str | None:
        """The host whose drives were slower while busy than those of each other host.

        ``None`` if they had nothing to do for more of the time than a drive that limits a rate has.
        """
        if not self.busy_rates:
            return None
        slowest, following = sorted(self.busy_rates, key=self.busy_rates.__getitem__)[:2]
        rate = self.busy_rates[slowest]
        is_slower = rate < (1 - SAME_RATE_SHARE) * self.busy_rates[following]
        return slowest if is_slower and self.rates[slowest] >= DRIVE_BUSY * rate else None

    @property
    def lead(self) -> float:
        """How far the rate of the fastest host is above that of the slowest, as a share of it."""
        return max(self.rates.values()) / min(self.rates.values()) - 1


def _alike(moved_bytes: Collection[int], share: float = SAME_BYTES_SHARE) -> bool:
    return min(moved_bytes) >= (1 - share) * max(moved_bytes)


def names_text(hosts: Sequence[str]) -> str:
    """Return the names of hosts as in a sentence, or the number of many."""
    return listed(list(hosts)) if len(hosts) <= _NAMED_MAX else counted(len(hosts), "host")


def all_hosts_text(count: int) -> str:
    return "both hosts" if count == 2 else f"all {count} hosts"  # noqa: PLR2004 - both


@cache_by_identity
def shares_of(record: RunRecord) -> tuple[HostShare, ...]:
    """Return what each host did, in the order of the record, and what all did together.

    Empty for a run of one host, and one that ended before it knew its hosts.
    """
    names = [host.facts.name for host in record.hosts]
    if len(names) <= 1:
        return ()
    bounds_s = [_bound_s(record, name) for name in names]
    known_s = [bound_s for bound_s in bounds_s[1:] if bound_s is not None]
    whole_s = max(known_s) if len(known_s) == len(names) - 1 else None
    return (
        *(
            _share(_of_host(record, name), name, bound_s)
            for name, bound_s in zip(names, bounds_s, strict=True)
        ),
        _share(record, all_hosts_text(len(names)), whole_s),
    )


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
        reading_s=sum(phase.active_s for phase in phases if phase.read_bytes),
        writing_s=sum(phase.active_s for phase in phases if phase.written_bytes),
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
def ends_of(record: RunRecord) -> Ends | None:
    """Return the ends of the phase with a late host, or else of that whose ends are farthest apart.

    ``None`` for a run of one host, one that did not come to its end, and if fewer than two hosts
    moved bytes.
    """
    if record.status != "complete":
        return None
    found = [ends for phase in leading(record) if (ends := _ends(record, phase.name))]
    return max(found, key=lambda each: (each.late_host is not None, each.behind_s), default=None)


def _ends(record: RunRecord, phase: str) -> Ends | None:
    windows = [
        window
        for window in record.windows
        if window.name == phase and window.active_s and window.read_bytes + window.written_bytes
    ]
    if len(windows) < 2:  # noqa: PLR2004 - nothing to compare
        return None
    moved_bytes = {each.host: each.read_bytes + each.written_bytes for each in windows}
    parts = len(windows[0].intervals)
    if any(len(each.intervals) != parts for each in windows):
        parts = 1  # only the last end is that of one part
    late_s = {
        each.host: math.fsum(
            record.clock.ns(each.host, end_ns) / NS_PER_S for _, end_ns in each.intervals[-parts:]
        )
        for each in windows
    }
    first, last = min(late_s, key=late_s.__getitem__), max(late_s, key=late_s.__getitem__)
    busy_rates = _busy_rates(record, phase)
    is_same_work = (
        len({each.rank_count for each in windows}) == 1
        and _alike(moved_bytes.values(), SIMILAR_BYTES_SHARE)
        and busy_rates.keys() == moved_bytes.keys()
    )
    return Ends(
        phase=phase,
        first=first,
        last=last,
        behind_s=late_s[last] - late_s[first],
        known_s=parts * sum(_bound_s(record, host) or 0.0 for host in (first, last)),
        seconds=max(each.active_s for each in windows),
        parts=parts,
        moved_bytes=moved_bytes,
        rates={each.host: moved_bytes[each.host] / each.active_s for each in windows},
        busy_rates=busy_rates if is_same_work else {},
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
