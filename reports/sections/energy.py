"""Energy of a run with its evidence: per phase, source and power state, and the sampling cost."""

from __future__ import annotations

from collections.abc import Iterator

from wattload.core.power import Evidence, SourceFacts
from wattload.core.record.energy import (
    EnergyRecord,
    IdleRecord,
    PowerSettingRecord,
    PowerStateShare,
    SamplerRecord,
)
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Block, Cell, Paragraph, Table, columns, row
from wattload.reports.quantity import MISSING, number, percent, quantity, whole
from wattload.reports.runs.energy import (
    SOFT_BOUND,
    energy_text,
    evidence_text,
    sources_of,
)
from wattload.reports.runs.load import Run

_MOMENTS = ("requested", "before", "verified", "after", "restored", "saved", "saved_after")
"""The fields of a record for when a setting of a drive was requested or read."""


def sampling_table(record: RunRecord) -> Table:
    """Return one row for each host's sampler."""
    titles = columns(
        "host",
        "#period",
        "#rounds",
        "#missed",
        "#readings",
        "#lost",
        "#share of a core",
        "#longest round",
        "#admin commands",
        "#mean latency",
        "#longest latency",
    )
    rows = [_row(sampler) for sampler in record.power.samplers]
    return Table(columns=titles, rows=rows, caption="Cost of sampling")


def _row(sampler: SamplerRecord) -> tuple[Cell, ...]:
    rate = number(sampler.admin_commands_per_s, 3)
    return row(
        sampler.host,
        quantity(sampler.period_s, Unit.SECONDS, 3),
        whole(sampler.tick_count),
        _counted(sampler.missed_tick_count),
        whole(sampler.sample_count),
        _counted(sampler.lost_sample_count),
        percent(sampler.cpu_share),
        _seconds(sampler.tick_max_s),
        f"{rate}/s",
        _seconds(sampler.admin_mean_s),
        _seconds(sampler.admin_max_s),
    )


def _counted(count: int) -> Cell:
    return Cell(whole(count), "warn" if count else "")


def _seconds(seconds: float | None) -> str:
    return MISSING if seconds is None else quantity(seconds, Unit.SECONDS, 3)


def energy_blocks(run: Run) -> list[Block]:
    """Return a run's energy by phase, source and power state, and what sampling cost."""
    record = run.record
    blocks: list[Block] = []
    if any(source.used for source in record.power.sources):
        blocks.append(Paragraph(_choice(record)))
    if record.power.energy:
        blocks.append(_energies(record))
    if any(energy.states for energy in record.power.energy):
        blocks.append(_states(record))
    blocks.extend(_sources(record))
    if record.power.samplers:
        blocks.append(sampling_table(record))
    return blocks


def _choice(record: RunRecord) -> str:
    power = record.power
    text = f"Requested power source: {power.requested}. {power.choice.rstrip('.')}."
    if power.idle_s:
        idle = quantity(power.idle_s, Unit.SECONDS, 3)
        text += f" Idle power was measured for {idle} before the run."
    if power.tail_s is not None:
        tail = quantity(power.tail_s, Unit.SECONDS, 3)
        text += f" The drive was sampled for another {tail} after it."
    return text


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
    energies = record.power.energy
    names = {_known_by(record, each): evidence_words(record, each) for each in energies}
    note = "; ".join(f"{name}: {words}" for name, words in names.items()) + "."
    if any(e.evidence is Evidence.BOUNDS and e.lower_j is not None for e in energies):
        note += f" {SOFT_BOUND}."
    return Table(
        columns=titles,
        rows=[_energy(energy, _known_by(record, energy)) for energy in energies],
        caption="Energy by phase, device and source",
        note=note,
    )


def _known_by(record: RunRecord, energy: EnergyRecord) -> str:
    """Return the evidence as a table names it; a recording is not called a measurement."""
    facts = source_facts(record, energy)
    if facts is not None and facts.is_of_another_run:
        return "replayed"
    recorded = facts is not None and facts.is_recorded
    return energy.evidence.replace("_", " ") + (", recorded trace" if recorded else "")


def source_facts(record: RunRecord, figure: EnergyRecord | IdleRecord) -> SourceFacts | None:
    """Return what is known of the source that a figure comes from."""
    return sources_of(record).get((figure.host, figure.source, figure.device))


def evidence_words(record: RunRecord, figure: EnergyRecord | IdleRecord) -> str:
    """Return how a figure is known, in words; a recording is not called a measurement."""
    facts = source_facts(record, figure)
    return evidence_text(
        figure.evidence,
        recorded=facts is not None and facts.is_recorded,
        replayed=facts is not None and facts.is_of_another_run,
    )


def _energy(energy: EnergyRecord, known_by: str) -> tuple[Cell, ...]:
    return row(
        energy.phase,
        Cell(energy.device, remark=f"{energy.source}, {energy.scope}"),
        Cell(energy_text(energy), "" if energy.chosen else "quiet"),
        quantity(energy.mean_w, Unit.WATTS),
        Cell(quantity(energy.net_j, Unit.JOULES), remark=_idle(energy)),
        quantity(energy.uncertainty_j, Unit.JOULES),
        Cell(percent(energy.coverage), remark=f"{whole(energy.sample_count)} samples"),
        Cell(known_by, remark="" if energy.chosen else "not selected"),
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
            energy_text(share),
            quantity(_bytes_per_j(share), Unit.BYTES_PER_JOULE),
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


def _bytes_per_j(share: PowerStateShare) -> float | None:
    if share.moved_bytes is None or not share.energy_j:
        return None
    return share.moved_bytes / share.energy_j


def _sources(record: RunRecord) -> Iterator[Table]:
    power = record.power
    if power.states:
        yield _power_states(record)
    if any(state.settings for state in power.states):
        yield _settings(record)
    if power.sources:
        yield _source_table(record)


def _power_states(record: RunRecord) -> Table:
    """Return the power state of each controller at each moment it was read."""
    rows = [
        row(
            state.serial,
            *[
                MISSING if number is None else f"PS{number}"
                for number in (getattr(state, moment) for moment in _MOMENTS)
            ],
            state.sentence,
        )
        for state in record.power.states
    ]
    titles = columns(
        "controller",
        "requested",
        "before",
        "verified",
        "after",
        "restored",
        "saved before",
        "saved after",
        "result",
    )
    return Table(columns=titles, rows=rows, caption="Power states")


def _source_table(record: RunRecord) -> Table:
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
    titles = columns("", "source", "device", "sensor", "#period", "reason")
    return Table(columns=titles, rows=rows, caption="Power sources")


def _settings(record: RunRecord) -> Table:
    """Return the other settings of drives that the run changed, as requested and as read."""
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
        "#requested",
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
