"""The section of reads into GPU memory: paths with their proof, path x load, cost and machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median

from wattload.core.io import DIRECT_WORDS
from wattload.core.power import Scope
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import (
    Block,
    Cell,
    Facts,
    Fold,
    Notice,
    Paragraph,
    Table,
    Tone,
    columns,
    row,
)
from wattload.reports.runs.energy import phase_energies, scope_energy_j
from wattload.reports.runs.gpu_reads import (
    GPU_READ,
    failure_reasons,
    gpu_paths,
    is_direct,
    is_proved_indirect,
    outside_latency,
    path_words,
    paths_of,
    proof,
    software_versions,
    topology,
)
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import leading
from wattload.reports.sections.loads import load_blocks
from wattload.reports.sections.wording import unique
from wattload.reports.stats.comparison import Row
from wattload.reports.stats.conditions import is_compared, link_text
from wattload.reports.stats.loads import LoadedPoint, loaded_points, ratio_of_a
from wattload.reports.stats.subject import Group, Subject, lettered, named
from wattload.reports.stats.sweeps import panels, setting_words
from wattload.results.quantity import (
    MISSING,
    TIMES,
    Scale,
    counted,
    listed,
    percent,
    quantity,
    ratio_ends,
    ratio_text,
    scale_for,
    scaled,
    whole,
)

_LITTLE = 0.02
"""A share of a thread's time in no latency above this is stated."""


def path_blocks(subject: Subject, group: Group) -> Iterator[Block]:
    """Yield each arm's path with its proof, failed reads, and the statement on path and load."""
    if group.workload != GPU_READ:
        return
    yield _paths(subject, group)
    yield from _failures(group)
    if found := loaded_points(subject, group):
        yield Paragraph(" ".join(_statements(group, found)))
    yield from _little(subject, group)


def more_blocks(subject: Subject, group: Group) -> Iterator[Block]:
    """Yield the load, and of reads into GPU memory also costs per GB and the machine."""
    if group.workload == GPU_READ and (found := loaded_points(subject, group)):
        yield _path_by_load(group, found)
    yield from load_blocks(subject, group)
    if group.workload != GPU_READ:
        return
    if (costs := _costs(subject, group)) is not None:
        yield Fold("CPU time and energy per GB", [costs])
    yield Fold("The machine as measured", list(machine_blocks(group)))


def _records(subject: Subject, runs: Sequence[Run]) -> list[RunRecord]:
    """Return the records that count, or all of an arm without a valid run."""
    return [run.record for run in runs if is_compared(subject, run)] or [run.record for run in runs]


def _titles(group: Group) -> list[str]:
    if len(group.arms) == 1:
        return ["all runs"]
    return [lettered(*each) for each in zip(group.letters, group.arms, strict=True)]


def _paths(subject: Subject, group: Group) -> Table:
    rows = []
    for title, runs in zip(_titles(group), group.arms.values(), strict=True):
        by_word: dict[str, list[RunRecord]] = {}
        records = _records(subject, runs)
        for record in records:
            for path in gpu_paths(record):
                by_word.setdefault(path_words(path, record.workload.loader), []).append(record)
        for words, own in by_word.items():
            paths = [
                path
                for record in {id(each): each for each in own}.values()
                for path in gpu_paths(record)
                if path_words(path, record.workload.loader) == words
            ]
            effective = {path.path_effective for path in paths}
            is_good = bool(effective & {str(word) for word in DIRECT_WORDS})
            tone: Tone = (
                "good" if is_good else "warn" if effective & {"mixed", "unverified"} else ""
            )
            count = f", {len(own)} of {counted(len(records), 'run')}" if len(by_word) > 1 else ""
            rows.append(
                row(
                    title,
                    Cell(words, tone, remark=f"{listed(sorted(effective))}{count}"),
                    listed(unique(path.path_requested for path in paths)),
                    proof(paths),
                )
            )
        if not by_word:
            words = listed(unique(map(paths_of, records)))
            rows.append(row(title, Cell(words, "warn"), MISSING, "no counters"))
    return Table(
        columns=columns("arm", "path taken", "requested", "reads by counter"),
        rows=rows,
        caption="The path of the bytes, from counters alone",
        note="Counts are of all reads of the reader's process, those before and after the timed "
        "stretch included.",
    )


