"""Energy of a run with its evidence: per phase, source and power state, and the sampling cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from wattload.core.power import Evidence, SourceFacts
from wattload.core.record.energy import (
    EnergyRecord,
    IdleRecord,
    PowerSettingRecord,
    PowerSourceRecord,
    PowerStateRecord,
    PowerStateShare,
    PowerStatistics,
    SensorRecord,
)
from wattload.core.record.run import RunRecord
from wattload.core.record.sensor_text import delay_text, meter_lines
from wattload.core.units import TB, Unit
from wattload.reports.blocks import (
    Block,
    Cell,
    Fold,
    Paragraph,
    Table,
    columns,
    listing,
    row,
)
from wattload.reports.runs.energy import (
    SOFT_BOUND,
    energy_text,
    evidence_text,
    is_doubted,
    is_simulated,
    sources_of,
    tail_text,
)
from wattload.reports.runs.load import Run
from wattload.reports.sections.wording import device_text, unique
from wattload.results.quantity import (
    MISSING,
    Scale,
    number,
    percent,
    quantity,
    whole,
    with_uncertainty,
    with_unit,
)

MLPERF_LIMIT = 0.01
"""MLPerf Power admits meters of 1 % or less; ours is the whole figure's uncertainty at k = 2."""

_MOMENTS = {
    "requested": "requested",
    "before": "before",
    "verified": "verified",
    "after": "after",
    "restored": "restored",
    "saved before": "saved",
    "saved after": "saved_after",
}
"""When a setting of a drive was requested or read, with the fields of a record."""


