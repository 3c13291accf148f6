"""Energy per phase from the chosen drive-scope sources, with the evidence for each figure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from wattload.core.checks.verdicts import meter_of
from wattload.core.power import EVIDENCE_RANK, Evidence, Scope, SourceFacts, weakest
from wattload.core.record.energy import FOLLOWED, EnergyRecord, PowerStateShare
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.runs.phases import Phase, counted_phases, leading, overlap, timed_parts
from wattload.results.identity_cache import cache_by_identity
from wattload.results.quantity import DIGITS, MISSING, bounded_quantity, quantity, with_uncertainty
from wattload.results.reading import asked, view_of

RANKS = frozenset({Evidence.MEASURED, Evidence.SELF_REPORTED, Evidence.ESTIMATED})
"""Evidence good enough to decide which arm is better."""

ALL_PHASES = "all timed phases"
REPLAYED = "replayed from another run, not measured here"
"""The text for a recording replayed from its start: its joules were measured in another run."""

SOFT_BOUND = (
    "A lower bound is soft: it is the typical idle power of the power state, not its minimum, so "
    "the drive may have used less"
)
"""The text for bounds: IDLP of a power state descriptor is typical, so this end is soft."""

EVIDENCE_TEXT = {
    Evidence.MEASURED: "measured by a meter or a rail sensor",
    Evidence.SELF_REPORTED: "measured and reported by the device",
    Evidence.ESTIMATED: "estimated by the device",
    Evidence.BOUNDS: "bounds from power states, not measured",
    Evidence.DECLARED: "declared in a data sheet or by the user, not measured",
    Evidence.NONE: "unknown",
}
DECLARED_READINGS = "declared by the user, as scope or accuracy is not stated"
"""The text for readings of a meter of which the user has not stated what decides a comparison."""
SIMULATED = "simulated readings"
"""The text for readings of a simulated drive, whose watts are invented."""

_SIMULATED_VENDOR = "0x1b36"  # QEMU's PCI vendor id: there is no drive behind it
_SIMULATED_MODELS = ("QEMU", "VIRTUAL DRIVE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Energy of all drives in one phase, in joules: a figure, an interval, or a reason.

    ``energy_j`` is energy in the window, ``work_j`` that for the work: with ``tail_j``, the energy
    above idle power in the rest of ``rest_s`` after the phase. ``is_at_least`` is whether a drive
    was still above idle power at the end of that rest. Without a tail, ``no_tail`` is why.
    The window of a drive is the time in which its host was in the phase. ``mean_w`` is the sum of
    the drives' mean powers, each over its own window, ``lower_w`` and ``upper_w`` are its bounds.
    Where hosts end apart, joules divided by the time until the last end are no power of the drives.
    ``keys`` names the summed sources, ``moved_bytes`` is what the application moved meanwhile, and
    ``seconds`` for how long any host was in the phase.
    ``amount`` is how much it did meanwhile of what a joule pays for, by its view, and
    ``amount_name`` the name of one.
    ``recorded`` is whether the figure is from a recorded trace, ``replayed`` whether that trace is
    of another run.
    ``has_declared_readings`` is as of ``SourceFacts``.
    """

    phase: str
    seconds: float
    moved_bytes: int
    evidence: Evidence
    amount: int | None = None
    amount_name: str = ""
    energy_j: float | None = None
    lower_j: float | None = None
    upper_j: float | None = None
    mean_w: float | None = None
    lower_w: float | None = None
    upper_w: float | None = None
    net_j: float | None = None
    uncertainty_j: float | None = None
    tail_j: float | None = None
    tail_uncertainty_j: float | None = None
    work_uncertainty_j: float | None = None
    rest_s: float = 0.0
    is_at_least: bool = False
    no_tail: str = ""
    keys: tuple[str, ...] = ()
    reason: str = ""
    simulated: bool = False
    recorded: bool = False
    replayed: bool = False
    has_declared_readings: bool = False

    @property
    def ranks(self) -> bool:
        return self.illustrates and not self.simulated

    @property
    def illustrates(self) -> bool:
        """Whether the figure may decide a comparison, or could if its drive were not simulated."""
        return self.energy_j is not None and self.evidence in RANKS and not self.replayed

    @property
    def bytes_per_j(self) -> float | None:
        """Bytes moved divided by the energy meanwhile: MB/s per W when divided by 1e6.

        This is the rate divided by ``mean_w`` if all hosts were in the phase for as long.
        """
        if self.energy_j is None or self.energy_j <= 0:
            return None
        return self.moved_bytes / self.energy_j

    @property
    def amount_per_j(self) -> float | None:
        if self.amount is None or self.energy_j is None or self.energy_j <= 0:
            return None
        return self.amount / self.energy_j

    @property
    def work_j(self) -> float | None:
        """Energy for the work: that in the window and the tail; ``None`` without a tail."""
        if self.energy_j is None or self.tail_j is None:
            return None
        return self.energy_j + self.tail_j

    @property
    def work_j_per_byte(self) -> float | None:
        """Energy for the work divided by the bytes moved: J per GB when multiplied by 1e9."""
        if self.work_j is None or not self.moved_bytes:
            return None
        return self.work_j / self.moved_bytes

    @property
    def work_amount_per_j(self) -> float | None:
        if self.amount is None or self.work_j is None or self.work_j <= 0:
            return None
        return self.amount / self.work_j

    @property
    def words(self) -> str:
        """The evidence for the figure, in words."""
        return evidence_text(
            self.evidence,
            recorded=self.recorded,
            replayed=self.replayed,
            simulated=self.simulated,
            has_declared_readings=self.has_declared_readings,
        )


