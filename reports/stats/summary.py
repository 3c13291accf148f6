"""The first screen of a report: per workload the winner of speed and of energy.

Everything is computed from the rows of the comparison.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from textwrap import shorten
from typing import Any

from wattload.core.power import Evidence, Scope, weakest
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.runs.energy import (
    ALL_PHASES,
    Energy,
    every_energy,
    is_simulated,
    measured_drives,
    node_limits,
    sources_of,
)
from wattload.reports.runs.hosts import ends_of
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import leading
from wattload.reports.runs.validity import of_hosts
from wattload.reports.stats.answers import Answer, shown_answer
from wattload.reports.stats.bars import (
    Bar,
    Bars,
    ShownPoint,
    counted_bytes,
    device_bars,
    effects_to_best,
    efficiency_bars,
    energy_bars,
    letter_of,
    moved_bytes,
    page_scale,
    rate_bars,
    scale_of_rates,
    shown_point,
    work_of_all,
)
from wattload.reports.stats.conditions import (
    changed_together,
    compared_group,
    differences,
    different_loads,
    different_watches,
    exclusions,
    has_excluded_energy,
    is_compared,
    served_of,
    shared_drives,
    slow_link,
)
from wattload.reports.stats.confidence import Grade, grade, limit
from wattload.reports.stats.effects import Effect
from wattload.reports.stats.subject import LETTERS, Group, Subject, named
from wattload.reports.stats.sweeps import points, scalings
from wattload.results.facts import Run as WorkloadRun
from wattload.results.identity_cache import cache_by_identity
from wattload.results.labels import label, workload_title
from wattload.results.quantity import (
    UNIT_SPACE,
    Scale,
    counted,
    duration,
    listed,
    percent,
    quantity,
    ratio_ends,
    ratio_text,
)
from wattload.results.reading import run_of, view_named, view_of
from wattload.results.view import Limit

_INVENTED = "rates and watts are invented"

_LIMITED = re.compile(",|:")
"""What ends the words for a limit; its evidence follows."""

_NAME_MAX = 64
"""Characters of a check's name on the first screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """The figures that scatter most: ``unstable rates of A: CV 12 %``.

    ``run`` is the id of the run that is farthest from its arm's median, ``distance`` how far,
    ``in_mean`` whether its arm's mean includes it.
    """

    words: str
    run: str
    distance: str
    in_mean: bool

    @property
    def run_name(self) -> str:
        return f"run {_short(self.run)}"

    @property
    def ending(self) -> str:
        return f", {self.distance}, {'' if self.in_mean else 'not '}included in the mean"

    @property
    def text(self) -> str:
        return f"{self.words}; {self.run_name}{self.ending}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedCheck:
    """A failed check: its name in words, and the id of the run.

    ``run_text`` is the run in words, and whether its figures count: ``Unet3D run a12e (energy
    counts)``. ``counts`` is whether they do.
    """

    name: str
    run: str
    run_text: str
    counts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    """One workload of the first screen.

    ``speed`` and ``energy`` are ``None`` unless two arms are compared. ``rates`` are of ``phase``,
    ``energies`` and ``efficiencies`` of ``energy_phase``, at the same point; ``devices`` are
    energies of other named devices, such as GPUs, for the same work. ``limits`` has per arm what
    limits its rate; ``drive_limited`` are the arms whose rate their drive limits.
    ``ranking`` has the arms of a page of three or more from the fastest to the slowest, and no
    winner. ``at`` is
    the point of a sweep that the row shows, ``place`` that point alone. ``work`` is the unit of
    work of its rate, such as an epoch; it is empty without equal work. ``scatter`` is which arm's
    runs scatter most, ``None`` below 5 %. ``counts`` is which means lack valid runs, empty where
    none does. ``measurand`` is what the energies are of, in words; empty without any that was
    measured. ``shared_limit`` is what other than the drive limits both arms of a pair; it is empty
    where nothing does.
    ``drive_count`` is how many drives the energies are of, ``evidence`` the weakest of theirs.
    ``times`` is how long the jobs of several arms took, where that has a figure of its own.
    ``paths`` is what sets the arms apart by the view of the workload, and is empty without one.
    ``loads`` is which of three arms or more ran under which load, where that is not what they are
    compared in, or which read no storage: they are then not ranked. ``names`` has what arms are
    called, by arm. ``node`` is what the meters of the node can't show; it is empty without any.
    """

    group: Group
    name: str
    detail: str
    phase: str
    energy_phase: str
    work: str
    at: str
    place: str
    speed: Answer | None
    energy: Answer | None
    rates: Bars
    energies: Bars
    efficiencies: Bars
    devices: tuple[Bars, ...]
    limits: Mapping[str, str]
    drive_limited: frozenset[str]
    ranking: tuple[str, ...]
    grade: Grade
    scatter: Scatter | None
    measurand: str
    counts: str
    shared_limit: str
    drive_count: int
    evidence: Evidence
    times: str
    paths: str
    loads: str
    names: Mapping[str, str]
    node: str

    @property
    def every_bar(self) -> tuple[Bar, ...]:
        return tuple(bar for bars in self.bars for bar in bars.bars)

    @property
    def bars(self) -> tuple[Bars, ...]:
        """All bars of the row: rates, energies, MB/s per W, and energies of other devices."""
        return (self.rates, self.energies, self.efficiencies, *self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstScreen:
    """The rows of all workloads, and what applies to all of them.

    ``arms`` are letters and names. ``excluded`` has a clause for each run that is not compared,
    warm-ups aside, ``excluded_energies`` for each compared run whose energy is not, ``warnings``
    are sentences. ``failed`` has the failed checks, those of runs that count first.
    ``energy_scale`` is the unit of every energy of the page: use it with ``quantity.one_unit``.
    ``banner`` is set for simulated drives.
    ``scale`` is that of all workloads; if they differ it is empty, and rows name theirs.
    ``measurand`` is a sentence on what its energies are of, empty without any.
    ``warm_up_count`` counts warm-ups, ``no_power`` is why no workload has a drive's energy.
    """

    arms: tuple[tuple[str, str], ...]
    rows: tuple[VerdictRow, ...]
    excluded: tuple[str, ...] = ()
    excluded_energies: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    failed: tuple[FailedCheck, ...] = ()
    energy_scale: Scale
    banner: str = ""
    measurand: str = ""
    scale: str = ""
    warm_up_count: int = 0
    no_power: str = ""


def speed_ratios(row: VerdictRow) -> Iterator[tuple[str, Effect, str, str]]:
    """Yield the ratios of the fastest of three arms or more to each other one, as printed.

    Each has that arm, its effect, and how many times as fast as it the fastest one is, with the
    interval: ``1.12``, ``1.00 to 1.25``. Too few runs have no interval.
    """
    for arm, each in effects_to_best(row.rates, row.ranking).items():
        found = [each.ratio, *(end for own in each.demanded for end in (own.lower, own.upper))]
        ratio, *ends = found if row.rates.better == "lower" else [1 / one for one in found]
        within = (min(ends), max(ends)) if ends else ()
        yield arm, each, ratio_text(ratio, within=within), ratio_ends(*within) if within else ""


def arm_names(subject: Subject) -> dict[str, str]:
    """Return what arms are called: ``label "A"`` where another arm has that letter."""
    letters = LETTERS[: len(subject.arms)]
    return {
        arm: f'{subject.by} "{arm}"'
        if arm in letters and letter_of(subject.arms, arm) not in ("", arm)
        else arm
        for arm in subject.arms
    }


@cache_by_identity
def first_screen(subject: Subject) -> FirstScreen:
    """Return the first screen of a page; no run needs to be valid."""
    shown_points = [shown_point(subject, group) for group in subject.groups]
    rows, energy_scale = _verdict_rows(subject, shown_points)
    records = [run.record for run in subject.runs]
    return FirstScreen(
        arms=tuple((letter_of(subject.arms, arm), arm) for arm in subject.arms),
        rows=rows,
        excluded=tuple(
            f"{run.id}: {_why_excluded(subject, run)}"
            for run in subject.runs
            if subject.faults(run) and not run.record.comparison.warm_up
        ),
        excluded_energies=tuple(
            f"{run.id}: {'; '.join(subject.energy_faults(run)).rstrip('.')}"
            for group in subject.groups
            for run in group.runs
            if has_excluded_energy(subject, run)
        ),
        warnings=tuple(dict.fromkeys(_warnings(subject, shown_points))),
        failed=_failed(subject),
        energy_scale=energy_scale,
        banner=_banner(subject),
        measurand=_measurands(rows),
        scale=_scale(shown_points),
        warm_up_count=sum(record.comparison.warm_up for record in records),
        no_power=_no_power([row.energies.missing for row in rows]),
    )


def _no_power(missing: Sequence[str]) -> str:
    """Return the reasons why no workload has a drive's energy; empty if one has."""
    if not missing or not all(missing):
        return ""
    first, *others = dict.fromkeys(missing)
    verdict = f"{first.partition(': ')[0]}: "
    return "; ".join([first, *(each.removeprefix(verdict) for each in others)])