def sampling_table(record: RunRecord) -> Table:
    return listing(
        "Cost of sampling",
        record.power.samplers,
        {
            "host": lambda each: each.host,
            "#period": lambda each: _seconds(each.period_s),
            "#rounds": lambda each: whole(each.tick_count),
            "#missed": lambda each: _counted(each.missed_tick_count),
            "#readings": lambda each: whole(each.sample_count),
            "#lost": lambda each: _counted(each.lost_sample_count),
            "#share of a core": lambda each: percent(each.cpu_share),
            "#longest round": lambda each: _seconds(each.tick_max_s),
            "#admin commands": lambda each: f"{number(each.admin_commands_per_s, 3)}/s",
            "#mean latency": lambda each: _seconds(each.admin_mean_s),
            "#longest latency": lambda each: _seconds(each.admin_max_s),
        },
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
    variation = power_table(record)
    if variation is not None:
        blocks.append(variation)
    blocks.extend(_own_histograms(record))
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
        # A calibration takes up a part of the time.
        seconds = [each.seconds for each in power.idle if each.moment == "before" and each.polled]
        idle = quantity(min(seconds, default=power.idle_s), Unit.SECONDS, 3)
        text += f" Idle power was measured for {idle} before the run."
    if power.rest_s:
        rest = quantity(power.rest_s, Unit.SECONDS, 3)
        text += f" The drive rested for {rest} after the job."
    return " ".join([text, *unique(f"{line}." for line in meter_lines(power, record.started_utc))])


def _energies(record: RunRecord) -> Table:
    energies = record.power.energy
    names = {_known_by(record, each): figure_evidence_text(record, each) for each in energies}
    note = "; ".join(f"{name}: {words}" for name, words in names.items()) + "."
    if any(e.evidence is Evidence.BOUNDS and e.lower_j is not None for e in energies):
        note += f" {SOFT_BOUND}."
    has_tail = any(each.tail_j is not None for each in energies)
    if has_tail:
        note += (
            " Tail: energy above idle power in the rest after the phase. Energy for the work: in "
            "the window, and the tail."
        )
    of_work: dict[str, Callable[[EnergyRecord], Cell]] = {
        "#tail": _tail,
        "#energy for the work": lambda e: _with_uncertainty(e.work_j, e.work_uncertainty_j),
    }
    return listing(
        "Energy by phase, device and source",
        energies,
        {
            "phase": lambda each: each.phase,
            "device": lambda each: Cell(
                device_text(record, each.host, each.device), remark=f"{each.source}, {each.scope}"
            ),
            "#energy in the window, gross": _in_window,
            **(of_work if has_tail else {}),
            "#mean power": lambda each: quantity(each.mean_w, Unit.WATTS),
            "#net of idle": lambda e: Cell(quantity(e.net_j, Unit.JOULES), remark=_idle(e)),
            "#coverage": lambda each: Cell(
                percent(each.coverage), remark=f"{whole(each.sample_count)} samples"
            ),
            "evidence": lambda each: Cell(
                _known_by(record, each), remark="; ".join(_remarks(record, each))
            ),
        },
        f"{note} ±: uncertainty, k = 2.",
    )


def _in_window(energy: EnergyRecord) -> Cell:
    found = _with_uncertainty(energy.energy_j, energy.uncertainty_j)
    text = energy_text(energy) if energy.energy_j is None else found.text
    return Cell(text, "" if energy.chosen else "quiet", remark=found.remark)


def _with_uncertainty(energy_j: float | None, uncertainty_j: float | None) -> Cell:
    """Return an energy with its uncertainty, and whether MLPerf Power would not admit that."""
    if energy_j is None or uncertainty_j is None:
        return Cell(quantity(energy_j, Unit.JOULES))
    text = with_uncertainty(energy_j, uncertainty_j, Unit.JOULES)
    share = uncertainty_j / abs(energy_j) if energy_j else 0.0
    remark = f"± {percent(share, 2)}"
    if share > MLPERF_LIMIT:
        remark += f": outside MLPerf Power's limit of {percent(MLPERF_LIMIT, 1)}"
    return Cell(text, remark=remark)


def _tail(energy: EnergyRecord) -> Cell:
    if energy.tail_j is None:
        return Cell(MISSING, remark=energy.missing.get("tail_j", ""))
    return Cell(tail_text(energy))


def _remarks(record: RunRecord, energy: EnergyRecord) -> Iterator[str]:
    if not energy.chosen:
        yield "not selected"
    elif is_doubted(record, energy):
        yield "not checked: its meter is in doubt"


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


def figure_evidence_text(record: RunRecord, figure: EnergyRecord | IdleRecord) -> str:
    """Return how a figure is known, in words; a recording is not called a measurement."""
    facts = source_facts(record, figure)
    return evidence_text(
        figure.evidence,
        recorded=facts is not None and facts.is_recorded,
        replayed=facts is not None and facts.is_of_another_run,
        simulated=is_simulated(record),
        has_declared_readings=facts is not None and facts.has_declared_readings,
    )


def _idle(energy: EnergyRecord) -> str:
    return "" if energy.idle_w is None else f"idle {quantity(energy.idle_w, Unit.WATTS)}"


_FORMULAS = (
    ("peak", "largest mean of power over the time given"),
    ("max. interval", "the drive's own maximum of its interval power (MIPWR)"),
    ("P99", "99 % of the readings are no higher"),
    ("idle per TB", "idle power ÷ capacity"),
    ("I/O rate per watt", "reads and writes of the block layer ÷ energy"),
    ("rate per watt", "bytes moved ÷ energy"),
)
"""The columns of ``power_table``, by the beginning of their title, with their formulas."""


def power_table(record: RunRecord) -> Table | None:
    """Return peaks and efficiency of power by phase and source, ``None`` without any.

    Columns without a figure are left out. Rates per watt are those of a phase in which the energy
    of one drive was chosen, as bytes and operations are not known by drive.
    """
    rows: list[dict[str, str | Cell]] = [
        {
            "phase": energy.phase,
            "device": Cell(device_text(record, energy.host, energy.device), remark=energy.source),
            **_variation(energy.statistics),
            **_efficiency(record, energy),
        }
        for energy in record.power.energy
        if energy.statistics is not None
    ]
    rows += [
        {
            "phase": "whole run",
            "device": Cell(device_text(record, energy.host, energy.device), remark=energy.source),
            "#max. interval": quantity(energy.max_interval_w, Unit.WATTS),
        }
        for energy in record.power.whole_run
        if energy.max_interval_w is not None
    ]
    titles = dict.fromkeys(title for cells in rows for title in cells)
    kept = [title for title in titles if any(is_figure(each.get(title)) for each in rows)]
    if not rows:
        return None
    formulas = [
        f"{name}: {formula}"
        for name, formula in _FORMULAS
        if any(title.removeprefix("#").startswith(name) for title in kept)
    ]
    return Table(
        columns=columns(*kept),
        rows=[row(*(each.get(title, MISSING) for title in kept)) for each in rows],
        caption="Power in the phase",
        note=f"From readings, as far as the sensor resolves them. {'; '.join(formulas)}.",
    )


def is_figure(cell: str | Cell | None) -> bool:
    """Return whether a cell has a text that is not a dash."""
    return cell is not None and (cell.text if isinstance(cell, Cell) else cell) != MISSING


def _variation(found: PowerStatistics) -> dict[str, str | Cell]:
    return {
        "#peak of 100 ms": quantity(found.peak_100ms_w, Unit.WATTS),
        "#peak of 1 s": quantity(found.peak_1s_w, Unit.WATTS),
        "#P99": Cell(
            quantity(found.p99_w, Unit.WATTS),
            remark=f"of means over {quantity(found.resolution_s, Unit.SECONDS, 3)}"
            if found.resolution_s and found.p99_w is not None
            else "",
        ),
    }


def _efficiency(record: RunRecord, energy: EnergyRecord) -> dict[str, str | Cell]:
    """Return idle power by capacity, and the phase's rates by power if one drive was measured."""
    capacity = next(
        (
            each.before.capacity_bytes
            for each in record.controllers
            if (each.facts.host, each.facts.serial) == (energy.host, energy.device)
            and each.before is not None
        ),
        None,
    )
    idle = MISSING
    if energy.idle_w is not None and capacity:
        idle = quantity(energy.idle_w / (capacity / TB), Unit.WATTS, 3)
    is_only = record.drive_energies(energy.phase) == (energy,) and not record.unread_drives(
        energy.phase
    )
    energy_j = energy.energy_j if is_only and energy.energy_j and energy.energy_j > 0 else None
    if energy_j is None:
        return {"#idle per TB": idle}
    counted = [
        (each.read_operations, each.write_operations)
        for each in record.counters
        if each.phase == energy.phase
    ]
    operations = [count for pair in counted for count in pair if count is not None]
    moved = sum(record.moved_bytes(energy.phase, kind) for kind in ("read", "written"))
    return {
        "#idle per TB": idle,
        "#I/O rate per watt": with_unit(number(sum(operations) / energy_j), Scale(1, "/s per W"))
        if operations and len(operations) == 2 * len(counted)
        else MISSING,
        "#rate per watt": quantity(moved / energy_j, Unit.BYTES_PER_JOULE) if moved else MISSING,
    }


def _own_histograms(record: RunRecord) -> Iterator[Fold]:
    """Yield the histograms of power that drives kept themselves (feature 25h)."""
    for energy in record.power.whole_run:
        total = sum(each.count for each in energy.histogram)
        if not total:
            continue
        device = device_text(record, energy.host, energy.device)
        rows = [
            row(quantity(each.lower_w, Unit.WATTS), whole(each.count), percent(each.count / total))
            for each in energy.histogram
            if each.count
        ]
        table = Table(
            columns=columns("#from", "#measurements", "#share"),
            rows=rows,
            caption=f"Power by {device}'s own measurements",
        )
        yield Fold(f"Histogram of power by {energy.source}, {device}", [table])


def _states(record: RunRecord) -> Table:
    return listing(
        "By observed power state",
        [(each, share) for each in record.power.energy if each.chosen for share in each.states],
        {
            "phase": lambda of: of[0].phase,
            "device": lambda of: device_text(record, of[0].host, of[0].device),
            "power state": lambda of: f"PS{of[1].state}" if of[1].state.isdigit() else of[1].state,
            "#seconds": lambda of: quantity(of[1].seconds, Unit.SECONDS),
            "#share": lambda of: percent(of[1].seconds / of[0].seconds if of[0].seconds else None),
            "#moved": lambda of: quantity(of[1].moved_bytes, Unit.BYTES),
            "#energy": lambda of: energy_text(of[1]),
            "#rate per watt": lambda of: quantity(_bytes_per_j(of[1]), Unit.BYTES_PER_JOULE),
        },
    )


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
    calibrated = [
        (source, source.sensor)
        for source in power.sources
        if source.sensor is not None and source.sensor.basis == "calibrated"
    ]
    if calibrated:
        yield _calibration_table(record, calibrated)


def _power_states(record: RunRecord) -> Table:
    """Return the power state of each controller at each moment it was read."""
    return Table(
        columns=columns("controller", *_MOMENTS, "result"),
        rows=[
            row(
                device_text(record, each.host, each.serial),
                *(MISSING if state is None else f"PS{state}" for state in _at_moments(each)),
                each.sentence,
            )
            for each in record.power.states
        ],
        caption="Power states",
    )


def _at_moments(each: PowerStateRecord | PowerSettingRecord) -> list[int | None]:
    return [getattr(each, moment) for moment in _MOMENTS.values()]


def _source_table(record: RunRecord) -> Table:
    """Return the sources that were used, and why the others were not."""
    return listing(
        "Power sources",
        record.power.sources,
        {
            "": lambda each: Cell("used", "good") if each.used else Cell("not used", "open"),
            "source": lambda each: each.name,
            "device": lambda each: device_text(record, each.host, each.device),
            "sensor": lambda each: _sensor(each.facts) if each.facts else MISSING,
            "#period": lambda each: quantity(
                each.facts.period_s if each.facts else None, Unit.SECONDS
            ),
            "reason": lambda each: each.sentence,
        },
    )


def _sensor(facts: SourceFacts) -> str:
    late_s = getattr(facts.sensor, "lag_s", 0.0)
    return f"{facts.sensor.kind}, {late_s:g} s late" if late_s else facts.sensor.kind


def _calibration_table(
    record: RunRecord, sensors: Sequence[tuple[PowerSourceRecord, SensorRecord]]
) -> Table:
    """Return what a known load showed of each meter."""
    return listing(
        "Calibration of the meters by a known load",
        sensors,
        {
            "source": lambda of: Cell(
                of[0].name, remark=device_text(record, of[0].host, of[0].device)
            ),
            "#delay": lambda of: delay_text(of[1]),
            "#settled after": lambda of: quantity(of[1].settle_s, Unit.SECONDS, 3),
            "#update": lambda of: (
                quantity(of[1].update_s, Unit.SECONDS, 3) if of[1].update_s else "every read"
            ),
            "#noise": lambda of: quantity(of[1].noise_w, Unit.WATTS, 2),
            "#fall later than rise": lambda of: quantity(of[1].fall_later_s, Unit.SECONDS, 2),
            "#error of a fast train": lambda of: percent(of[1].train_share, 2),
        },
        "Delay: the mean time by which readings are late. Energies use these values; a fall later "
        "than the rise is uncertainty. A fast train of load whose mean is wrong shows a meter that "
        "aliases or is not linear.",
    )


def _settings(record: RunRecord) -> Table:
    """Return the other settings of drives that the run changed, as requested and as read."""
    return Table(
        columns=columns("controller", "setting", "option", *(f"#{name}" for name in _MOMENTS)),
        rows=[
            row(
                device_text(record, state.host, state.serial),
                setting.name,
                setting.option,
                *(_setting_text(setting, figure) for figure in _at_moments(setting)),
            )
            for state in record.power.states
            for setting in state.settings
        ],
        caption="Other settings of the drives",
    )


def _setting_text(setting: PowerSettingRecord, figure: float | None) -> str:
    if figure is None:
        return MISSING
    number = f"{figure:.0f}" if figure.is_integer() else f"{figure:g}"
    return f"{number} {setting.unit}".strip()