def evidence_text(
    evidence: Evidence,
    *,
    recorded: bool,
    replayed: bool,
    simulated: bool,
    has_declared_readings: bool = False,
) -> str:
    """Return the evidence for a figure, in words; recordings and simulations are marked."""
    if replayed:
        return REPLAYED
    text = SIMULATED if simulated and evidence in RANKS else EVIDENCE_TEXT[evidence]
    if has_declared_readings and evidence is Evidence.DECLARED:
        text = DECLARED_READINGS
    return text + (" (recorded trace)" if recorded else "")


def sources_of(record: RunRecord) -> Mapping[tuple[str, str, str], SourceFacts]:
    """Return the facts of each source of a run, by host, name and device."""
    return {
        (source.host, source.facts.name, source.facts.device): source.facts
        for source in record.power.sources
        if source.facts is not None
    }


@cache_by_identity
def phase_energies(record: RunRecord) -> tuple[Energy, ...]:
    """Return the energy of each leading timed phase, with a reason where there is none.

    Those of parts of phases follow; they are never added to the others.
    """
    return tuple(_of_phase(record, phase) for phase in (*leading(record), *timed_parts(record)))


def measured_drives(record: RunRecord) -> frozenset[tuple[str, str]]:
    """Return the first host and the name of each drive with an energy."""
    return frozenset(
        record.drive_of(part.host, part.device)
        for part in record.power.energy
        if part.chosen and part.scope is Scope.DRIVE
    )


def _of_phase(record: RunRecord, phase: Phase) -> Energy:
    parts = record.drive_energies(phase.name)
    if unread := record.unread_drives(phase.name) if parts else ():
        is_one = len(record.hosts) == 1
        names = ", ".join(drive if is_one else f"{drive} of {host}" for host, drive in unread)
        reason = f"no energy figure for {names}: {record.power.choice}"
    elif not parts:
        reason = record.power.unmeasured_text
    else:
        return _summed(record, parts, phase)
    return Energy(
        phase=phase.name,
        seconds=phase.active_s,
        moved_bytes=phase.moved_bytes,
        evidence=Evidence.NONE,
        reason=reason,
    )


