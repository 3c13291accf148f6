"""How far to trust a workload's figures, and what limited its rate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from wattload.core.checks.conditions import CEILING_FACTOR, CEILING_SUFFIX, bounded_rate
from wattload.core.mlperf.published import UNET3D
from wattload.core.power import Evidence
from wattload.core.record.run import RunRecord
from wattload.reports.quantity import TIMES, UNIT_SPACE, counted, number, percent
from wattload.reports.runs.energy import (
    ALL_PHASES,
    Energy,
    is_simulated,
    phase_energies,
    whole_energy,
)
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import leading
from wattload.reports.stats.comparison import Row
from wattload.reports.stats.subject import Group, Subject

HIGH_PAIRS = 8
"""Pairs of runs, or runs of a single arm, for high confidence."""

DRIVE_BUSY = 0.9
"""The least share of the time that a drive which limits a rate has requests in flight."""

EVIDENCE = "trust"
"""The anchor of a page's checks and evidence."""

_UNMEASURED = frozenset({Evidence.BOUNDS, Evidence.DECLARED})

GradeWord = Literal["high", "medium", "low", "none"]


@dataclass(frozen=True, slots=True)
class Grade:
    """How far to trust a row: a word, its reason in six words at most, and where to read more."""

    word: GradeWord
    reason: str
    link: str = EVIDENCE

    @property
    def text(self) -> str:
        """The word with its reason."""
        return f"{self.word}: {self.reason}"


def grade(subject: Subject, compared: Group, rate: Row | None, phase: str) -> Grade:
    """Return how far to trust the figures of a phase.

    ``high`` needs ``HIGH_PAIRS`` pairs, all mandatory checks passed, measured power and a host
    ceiling of ``CEILING_FACTOR`` times the rate. ``medium`` lacks one of these; ``low`` lacks more,
    or has too few runs for a verdict. Simulated power and bounds have ``none``, and so has a
    workload without a valid run.

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
        return Grade("none", "no valid run")
    if rate.shortage:
        return Grade("low", rate.shortage)
    pairs = rate.effect.pairs if rate.effect is not None else 0
    least = min(len(runs) for runs in compared.arms.values())
    missing = [
        *_repeats(compared, pairs, least),
        *_checks(subject, compared.runs),
        *_power(energies, len(records)),
        *_ceilings(rate, records),
    ]
    if missing:
        return Grade("medium" if len(missing) == 1 else "low", ", ".join(missing[:2]))
    repeats = counted(pairs, "pair") if pairs else counted(least, "run")
    return Grade("high", f"{repeats}, meter {_accuracy(energies)}")


def _made_up(records: Sequence[RunRecord], energies: Sequence[Energy]) -> str:
    """Return why figures are not of these runs, or not measured; empty if they are."""
    if any(map(is_simulated, records)):
        return "simulated drive"
    if any(each.evidence in _UNMEASURED for each in energies):
        return "power known as bounds only"
    return "power of another run" if any(each.replayed for each in energies) else ""


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
    checks = [each for run in runs for each in (*run.record.checks, *subject.closures[run.id])]
    if any(each.mandatory and not each.is_of_power and each.verdict != "pass" for each in checks):
        yield "incomplete checks"


def _power(energies: Sequence[Energy], run_count: int) -> Iterator[str]:
    if len(energies) < run_count or any(each.energy_j is None for each in energies):
        yield "power not measured"
    elif any(each.evidence is not Evidence.MEASURED for each in energies):
        yield "drive's own power"


def _ceilings(rate: Row, records: Sequence[RunRecord]) -> Iterator[str]:
    factors = _ceiling_factors(rate, records)
    if not factors:
        yield "host ceiling unknown"
    elif min(factors) < CEILING_FACTOR:
        yield "limited by host"


def _accuracy(energies: Sequence[Energy]) -> str:
    shares = [
        each.uncertainty_j / each.energy_j
        for each in energies
        if each.uncertainty_j is not None and each.energy_j
    ]
    return f"±{UNIT_SPACE}{percent(max(shares), 2)}" if shares else "accuracy unknown"


def _ceiling_factors(rate: Row, records: Sequence[RunRecord]) -> list[float]:
    """Return how far the ceilings of the host are above the rate that they bound, in all runs."""
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


def limit(rate: Row | None, runs: Sequence[Run]) -> str:
    """Return what limited the rate of an arm, in a few words; empty without a valid run.

    It is the accelerators if they computed at least as large a share of the time as MLPerf Storage
    demands, the host if one of its ceilings is less than ``CEILING_FACTOR`` times the rate, and the
    drive if it was busy for ``DRIVE_BUSY`` of the time. A job may be limited by none of them, such
    as by latency between its own steps.
    """
    if rate is None or not runs:
        return ""
    records = [run.record for run in runs]
    shares = [
        metric.value
        for record in records
        if (metric := record.metric("compute_fraction")) and metric.value is not None
    ]
    if shares and median(shares) >= UNET3D.au_threshold:
        return f"limited by the accelerator, which computed {percent(median(shares))} of the time"
    factors = _ceiling_factors(rate, records)
    reached = f"alone reaches {number(min(factors), 2)}{TIMES} the rate" if factors else ""
    if factors and min(factors) < CEILING_FACTOR:
        return f"limited by the host, which {reached}"
    busy = [share for each in records if (share := _busy_share(each, rate.quantity.phase))]
    if not busy:
        return "limit unknown: the drive's busy time was not counted"
    share_text = f"busy {percent(median(busy), 2)} of the time"
    if median(busy) < DRIVE_BUSY:
        return f"not limited by the drive, which was {share_text}"
    host = f"the host {reached}" if factors else "or the host, whose ceiling is unknown"
    return f"limited by the drive, {share_text}; {host}"


def _busy_share(record: RunRecord, phase: str) -> float | None:
    """Return the share of a phase in which the busiest drive had requests in flight.

    ``None`` if it was not counted. Without a ``phase`` it is over all leading phases.
    """
    phases = [each for each in leading(record) if phase in (each.name, ALL_PHASES, "")]
    names = {each.name for each in phases}
    busy_s: dict[tuple[str, str], float] = defaultdict(float)
    for counter in record.counters:
        if counter.source == "block" and counter.phase in names and counter.busy_s is not None:
            busy_s[counter.host, counter.device] += counter.busy_s
    active_s = sum(each.active_s for each in phases)
    return min(max(busy_s.values()) / active_s, 1.0) if busy_s and active_s else None