def point_rows(subject: Subject, group: Group) -> tuple[VerdictRow, ...]:
    """Return a row for each point of a group's sweep, in their order."""
    rows, _ = _verdict_rows(subject, [shown_point(subject, at.group) for at in points(group)])
    return rows


def drive_limits(subject: Subject, group: Group) -> list[str]:
    """Return sentences on which arms the drive limits, from which point of a sweep on.

    They are of sweeps over a count; other groups have none.
    """
    if not any(found.is_count for found in scalings(subject, group)):
        return []
    found, rows = points(group), point_rows(subject, group)
    axis, last = label(found[0].axis), found[-1].value
    arms: dict[int, list[str]] = {}
    for letter, arm in zip(group.letters, group.arms, strict=True):
        others = [index for index, at in enumerate(rows) if arm not in at.drive_limited]
        arms.setdefault(others[-1] + 1 if others else 0, []).append(named(letter, arm))
    sentences = []
    for begin, names in arms.items():
        which = listed(names) if len(group.arms) > 1 else "the rate"
        if begin == 0:
            sentences.append(f"The drive limits {which} at every point.")
        elif begin < len(found):
            sentences.append(f"The drive limits {which} from {axis} = {found[begin].value} on.")
        else:
            sentences.append(f"The drive is not shown to limit {which} up to {axis} = {last}.")
    return sentences


