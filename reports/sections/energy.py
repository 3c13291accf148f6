"""Energy of a run with its evidence: per phase, per source and per power state."""

from __future__ import annotations

from collections.abc import Iterator

from wattload.core.power import Evidence
from wattload.core.record.energy import EnergyRecord, PowerSettingRecord, PowerStateShare
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Absent, Block, Cell, Paragraph, Section, Table, columns, row
from wattload.reports.charts.energy import energy_figure
from wattload.reports.charts.states import states_figure
from wattload.reports.energy import SOFT_BOUND, phase_energies, sources_of, words_of
from wattload.reports.load import Run
from wattload.reports.quantity import (
    MISSING,
    percent,
    quantity,
    scale_for,
    scaled,
    whole,
    with_unit,
)
from wattload.reports.sections.armcharts import letter_of
from wattload.reports.sections.sampling import sampling_table
from wattload.reports.sections.wording import anchor
from wattload.reports.subject import Subject

_MOMENTS = ("requested", "before", "verified", "after", "restored", "saved", "saved_after")
"""When a setting of a drive was asked for or read, as the record names it."""


def energy_section(subject: Subject, run: Run) -> Section | None:
    """Return what is known of energy; a run without a source gets the reason in its place."""
    record = run.record
    name = anchor(run.id, "energy")
    figure = energy_figure(name + "-chart", record.workload.name, phase_energies(record))
    used = any(source.used for source in record.power.sources)
    blocks: list[Block] = []
    if used:
        blocks.append(Paragraph(_choice(record)))
    if figure is not None:
        blocks.append(figure)
    elif used:
        blocks.append(Absent("No energy", "No phase has a figure or a bound of its energy."))
    else:
        blocks.append(Absent("No power source", record.power.choice))
    own = {record.label: [record]}
    by_state = states_figure(name + "-states", record.workload.name, own, letter_of(subject, run))
    if by_state is not None:
        blocks.append(by_state)
    if record.power.energy:
        blocks.append(_energies(record))
    if any(energy.states for energy in record.power.energy):
        blocks.append(_states(record))
    blocks.extend(_sources(record))
    if record.power.samplers:
        blocks.append(sampling_table(record))
    return Section(anchor=name, title="Energy", blocks=blocks)


def _choice(record: RunRecord) -> str:
    power = record.power
    text = f"Power was asked for as {power.requested}. {power.choice.rstrip('.')}."
    if power.idle_s:
        text += f" Idle power is that of {quantity(power.idle_s, Unit.SECONDS, 3)} before the run."
    if power.tail_s is not None:
        tail = quantity(power.tail_s, Unit.SECONDS, 3)
        text += f" The drive was watched for {tail} more after it."
    return text


def interval_text(energy: EnergyRecord | PowerStateShare) -> str:
    """Return joules as the record knows them: a figure, an interval, or an upper bound."""
    if energy.energy_j is not None:
        return quantity(energy.energy_j, Unit.JOULES)
    if energy.upper_j is None:
        return MISSING
    if energy.lower_j is None:
        return f"≤ {quantity(energy.upper_j, Unit.JOULES)}"
    scale = scale_for(Unit.JOULES, energy.upper_j)
    upper = with_unit(scaled(energy.upper_j, scale), scale)
    return f"{scaled(energy.lower_j, scale)} to {upper}"


def _energies(record: RunRecord) -> Table:
    titles = columns(
        "phase",
        "device",
        "#energy, gross",
        "#mean power",
        "#net of idle",
        "#uncertainty, k = 2",
        "#coverage",
        "evidence",
    )
    said = [(_known_by(record, energy), _words(record, energy)) for energy in record.power.energy]
    return Table(
        columns=titles,
        rows=[_energy(energy, _known_by(record, energy)) for energy in record.power.energy],
        caption="Energy by phase, device and source",
        note="; ".join(f"{name}: {words}" for name, words in dict.fromkeys(said))
        + "."
        + f" {SOFT_BOUND}." * _has_soft_bound(record),
    )


def _has_soft_bound(record: RunRecord) -> bool:
    return any(
        energy.evidence is Evidence.BOUNDS and energy.lower_j is not None
        for energy in record.power.energy
    )


def _known_by(record: RunRecord, energy: EnergyRecord) -> str:
    """Return the evidence as a table names it; a recording is never called a measurement."""
    facts = sources_of(record).get((energy.host, energy.source, energy.device))
    if facts is not None and facts.is_of_another_run:
        return "replayed"
    recorded = facts is not None and facts.is_recorded
    return energy.evidence.replace("_", " ") + (", recorded trace" if recorded else "")


