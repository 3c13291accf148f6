"""How far to trust a workload's figures, and what limited its rate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from wattload.core.checks.conditions import CEILING_FACTOR, CEILING_SUFFIX, bounded_rate
from wattload.core.power import Evidence
from wattload.core.record.run import RunRecord
from wattload.reports.runs.energy import (
    ALL_PHASES,
    Energy,
    is_simulated,
    phase_energies,
    whole_energy,
)
from wattload.reports.runs.hosts import DRIVE_BUSY
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import Phase, counted_phases
from wattload.reports.stats.comparison import Row
from wattload.reports.stats.subject import LETTERS, Group, Subject
from wattload.results.quantity import TIMES, UNIT_SPACE, counted, number, percent
from wattload.results.reading import run_of, view_named, view_of
from wattload.results.view import Limit, WorkerShares, median_of_known

HIGH_PAIRS = 8
"""Pairs of runs, or runs of a single arm, for high confidence."""

_MOST = 0.5
"""The share of their time above which workers spent most of it on one thing."""

EVIDENCE = "trust"
"""The anchor of a page's checks and evidence."""

_UNMEASURED = frozenset({Evidence.BOUNDS, Evidence.DECLARED})

GradeWord = Literal["high", "medium", "low", "none", "single run", ""]


@dataclass(frozen=True, slots=True)
class Grade:
    """How far to trust a row: a word, its reason in six words at most, and where to read more.

    ``none`` is for figures that can't be trusted, and is shown as ``no grade``. ``single run`` is
    for one run with nothing to be compared with. Without figures ``word`` is empty, and ``reason``
    is why.
    ``is_short`` is whether there are too few runs for any verdict.
    """

    word: GradeWord
    reason: str
    is_short: bool = False
    link: str = EVIDENCE

    @property
    def label(self) -> str:
        return "no grade" if self.word == "none" else self.word

    @property
    def text(self) -> str:
        """The word as it is shown, with its reason."""
        return f"{self.label}: {self.reason}" if self.word else self.reason


def grade(subject: Subject, compared: Group, rate: Row | None, phase: str) -> Grade:
    """Return how far to trust the figures of a phase.

    ``high`` needs ``HIGH_PAIRS`` pairs, all mandatory checks passed, measured power and a host
    ceiling of ``CEILING_FACTOR`` times the rate. ``medium`` lacks one of these; ``low`` lacks more,
    or has too few runs for a verdict. A run alone is graded as such. Simulated power and bounds
    have ``none``. A workload without a valid run has no grade.

    Args:
        subject: that of the page.
        compared: a workload's runs that are compared, at one point of a sweep.
        rate: the row of its rate there.
        phase: the phase of its energies.
    """
    records = [run.record for run in compared.runs]
    energies = [energy for record in records for energy in _energies(record, phase)]
    if made_up := _made_up(records, energies):
        return Grade("none", made_up)
    if rate is None or not records:
        return Grade("", "no rate" if records else "no valid run")
    is_single = len(records) == len(compared.arms) == 1 and not rate.gaps
    if rate.shortage and not is_single:
        return Grade("low", rate.shortage, is_short=True)
    pairs = rate.effect.pairs if rate.effect is not None else 0
    least = min(len(runs) for runs in compared.arms.values())
    missing = [
        *(() if is_single else _repeats(compared, pairs, least)),
        *_checks(subject, compared.runs),
        *_power(subject, compared.runs, energies),
        *_ceilings(rate, compared),
    ]
    if is_single:
        return Grade("single run", ", ".join(missing[:2]) or f"meter {_accuracy(energies)}")
    if missing:
        return Grade("medium" if len(missing) == 1 else "low", ", ".join(missing[:2]))
    repeats = counted(pairs, "pair") if pairs else counted(least, "run")
    return Grade("high", f"{repeats}, meter {_accuracy(energies)}")


def _made_up(records: Sequence[RunRecord], energies: Sequence[Energy]) -> str:
    """Return why figures are not of these runs, or not measured; empty if they are."""
    if any(map(is_simulated, records)):
        return "simulated drives"
    if any(each.evidence in _UNMEASURED for each in energies):
        is_read = any(each.has_declared_readings for each in energies)
        return "power only declared" if is_read else "power known as bounds only"
    return "power replayed from another run" if any(each.replayed for each in energies) else ""


def _energies(record: RunRecord, phase: str) -> Iterator[Energy]:
    whole = whole_energy(record)
    every = (*phase_energies(record), *([whole] if whole is not None else []))
    return (energy for energy in every if energy.phase == phase)


def _repeats(compared: Group, pairs: int, least: int) -> Iterator[str]:
    if compared.is_pair and not pairs:
        yield "runs not paired"
    elif (pairs or least) < HIGH_PAIRS:
        yield f"only {counted(pairs, 'pair') if pairs else counted(least, 'run')}"


def _checks(subject: Subject, runs: Sequence[Run]) -> Iterator[str]:
    checks = [each for run in runs for each in subject.checks(run)]
    if any(each.mandatory and not each.is_of_power and each.verdict != "pass" for each in checks):
        yield "incomplete checks"


def _power(subject: Subject, runs: Sequence[Run], energies: Sequence[Energy]) -> Iterator[str]:
    if len(energies) < len(runs) or any(each.energy_j is None for each in energies):
        yield "power not measured"
    elif any(map(subject.energy_faults, runs)):
        yield "energies excluded"
    elif any(each.evidence is not Evidence.MEASURED for each in energies):
        yield "drive's own power"