def _verdict_rows(
    subject: Subject, shown_points: Sequence[ShownPoint]
) -> tuple[tuple[VerdictRow, ...], Scale]:
    """Return rows whose energies have the same unit, and its scale."""
    energies = page_scale(
        [(point.energy, point.work.count if point.work else 1.0) for point in shown_points],
        Unit.JOULES,
    )
    is_mixed = not _scale(shown_points)
    rows = (
        _verdict_row(subject, point, scale_of_rates(point), energies, is_mixed=is_mixed)
        for point in shown_points
    )
    return tuple(rows), energies


def rate_scale(subject: Subject, group: Group) -> Scale:
    """Return the scale of every rate of a workload: use it with ``quantity.one_unit``."""
    return scale_of_rates(shown_point(subject, group))


def _scale(shown_points: Sequence[ShownPoint]) -> str:
    """Return the scale of all workloads; empty if they differ."""
    scales = {point.group.runs[0].record.workload.scale for point in shown_points}
    return scales.pop() if len(scales) == 1 else ""


def _banner(subject: Subject) -> str:
    """Return which arms have simulated drives; empty if none has."""
    arms = [
        letter
        for letter, arm in zip(LETTERS, subject.arms, strict=False)
        if any(is_simulated(run.record) for run in subject.runs if subject.arm(run) == arm)
    ]
    if not any(is_simulated(run.record) for run in subject.runs):
        return ""
    if arms and len(arms) < len(subject.arms):
        return f"illustration: simulated drive of {listed(arms)}, whose {_INVENTED}"
    return f"illustration: simulated drives; {_INVENTED}"


def _why_excluded(subject: Subject, run: Run) -> str:
    """Return the first reason against a run; of a stray run also why it would not be valid."""
    shown = subject.faults(run)[: 2 if run.id in subject.strays else 1]
    return "; ".join(reason.rstrip(".") for reason in shown)