def _words(record: RunRecord, energy: EnergyRecord) -> str:
    facts = sources_of(record).get((energy.host, energy.source, energy.device))
    return words_of(
        energy.evidence,
        recorded=facts is not None and facts.is_recorded,
        replayed=facts is not None and facts.is_of_another_run,
    )


def _energy(energy: EnergyRecord, known_by: str) -> tuple[Cell, ...]:
    return row(
        energy.phase,
        Cell(energy.device, remark=f"{energy.source}, {energy.scope}"),
        Cell(interval_text(energy), "" if energy.chosen else "quiet"),
        quantity(energy.mean_w, Unit.WATTS),
        Cell(quantity(energy.net_j, Unit.JOULES), remark=_idle(energy)),
        quantity(energy.uncertainty_j, Unit.JOULES),
        Cell(percent(energy.coverage), remark=f"{whole(energy.sample_count)} samples"),
        Cell(known_by, remark="" if energy.chosen else "not chosen"),
    )


def _idle(energy: EnergyRecord) -> str:
    return "" if energy.idle_w is None else f"idle {quantity(energy.idle_w, Unit.WATTS)}"


def _states(record: RunRecord) -> Table:
    rows = [
        row(
            energy.phase,
            energy.device,
            f"PS{share.state}" if share.state.isdigit() else share.state,
            quantity(share.seconds, Unit.SECONDS),
            percent(share.seconds / energy.seconds if energy.seconds else None),
            quantity(share.moved_bytes, Unit.BYTES),
            interval_text(share),
            quantity(_per_j(share), Unit.BYTES_PER_JOULE),
        )
        for energy in record.power.energy
        if energy.chosen
        for share in energy.states
    ]
    titles = columns(
        "phase",
        "device",
        "power state",
        "#seconds",
        "#share",
        "#moved",
        "#energy",
        "#rate per watt",
    )
    return Table(columns=titles, rows=rows, caption="By observed power state")


def _per_j(share: PowerStateShare) -> float | None:
    if share.moved_bytes is None or not share.energy_j:
        return None
    return share.moved_bytes / share.energy_j


def _sources(record: RunRecord) -> Iterator[Table]:
    power = record.power
    if power.states:
        yield _state_changes(record)
    if any(state.settings for state in power.states):
        yield _settings(record)
    if power.sources:
        yield _opened(record)


def _state_changes(record: RunRecord) -> Table:
    """Return what became of each controller's power state."""
    rows = [
        row(
            state.serial,
            *[MISSING if number is None else f"PS{number}" for number in _numbers(state)],
            state.sentence,
        )
        for state in record.power.states
    ]
    titles = columns(
        "controller",
        "asked",
        "before",
        "verified",
        "after",
        "restored",
        "saved before",
        "saved after",
        "what happened",
    )
    return Table(columns=titles, rows=rows, caption="Power states")


def _opened(record: RunRecord) -> Table:
    """Return the sources that were used, and why the others were not."""
    rows = [
        row(
            Cell("used" if source.used else "not used", "good" if source.used else "open"),
            source.name,
            source.device,
            source.facts.sensor.kind if source.facts else MISSING,
            quantity(source.facts.period_s, Unit.SECONDS) if source.facts else MISSING,
            source.sentence,
        )
        for source in record.power.sources
    ]
    titles = columns("", "source", "device", "sensor", "#period", "why")
    return Table(columns=titles, rows=rows, caption="Power sources")


def _numbers(state: object) -> list[int | None]:
    return [getattr(state, name) for name in _MOMENTS]


def _settings(record: RunRecord) -> Table:
    """Return the other settings of drives that the run changed, as asked and as read back."""
    rows = [
        row(
            state.serial,
            setting.name,
            setting.option,
            *[_setting_text(setting, getattr(setting, moment)) for moment in _MOMENTS],
        )
        for state in record.power.states
        for setting in state.settings
    ]
    titles = columns(
        "controller",
        "setting",
        "option",
        "#asked",
        "#before",
        "#verified",
        "#after",
        "#restored",
        "#saved before",
        "#saved after",
    )
    return Table(columns=titles, rows=rows, caption="Other settings of the drives")


def _setting_text(setting: PowerSettingRecord, figure: float | None) -> str:
    if figure is None:
        return MISSING
    number = f"{figure:.0f}" if figure.is_integer() else f"{figure:g}"
    return f"{number} {setting.unit}".strip()