def _ceilings(rate: Row, compared: Group) -> Iterator[str]:
    factors = {
        arm: _ceiling_factors(rate, [run.record for run in runs])
        for arm, runs in compared.arms.items()
    }
    limited = [arm for arm, own in factors.items() if own and min(own) < CEILING_FACTOR]
    what = view_named(compared.workload).ceiling
    if not any(factors.values()):
        yield f"{what} ceiling unknown"
    elif len(limited) == len(factors):
        yield f"limited by {what}"
    elif limited:
        names = dict(zip(compared.page or compared.arms, LETTERS, strict=False))
        yield f"{', '.join(names.get(arm, arm) for arm in limited)} limited by {what}"


def _accuracy(energies: Sequence[Energy]) -> str:
    shares = [
        each.uncertainty_j / each.energy_j
        for each in energies
        if each.uncertainty_j is not None and each.energy_j
    ]
    return f"±{UNIT_SPACE}{percent(max(shares), 2)}" if shares else "accuracy unknown"


def _ceiling_factors(rate: Row, records: Sequence[RunRecord]) -> list[float]:
    """Return how far the ceilings of the host are above the rate that they bound, in all runs."""
    headrooms = [
        each(run)
        for record in records
        if (each := view_of(record).headroom) is not None and (run := run_of(record)) is not None
    ]
    if headrooms:
        return [factor for own in headrooms for factor in own]
    return [
        ceiling.value / bounded.value
        for record in records
        for ceiling in record.metrics
        if ceiling.name.endswith(CEILING_SUFFIX)
        and ceiling.value
        and (bounded := bounded_rate(record, ceiling)) is not None
        and bounded.name == rate.quantity.key
        and bounded.value
    ]


def limit(rate: Row | None, runs: Sequence[Run]) -> Limit:
    """Return what limited the rate of an arm; its text is empty without a valid run.

    A limit needs evidence of its own; what is merely left over is unknown. A workload may name its
    own. Else it is the host if one of its ceilings is less than ``CEILING_FACTOR`` times the rate,
    or if workers spent most of their time on a core or waiting for one. It is the drive if one had
    requests in flight for ``DRIVE_BUSY`` of the time, or if workers spent most of their time
    waiting for storage.
    """
    if rate is None or not runs:
        return Limit("")
    records = [run.record for run in runs]
    phase = rate.quantity.phase
    busy = median_of_known(_busy_share(record, phase) for record in records)
    if (found := _recorded(records, busy)) is not None:
        return found
    of_drive = list(_drive_limits(busy, phase, records))
    if limits := [*_host_limits(rate, records), *of_drive]:
        return Limit(f"limited by {', and by '.join(limits)}", is_drive=bool(of_drive))
    if busy is not None:
        shown = f"{_busiest(records)} was busy {percent(busy, 2)} of the time"
        return Limit(f"limit unknown: {shown}")
    return Limit("limit unknown: the drive's busy time was not counted")


def _recorded(records: Sequence[RunRecord], busy: float | None) -> Limit | None:
    """Return the limit that a workload names by itself; ``None`` for one that does not."""
    runs = [run for run in map(run_of, records) if run is not None]
    own = view_of(records[0]).limit
    return own(runs, busy) if own is not None and runs else None


def _host_limits(rate: Row, records: Sequence[RunRecord]) -> Iterator[str]:
    factors = _ceiling_factors(rate, records)
    phase = rate.quantity.phase
    shares = _worker_shares(records, phase)
    on_cores = median_of_known(each.on_core + each.for_core for each in shares)
    if factors and min(factors) < CEILING_FACTOR:
        factor = min(factors)
        reached = f"reaches {number(factor, 2)}{TIMES} the rate" if factor > 1 else "is no faster"
        yield f"the host, which {reached} without a drive"
    elif on_cores is not None and on_cores > _MOST:
        yield f"the host: workers needed a core {percent(on_cores, 2)} of the time"


def _drive_limits(busy: float | None, phase: str, records: Sequence[RunRecord]) -> Iterator[str]:
    waited = median_of_known(each.for_storage for each in _worker_shares(records, phase))
    if busy is not None and busy >= DRIVE_BUSY:
        yield f"{_busiest(records)}, busy {percent(busy, 2)} of the time"
    elif waited is not None and waited > _MOST:
        yield f"the drive, for which workers waited {percent(waited, 2)} of the time"


def _busiest(records: Sequence[RunRecord]) -> str:
    record = records[0]
    devices = {(each.host, each.device) for each in record.counters}
    count = len(devices) - sum(len(hosts) - 1 for hosts in record.shared_drives.values())
    return "the drive" if count <= 1 else f"the busiest of {count} drives"


def _phases(record: RunRecord, phase: str) -> list[Phase]:
    """Return the phases of a rate; one without a phase is of all leading phases."""
    return counted_phases(record, phase, every=(ALL_PHASES, ""))


def _busy_share(record: RunRecord, phase: str) -> float | None:
    """Return the share of the time in which the busiest drive had requests in flight.

    ``None`` if it was not counted.
    """
    phases = _phases(record, phase)
    names = {each.name for each in phases}
    busy_s: dict[tuple[str, str], float] = defaultdict(float)
    for counter in record.counters:
        if counter.phase in names and counter.busy_s is not None:
            busy_s[counter.host, counter.device] += counter.busy_s
    active_s = sum(each.active_s for each in phases)
    # Counters are read a little before and after a phase.
    return min(max(busy_s.values()) / active_s, 1.0) if busy_s and active_s else None


def _worker_shares(records: Sequence[RunRecord], phase: str) -> Iterator[WorkerShares]:
    """Yield how the workers of runs spent their time in a phase, where that is known."""
    for record in records:
        run, names = run_of(record), [each.name for each in _phases(record, phase)]
        if run is not None and (shares := view_of(record).workers(run, names)) is not None:
            yield shares