def _warnings(subject: Subject, shown_points: Sequence[ShownPoint]) -> Iterator[str]:
    """Yield drives in slow slots, files that replace ours, and arms that differ in more ways."""
    yield from _slow_links(subject)
    used = [file for run in subject.runs for file in run.record.config_files if file.replaces]
    if used:
        paths = listed(list(dict.fromkeys(file.path for file in used)))
        yield f"Settings were read from {paths} instead of wattload's own files."
    for compared in (point.compared for point in shown_points if point.compared.is_pair):
        first, second = (named(*pair) for pair in zip(compared.letters, compared.arms, strict=True))
        if together := changed_together(compared, subject.by):
            yield (
                f"{first} and {second} differ in {listed(list(together))} at once: no ratio is of "
                "one alone."
            )
        if shared := shared_drives(compared):
            yield (
                f"{first} and {second} are on one drive ({shared}): their difference is not one of "
                "drives."
            )
        for difference in differences(compared):
            if difference.name == "host":
                a, b = difference.values.values()
                yield (
                    f"{first} ran on {a}, {second} on {b}: their difference may be that of the "
                    "hosts."
                )


def _slow_links(subject: Subject) -> Iterator[str]:
    """Yield the drives whose PCIe link is slower or narrower than they support, with their arms."""
    arms: dict[str, list[str]] = {}
    for run in (run for group in subject.groups for run in group.runs):
        arm = subject.arm(run)
        for slow in filter(None, map(slow_link, run.record.controllers)):
            arms.setdefault(slow, []).append(named(letter_of(subject.arms, arm), arm))
    for slow, names in arms.items():
        known = list(dict.fromkeys(names))
        of = f" of {listed(known)}" if len(subject.arms) > 1 else ""
        if len(known) == len(subject.arms) > len(LETTERS):
            of = f" of all {len(known)} arms"
        yield f"PCIe link{of}: {slow}."


def _failed(subject: Subject) -> tuple[FailedCheck, ...]:
    """Return the failed checks of all runs, those of runs that count first."""
    found = [
        FailedCheck(
            name=_check_name(check),
            run=run.id,
            run_text=f"{workload_title(run.record.workload.name)} {_effect(subject, run, check)}",
            counts=is_compared(subject, run),
        )
        for run in subject.runs
        for check in of_hosts(
            run.record, (each for each in subject.checks(run) if each.verdict == "fail")
        )
    ]
    return tuple(sorted(found, key=lambda each: not each.counts))


def _check_name(check: Check) -> str:
    """Return the name of a failed check in a few words; a record's may be of any length."""
    words = check.name.replace("_", " ")
    return words if len(words) <= _NAME_MAX else f"{words[:_NAME_MAX]}…"


def _effect(subject: Subject, run: Run, check: Check) -> str:
    """Return the name of a run with a failed check, and whether its figures count."""
    if run.record.comparison.warm_up:
        return f"warm-up {_short(run.id)} (not counted)"
    if not is_compared(subject, run):
        effect = "excluded"
    elif has_excluded_energy(subject, run):
        effect = "energy excluded"
    else:
        effect = "energy counts" if check.is_of_power else "counted"
    return f"run {_short(run.id)} ({effect})"


def _short(run: str) -> str:
    """Return the end of a run's id, which is different in every run."""
    return run.rpartition("-")[2]


def _verdict_row(
    subject: Subject, point: ShownPoint, rate_scale: Scale, energy_scale: Scale, *, is_mixed: bool
) -> VerdictRow:
    arms = tuple(point.group.arms)
    limits = {arm: limit(point.rate, point.compared.arms.get(arm, ())) for arm in arms}
    rates, energies = rate_bars(point, rate_scale), energy_bars(point, energy_scale)
    is_pair = point.group.is_pair
    is_ranked = len(arms) > 1 and not is_pair
    barred = _unlike(subject, point) if is_ranked else ""
    words = _measurand(point)
    return VerdictRow(
        group=point.group,
        name=workload_title(point.group.workload),
        detail=_detail(point, with_scale=is_mixed),
        phase=point.phase,
        energy_phase=point.energy_phase,
        work=_work(point),
        at=point.at,
        place=point.place,
        speed=shown_answer("speed", point, point.rate, rates.missing) if is_pair else None,
        energy=shown_answer("energy", point, point.energy, energies.missing) if is_pair else None,
        rates=rates,
        energies=energies,
        efficiencies=efficiency_bars(point, energies.missing),
        devices=tuple(device_bars(point, energy_scale)),
        limits={arm: found.text for arm, found in limits.items()},
        drive_limited=frozenset(arm for arm, found in limits.items() if found.is_drive),
        ranking=_ranking(rates) if is_ranked and not barred else (),
        grade=grade(subject, point.compared, point.rate, point.energy_phase),
        scatter=_scatter(point),
        measurand="; ".join(filter(None, (words, words and _measured_by(point)))),
        counts=_counts(subject, point, rates, energies),
        shared_limit=_shared_limit(point, limits) if is_pair else "",
        drive_count=max((len(measured_drives(record)) for record in point.records), default=0),
        evidence=_evidence(point),
        times=_times(point) if len(arms) > 1 else "",
        paths=_paths(subject, point),
        loads=barred,
        names=arm_names(subject),
        node=_node(point),
    )


