"""Power over a page: by rate, over time, by power state, with temperatures; and of whole runs.

A run has power outside of its phases: the whole run by source, and idle before and after it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from wattload.core.power import Scope
from wattload.core.record.energy import EnergyRecord, HostPower, IdleRecord, Moment
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import (
    Block,
    Cell,
    Figure,
    FigureRow,
    Paragraph,
    Section,
    Table,
    Tone,
    columns,
    listing,
    row,
)
from wattload.reports.charts.arms import observed_states, states_figure
from wattload.reports.charts.efficiency import Spot, efficiency_figure, spot
from wattload.reports.charts.timeline import energy_figure
from wattload.reports.runs.compact import highest_temperature_k
from wattload.reports.runs.energy import every_energy
from wattload.reports.runs.load import Run
from wattload.reports.sections.energy import figure_evidence_text, source_facts
from wattload.reports.sections.machine import ABSOLUTE_ZERO_C
from wattload.reports.sections.over_time import tracks_of, with_choice
from wattload.reports.sections.wording import anchor, device_text, unique
from wattload.reports.stats.bars import shown_point
from wattload.reports.stats.conditions import compared_group, is_compared, is_energy_compared
from wattload.reports.stats.subject import LETTERS, Group, Subject, lettered, named
from wattload.reports.stats.summary import rate_scale
from wattload.reports.stats.sweeps import points
from wattload.results.labels import workload_title
from wattload.results.quantity import MISSING, counted, listed, one_unit, percent, quantity
from wattload.results.reading import view_named
from wattload.results.view import median_of_known

_INTEGRATING = "integral"
"""The kind of sensor that integrates power itself, from start to stop."""
_POWER_DIGITS = 6
"""Decimals of watts: no sensor resolves less than 1 µW, and rounding errors are below that."""

Key = tuple[str, str, str, Moment]
"""Host, device, source, and which of the idle baselines."""


def energy_section(subject: Subject) -> Section | None:
    """Return power by rate, and energy since the timed start; ``None`` without power."""
    rows = [FigureRow(own) for group in subject.groups if (own := [*_energy(subject, group)])]
    return Section(anchor="energy", title="Energy", blocks=rows) if rows else None


def _energy(subject: Subject, group: Group) -> Iterator[Figure]:
    tracks = tracks_of(subject, group)
    over_time = energy_figure(
        f"{anchor('energy', group.workload)}-chart",
        f"{workload_title(group.workload)}: cumulative energy",
        tracks,
    )
    figures = (_efficiency(subject, group), with_choice(over_time, subject, group, tracks))
    yield from filter(None, figures)


def _efficiency(subject: Subject, group: Group) -> Figure | None:
    """Return the power and the rate of each run whose energy counts, at every point of a sweep.

    What a joule pays for in some workloads is not bytes.
    """
    if len(subject.arms) > len(LETTERS) or view_named(group.workload).joule is not None:
        return None
    shown = shown_point(subject, group)
    arms: dict[str, list[Spot]] = {arm: [] for arm in group.arms}
    for point in points(group):
        for arm, runs in point.group.arms.items():
            energies = (
                (run.id, energy)
                for run in runs
                if is_energy_compared(subject, run)
                for energy in every_energy(run.record)
                if energy.phase == shown.energy_phase
            )
            found = (spot(run, point.words if point.axis else "", each) for run, each in energies)
            arms[arm] += filter(None, found)
    with one_unit(Unit.BYTES_PER_SECOND, rate_scale(subject, group)):
        return efficiency_figure(
            f"{anchor('energy', group.workload)}-efficiency",
            workload_title(group.workload),
            shown.based("", shown.energy_phase).strip(),
            arms,
            group.letters,
        )


def states_section(subject: Subject) -> Section | None:
    """Return energy by observed power state, and the drives' temperatures; ``None`` without."""
    if len(subject.arms) > len(LETTERS):
        return None
    # the points of a sweep are never pooled
    groups = [group for group in subject.groups if len(points(group)) == 1]
    drawn, constant = [], []
    for group in groups:
        records = {
            arm: [run.record for run in runs if is_compared(subject, run)]
            for arm, runs in group.arms.items()
        }
        figure = states_figure(
            f"{anchor('states', group.workload)}-chart",
            workload_title(group.workload),
            records,
            group.letters,
        )
        if figure is not None:
            drawn.append(figure)
        elif words := _constant_states(records, group.letters):
            constant.append(words)
    blocks: list[Block] = [FigureRow(drawn)] if drawn else []
    blocks += [Paragraph(sentence) for sentence in unique(constant)]
    temperatures = temperature_table(subject, groups)
    blocks += [temperatures] if temperatures else []
    if not blocks:
        return None
    return Section(anchor="power-states", title="Power states", blocks=blocks)


