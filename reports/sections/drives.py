"""NVMe drives of a run: identity, link now and at best, and what the run changed."""

from __future__ import annotations

from collections.abc import Iterator

from wattload.core.record.controller import ControllerRecord, ControllerState
from wattload.core.units import Unit
from wattload.reports.blocks import Block, Facts, Fold, Heading, Notice, Table, columns, row
from wattload.reports.conditions import link_text
from wattload.reports.quantity import MISSING, number, quantity, whole

ABSOLUTE_ZERO_C = -273


def drive_blocks(controller: ControllerRecord) -> Iterator[Block]:
    """Yield what is known of one controller."""
    facts = controller.facts
    yield Heading(f"Drive {facts.name}: {facts.model or 'unknown model'}")
    if slow := _slow_link(controller):
        yield Notice("The slot limits the drive", [slow], "warn")
    yield Facts(list(_identity(controller)))
    if controller.before is not None or controller.after is not None:
        yield _states(controller)
    if facts.power_states:
        yield Fold("Power state table of the drive", [_power_states(controller)])


def _links(controller: ControllerRecord) -> tuple[str, str]:
    state = controller.before or controller.after
    now = link_text(state.link_speed_gt_per_s, state.link_width) if state else "unknown"
    facts = controller.facts
    return now, link_text(facts.link_speed_max_gt_per_s, facts.link_width_max)


def _slow_link(controller: ControllerRecord) -> str:
    now, best = _links(controller)
    if now == best or "unknown" in (now, best):
        return ""
    return f"Its link runs at {now}; the drive can do {best}."


def _identity(controller: ControllerRecord) -> Iterator[tuple[str, str]]:
    facts = controller.facts
    now, best = _links(controller)
    yield "serial", facts.serial
    yield "link now, at best", f"{now}, {best}"
    yield "address", f"{facts.address or MISSING} on NUMA node {_or_dash(facts.numa_node)}"
    yield "NVMe version", facts.nvme_version or MISSING
    if facts.holds_system:
        yield "system drive", "root or swap lies on it"
    difference = controller.difference
    if difference is None:
        return
    yield "changed during the run", ", ".join(difference.changed) or "nothing that it tells"
    yield (
        "bytes by its own log",
        (
            f"{quantity(difference.read_bytes, Unit.BYTES)} read, "
            f"{quantity(difference.written_bytes, Unit.BYTES)} written"
        ),
    )
    amplification = difference.write_amplification
    yield (
        "write amplification",
        number(amplification, 3)
        if amplification is not None
        else difference.missing["write_amplification"],
    )


def _or_dash(value: object) -> str:
    return MISSING if value is None else str(value)


def _states(controller: ControllerRecord) -> Table:
    """Return the drive's state before and after; rows that neither reading has are left out."""
    pairs = [dict(_state(state)) for state in (controller.before, controller.after)]
    names = dict.fromkeys(name for pair in pairs for name in pair)
    rows = [
        row(name, *[pair.get(name, MISSING) for pair in pairs])
        for name in names
        if any(pair.get(name, MISSING) != MISSING for pair in pairs)
    ]
    gaps = sorted((controller.before.missing if controller.before else {}).items())
    note = "; ".join(f"{name.replace('_', ' ')}: {reason}" for name, reason in gaps)
    return Table(
        columns=columns("state", "#before", "#after"),
        rows=rows,
        caption="Before and after the run",
        note=f"Not read: {note}." if note else "",
    )


def _state(state: ControllerState | None) -> Iterator[tuple[str, str]]:
    if state is None:
        return
    yield "firmware", f"{state.firmware or MISSING} in slot {_or_dash(state.firmware_slot)}"
    yield "power state", MISSING if state.power_state is None else f"PS{state.power_state}"
    yield "logical block", quantity(state.lba_bytes, Unit.BYTES)
    yield "namespace used", quantity(state.namespace_used_bytes, Unit.BYTES)
    yield "volatile write cache", _or_dash(state.volatile_write_cache)
    yield "APST", _or_dash(state.apst_enabled)
    yield "ASPM", state.aspm or MISSING
    yield "link", link_text(state.link_speed_gt_per_s, state.link_width)
    smart = state.smart
    if smart is None:
        return
    celsius = None if smart.temperature_k is None else smart.temperature_k + ABSOLUTE_ZERO_C
    yield "temperature", MISSING if celsius is None else f"{celsius} °C"
    yield "thermal transitions", whole(smart.thermal_transitions_1)
    yield "percentage used", _or_dash(smart.percentage_used)
    yield "available spare", _or_dash(smart.available_spare_percent)
    yield "bytes read in its life", quantity(smart.read_bytes, Unit.BYTES)
    yield "bytes written in its life", quantity(smart.written_bytes, Unit.BYTES)
    yield "media errors", whole(smart.media_errors)
    yield "unsafe shutdowns", whole(smart.unsafe_shutdowns)


def _power_states(controller: ControllerRecord) -> Table:
    rows = [
        row(
            f"PS{state.index}",
            quantity(state.max_w, Unit.WATTS),
            quantity(state.active_w, Unit.WATTS),
            quantity(state.idle_w, Unit.WATTS),
            "yes" if state.operational else "no",
            quantity(state.entry_latency_s, Unit.SECONDS),
            quantity(state.exit_latency_s, Unit.SECONDS),
        )
        for state in controller.facts.power_states or ()
    ]
    titles = columns("state", "#maximum", "#active", "#idle", "operational", "#entry", "#exit")
    return Table(columns=titles, rows=rows, caption="Power states that the drive declares")