def _node(point: ShownPoint) -> str:
    limits = [*node_limits(point.records, point.energy_phase)]
    sentences = [f"The node's meter {limit}." for limit in limits]
    return " ".join([*sentences, "No verdict is based on the node's energy."]) if limits else ""


def _evidence(point: ShownPoint) -> Evidence:
    """Return the weakest evidence of energies; none for those of simulated or other runs."""
    energies = list(_energies(point))
    if any(each.simulated or each.replayed for each in energies):
        return Evidence.NONE
    return weakest(each.evidence for each in energies)


def _energies(point: ShownPoint) -> Iterator[Energy]:
    for record in point.records:
        yield from (each for each in every_energy(record) if each.phase == point.energy_phase)


def _late_host(point: ShownPoint) -> str:
    """Return which host ended last, if it is the same one in all runs."""
    ends = [ends_of(record) for record in point.records]
    late = {each.late_host if each is not None else None for each in ends}
    host = late.pop() if len(late) == 1 else None
    return f"{host} ended last" if host is not None else ""


def _unlike(subject: Subject, point: ShownPoint) -> str:
    """Return why arms are not ranked: unlike loads or caches, or what excludes a pair as well."""
    compared = compared_group(subject, point.group)
    if loads := different_loads(compared, subject.by):
        return f"not comparable: different load, {loads}"
    served = {arm: [served_of(run.record) for run in runs] for arm, runs in compared.arms.items()}
    names = dict(zip(compared.arms, compared.letters, strict=False))
    instead = [arm for arm, own in served.items() if own and all(each.instead for each in own)]
    if 0 < len(instead) < sum(map(bool, served.values())):
        words = served[instead[0]][0].instead
        return f"not comparable: {words} by {listed([names.get(arm, arm) for arm in instead])}"
    every = [each for own in served.values() for each in own]
    if len({each.cache_bytes for each in every}) > 1:
        cached = next(filter(None, (each.cached for each in every)))
        return f"not comparable: {cached}, and its size differs between the arms"
    if point.rate is None or subject.forced:
        return ""
    reasons = exclusions(subject, point.group).reasons(point.rate.quantity)
    return f"not comparable: {reasons[0]}" if reasons else ""


def _paths(subject: Subject, point: ShownPoint) -> str:
    """Return what sets the arms apart, at the point that is shown or over all."""
    view = view_named(point.group.workload)
    if view.arms is None:
        return ""
    shown = point.group if view.arms_over_points else point.compared
    compared = compared_group(subject, shown).arms
    return view.arms(
        {
            point.letter(arm) or arm: _runs_of([run.record for run in compared.get(arm) or runs])
            for arm, runs in point.group.arms.items()
        }
    )


def _runs_of(records: Sequence[RunRecord]) -> list[WorkloadRun[Any]]:
    return [run for run in map(run_of, records) if run is not None]


def _work(point: ShownPoint) -> str:
    work = work_of_all(point.compared, point.phase) if point.is_per_work else None
    return work.name if work is not None else ""


def _times(point: ShownPoint) -> str:
    """Return how long the job took, as in the tables: ``written in 2.6 h (A), 3.7 h (B)``."""
    name, words = view_named(point.group.workload).times
    row = point.rows.get(name)
    if row is None:
        return ""
    found = {arm: seconds for arm, seconds in row.centres.items() if seconds is not None}
    several = len(row.spreads) > 1
    texts = [
        f"{duration(seconds)} ({point.letter(arm) or arm})" if several else duration(seconds)
        for arm, seconds in found.items()
    ]
    return f"{words} {', '.join(texts)}" if texts else ""