def _constant_states(records: Mapping[str, Sequence[RunRecord]], letters: Sequence[str]) -> str:
    """Return the only power state of each arm as a sentence; empty where none was observed."""
    known = [observed_states(own) for own in records.values()]
    if any(len(states) != 1 or not states[0].startswith("PS") for states in known):
        return ""
    states = [state for (state,) in known]
    if len(set(states)) == 1:
        return f"All timed phases ran in {states[0]}."
    arms = zip(letters, records, states, strict=True)
    words = [f"{named(letter, arm)} in {state}" for letter, arm, state in arms]
    return f"Each arm stayed in one power state in its timed phases: {listed(words)}."


def temperature_table(subject: Subject, groups: Sequence[Group]) -> Table | None:
    """Return the highest temperature in timed phases by workload and arm, medians over runs.

    With two arms there is also their difference in kelvin. ``None`` where no drive reported a
    temperature.
    """
    rows = []
    for group in groups:
        compared = compared_group(subject, group).arms
        medians_k = [_median_k(compared.get(arm, ())) for arm in subject.arms]
        if not any(medians_k):
            continue
        cells = [workload_title(group.workload), *map(_celsius, medians_k)]
        if subject.compares:
            a_k, b_k = medians_k
            cells.append(MISSING if a_k is None or b_k is None else f"{b_k - a_k:+g} K")
        rows.append(row(*cells))
    if not rows:
        return None
    titles = [f"#{lettered(*pair)}" for pair in zip(LETTERS, subject.arms, strict=False)]
    if subject.compares:
        titles.append("#B - A")
    return Table(
        columns=columns("workload", *titles),
        rows=rows,
        caption="Highest temperature of the drive in timed phases",
        note="From the SMART log: the median over an arm's runs.",
    )


def _median_k(runs: Sequence[Run]) -> float | None:
    return median_of_known(map(highest_temperature_k, runs))


def _celsius(kelvin: float | None) -> str:
    return MISSING if kelvin is None else f"{kelvin + ABSOLUTE_ZERO_C:g} °C"


def whole_tables(record: RunRecord) -> list[Table]:
    """Return power of the whole run and of its idle times; empty where nothing is recorded."""
    tables = (whole_run_table(record), idle_table(record), hosts_table(record))
    return [table for table in tables if table is not None]


def whole_run_table(record: RunRecord) -> Table | None:
    """Return the energy of the whole run by source, compared with the device's own integral."""
    energies = record.power.whole_run
    if not energies:
        return None
    own = {
        (each.host, each.device): each
        for each in energies
        if (facts := source_facts(record, each)) and facts.sensor.kind == _INTEGRATING
    }
    return listing(
        "Energy of the whole run by source",
        energies,
        {
            "device": lambda each: Cell(
                device_text(record, each.host, each.device), remark=f"{each.source}, {each.scope}"
            ),
            "#window": lambda each: quantity(each.seconds, Unit.SECONDS),
            "#energy, gross": lambda each: Cell(
                quantity(each.energy_j, Unit.JOULES), remark=each.missing.get("energy_j", "")
            ),
            "#uncertainty, k = 2": lambda each: Cell(
                quantity(each.uncertainty_j, Unit.JOULES), remark=_no_uncertainty(each)
            ),
            "#difference from own count": lambda each: _difference_from_own(
                each, own.get((each.host, each.device))
            ),
            "#mean power": lambda each: quantity(each.mean_w, Unit.WATTS),
            "#coverage": lambda each: Cell(
                percent(each.coverage), remark=counted(each.sample_count, "sample")
            ),
            "evidence": lambda each: figure_evidence_text(record, each),
        },
        "All figures of a device cover one window, from the sampler's start to its end, with the "
        "idle time before and after the phases. What a device integrates itself (a drive by "
        "feature 25h) is never split into phases; the other figures are for comparison. No total "
        "includes any of them.",
    )


def _no_uncertainty(energy: EnergyRecord) -> str:
    """Return why an uncertainty is missing, unless the energy is missing for the same reason."""
    reason = energy.missing.get("uncertainty_j", "")
    return "" if reason == energy.missing.get("energy_j") else reason


def _difference_from_own(energy: EnergyRecord, own: EnergyRecord | None) -> Cell:
    """Return the difference between a figure and the device's own integral."""
    if own is energy:
        return Cell("own count", "quiet")
    if own is None or not own.energy_j or energy.energy_j is None:
        return Cell(MISSING)
    difference_j = energy.energy_j - own.energy_j
    sign = "+" if difference_j > 0 else ""
    share = percent(difference_j / own.energy_j)
    return Cell(f"{sign}{share}", remark=f"{sign}{quantity(difference_j, Unit.JOULES, 3)}")