def _summed(record: RunRecord, parts: Sequence[EnergyRecord], phase: Phase) -> Energy:
    known = sources_of(record)
    facts = [known.get((part.host, part.source, part.device)) for part in parts]
    impossible = next(filter(None, map(_impossible, parts)), "")
    return Energy(
        phase=phase.name,
        seconds=phase.active_s,
        moved_bytes=phase.moved_bytes,
        amount=amount_of(record, phase.name),
        amount_name=joule.one if (joule := view_of(record).joule) is not None else "",
        evidence=weakest(part.evidence for part in parts),
        **(_sums(record, parts, parts) | (_IMPOSSIBLE if impossible else {})),
        tail_j=_sum(parts, "tail_j"),
        tail_uncertainty_j=_sum(parts, "tail_uncertainty_j"),
        work_uncertainty_j=_sum(parts, "work_uncertainty_j"),
        rest_s=min(part.rest_s for part in parts),
        is_at_least=any(part.is_at_least for part in parts),
        no_tail=_no_tail(part.missing.get("tail_j", "") for part in parts),
        keys=tuple(f"{part.device} ({part.source})" for part in parts),
        reason=impossible or next((part.missing.get("energy_j", "") for part in parts), ""),
        simulated=is_simulated(record),
        recorded=any(each.is_recorded for each in facts if each is not None),
        replayed=any(each.is_of_another_run for each in facts if each is not None),
        has_declared_readings=any(each.has_declared_readings for each in facts if each is not None),
    )


_IMPOSSIBLE = {"energy_j": None, "mean_w": None}


def _sums(
    record: RunRecord,
    energies: Sequence[EnergyRecord] | Sequence[Energy],
    parts: Iterable[EnergyRecord],
) -> dict[str, Any]:
    """Return the sums of energies in the window, and of the mean powers of drives in ``parts``."""
    of_drives: dict[tuple[str, str], list[EnergyRecord]] = {}
    for part in parts:
        of_drives.setdefault(record.drive_of(part.host, part.device), []).append(part)
    names = ("energy_j", "lower_j", "upper_j", "net_j", "uncertainty_j")
    sums = {name: _sum(energies, name) for name in names}
    for power, name in (("mean_w", "energy_j"), ("lower_w", "lower_j"), ("upper_w", "upper_j")):
        watts = [_mean_w(own, name) for own in of_drives.values()]
        sums[power] = None if sums[name] is None else _total(watts)
    return sums


def _mean_w(parts: Sequence[EnergyRecord], name: str) -> float | None:
    joules, seconds = _sum(parts, name), sum(part.seconds for part in parts)
    return None if joules is None or not seconds else joules / seconds


def amount_of(record: RunRecord, phase: str) -> int | None:
    """Return how much a run did in a phase of what a joule pays for, if that is not bytes."""
    joule = view_of(record).joule
    return asked(record, lambda run: joule.count(run, phase), None) or None if joule else None


def _impossible(part: EnergyRecord) -> str:
    """Return why an energy is physically impossible; empty if it is possible."""
    if part.energy_j is None or part.energy_j > 0:
        return ""
    return f"the record has {part.energy_j:.3g} J for {part.device}; energy must be positive"


def _sum(parts: Sequence[EnergyRecord] | Sequence[Energy], field: str) -> float | None:
    """Return the sum, or ``None`` if a part is missing; uncertainties add linearly (worst case)."""
    return _total([getattr(part, field) for part in parts])


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None


def scope_energy_j(record: RunRecord, scope: Scope, phase: str) -> float | None:
    """Return the energy of all devices of a scope in joules; ``None`` if a part is missing.

    It is ``None``, too, if several phases share time, which a sum would count twice.

    Args:
        record: the run.
        scope: which devices: energies of different scopes are never added.
        phase: the name of a leading phase or a part, or ``ALL_PHASES``.
    """
    joules = [part.energy_j for part in _parts_of(record, scope, phase)]
    known = [each for each in joules if each is not None and each > 0]
    return math.fsum(known) if known and len(known) == len(joules) else None


