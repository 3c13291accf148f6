"""Runs of several hosts: what each host did, and which one ended last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from wattload.core.power import Evidence
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Block, Cell, Heading, Paragraph, Section, Table, listing
from wattload.reports.charts.timeline import hosts_figure
from wattload.reports.charts.tracks import Track
from wattload.reports.runs.energy import Energy, energy_text, power_text
from wattload.reports.runs.hosts import (
    SAME_RATE_SHARE,
    Ends,
    HostShare,
    ends_of,
    names_text,
    shares_of,
)
from wattload.reports.sections.energy import is_figure
from wattload.reports.sections.over_time import tracks_of
from wattload.reports.sections.wording import anchor
from wattload.reports.stats.subject import Group, Subject, lettered
from wattload.results.labels import label, workload_title
from wattload.results.quantity import (
    MISSING,
    counted,
    one_unit,
    percent,
    quantity,
    scale_for,
    with_uncertainty,
)

HOSTS_MAX = 8
"""The most hosts that have a line each in a summary; the page has all."""

DRIVES_MAX = 4
"""The most drives of a host that are named; of more, only their number is given."""


def hosts_section(subject: Subject) -> Section | None:
    """Return what each host did in a run of each arm; ``None`` without a run of several hosts."""
    blocks: list[Block] = []
    for group in subject.groups:
        for track in tracks_of(subject, group):
            if found := list(_blocks(track, group)):
                title = workload_title(group.workload) if len(subject.groups) > 1 else ""
                arm = lettered(track.letter, track.name) if len(group.arms) > 1 else ""
                heading = ", ".join(filter(None, (title, arm)))
                blocks += [Heading(heading)] * bool(heading)
                blocks += found
    if not blocks:
        return None
    return Section(anchor="by-host", title="By host", blocks=blocks, open=True)


def _blocks(track: Track, group: Group) -> Iterator[Block]:
    yield from host_blocks(track.run.record)
    name = anchor("by-host", group.workload, track.letter)
    if figure := hosts_figure(name, f"{workload_title(group.workload)}: rate by host", track):
        yield figure


def host_blocks(record: RunRecord) -> list[Block]:
    """Return a row for each host with a total, and how they ended; empty for a single host."""
    rows = shares_of(record)
    text = " ".join(filter(None, (ends_text(record), shared_text(record))))
    if not rows:
        return []
    rates = [rate for row in rows for rate in (row.reading_bytes_per_s, row.writing_bytes_per_s)]
    with one_unit(Unit.BYTES_PER_SECOND, scale_for(Unit.BYTES_PER_SECOND, *rates)):
        return [*([Paragraph(text)] if text else []), hosts_table(record, rows)]


def hosts_table(record: RunRecord, rows: tuple[HostShare, ...]) -> Table:
    """Return a table of hosts, the last row of which is their total, without empty columns."""
    whole = rows[-1]
    known = [each.energy for each in rows if each.energy is not None]
    measurand = "for the work" if any(e.work_j is not None for e in known) else "in the window"
    values: dict[str, Callable[[HostShare], str | Cell]] = {
        "host": lambda each: each.name,
        "#ranks": lambda each: str(each.rank_count),
        "drives": lambda each: (
            counted(len(each.drives), "drive") if each is whole else drives_text(each)
        ),
        "#read": lambda each: quantity(each.read_bytes or None, Unit.BYTES),
        "#written": lambda each: quantity(each.written_bytes or None, Unit.BYTES),
        "#read rate": lambda each: quantity(each.reading_bytes_per_s, Unit.BYTES_PER_SECOND),
        "#write rate": lambda each: quantity(each.writing_bytes_per_s, Unit.BYTES_PER_SECOND),
        f"#drive energy {measurand}": lambda each: _energy(each.energy, measurand),
        "#mean power": lambda each: power_text(each.energy) if each.energy else MISSING,
        "#clock": lambda each: clock_text(record, each),
    }
    shown = {
        title: value
        for title, value in values.items()
        if any(is_figure(value(row)) for row in rows)
    }
    words = {each.words for each in known if each.evidence is not Evidence.NONE}
    note = (
        "In timed phases. A host is active while any of its ranks is in one. Its rates are over "
        "its active time in phases that read, or that wrote. The total's are from the first start "
        "to the last end on any host, so the hosts' rates do not add up to them. "
    )
    if words:
        note += f"Energy: {'; '.join(sorted(words))}. Mean power: of the drives while their host "
        note += "was active; it adds up. "
    note += "Clock: how far a host's times may be off on the first host's clock."
    return listing("Timed phases by host", rows, shown, note)


def shared_text(record: RunRecord) -> str:
    """Return which drives several hosts use; empty without any."""
    return " ".join(
        f"{names_text(hosts)} use the same drive, {serial}: the total has its energy once."
        for serial, hosts in record.shared_drives.items()
    )


def drives_text(share: HostShare) -> str:
    """Return a host's drives by name, or their number if they are many."""
    if len(share.drives) > DRIVES_MAX:
        return counted(len(share.drives), "drive")
    return ", ".join(share.drives) or MISSING