def idle_table(record: RunRecord) -> Table | None:
    """Return idle power before and after the run, polled and quiet, and what polling costs."""
    pairs: defaultdict[Key, dict[bool, IdleRecord]] = defaultdict(dict)
    for idle in record.power.idle:
        pairs[idle.host, idle.device, idle.source, idle.moment][idle.polled] = idle
    if not pairs:
        return None
    known = {
        key: pair
        for key, pair in pairs.items()
        if any(idle.mean_w is not None for idle in pair.values())
    }
    reasons: dict[str, str] = {}
    for key, pair in pairs.items():
        for idle in pair.values() if key not in known else ():
            reasons.setdefault(idle.source, idle.missing["mean_w"])
    without = "".join(f" No figure from {source}: {reason}." for source, reason in reasons.items())
    titles = columns(
        "device", "when", "#polled", "#quiet", "#polled - quiet", "power state", "evidence"
    )
    return Table(
        columns=titles,
        rows=[_idle_row(record, pair) for pair in known.values()],
        caption="Idle power, and the effect of polling on it",
        note=(
            "Polled: while the sampler reads. Quiet: nothing was sent to the drive until one read "
            f"at the end.{without}"
        ),
    )


def _idle_row(record: RunRecord, pair: Mapping[bool, IdleRecord]) -> tuple[Cell, ...]:
    some = next(iter(pair.values()))
    polled, quiet = pair.get(True), pair.get(False)
    watts = [None if idle is None else idle.mean_w for idle in (polled, quiet)]
    return row(
        Cell(device_text(record, some.host, some.device), remark=some.source),
        f"{some.moment} the run",
        _mean(polled),
        _mean(quiet),
        _difference(*watts),
        _idle_state(polled),
        figure_evidence_text(record, some),
    )


def _mean(idle: IdleRecord | None) -> Cell:
    if idle is None:
        return Cell(MISSING, remark="not measured")
    if idle.mean_w is None:
        return Cell(MISSING, remark=idle.missing["mean_w"])
    seconds = quantity(idle.seconds, Unit.SECONDS, 3)
    remark = f"{seconds}, {counted(idle.sample_count, 'sample')}"
    return Cell(quantity(idle.mean_w, Unit.WATTS), remark=remark)


def _difference(polled_w: float | None, quiet_w: float | None) -> Cell:
    """Return polled minus quiet power; the cell of the one that is missing says why."""
    if polled_w is None or quiet_w is None:
        return Cell(MISSING)
    return Cell(quantity(round(polled_w - quiet_w, _POWER_DIGITS), Unit.WATTS))


def _idle_state(polled: IdleRecord | None) -> Cell:
    """Return the power state, if it did not change, and the drive's temperature."""
    if polled is None or polled.power_state is None:
        return Cell(MISSING, remark="" if polled is None else polled.missing["power_state"])
    kelvin = polled.temperature_k
    remark = "" if kelvin is None else f"{kelvin + ABSOLUTE_ZERO_C:g} °C"
    return Cell(f"PS{polled.power_state}", remark=remark)


def hosts_table(record: RunRecord) -> Table | None:
    """Return how long each host's drives were sampled outside phases, and which readings were lost.

    A host without any of that is left out.
    """
    hosts = [
        host
        for host in record.power.hosts
        if any((host.idle_s, host.idle_after_s, host.quiet_s, host.rest_s))
        or host.lost
        or host.data_lost
    ]
    if not hosts:
        return None
    return listing(
        "Sampling of each host's drives",
        hosts,
        {
            "host": lambda each: Cell(each.host, remark=each.choice if len(hosts) > 1 else ""),
            "#quiet": lambda each: _length(each.quiet_s),
            "#idle before": lambda each: _length(each.idle_s),
            "#rest": lambda each: _length(each.rest_s),
            "#idle after": lambda each: _length(each.idle_after_s),
            "sampler": lambda each: (
                Cell("lost", "bad", remark=each.lost) if each.lost else Cell("completed", "good")
            ),
            "lost readings": _lost_readings,
        },
    )


def _lost_readings(host: HostPower) -> Cell:
    if not host.data_lost:
        return Cell("none reported")
    count = counted(len(host.data_lost), "meter")
    tone: Tone = "bad" if any(each.scope is Scope.DRIVE for each in host.data_lost) else "warn"
    return Cell(f"by {count}", tone, remark="; ".join(each.sentence for each in host.data_lost))


def _length(seconds: float) -> Cell:
    if not seconds:
        return Cell(MISSING, remark="not measured")
    return Cell(quantity(seconds, Unit.SECONDS, 3))
