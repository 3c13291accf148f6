"""Hosts, targets and NVMe drives: what differs over a page, and what a run recorded of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from wattload.core.base_models import Observed
from wattload.core.io import DataPath
from wattload.core.record.host import HostFacts, HostRecord
from wattload.core.record.run import RunRecord
from wattload.core.record.target import (
    BlockNode,
    ControllerRecord,
    ControllerState,
    FileSystemFacts,
    TargetRecord,
)
from wattload.core.units import Unit
from wattload.reports.blocks import (
    Block,
    Cell,
    Facts,
    Fold,
    Heading,
    Node,
    Notice,
    Paragraph,
    Section,
    Table,
    Tree,
    columns,
    listing,
    row,
)
from wattload.reports.runs.hosts import names_text
from wattload.reports.runs.load import Run
from wattload.reports.sections.wording import (
    hosts_text,
    sentence_of,
    target_text,
    targets_text,
    unique,
)
from wattload.reports.stats.comparison import excluding_conditions
from wattload.reports.stats.conditions import (
    compared_group,
    differences,
    link_text,
    links,
    mixtures,
    slow_link,
)
from wattload.reports.stats.pairs import one_after_the_other
from wattload.reports.stats.subject import LETTERS, Group, Subject, lettered, named
from wattload.reports.stats.sweeps import points
from wattload.results.labels import workload_title
from wattload.results.paths import path_text, proof
from wattload.results.quantity import (
    MISSING,
    counted,
    cpu_digits,
    listed,
    number,
    percent,
    quantity,
    whole,
)

ABSOLUTE_ZERO_C = -273
"""As NVMe converts its whole kelvins to degrees Celsius."""

_NOT_COMPARED = ("name", "missing")
"""The fields of a host that are its name, or reasons for other fields."""


def drive_blocks(controller: ControllerRecord, of_host: str) -> Iterator[Block]:
    facts = controller.facts
    yield Heading(f"Drive {facts.name}{of_host}: {facts.model or 'unknown model'}")
    if slow := slow_link(controller):
        yield Notice("The slot limits the drive", [f"PCIe link: {slow}."], "warn")
    yield Facts(list(_identity(controller)))
    if controller.before is not None or controller.after is not None:
        yield _states(controller)
    if facts.power_states:
        yield Fold("Power state table of the drive", [_power_states(controller)])


def _identity(controller: ControllerRecord) -> Iterator[tuple[str, str]]:
    facts = controller.facts
    now, best = links(controller)
    yield "serial", facts.serial
    yield "link now, maximum", f"{now}, {best}"
    yield "address", f"{facts.address or MISSING} on NUMA node {_or_dash(facts.numa_node)}"
    yield "NVMe version", facts.nvme_version or MISSING
    if facts.holds_system:
        yield "system drive", "holds root or swap"
    difference = controller.difference
    if difference is None:
        return
    yield "changed during the run", ", ".join(difference.changed) or "no recorded field"
    yield (
        "bytes by its log",
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
    """Return the drive's state before and after the run, without rows that neither reading has."""
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
    yield "lifetime bytes read", quantity(smart.read_bytes, Unit.BYTES)
    yield "lifetime bytes written", quantity(smart.written_bytes, Unit.BYTES)
    yield "media errors", whole(smart.media_errors)
    yield "unsafe shutdowns", whole(smart.unsafe_shutdowns)


def _power_states(controller: ControllerRecord) -> Table:
    return listing(
        "Power states declared by the drive",
        controller.facts.power_states or (),
        {
            "state": lambda state: f"PS{state.index}",
            "#maximum": lambda state: quantity(state.max_w, Unit.WATTS),
            "#active": lambda state: quantity(state.active_w, Unit.WATTS),
            "#idle": lambda state: quantity(state.idle_w, Unit.WATTS),
            "operational": lambda state: "yes" if state.operational else "no",
            "#entry": lambda state: quantity(state.entry_latency_s, Unit.SECONDS),
            "#exit": lambda state: quantity(state.exit_latency_s, Unit.SECONDS),
        },
    )