def _shared_limit(point: ShownPoint, of_arms: Mapping[str, Limit]) -> str:
    """Return what limits every arm where that is not a drive: ``both limited by the host``.

    A workload may name the limit of each arm.
    """
    limits = of_arms.values()
    if view_named(point.group.workload).has_limit_by_arm:
        texts = [
            f"{point.letter(arm)}: {found.text.removeprefix('limited by ').removeprefix('limit ')}"
            for arm, found in of_arms.items()
            if found.text
        ]
        return f"limit: {'; '.join(texts)}" if texts else ""
    words = {_LIMITED.split(found.text)[0] for found in limits if not found.is_drive}
    is_known = all(found.text.startswith("limited by") for found in limits)
    if len(words) != 1 or not is_known or any(found.is_drive for found in limits):
        return ""
    return f"both {words.pop()}"


def _scatter(point: ShownPoint) -> Scatter | None:
    """Return the arm and figure whose runs scatter most, and the run that is farthest away."""
    found = [
        (spread.cv, name, arm, spread, row)
        for name, row in (("rates", point.rate), ("energies", point.energy))
        if row is not None
        for arm, spread in row.spreads.items()
        if spread is not None
        and spread.cv is not None
        and spread.gate in ("noisy", "unstable")
        and spread.median
    ]
    if not found:
        return None
    cv, name, arm, spread, row = max(found, key=lambda each: each[:3])
    valid = [(f, f.value) for f in row.figures[arm] if f.valid and f.value is not None]
    figure, value = max(valid, key=lambda each: abs(each[1] - spread.median))
    off = value / spread.median - 1
    of = f" of {point.letter(arm)}" if len(row.spreads) > 1 else ""
    return Scatter(
        words=f"{spread.gate} {name}{of}: CV{UNIT_SPACE}{percent(cv, 2)}",
        run=figure.run,
        distance=f"{percent(abs(off), 2)} {'above' if off > 0 else 'below'} the median",
        in_mean=figure.in_mean,
    )


def _measurand(point: ShownPoint) -> str:
    """Return what the energies of a place are of; empty if none was measured."""
    if point.energy is None or not any(map(bool, point.energy.spreads.values())):
        return ""
    records = [run.record for run in point.compared.runs]
    energies = list(_energies(point))
    if point.is_for_work:
        rests = dict.fromkeys(f"{record.power.rest_s:g}" for record in records)
        is_at_least = any(energy.is_at_least for energy in energies)
        at_least = "; it is at least this, as a drive was then still above idle power"
        return (
            "for the work: in the timed window, plus the tail above idle power within "
            f"{listed([*rests], 'or')}{UNIT_SPACE}s after it{at_least if is_at_least else ''}"
        )
    if why := different_watches(point.compared):
        return f"in the timed window only: {why.partition(', so')[0]}"
    why = next(filter(None, (energy.no_tail for energy in energies)), "no rest followed it")
    return f"in the timed window only ({why})"


_BY = {
    Evidence.MEASURED: "measured by",
    Evidence.SELF_REPORTED: "reported by",
    Evidence.ESTIMATED: "estimated by",
    Evidence.DECLARED: "declared by",
}


def _measured_by(point: ShownPoint) -> str:
    """Return which sources the energies of a place are from; empty for bounds and simulations."""
    by = _BY.get(_evidence(point))
    facts = [
        sources_of(record).get((part.host, part.source, part.device))
        for record in point.records
        for part in record.power.energy
        if part.chosen and part.scope is Scope.DRIVE
    ]
    names = dict.fromkeys(
        f"{each.name} ({_without_folders(each.meter)})" if each.meter else each.name
        for each in facts
        if each is not None and (each.measures or each.has_declared_readings)
    )
    return f"{by} {listed([*names])}" if by and names else ""


def _without_folders(meter: str) -> str:
    """Return a meter's name or command without the folders of programs."""
    words = [PurePath(word).name if word.startswith("/") else word for word in meter.split()]
    return shorten(" ".join(words), 40, placeholder=" ...")


