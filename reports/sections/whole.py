"""Power beyond the phases: the whole run by each source, idle before and after it, each host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from wattload.core.power import SourceFacts
from wattload.core.record.energy import EnergyRecord, HostPower, IdleRecord, Moment, PollingCost
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Cell, Section, Table, columns, row
from wattload.reports.energy import sources_of, words_of
from wattload.reports.load import Run
from wattload.reports.quantity import MISSING, counted, percent, quantity
from wattload.reports.sections.drives import ABSOLUTE_ZERO_C
from wattload.reports.sections.wording import anchor
from wattload.reports.subject import Subject

INTEGRATES = "integral"
"""The kind of sensor that integrates by itself, from start to stop."""
POWER_DIGITS = 6
"""Microwatts: no sensor tells less, and what is left of two equal floats is no difference."""

Key = tuple[str, str, str, Moment]
"""Host, device, source, and which idle baseline."""


def whole_section(subject: Subject, run: Run) -> Section | None:
    """Return what is known of the run as a whole and of its idle times, ``None`` if nothing is."""
    record = run.record
    tables = (whole_run_table(record), idle_table(record), hosts_table(record))
    blocks = [table for table in tables if table is not None]
    if not blocks:
        return None
    return Section(anchor=anchor(run.id, "whole"), title="Whole run and idle", blocks=blocks)


def whole_run_table(record: RunRecord) -> Table | None:
    """Return the energy of the whole run by source, beside what the device itself integrated."""
    energies = record.power.whole_run
    if not energies:
        return None
    own = {(each.host, each.device): each for each in energies if _integrates(record, each)}
    titles = columns(
        "device",
        "#window",
        "#energy, gross",
        "#uncertainty, k = 2",
        "#beside its own count",
        "#mean power",
        "#coverage",
        "evidence",
    )
    return Table(
        columns=titles,
        rows=[_whole_run(record, each, own.get((each.host, each.device))) for each in energies],
        caption="Energy of the whole run by source",
        note=(
            "All of one device are of one window, from the sampler's start to its end, idle before "
            "and after the phases included. What a device integrates by itself (a drive by feature "
            "25h) is never split into phases; the others stand beside it. No total holds any of it."
        ),
    )


def _whole_run(
    record: RunRecord, energy: EnergyRecord, own: EnergyRecord | None
) -> tuple[Cell, ...]:
    return row(
        Cell(energy.device, remark=f"{energy.source}, {energy.scope}"),
        quantity(energy.seconds, Unit.SECONDS),
        _told(energy.energy_j, Unit.JOULES, energy.missing.get("energy_j", "")),
        _told(energy.uncertainty_j, Unit.JOULES, _reason_beside(energy, "uncertainty_j")),
        _beside(energy, own),
        quantity(energy.mean_w, Unit.WATTS),
        Cell(percent(energy.coverage), remark=counted(energy.sample_count, "sample")),
        _words(record, energy),
    )


def _told(value: float | None, unit: Unit, reason: str) -> Cell:
    """Return a figure, or a dash with the reason under it."""
    return Cell(quantity(value, unit), remark=reason if value is None else "")


def _reason_beside(energy: EnergyRecord, field: str) -> str:
    """Return why a field is missing, unless that is why there is no energy, which is told once."""
    reason = energy.missing.get(field, "")
    return "" if reason == energy.missing.get("energy_j") else reason


def _beside(energy: EnergyRecord, own: EnergyRecord | None) -> Cell:
    """Return by how much a figure differs from what the device itself integrated."""
    if own is energy:
        return Cell("its own count", "quiet")
    if own is None or not own.energy_j or energy.energy_j is None:
        return Cell(MISSING)
    difference_j = energy.energy_j - own.energy_j
    sign = "+" if difference_j > 0 else ""
    share = percent(difference_j / own.energy_j)
    return Cell(f"{sign}{share}", remark=f"{sign}{quantity(difference_j, Unit.JOULES, 3)}")


def _integrates(record: RunRecord, energy: EnergyRecord) -> bool:
    facts = _facts(record, energy)
    return facts is not None and facts.sensor.kind == INTEGRATES


def _facts(record: RunRecord, figure: EnergyRecord | IdleRecord) -> SourceFacts | None:
    return sources_of(record).get((figure.host, figure.source, figure.device))


def _words(record: RunRecord, figure: EnergyRecord | IdleRecord) -> str:
    facts = _facts(record, figure)
    return words_of(
        figure.evidence,
        recorded=facts is not None and facts.is_recorded,
        replayed=facts is not None and facts.is_of_another_run,
    )


def idle_table(record: RunRecord) -> Table | None:
    """Return idle power before and after the run, polled and quiet, and what polling costs."""
    pairs: defaultdict[Key, dict[bool, IdleRecord]] = defaultdict(dict)
    for idle in record.power.idle:
        pairs[idle.host, idle.device, idle.source, idle.moment][idle.polled] = idle
    if not pairs:
        return None
    costs = {(c.host, c.device, c.source, c.moment): c for c in record.power.polling}
    known = {key: pair for key, pair in pairs.items() if _has_figure(pair)}
    silent = [pair for key, pair in pairs.items() if key not in known]
    titles = columns(
        "device", "when", "#polled", "#quiet", "#polled - quiet", "power state", "evidence"
    )
    return Table(
        columns=titles,
        rows=[_idle(record, pair, costs.get(key)) for key, pair in known.items()],
        caption="Idle power, and what polling costs the drive's sleep",
        note=(
            "Polled: under the sampler's reads. Quiet: nothing was sent to the drive until one "
            f"read at the end.{_silence(silent)}"
        ),
    )


def _has_figure(pair: Mapping[bool, IdleRecord]) -> bool:
    return any(idle.mean_w is not None for idle in pair.values())


def _idle(
    record: RunRecord, pair: Mapping[bool, IdleRecord], cost: PollingCost | None
) -> tuple[Cell, ...]:
    some = next(iter(pair.values()))
    polled = pair.get(True)
    return row(
        Cell(some.device, remark=some.source),
        f"{some.moment} the run",
        _mean(polled),
        _mean(pair.get(False)),
        _difference(pair, cost),
        _state(polled),
        _words(record, some),
    )


def _mean(idle: IdleRecord | None) -> Cell:
    if idle is None:
        return Cell(MISSING, remark="not taken")
    if idle.mean_w is None:
        return Cell(MISSING, remark=idle.missing["mean_w"])
    seconds = quantity(idle.seconds, Unit.SECONDS, 3)
    remark = f"{seconds}, {counted(idle.sample_count, 'sample')}"
    return Cell(quantity(idle.mean_w, Unit.WATTS), remark=remark)


def _difference(pair: Mapping[bool, IdleRecord], cost: PollingCost | None) -> Cell:
    """Return polled minus quiet; a reason that stands beside it already is not repeated."""
    if cost is None:
        return Cell(MISSING, remark="" if len(pair) == 1 else "not formed")
    if cost.difference_w is None:
        reason = cost.missing["difference_w"]
        told = {idle.missing.get("mean_w") for idle in pair.values()}
        return Cell(MISSING, remark="" if reason in told else reason)
    return Cell(quantity(round(cost.difference_w, POWER_DIGITS), Unit.WATTS))


def _state(polled: IdleRecord | None) -> Cell:
    """Return the power state that was read throughout, and how warm the drive was."""
    if polled is None or polled.power_state is None:
        return Cell(MISSING, remark="" if polled is None else polled.missing["power_state"])
    kelvin = polled.temperature_k
    remark = "" if kelvin is None else f"{kelvin + ABSOLUTE_ZERO_C:g} °C"
    return Cell(f"PS{polled.power_state}", remark=remark)


def _silence(silent: list[dict[bool, IdleRecord]]) -> str:
    """Return a sentence for each source that told no idle power, with its first reason."""
    reasons: dict[str, str] = {}
    for pair in silent:
        for idle in pair.values():
            reasons.setdefault(idle.source, idle.missing["mean_w"])
    return "".join(f" None by {source}: {reason}." for source, reason in reasons.items())


def hosts_table(record: RunRecord) -> Table | None:
    """Return how long each host's drives were watched at idle, and what was lost of it."""
    hosts = [host for host in record.power.hosts if _tells(host)]
    if not hosts:
        return None
    titles = columns(
        "host", "#quiet", "#idle before", "#tail", "#idle after", "sampler", "dropped readings"
    )
    rows = [_host(host, with_choice=len(hosts) > 1) for host in hosts]
    return Table(columns=titles, rows=rows, caption="How the drives of each host were watched")


def _tells(host: HostPower) -> bool:
    """Return whether there is more to say of a host than which source was taken."""
    lengths = (host.idle_s, host.idle_after_s, host.quiet_s, host.tail_s)
    return any((*lengths, host.lost, host.data_lost))


def _host(host: HostPower, *, with_choice: bool) -> tuple[Cell, ...]:
    dropped = Cell("none told")
    if host.data_lost:
        count = counted(len(host.data_lost), "meter")
        dropped = Cell(f"by {count}", "bad", remark="; ".join(host.data_lost))
    sampler = Cell("ran to the end", "good")
    if host.lost:
        sampler = Cell("lost", "bad", remark=host.lost)
    tail = Cell(MISSING, remark="not watched, or it did not end")
    return row(
        Cell(host.host, remark=host.choice if with_choice else ""),
        _length(host.quiet_s),
        _length(host.idle_s),
        tail if host.tail_s is None else quantity(host.tail_s, Unit.SECONDS, 3),
        _length(host.idle_after_s),
        sampler,
        dropped,
    )


def _length(seconds: float) -> Cell:
    if not seconds:
        return Cell(MISSING, remark="not taken")
    return Cell(quantity(seconds, Unit.SECONDS, 3))