def machine_blocks(run: Run) -> list[Block]:
    record = run.record
    blocks: list[Block] = []
    is_one = len(record.hosts) == 1
    for target in record.targets:
        blocks.extend(_target(target, "" if is_one else f" of {target.facts.host}"))
    for controller in record.controllers:
        blocks.extend(drive_blocks(controller, "" if is_one else f" of {controller.facts.host}"))
    for host in record.hosts:
        blocks.extend(_host(host))
    if record.workload.paths:
        blocks.append(_paths(record))
    if record.ranks:
        blocks.append(_ranks(record))
    return blocks


def _target(target: TargetRecord, of_host: str) -> Iterator[Block]:
    facts = target.facts
    yield Heading(f"Target {facts.index}{of_host}: {target_text(facts)}")
    warnings = list(facts.warnings)
    if facts.virtual and not any("guest-cold" in warning for warning in warnings):
        warnings.append(
            "It is on a hypervisor's disk, so cold means guest-cold: the cache outside the guest "
            "cannot be emptied from inside."
        )
    if warnings:
        yield Notice("Caveats of this target", [sentence_of(text) for text in warnings], "warn")
    if facts.stack is not None:
        yield Tree(_node(facts.stack), "Block stack, from the file system down")
    yield Facts([*_target_facts(target), *_missing(facts)])


def _node(node: BlockNode) -> Node:
    details = [quantity(node.size_bytes, Unit.BYTES, 3)] if node.size_bytes else []
    details += [text for text in (node.model, node.serial) if text]
    if node.redundancy not in (None, 1):
        details.append(f"writes {node.redundancy:g} copies")
    queue = node.queue
    if queue is not None:
        details.append(f"scheduler {queue.scheduler or 'unknown'}")
        details.append(f"write cache {queue.write_cache or 'unknown'}")
        details.append(f"requests {queue.nr_requests or 'unknown'}")
        if queue.max_sectors_kb:
            details.append(f"at most {queue.max_sectors_kb} KiB a request")
    return Node(
        f"{node.kind.replace('_', ' ')} {node.name}",
        ", ".join(details),
        [_node(child) for child in node.children],
    )


def _target_facts(target: TargetRecord) -> Iterator[tuple[str, str]]:
    facts = target.facts
    yield "kind", facts.kind
    if facts.file_system is not None:
        yield from _file_system(facts.file_system)
    if facts.direct_io_offset_align_bytes is not None:
        yield "O_DIRECT alignment", f"{facts.direct_io_offset_align_bytes} B in the file"
    for word, state in (("before", target.before), ("after", target.after)):
        if state is not None and state.free_bytes is not None:
            free = quantity(state.free_bytes, Unit.BYTES, 3)
            yield f"free {word}", f"{free}, {percent(state.fill_fraction)} full"
    history = target.history
    yield (
        "history",
        f"format {history.last_format}, TRIM {history.last_trim}, "
        f"preconditioning {history.preconditioning}",
    )


def _file_system(system: FileSystemFacts) -> Iterator[tuple[str, str]]:
    yield "file system", f"{system.type} ({system.category}) from {system.source}"
    yield "mounted at", f"{system.mount_point} with {', '.join(system.mount_options) or 'defaults'}"


def _missing(part: Observed) -> Iterator[tuple[str, str]]:
    """Yield the fields that could not be read, by reason."""
    reasons: dict[str, list[str]] = {}
    for name, reason in part.missing.items():
        reasons.setdefault(reason, []).append(name.replace("_", " "))
    for reason, names in reasons.items():
        yield "not read", f"{', '.join(sorted(names))}: {reason}"


def _host(host: HostRecord) -> Iterator[Block]:
    facts = host.facts
    yield Heading(f"Host {facts.name}")
    pairs = [
        ("processor", f"{facts.cpu_model or 'unknown'}, {facts.cpu_count} CPUs"),
        ("memory", quantity(facts.memory_bytes, Unit.BYTES, 3)),
        ("system", f"{facts.os or 'unknown'}, Linux {facts.kernel}"),
        ("hypervisor", facts.hypervisor or MISSING),
        ("governor", facts.governor or MISSING),
        *_bounds(host),
        *_busy(host),
    ]
    yield Facts(pairs)
    rest = [
        (name.replace("_", " "), str(value))
        for name, value in facts.model_dump(mode="json", exclude={"missing"}).items()
        if value not in (None, {})
    ]
    yield Fold(f"All recorded fields of {facts.name}", [Facts([*rest, *_missing(facts)])])