def _energy(energy: Energy | None, measurand: str) -> Cell:
    """Return an energy with its uncertainty, with a remark if it is not of the usual measurand."""
    if energy is None or energy_text(energy) == MISSING:
        return Cell(MISSING, remark="" if energy is None else energy.reason)
    text, own = energy_words(energy)
    return Cell(text, remark="" if own == measurand else own)


def energy_words(energy: Energy) -> tuple[str, str]:
    """Return an energy for the work, or else in the window, with its uncertainty; and which."""
    if energy.work_j is not None:
        text = with_uncertainty(energy.work_j, energy.work_uncertainty_j, Unit.JOULES)
        return text, "for the work"
    if energy.energy_j is None:
        return energy_text(energy), "in the window"
    return with_uncertainty(energy.energy_j, energy.uncertainty_j, Unit.JOULES), "in the window"


def clock_text(record: RunRecord, share: HostShare) -> str:
    """Return how well a host's clock is known on the first host's."""
    if share.name == record.hosts[0].facts.name:
        return "reference"
    if share.clock_bound_s is None:
        return "unknown"
    return f"± {quantity(share.clock_bound_s, Unit.SECONDS, 2)}"


def ends_text(record: RunRecord) -> str:
    """Return which host ended last, or that all ended together; empty for a run of one host."""
    found = ends_of(record)
    if found is None:
        return ""
    late, sentences = found.late_host, []
    behind = quantity(found.behind_s, Unit.SECONDS, 3)
    parts = f", summed over its {found.parts} parts" if found.parts > 1 else ""
    share = f"({percent(found.behind_s / found.seconds, 2)} of {label(found.phase)}{parts})"
    if late is not None:
        sentences.append(f"{late} ended last, {behind} after {found.first} {share}{_moved(found)}.")
    else:
        known = ", as far as their clocks are known" if found.is_apart else ""
        sentences.append(f"All hosts ended within {behind} {share}{known}.")
        if (slow := found.slow_drives_host) is not None:
            own, others = _beside_others(found.busy_rates, slow)
            sentences.append(
                f"The drives of {slow} were the slowest while busy, at {own}; the others moved "
                f"{others}."
            )
    if found.lead > SAME_RATE_SHARE:
        sentences.append(
            f"The rate of the fastest host was {percent(found.lead, 2)} above that of the slowest."
        )
    return " ".join(sentences)


def _moved(ends: Ends) -> str:
    """Return the bytes of the last host to end and of the first, if they differ."""
    if not ends.has_uneven_bytes:
        return ""
    last, first = (quantity(ends.moved_bytes[host], Unit.BYTES) for host in (ends.last, ends.first))
    return f", having moved {last} to {ends.first}'s {first}"


def _beside_others(rates: Mapping[str, float], host: str) -> tuple[str, str]:
    """Return the rate of a host, and the range of the others'."""
    others = [rate for name, rate in rates.items() if name != host]
    ends = [quantity(end, Unit.BYTES_PER_SECOND) for end in (min(others), max(others))]
    own = quantity(rates[host], Unit.BYTES_PER_SECOND)
    return own, " to ".join(dict.fromkeys(ends))