def node_limits(records: Iterable[RunRecord], phase: str) -> Iterator[str]:
    """Yield what each meter of a node can't show between two runs, by its coarsest window.

    Only runs with an energy of the node in ``phase``, as of ``scope_energy_j``, count.
    """
    coarsest: dict[str, tuple[float, float]] = {}
    for record in records:
        if scope_energy_j(record, Scope.NODE, phase) is None:
            continue
        for part in _parts_of(record, Scope.NODE, phase):
            if watts := part.least_difference_w:
                known = coarsest.get(part.source, (0.0, 0.0))
                coarsest[part.source] = max(known, (watts, part.seconds))
    for source, (watts, seconds) in coarsest.items():
        yield (
            f"{source} can't show a difference below {quantity(watts, Unit.WATTS, 2)} between two "
            f"runs of {quantity(seconds, Unit.SECONDS, 3)}"
        )


def _parts_of(record: RunRecord, scope: Scope, phase: str) -> list[EnergyRecord]:
    """Return the energies that make up a scope's in a phase; none if phases share time.

    Of the GPUs of a host only those count that the run used, where it names them and their sources
    have addresses.
    """
    found = counted_phases(record, phase, every=(ALL_PHASES, ""))
    phases = () if overlap(found) else [each.name for each in found]
    parts = [
        part
        for part in record.power.energy
        if part.scope is scope and part.chosen and part.phase in phases
    ]
    if scope is Scope.GPU:
        return _of_used_gpus(record, parts)
    return _of_widest_meters(parts) if scope is Scope.NODE else parts


def _of_widest_meters(parts: Sequence[EnergyRecord]) -> list[EnergyRecord]:
    """Return the parts of one source for each host: what several measure of a node overlaps.

    It is that with the strongest evidence, and of equals that with the most energy, as it measures
    most of the node.
    """
    found: dict[str, dict[str, list[EnergyRecord]]] = defaultdict(lambda: defaultdict(list))
    for part in parts:
        found[part.host][part.source].append(part)

    def width(own: Sequence[EnergyRecord]) -> tuple[int, float]:
        joules = sum(each.energy_j or 0.0 for each in own)
        return -EVIDENCE_RANK[weakest(each.evidence for each in own)], joules

    return [part for sources in found.values() for part in max(sources.values(), key=width)]


def _of_used_gpus(record: RunRecord, parts: Sequence[EnergyRecord]) -> list[EnergyRecord]:
    """Return the parts of the GPUs that a run used; all of them if it can't be said which.

    A meter without an address may measure the same GPUs as a source on its host that has some.
    """
    known = sources_of(record)
    facts = [known.get((part.host, part.source, part.device)) for part in parts]
    addresses = ["" if each is None else each.pci_address for each in facts]
    placed = [(part, a) for part, a in zip(parts, addresses, strict=True) if a]
    hosts = {part.host for part, _ in placed}
    unplaced = [part for part, a in zip(parts, addresses, strict=True) if part.host not in hosts]
    used = _used_gpus(record)
    return [*(part for part, a in placed if not used or (part.host, a) in used), *unplaced]


def _used_gpus(record: RunRecord) -> set[tuple[str, str]]:
    """Return the GPUs that reads ended in, by host and PCI address, where a run names them."""
    hosts = {each.rank: each.host for each in record.ranks}
    none: Iterable[tuple[int, str]] = ()
    used = asked(record, view_of(record).gpus, none)
    return {(hosts.get(rank, ""), address) for rank, address in used}