def _bounds(host: HostRecord) -> Iterator[tuple[str, str]]:
    """Yield the limits of the host's control groups, and how far they bound the run."""
    facts, before, after = host.facts, host.before.group, host.after and host.after.group
    if facts.cgroup_cpu_limit is not None:
        text = f"{facts.cgroup_cpu_limit:g} CPUs"
        if after and None not in (before.throttled_s, after.throttled_s):
            throttled_s = (after.throttled_s or 0.0) - (before.throttled_s or 0.0)
            text += f", stopped for {quantity(throttled_s, Unit.SECONDS)} of CPU time in the run"
        yield "CPU quota", text
    if facts.cgroup_memory_limit_bytes is not None:
        yield "memory limit", quantity(facts.cgroup_memory_limit_bytes, Unit.BYTES, 3)
    for name, limit in (facts.cgroup_io_limits or {}).items():
        yield f"I/O limit {name}", f"{limit:,} per second"


def _busy(host: HostRecord) -> Iterator[tuple[str, str]]:
    """Yield the load of the host between its readings before and after the run."""
    before, after = host.before, host.after
    if after is None or None in (before.cpu_busy_s, after.cpu_busy_s):
        return
    busy_s = (after.cpu_busy_s or 0.0) - (before.cpu_busy_s or 0.0)
    total_s = (after.cpu_total_s or 0.0) - (before.cpu_total_s or 0.0)
    if total_s > 0:
        yield "CPU busy during the run", percent(busy_s / total_s)
    if after.steal_s is not None and before.steal_s is not None:
        yield (
            "CPU time stolen by the hypervisor",
            quantity(after.steal_s - before.steal_s, Unit.SECONDS, 3),
        )
    if after.pressure_io_some_s is not None and before.pressure_io_some_s is not None:
        waited_s = after.pressure_io_some_s - before.pressure_io_some_s
        yield "time that some task waited for I/O", quantity(waited_s, Unit.SECONDS, 3)


def _paths(record: RunRecord) -> Table:
    rows = [
        row(
            path.initiator.upper(),
            Cell(path.data_path, remark=path.engine),
            path.path_requested,
            Cell(path.path_effective, remark=_path_remark(path, record)),
            Cell(path.path_evidence, remark=proof([path])),
        )
        for path in record.workload.paths
    ]
    titles = columns("initiator", "data path", "requested", "effective", "evidence")
    return Table(columns=titles, rows=rows, caption="Data paths")


def _path_remark(path: DataPath, record: RunRecord) -> str:
    """Return the path in words where these say more than its name."""
    words = path_text(path, record.workload.loader)
    return "" if words == path.path_effective else words


def _ranks(record: RunRecord) -> Block:
    return listing(
        "Processes",
        record.ranks,
        {
            "#rank": lambda rank: str(rank.rank),
            "host": lambda rank: rank.host,
            "CPUs allowed": lambda rank: rank.cpu_affinity or MISSING,
            "#CPU time": lambda rank: quantity(
                rank.cpu_s, Unit.SECONDS, cpu_digits(rank.cpu_s or 0.0)
            ),
            "#peak memory": lambda rank: quantity(rank.peak_memory_bytes, Unit.BYTES, 3),
        },
    )


def conditions_section(subject: Subject) -> Section:
    """Return what was run on, what differs between the arms, and what differs between hosts."""
    blocks: list[Block] = [Paragraph(_setup(subject))]
    blocks += _caveats(subject)
    tables = list(_differences(subject))
    blocks += tables
    if 1 < len(subject.arms) <= len(LETTERS) and not tables:
        blocks.append(Paragraph("The recorded conditions of all arms are the same."))
    blocks.append(_hosts(subject))
    return Section(anchor="conditions", title="Conditions and hosts", blocks=blocks)


def _setup(subject: Subject) -> str:
    records = [run.record for run in subject.runs]
    scales = listed(unique(record.workload.scale for record in records))
    loaders = listed(unique(w.loader for w in (r.workload for r in records) if w.uses_loader))
    hosts = listed(unique(hosts_text(record) for record in records))
    targets = listed(unique(filter(None, map(targets_text, records))))
    loader = f", loader {loaders}" if loaders else ""
    what = f"Scale {scales}{loader}, on {hosts}, against {targets or 'no target'}."
    if len(subject.arms) < 2:  # noqa: PLR2004 - one arm differs from none
        return what
    return f"{what} Arms are distinguished by {subject.distinction}."