def _measurands(rows: Sequence[VerdictRow]) -> str:
    """Return a sentence on what the energies of a page are of; empty without any."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if row.measurand:
            names.setdefault(row.measurand, []).append(row.name)
    if not names:
        return ""
    is_one = len(names) == 1
    parts = [words if is_one else f"of {listed(own)} {words}" for words, own in names.items()]
    joules = [view_named(row.group.workload).joule for row in rows if row.measurand]
    per = dict.fromkeys(f"{each.many} per J" if each else "MB/s per W" for each in joules)
    also = f"Mean power and {listed([*per])} are in the window."
    return f"Energy is {'; '.join(parts)}. {also}"


def _counts(subject: Subject, point: ShownPoint, *every: Bars) -> str:
    """Return the number of runs in the means where it is not all: ``energy: n = 6 of 8``."""
    parts = []
    for name, bars in zip(("rate", "energy"), every, strict=True):
        known = [bar for bar in bars.bars if bar.value is not None]
        if all(bar.mean_count == bar.run_count for bar in known):
            continue
        numbers = {bar.letter or bar.arm: f"{bar.mean_count} of {bar.run_count}" for bar in known}
        if len(set(numbers.values())) == 1:
            shown = next(iter(numbers.values()))
        else:
            shown = ", ".join(f"{text} ({letter})" for letter, text in numbers.items())
        of_energy = sum(has_excluded_energy(subject, run) for run in point.compared.runs)
        excluded = f" ({of_energy} excluded)" if of_energy and name == "energy" else ""
        parts.append(f"{name}: n = {shown}{excluded}")
    return "; ".join(parts)


def _ranking(rates: Bars) -> tuple[str, ...]:
    known = [(bar.value, bar.arm) for bar in rates.bars if bar.value is not None]
    known.sort(key=lambda each: each[0], reverse=rates.better != "lower")
    return tuple(arm for _, arm in known)


def _detail(point: ShownPoint, *, with_scale: bool) -> str:
    """Return the scale if asked, accelerators, hosts, ranks and the size of a unit of work.

    The host that ended last in all runs is named.
    """
    record = point.group.runs[0].record
    workload = record.workload
    parts = [f"scale {workload.scale}"] if with_scale else []
    hosts = [counted(len(record.hosts), "host")] if len(record.hosts) > 1 else []
    late = _late_host(point)
    view = view_of(record)
    every = [run.record for run in point.group.runs]
    if view.job is not None and (runs := _runs_of(point.records or every[:1])):
        job = view.job(runs, _runs_of(every))
        took = _times(point) if view.times[0] and len(point.group.arms) == 1 else ""
        return ", ".join(filter(None, [*parts, *hosts, job, took, late]))
    if view.emulates_accelerators:
        is_emulated = workload.accelerator != "unpaced"
        parts.append(f"{'emulated ' if is_emulated else ''}{workload.accelerator}")
    parts += hosts
    if workload.rank_count > 1:
        parts.append(counted(workload.rank_count, "rank"))
    moved = [moved_bytes(record, point.phase) for record in point.records]
    work = work_of_all(point.compared, point.phase)
    if moved and moved[0] and work is not None:
        each = point.based(quantity(moved[0] / work.count, Unit.BYTES, 3), point.phase)
        parts.append(f"{_rate_bytes(point, moved[0])}{each} per {work.name}")
    return ", ".join(filter(None, [*parts, late]))


def _rate_bytes(point: ShownPoint, moved_bytes: int) -> str:
    """Return the bytes that the rate counts, where these are not all that moved."""
    record, row = point.records[0], point.rate
    metric = record.metric(row.quantity.key) if row is not None else None
    if row is None or metric is None or metric.unit is not Unit.BYTES_PER_SECOND:
        return ""
    if point.phase != ALL_PHASES or point.work is None or not metric.value:
        return ""
    rate_bytes = metric.value * sum(phase.active_s for phase in leading(record))
    if math.isclose(rate_bytes, moved_bytes, rel_tol=0.01):
        return ""
    text = quantity(rate_bytes / point.work.count, Unit.BYTES, 3)
    return f"{text} {counted_bytes(row.quantity.label)}, "