@cache_by_identity
def whole_energy(record: RunRecord) -> Energy | None:
    """Return the energy of all leading phases together.

    ``None`` if there is one phase only, or if phases share time, which a sum would count twice. Its
    tail is the sum of those that phases have. A phase without one must have been followed by
    another, in whose window its energy then is; otherwise the whole has no tail.
    """
    phases = leading(record)
    energies = phase_energies(record)[: len(phases)]
    if len(phases) < 2 or overlap(phases):  # noqa: PLR2004 - one phase is its own whole
        return None

    tails = [energy for energy in energies if energy.tail_j is not None]
    of_work = [
        energy.uncertainty_j if energy.tail_j is None else energy.work_uncertainty_j
        for energy in energies
    ]
    without = [energy for energy in energies if energy.tail_j is None]
    has_tail = bool(tails) and all(energy.no_tail.endswith(FOLLOWED) for energy in without)
    return Energy(
        phase=ALL_PHASES,
        seconds=sum(energy.seconds for energy in energies),
        moved_bytes=sum(energy.moved_bytes for energy in energies),
        evidence=weakest(energy.evidence for energy in energies),
        **_sums(record, energies, chain(*(record.drive_energies(p.name) for p in phases))),
        tail_j=_sum(tails, "tail_j") if has_tail else None,
        tail_uncertainty_j=_sum(tails, "tail_uncertainty_j") if has_tail else None,
        work_uncertainty_j=_total(of_work) if has_tail else None,
        rest_s=sum(energy.rest_s for energy in tails) if has_tail else 0.0,
        is_at_least=any(energy.is_at_least for energy in tails),
        no_tail="" if has_tail else _no_tail(energy.no_tail for energy in without),
        keys=energies[0].keys,
        reason=next((energy.reason for energy in energies if energy.reason), ""),
        simulated=is_simulated(record),
        recorded=any(energy.recorded for energy in energies),
        replayed=any(energy.replayed for energy in energies),
        has_declared_readings=any(energy.has_declared_readings for energy in energies),
    )


def _no_tail(reasons: Iterable[str]) -> str:
    """Return why there is no tail, of several reasons one by which energy is in no window."""
    found = list(filter(None, reasons))
    return next((each for each in found if not each.endswith(FOLLOWED)), next(iter(found), ""))


def every_energy(record: RunRecord) -> list[Energy]:
    """Return the energy of each leading phase, of parts of phases, and of the whole job."""
    return [*phase_energies(record), *filter(None, [whole_energy(record)])]


def is_simulated(record: RunRecord) -> bool:
    """Return whether a controller is emulated, so that its power figures are made up."""
    return any(
        controller.facts.vendor_id == _SIMULATED_VENDOR
        or any(mark in (controller.facts.model or "").upper() for mark in _SIMULATED_MODELS)
        for controller in record.controllers
    )


def is_doubted(record: RunRecord, energy: EnergyRecord) -> bool:
    """Return whether a check left the energy of a GPU's or a node's meter unchecked."""
    return any(meter_of(energy) in check.doubted_meters for check in record.checks)


def has_doubted_meter(record: RunRecord, scope: Scope) -> bool:
    """Return whether an energy of this scope was chosen whose meter is in doubt."""
    return any(
        part.chosen and part.scope is scope and is_doubted(record, part)
        for part in record.power.energy
    )


def energy_text(energy: Energy | EnergyRecord | PowerStateShare, digits: int = DIGITS) -> str:
    """Return the energy in the window as printed: ≤ for a maximum, both ends for bounds."""
    return bounded_quantity(energy.energy_j, energy.lower_j, energy.upper_j, Unit.JOULES, digits)


def tail_text(energy: Energy | EnergyRecord) -> str:
    """Return the tail as printed, with its uncertainty and the time in which it was measured."""
    if energy.tail_j is None:
        return MISSING
    # Idle energy is subtracted, which leaves 1e-14 J of a steady power; no meter shows 1 µJ.
    text = quantity(round(energy.tail_j, 6) + 0.0, Unit.JOULES, 3)
    if energy.tail_uncertainty_j is not None:
        text = with_uncertainty(energy.tail_j, energy.tail_uncertainty_j, Unit.JOULES)
    at_least = "at least " if energy.is_at_least else ""
    return f"{at_least}{text} within {quantity(energy.rest_s, Unit.SECONDS, 3)}"


def power_text(energy: Energy) -> str:
    """Return the mean power as printed, like ``energy_text``."""
    return bounded_quantity(energy.mean_w, energy.lower_w, energy.upper_w, Unit.WATTS)