def _caveats(subject: Subject) -> Iterator[Notice]:
    """Yield runs mixed in an arm, and arms that did not alternate."""
    places = [point for group in subject.groups for point in points(group)]
    texts = unique(
        text for point in places for text in mixtures(compared_group(subject, point.group))
    )
    orders = unique(filter(None, (one_after_the_other(subject, each.group) for each in places)))
    if orders:
        texts.append(
            f"The arms did not alternate: {listed(orders)}. Any drift counts as a difference of "
            "the arms; interleave=abba avoids that."
        )
    if texts:
        yield Notice("Confounders", texts, "warn", "confounders")


def _differences(subject: Subject) -> Iterator[Table]:
    """Yield the recorded conditions in which the arms differ; equal workloads share a table."""
    same: dict[tuple[tuple[str, ...], tuple[tuple[Cell, ...], ...]], list[str]] = {}
    for group in subject.groups:
        if 1 < len(group.arms) <= len(LETTERS) and (rows := _differing(subject, group)):
            pairs = zip(group.letters, group.arms, strict=True)
            arms = tuple(lettered(letter, named(letter, arm)) for letter, arm in pairs)
            same.setdefault((arms, rows), []).append(workload_title(group.workload))
    for (arms, rows), workloads in same.items():
        yield Table(
            columns=columns("condition", *arms),
            rows=rows,
            caption=f"{listed(workloads)}: conditions that differ",
        )


def _differing(subject: Subject, group: Group) -> tuple[tuple[Cell, ...], ...]:
    """Return a row for each recorded condition in which the compared runs of the arms differ."""
    compared = compared_group(subject, group)
    if sum(bool(runs) for runs in compared.arms.values()) < 2:  # noqa: PLR2004 - nothing to compare
        return ()
    excluding = excluding_conditions(subject, group)
    remark = "defines the work: " + ("forced" if subject.forced else "no verdict")
    return tuple(
        row(
            Cell(item.name, remark=remark if item.name in excluding else ""),
            *[item.values[arm] for arm in group.arms],
        )
        for item in differences(compared, subject.by)
    )


def _hosts(subject: Subject) -> Block:
    """Return the fields in which the hosts of all runs differ."""
    by_name: dict[str, list[HostFacts]] = {}
    for run in subject.runs:
        for host in run.record.hosts:
            by_name.setdefault(host.facts.name, []).append(host.facts)
    if len(by_name) < 2:  # noqa: PLR2004 - nothing to compare
        return Paragraph(_one_host(by_name))
    rows = [
        row(name.replace("_", " "), *(_values(facts, name) for facts in by_name.values()))
        for name in HostFacts.model_fields
        if name not in _NOT_COMPARED
        and len({_values(facts, name) for facts in by_name.values()}) > 1
    ]
    if not rows:
        return Paragraph(f"{names_text([*by_name])} are the same in all recorded fields.")
    if len(by_name) > len(LETTERS):
        counts = [Counter(cell.text for cell in cells) for _, *cells in rows]
        rows = [
            row(
                cells[0],
                "; ".join(f"{value} ({counted(n, 'host')})" for value, n in own.most_common()),
            )
            for cells, own in zip(rows, counts, strict=True)
        ]
        by_name = {"values": []}
    return Table(
        columns=columns("condition", *by_name),
        rows=rows,
        caption="What differs between the hosts",
        note="All other recorded fields are the same.",
    )


def _one_host(by_name: dict[str, list[HostFacts]]) -> str:
    name = next(iter(by_name), "no recorded host")
    changed = [
        field.replace("_", " ")
        for field in HostFacts.model_fields
        if field not in _NOT_COMPARED
        and len({_values([facts], field) for facts in by_name.get(name, ())}) > 1
    ]
    if changed:
        return f"All runs were made on {name}; it changed between runs in {listed(changed)}."
    return f"All runs were made on {name}; no recorded field changed between runs."


def _values(facts: Sequence[HostFacts], name: str) -> str:
    """Return the values that one host had in a field, as text without repetition."""
    values = [getattr(each, name) for each in facts]
    return "; ".join(unique(MISSING if value is None else str(value) for value in values))