def _failures(group: Group) -> Iterator[Notice]:
    texts = []
    for letter, (arm, runs) in zip(group.letters, group.arms.items(), strict=True):
        reasons: dict[str, int] = {}
        for run in runs:
            for reason, count in failure_reasons(run.record).items():
                reasons[reason] = reasons.get(reason, 0) + count
        of = f"{named(letter, arm)}: " if len(group.arms) > 1 else ""
        texts += [
            f"{of}{counted(count, 'read')} failed: {reason}." for reason, count in reasons.items()
        ]
    if texts:
        yield Notice("Failed reads: their points are in no comparison", texts, "warn")


def _little(subject: Subject, group: Group) -> Iterator[Block]:
    """Yield which share of a thread's time is in no latency, where that is not small."""
    texts = []
    for title, runs in zip(_titles(group), group.arms.values(), strict=True):
        shares = [
            share
            for record in _records(subject, runs)
            if (share := outside_latency(record)) is not None
        ]
        if shares and (max(shares) > _LITTLE or min(shares) < -_LITTLE):
            ends = f"up to {percent(max(shares))}"
            if max(shares) <= _LITTLE:
                ends = f"down to {percent(min(shares))}: more than the threads have"
            texts.append(f"{title}: {ends}")
    if texts:
        yield Paragraph(
            "Share of a thread's time in no latency (1 less IOPS x mean latency ÷ threads): "
            f"{'; '.join(texts)}. There, ratios of rates and of latencies differ."
        )


def _statements(group: Group, found: Sequence[LoadedPoint]) -> Iterator[str]:
    """Yield how the ratio of the arms changes with the load, over all points."""
    a, b = _subjects(group)
    grows = [each for each in found if each.call == "more"]
    shrinks = [each for each in found if each.call == "less"]
    total = counted(len(found), "point")
    for own, words in ((grows, "larger"), (shrinks, "smaller")):
        if own:
            ratios = [each.change.ratio for each in own if each.change]
            ends = ratio_ends(min(ratios), max(ratios))
            yield (
                f"On the busy host, {a} ÷ {b} is {words} than on the idle one at {len(own)} of "
                f"{total}: {ends}{TIMES}, each with a 95 % interval that excludes 1 (corrected "
                "for all points)."
            )
    rest = len(found) - len(grows) - len(shrinks)
    if rest:
        yield f"At {rest} of {total}, no change with the load is shown."


def _subjects(group: Group) -> tuple[str, str]:
    """Return the rates of the arms in words, by path where the counters tell them apart."""
    records = [[run.record for run in runs] for runs in group.arms.values()]
    words = []
    for letter, own in zip(group.letters, records, strict=True):
        if all(map(is_direct, own)):
            words.append(f"the rate of {letter} (GPUDirect Storage)")
        elif all(map(is_proved_indirect, own)):
            words.append(f"the rate of {letter} (through host memory)")
        else:
            words.append(f"the rate of {letter}")
    return words[0], words[1]


def _path_by_load(group: Group, found: Sequence[LoadedPoint]) -> Table:
    first, second = group.letters
    rates = [
        centre
        for each in found
        for entry in (each.idle, each.busy)
        for centre in entry.centres.values()
        if centre
    ]
    scale = scale_for(Unit.BYTES_PER_SECOND, *rates)
    loads = unique(each.load for each in found)
    rows = []
    for each in found:
        tone: Tone = "a" if each.call == "more" else "b" if each.call == "less" else "quiet"
        rows.append(
            row(
                ", ".join([each.name, *([each.load] if len(loads) > 1 else [])]),
                *_rate_cells(each.idle, group, scale),
                _ratio_cell(each.idle),
                *_rate_cells(each.busy, group, scale),
                _ratio_cell(each.busy),
                Cell(each.change_text, remark=each.interval_text),
                Cell("", tone, each.words, "" if each.call else each.reason),
                *([_kept(each, group)] if _has_kept(found) else []),
            )
        )
    titles = [
        "at",
        f"#idle {first}",
        f"#idle {second}",
        f"#idle {first} ÷ {second}",
        f"#busy {first}",
        f"#busy {second}",
        f"#busy {first} ÷ {second}",
        "#busy ÷ idle",
        "verdict",
    ]
    if _has_kept(found):
        titles.append(f"#load kept {first}, {second}")
    return Table(
        columns=columns(*titles),
        rows=rows,
        caption=f"Path and load: rates in {scale.unit}, and whether their ratio changes",
        note=f"{first} ÷ {second} is the ratio of geometric means, in pairs where runs alternated, "
        "with its 95 % interval. Busy ÷ idle is the ratio of these ratios; its 95 % interval is by "
        "Welch's t on the ratios of pairs alone, and needs 6 of them under each load. The "
        "verdicts are corrected by Holm over the points of this table.",
    )


