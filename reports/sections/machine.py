"""Hosts and targets of a run: what they are, what lies under them, what could not be read."""

from __future__ import annotations

from collections.abc import Iterator

from wattload.core.record.base import Observed
from wattload.core.record.host import HostRecord
from wattload.core.record.run import RunRecord
from wattload.core.record.target import BlockNode, FileSystemFacts, TargetRecord
from wattload.core.units import Unit
from wattload.reports.blocks import (
    Block,
    Cell,
    Facts,
    Fold,
    Heading,
    Node,
    Notice,
    Section,
    Table,
    Tree,
    columns,
    row,
)
from wattload.reports.load import Run
from wattload.reports.quantity import MISSING, percent, quantity
from wattload.reports.sections.drives import drive_blocks
from wattload.reports.sections.wording import anchor, sentence_of, target_words
from wattload.reports.subject import Subject


def machine_section(subject: Subject, run: Run) -> Section | None:
    """Return the hosts and targets of a run."""
    record = run.record
    blocks: list[Block] = []
    for target in record.targets:
        blocks.extend(_target(target))
    for controller in record.controllers:
        blocks.extend(drive_blocks(controller))
    for host in record.hosts:
        blocks.extend(_host(host))
    if record.workload.paths:
        blocks.append(_paths(record))
    if record.ranks:
        blocks.append(_ranks(record))
    if not blocks:
        return None
    return Section(anchor=anchor(run.id, "machine"), title="Hosts and targets", blocks=blocks)


def _target(target: TargetRecord) -> Iterator[Block]:
    facts = target.facts
    yield Heading(f"Target {facts.index}: {target_words(facts)}")
    warnings = list(facts.warnings)
    if facts.virtual and not any("guest-cold" in warning for warning in warnings):
        warnings.append(
            "A hypervisor's disk lies under it, so cold means guest-cold: the cache outside the "
            "guest can't be emptied from inside."
        )
    if warnings:
        yield Notice("To be known of this target", [sentence_of(text) for text in warnings], "warn")
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
    """Yield what could not be read of a part, by reason."""
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
        *_busy(host),
    ]
    yield Facts(pairs)
    rest = [
        (name.replace("_", " "), str(value))
        for name, value in facts.model_dump(mode="json", exclude={"missing"}).items()
        if value is not None
    ]
    yield Fold(f"All that was read of {facts.name}", [Facts([*rest, *_missing(facts)])])


def _busy(host: HostRecord) -> Iterator[tuple[str, str]]:
    """Yield how busy the host was between the two readings around the run."""
    before, after = host.before, host.after
    if after is None or None in (before.cpu_busy_s, after.cpu_busy_s):
        return
    busy_s = (after.cpu_busy_s or 0.0) - (before.cpu_busy_s or 0.0)
    total_s = (after.cpu_total_s or 0.0) - (before.cpu_total_s or 0.0)
    if total_s > 0:
        yield "CPU busy during the run", percent(busy_s / total_s)
    if after.steal_s is not None and before.steal_s is not None:
        yield "stolen by the hypervisor", quantity(after.steal_s - before.steal_s, Unit.SECONDS, 3)
    if after.pressure_io_some_s is not None and before.pressure_io_some_s is not None:
        waited_s = after.pressure_io_some_s - before.pressure_io_some_s
        yield "some task waited for I/O", quantity(waited_s, Unit.SECONDS, 3)


def _paths(record: RunRecord) -> Table:
    rows = [
        row(
            path.initiator.upper(),
            Cell(path.data_path, remark=path.engine),
            path.path_requested,
            path.path_effective,
            path.path_evidence,
        )
        for path in record.workload.paths
    ]
    titles = columns("initiator", "data path", "asked for", "taken", "evidence")
    return Table(columns=titles, rows=rows, caption="The way that the bytes took")


def _ranks(record: RunRecord) -> Block:
    rows = [
        row(
            str(rank.rank),
            rank.host,
            rank.cpu_affinity or MISSING,
            quantity(rank.cpu_s, Unit.SECONDS),
            quantity(rank.peak_memory_bytes, Unit.BYTES, 3),
        )
        for rank in record.ranks
    ]
    titles = columns("#rank", "host", "CPUs allowed", "#CPU time", "#peak memory")
    return Table(columns=titles, rows=rows, caption="Processes")