def _rate_cells(entry: Row, group: Group, scale: Scale) -> list[Cell]:
    return [Cell(scaled(entry.centres.get(arm), scale, 3)) for arm in group.arms]


def _ratio_cell(entry: Row) -> Cell:
    found = ratio_of_a(entry)
    if found is None:
        return Cell(MISSING)
    ratio, lower, upper = found
    ends = ratio_ends(lower, upper) if lower and upper else entry.shortage
    return Cell(f"{ratio_text(ratio)}{TIMES}", remark=ends)


def _has_kept(found: Sequence[LoadedPoint]) -> bool:
    return any(
        load.kept_fraction is not None
        for each in found
        for run in each.busy_point.group.runs
        for load in run.record.loads
    )


def _kept(each: LoadedPoint, group: Group) -> Cell:
    texts = []
    for arm in group.arms:
        values = [
            load.kept_fraction
            for run in each.busy_point.group.arms.get(arm, ())
            for load in run.record.loads
            if load.kept_fraction is not None
        ]
        texts.append(percent(median(values)) if values else MISSING)
    return Cell(", ".join(texts))


Cost = Callable[[RunRecord], float | None]


def _read_bytes(record: RunRecord) -> int:
    return sum(phase.read_bytes for phase in leading(record))


def _cpu(record: RunRecord) -> float | None:
    found = record.metric("cpu_s_per_gb")
    return found.value if found is not None else None


def _drives(record: RunRecord) -> float | None:
    energies = [each.energy_j for each in phase_energies(record) if each.phase == GPU_READ]
    moved = _read_bytes(record)
    return energies[0] / moved if energies and energies[0] is not None and moved else None


def _scoped(scope: Scope) -> Cost:
    def value(record: RunRecord) -> float | None:
        energy_j, moved = scope_energy_j(record, scope, GPU_READ), _read_bytes(record)
        return energy_j / moved if energy_j is not None and moved else None

    return value


_COSTS: tuple[tuple[str, Unit, Cost], ...] = (
    ("CPU", Unit.SECONDS_PER_BYTE, _cpu),
    ("drives", Unit.JOULES_PER_BYTE, _drives),
    ("GPUs", Unit.JOULES_PER_BYTE, _scoped(Scope.GPU)),
    ("node", Unit.JOULES_PER_BYTE, _scoped(Scope.NODE)),
)


def _costs(subject: Subject, group: Group) -> Table | None:
    """Return CPU seconds and joules per GB by point and device; ``None`` if none is known."""
    found: list[tuple[str, dict[tuple[str, str], str]]] = []
    for panel in panels(group):
        for point in panel.points:
            swept = [setting_words(point.axis, point.value)] if point.axis else []
            cells = {}
            for letter, (arm, name, unit, cost) in (
                (letter, (arm, *each))
                for letter, arm in zip(group.letters, group.arms, strict=True)
                for each in _COSTS
            ):
                runs = [r for r in point.group.arms.get(arm, ()) if is_compared(subject, r)]
                values = [value for run in runs if (value := cost(run.record)) is not None]
                if values:
                    cells[name, letter] = quantity(fmean(values), unit, 3)
            found.append((", ".join(filter(None, [panel.name, *swept])), cells))
    known = {name for _, cells in found for name, _ in cells}
    if not known:
        return None
    shown = [(name, letter) for name, _, _ in _COSTS if name in known for letter in group.letters]
    missing = [name for name, _, _ in _COSTS if name not in known]
    alone = len(group.arms) == 1
    has_points = any(at for at, _ in found)
    return Table(
        columns=columns(
            *(["at"] if has_points else []),
            *(f"#{name}" if alone else f"#{name} {letter}" for name, letter in shown),
        ),
        rows=[
            row(*([at] if has_points else []), *(cells.get(key, MISSING) for key in shown))
            for at, cells in found
        ],
        caption="Per GB read into GPU memory: CPU seconds of the reader, joules by device",
        note="Means of valid runs. Energies of drives, GPUs and the node are never added: a node's "
        "includes the others. The CPU time of a load is left out."
        + (f" Not measured: {listed(missing)}." if missing else ""),
    )


def machine_blocks(group: Group) -> Iterator[Block]:
    """Yield processor, memory, system, GPUs, drives and software, and how they are linked."""
    records = [run.record for run in group.runs]
    pairs = [(name, found) for name, read in _FACTS if (found := _all(records, read))]
    versions: dict[str, list[str]] = {}
    for record in records:
        for name, version in software_versions(record):
            versions.setdefault(name, [])
            if version not in versions[name]:
                versions[name].append(version)
    pairs += [(name, listed(own)) for name, own in versions.items()]
    yield Facts(pairs)
    links = {
        tuple(str(each.get(key)) for key in ("path", "gpu", "link")): (record, each)
        for record in records
        for each in topology(record)
    }
    if links:
        yield Table(
            columns=columns("target", "drive", "GPU", "link"),
            rows=[
                row(
                    str(each.get("path") or MISSING),
                    Cell(_drive(record), remark=_node(each.get("drive_node"))),
                    Cell(
                        str(each.get("gpu_name") or "GPU"),
                        remark=f"{each.get('gpu')}, {_node(each.get('gpu_node'))}",
                    ),
                    str(each.get("link") or "unknown"),
                )
                for record, each in links.values()
            ],
            caption="Which GPU each target is read into",
        )


def _node(node: object) -> str:
    return "NUMA node unknown" if node is None else f"NUMA node {node}"


def _drive(record: RunRecord) -> str:
    texts = unique(_drive_words(record))
    return listed(texts) or "no NVMe drive"


def _drive_words(record: RunRecord) -> Iterator[str]:
    for controller in record.controllers:
        state = controller.before or controller.after
        link = link_text(state.link_speed_gt_per_s, state.link_width) if state else "link unknown"
        yield f"{controller.facts.model or 'unknown drive'}, {link}"


def _processors(record: RunRecord) -> Iterator[str]:
    for host in record.hosts:
        yield f"{host.facts.cpu_model or 'unknown'}, {host.facts.cpu_count} CPUs"


def _memory(record: RunRecord) -> Iterator[str]:
    for host in record.hosts:
        if host.facts.memory_bytes is not None:
            yield quantity(host.facts.memory_bytes, Unit.BYTES, 3)


def _systems(record: RunRecord) -> Iterator[str]:
    for host in record.hosts:
        yield f"{host.facts.os or 'unknown'}, Linux {host.facts.kernel}"


def _gpus(record: RunRecord) -> Iterator[str]:
    names = {each.get("gpu"): str(each.get("gpu_name") or "GPU") for each in topology(record)}
    counts: dict[str, int] = {}
    for name in names.values():
        counts[name] = counts.get(name, 0) + 1
    for name, count in counts.items():
        yield f"{whole(count)} x {name}"


_FACTS: tuple[tuple[str, Callable[[RunRecord], Iterator[str]]], ...] = (
    ("processor", _processors),
    ("memory", _memory),
    ("system", _systems),
    ("GPUs", _gpus),
    ("drives", _drive_words),
)


def _all(records: Sequence[RunRecord], read: Callable[[RunRecord], Iterator[str]]) -> str:
    return listed(unique(text for record in records for text in read(record)))
