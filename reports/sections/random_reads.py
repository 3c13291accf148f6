"""The section of small random reads: who asked, rate and cost, by GPU, target and link."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from wattload.core.power import Scope
from wattload.core.record.run import RunRecord
from wattload.core.units import GB, GIB, Unit
from wattload.reports.blocks import (
    Block,
    Cell,
    Figure,
    Fold,
    Notice,
    Table,
    columns,
    row,
)
from wattload.reports.charts.bars import Bar, bars_svg, checked_range
from wattload.reports.charts.scatter import ArmScatter, arms_scatter_figure, make_scatter
from wattload.reports.charts.themes import arm_role
from wattload.reports.charts.timeline import Track
from wattload.reports.runs.energy import phase_energies, scope_energy_j
from wattload.reports.runs.random_reads import (
    NOT_PROVED,
    NOTHING_READ,
    NULL,
    RANDOM_READ,
    GpuReads,
    RandomReads,
    TargetReads,
    asked_words,
    bottleneck_words,
    counts_words,
    drives_words,
    generation,
    operations_of,
    page_cache_words,
    random_reads,
)
from wattload.reports.sections.gpu_reads import machine_blocks
from wattload.reports.sections.wording import unique
from wattload.reports.stats.conditions import is_compared
from wattload.reports.stats.subject import Group, Subject, lettered, named
from wattload.reports.stats.sweeps import Point, panels, setting_words
from wattload.results.labels import workload_title
from wattload.results.quantity import (
    MISSING,
    counted,
    listed,
    number,
    percent,
    quantity,
    scale_for,
    scaled,
    whole,
)

_MICRO = 1e6
_LINKS_MIN = 2
"""Links of one generation alone are in the table of the machine."""

Value = Callable[[RunRecord, RandomReads], float | None]


@dataclass(frozen=True, slots=True)
class _Place:
    """The valid runs of one arm at one point of a sweep; ``at`` is empty without a sweep."""

    at: str
    letter: str
    arm: str
    title: str
    records: tuple[RunRecord, ...]

    def middle(self, value: Value) -> float | None:
        """Return the median over the runs that have the figure."""
        known = [
            figure
            for record in self.records
            if (found := random_reads(record)) is not None
            and (figure := value(record, found)) is not None
        ]
        return median(known) if known else None


def asking_blocks(subject: Subject, group: Group) -> Iterator[Block]:
    """Yield who asked in each arm, failed reads, and the rate with its cost in CPU and energy."""
    if group.workload != RANDOM_READ:
        return
    yield from _nothing_read(group)
    yield _paths(subject, group)
    yield from _failures(group)
    places = list(_places(subject, group))
    yield _costs(list(_best(places)), "Rate and cost" + _of_points(" of the fastest point", places))


def random_read_blocks(
    subject: Subject, group: Group, name: str, tracks: Sequence[Track]
) -> Iterator[Block]:
    """Yield where reads went, the peak by link, and tables by GPU, point, target and machine."""
    if group.workload != RANDOM_READ:
        return
    title = workload_title(group.workload)
    places = list(_places(subject, group))
    if (figure := _peaks(f"{name}-links", title, places)) is not None:
        yield figure
    if (figure := _offsets(f"{name}-offsets", title, tracks)) is not None:
        yield figure
    if (table := _by_gpu(list(_best(places)))) is not None:
        yield table
    if len({place.at for place in places}) > 1:
        yield Fold("Rate and cost at each point", [_costs(places, "Each point", noted=False)])
    if (table := _by_poller(list(_best(places)))) is not None:
        yield Fold("Each poller", [table])
    if (table := _by_target(places)) is not None:
        yield Fold("Each target at each point", [table])
    yield Fold("The machine as measured", list(machine_blocks(group)))


def _places(subject: Subject, group: Group) -> Iterator[_Place]:
    for panel in panels(group):
        for point in panel.points:
            swept = [_swept(point)] if point.axis else []
            for letter, arm in zip(group.letters, group.arms, strict=True):
                runs = point.group.arms.get(arm, ())
                records = tuple(run.record for run in runs if is_compared(subject, run))
                if records:
                    at = ", ".join(filter(None, [panel.name, *swept]))
                    yield _Place(at, letter, arm, _titles(group)[arm], records)


def _swept(point: Point) -> str:
    """Return the swept value in words, with the drives where targets share one."""
    shared = drives_words([run.record for run in point.group.runs])
    if shared and point.axis == "targets":
        return listed(shared)
    return setting_words(point.axis, point.value)


def _best(places: Sequence[_Place]) -> Iterator[_Place]:
    """Yield the point of each arm with the most reads in a second."""
    for arm in dict.fromkeys(place.arm for place in places):
        own = [place for place in places if place.arm == arm]
        yield max(own, key=lambda place: place.middle(_rate) or 0.0)


def _of_points(words: str, places: Sequence[_Place]) -> str:
    """Return the words for a table's caption where there are points to choose from."""
    return words if any(place.at for place in places) else ""


def _titles(group: Group) -> dict[str, str]:
    if len(group.arms) == 1:
        return {next(iter(group.arms)): "all runs"}
    pairs = zip(group.letters, group.arms, strict=True)
    return {arm: lettered(letter, arm) for letter, arm in pairs}


def _nothing_read(group: Group) -> Iterator[Notice]:
    """Yield the arms whose requests no drive answered: their rates are ceilings, not results."""
    texts = []
    for letter, (arm, runs) in zip(group.letters, group.arms.items(), strict=True):
        found = [each for run in runs if (each := random_reads(run.record)) is not None]
        engines = unique(each.engine for each in found if not each.reads_storage)
        if engines:
            of = f"{named(letter, arm)}: " if len(group.arms) > 1 else ""
            texts.append(
                f"{of}{NOTHING_READ} (engine {listed(engines)}). The rate is a ceiling of the "
                "queue or the link, and is not compared with reads of storage."
            )
    if texts:
        yield Notice(f"{NOTHING_READ[0].upper()}{NOTHING_READ[1:]}", texts, "warn")


def _paths(subject: Subject, group: Group) -> Table:
    rows = []
    for arm, runs in group.arms.items():
        valid = [run.record for run in runs if is_compared(subject, run)]
        records = valid or [run.record for run in runs]
        words = listed(unique(map(asked_words, records))) or "unknown"
        paths = [path for record in records for path in record.workload.paths]
        found = [each for record in records if (each := random_reads(record)) is not None]
        effective = listed(unique(path.path_effective for path in paths))
        known = filter(
            None, [effective, page_cache_words(records), *_amplified(found), *drives_words(records)]
        )
        remark = "" if NOTHING_READ in words else ", ".join(known)
        is_open = NOT_PROVED in words or NOTHING_READ in words
        rows.append(
            row(
                _titles(group)[arm],
                Cell(words, "warn" if is_open else "", remark=remark),
                _in_flight(found),
                counts_words(found) or "no counts of a queue",
            )
        )
    return Table(
        columns=columns("arm", "path", "#in flight", "counts"),
        rows=rows,
        caption="Who asked for the blocks",
        note="In flight: as many as were asked, and at pollers and drive: rate x latency of reads. "
        "A GPU is named as the requester only where its requests, the pollers' descriptors and the "
        "engine's operations are equal in number. The blocks of a queue always pass through host "
        "memory: none went from a drive to a GPU directly.",
    )


def _in_flight(found: Sequence[RandomReads]) -> Cell:
    """Return the reads in flight that were asked, and those at pollers and drive."""
    asked = sorted({each.outstanding_asked for each in found if each.outstanding_asked})
    seen = [each.outstanding_seen for each in found if each.outstanding_seen is not None]
    if not asked:
        return Cell(MISSING)
    text = whole(asked[0]) if len(asked) == 1 else f"{whole(asked[0])} to {whole(asked[-1])}"
    ends = [number(end, 3) for end in (min(seen), max(seen))] if seen else []
    remark = f"at pollers and drive {' to '.join(dict.fromkeys(ends))}" if ends else ""
    return Cell(f"asked {text}", remark=remark)


def _amplified(found: Sequence[RandomReads]) -> list[str]:
    """Return how many bytes drives read for each delivered, where it is more than one."""
    factors = unique(number(each.amplification, 2) for each in found if each.amplification > 1)
    return [f"{factor} bytes read for each delivered" for factor in factors]


def _failures(group: Group) -> Iterator[Notice]:
    texts = []
    for letter, (arm, runs) in zip(group.letters, group.arms.items(), strict=True):
        reasons: dict[str, int] = {}
        for run in runs:
            found = random_reads(run.record)
            for reason, count in (found.failures if found is not None else {}).items():
                reasons[reason] = reasons.get(reason, 0) + count
        of = f"{named(letter, arm)}: " if len(group.arms) > 1 else ""
        texts += [
            f"{of}{counted(count, 'read')} failed: {reason.rstrip('.')}."
            for reason, count in reasons.items()
        ]
    if texts:
        yield Notice("Failed reads: their points are in no comparison", texts, "warn")


def _rate(_: RunRecord, found: RandomReads) -> float | None:
    return found.reads_per_s


def _delivered(_: RunRecord, found: RandomReads) -> float | None:
    return found.delivered_bytes_per_s


def _cores(_: RunRecord, found: RandomReads) -> float | None:
    return found.cores


def _cpu(_: RunRecord, found: RandomReads) -> float | None:
    """Return CPU seconds per million reads, those of requesters on the CPU included."""
    if found.cpu_s is None or not found.operations:
        return None
    return found.cpu_s / found.operations * 1e6


def _per_core(_: RunRecord, found: RandomReads) -> float | None:
    rate, cores = found.reads_per_s, found.cores
    return rate / cores if rate is not None and cores else None


def _drives(record: RunRecord, _: RandomReads) -> float | None:
    energy = next((each for each in phase_energies(record) if each.phase == RANDOM_READ), None)
    per_j = energy.reads_per_j if energy is not None else None
    return 1 / per_j if per_j else None


def _gpus(record: RunRecord, _: RandomReads) -> float | None:
    """Return the joules of the GPUs per read of storage."""
    energy_j = scope_energy_j(record, Scope.GPU, RANDOM_READ)
    reads = operations_of(record, RANDOM_READ)
    return energy_j / reads if energy_j is not None and reads else None


def _hit_rate(_: RunRecord, found: RandomReads) -> float | None:
    return None if found.cache is None else found.cache.hit_rate


def _costs(places: Sequence[_Place], caption: str, *, noted: bool = True) -> Table:
    """Return a row per point and arm: rate, CPU cores and energy per read, and the limit.

    The first table of a page is ``noted`` with what its columns mean.
    """
    has_points = any(place.at for place in places)
    has_cache = any(place.middle(_hit_rate) is not None for place in places)
    rates = scale_for(Unit.SAMPLES_PER_SECOND, *(place.middle(_rate) for place in places))
    energies = [
        (name, value)
        for name, value in (("drives", _drives), ("GPUs", _gpus))
        if any(place.middle(value) is not None for place in places)
    ]
    hits = (
        " Hit rate: requests whose block was in the GPU's cache ÷ requests. Reads are only those "
        "that it did not save, bytes those of all requests."
        if has_cache
        else ""
    )
    rows = []
    for place in places:
        delivered = place.middle(_delivered)
        rows.append(
            row(
                *([place.at] if has_points else []),
                place.title,
                scaled(place.middle(_rate), rates, 3),
                _in(delivered, GB),
                _in(delivered, GIB),
                *([percent(place.middle(_hit_rate))] if has_cache else []),
                number(place.middle(_cores), 3),
                number(place.middle(_cpu), 3),
                scaled(place.middle(_per_core), rates, 3),
                *(_in(place.middle(value), 1 / _MICRO) for _, value in energies),
                bottleneck_words(place.records) or "unknown",
            )
        )
    return Table(
        columns=columns(
            *(["at"] if has_points else []),
            "arm",
            f"#reads, {rates.unit}",
            "#GB/s",
            "#GiB/s",
            *(["#hit rate"] if has_cache else []),
            "#CPU cores",
            "#CPU s per million",
            f"#reads per core, {rates.unit}",
            *(f"#{name}, µJ per read" for name, _ in energies),
            "bottleneck",
        ),
        rows=rows,
        caption=caption,
        note="Medians of valid runs. Bytes are those delivered. CPU cores are the CPU seconds of "
        "the reader's process ÷ seconds: pollers, and requesters where they are on the CPU. "
        f"Energies of drives and GPUs are never added.{_evidence(places)}{hits}{_ceilings(places)}"
        if noted
        else "",
    )


def _ceilings(places: Sequence[_Place]) -> str:
    """Return what queue and link did by themselves, measured just before the reads of each run."""
    words = []
    for place in places:
        known = [
            f"{name} {number(value / _MICRO, 3)} M/s"
            for name, value in (
                ("the queue", place.middle(lambda _, found: found.queue_per_s)),
                ("the link", place.middle(lambda _, found: found.pull_per_s)),
            )
            if value is not None
        ]
        words += [f"{place.title}, {' and '.join(known)}"] if known else []
    return f" By themselves, just before: {'; '.join(words)}." if words else ""


def _evidence(places: Sequence[_Place]) -> str:
    words = unique(
        energy.words
        for place in places
        for record in place.records
        for energy in phase_energies(record)
        if energy.phase == RANDOM_READ and energy.reads_per_j
    )
    return f" Drives: {listed(words)}." if words else ""


def _in(value: float | None, factor: float) -> str:
    return number(None if value is None else value / factor, 3)


def _peaks(name: str, title: str, places: Sequence[_Place]) -> Figure | None:
    """Return the most reads of a drive by the generation of its PCIe link; ``None`` for one."""
    peaks: dict[tuple[str, str, str], tuple[float, str, str]] = {}
    for place in places:
        links = {link for record in place.records for link in _links(record)}
        rate = place.middle(_rate_of_drive)
        if len(links) != 1 or rate is None:
            continue
        key = (*links.pop(), place.letter)
        if key not in peaks or rate > peaks[key][0]:
            peaks[key] = (rate, place.at, place.arm)
    if len({link for link, _, _ in peaks}) < _LINKS_MIN:
        return None
    ordered = sorted(peaks.items())
    shown = scale_for(Unit.SAMPLES_PER_SECOND, *(rate for rate, _, _ in peaks.values()))
    bars = [
        checked_range(Bar(label=f"{letter}: {link}, {model}", role=arm_role(letter), value=rate))
        for (link, model, letter), (rate, _, _) in ordered
    ]
    return Figure(
        name=name,
        title=f"{title}: peak of one drive by PCIe generation",
        svg=bars_svg(f"reads of a drive, {shown.unit}", bars, shown),
        caption="The fastest point of each arm: the median of its valid runs ÷ its drives.",
        table=Table(
            columns=columns("link", "drive", "arm", "at", f"#reads of a drive, {shown.unit}"),
            rows=[
                row(link, model, lettered(letter, arm), at or MISSING, scaled(rate, shown))
                for (link, model, letter), (rate, at, arm) in ordered
            ],
            caption="Peak by link",
        ),
    )


def _links(record: RunRecord) -> Iterator[tuple[str, str]]:
    for controller in record.controllers:
        state = controller.before or controller.after
        name = generation(state.link_speed_gt_per_s) if state is not None else ""
        width = f" x{state.link_width}" if state is not None and state.link_width else ""
        if name:
            yield f"{name}{width}", controller.facts.model or "unknown drive"


def _rate_of_drive(record: RunRecord, found: RandomReads) -> float | None:
    rate, drives = found.reads_per_s, len(record.controllers)
    return rate / drives if rate is not None and drives and found.reads_storage else None


def _offsets(name: str, title: str, tracks: Sequence[Track]) -> Figure | None:
    limit = 4000 // max(len(tracks), 1)
    drawn = [
        ArmScatter(
            letter=track.letter if len(tracks) > 1 else "",
            name=track.name,
            scatter=scatter,
            start_s=track.zero_s,
            end_s=track.zero_s + track.end_s,
        )
        for track in tracks
        if (scatter := make_scatter(track.run, limit)) is not None
    ]
    return arms_scatter_figure(name, title, drawn) if drawn else None


def _by_gpu(places: Sequence[_Place]) -> Table | None:
    """Return the reads of each GPU at the fastest point of each arm."""
    rows = []
    scale = scale_for(Unit.SAMPLES_PER_SECOND, *(place.middle(_rate) for place in places))
    for place in places:
        by_address: dict[str, list[tuple[GpuReads, RandomReads]]] = {}
        for found in filter(None, map(random_reads, place.records)):
            for gpu in found.gpus:
                by_address.setdefault(gpu.address, []).append((gpu, found))
        rates = {
            address: median([gpu.reads_per_s or 0.0 for gpu, _ in own])
            for address, own in by_address.items()
        }
        for address, own in sorted(by_address.items()):
            gpu, found = own[0]
            blocks = median([each.deliveries_per_s or 0.0 for each, _ in own])
            delivered = None if found.engine == NULL else blocks * found.block_bytes
            node = "NUMA node unknown" if gpu.node is None else f"NUMA node {gpu.node}"
            count = sum(file.gpu == address for file in found.files)
            rows.append(
                row(
                    place.title,
                    Cell(address, remark=f"{gpu.name}, {node}, rank {gpu.rank}"),
                    whole(count) if count else MISSING,
                    scaled(rates[address], scale, 4),
                    _in(delivered, GB),
                    _in(delivered, GIB),
                    number(rates[address] / max(rates.values()), 3) if rates[address] else MISSING,
                )
            )
    if not rows:
        return None
    return Table(
        columns=columns(
            "arm", "GPU", "#targets", f"#reads, {scale.unit}", "#GB/s", "#GiB/s",
            "#of the fastest GPU",
        ),
        rows=rows,
        caption="Reads of each GPU" + _of_points(", at the fastest point of each arm", places),
    )  # fmt: skip


def _by_poller(places: Sequence[_Place]) -> Table | None:
    """Return the reads of each poller and its time at work, at the fastest point of each arm."""
    scale = scale_for(Unit.SAMPLES_PER_SECOND, *(place.middle(_rate) for place in places))
    rows = []
    for place in places:
        runs = [each.pollers for each in map(random_reads, place.records) if each is not None]
        for index, own in enumerate(zip(*runs, strict=False)):
            rows.append(
                row(
                    place.title,
                    whole(index),
                    whole(own[0].rank),
                    scaled(_middle([each.reads_per_s for each in own]), scale, 3),
                    percent(_middle([each.busy for each in own]), 2),
                )
            )
    if not rows:
        return None
    return Table(
        columns=columns("arm", "#poller", "#rank", f"#reads, {scale.unit}", "#at work"),
        rows=rows,
        caption="Reads of each poller" + _of_points(", at the fastest point of each arm", places),
    )


def _by_target(places: Sequence[_Place]) -> Table | None:
    """Return operations, rate and percentiles of each target at each point."""
    rows = []
    has_points = any(place.at for place in places)
    for place in places:
        files: dict[tuple[int, str], list[TargetReads]] = {}
        for found in filter(None, map(random_reads, place.records)):
            for file in found.files:
                files.setdefault((file.rank, file.path), []).append(file)
        rows += [
            row(
                *([place.at] if has_points else []),
                place.title,
                Cell(own[0].path, remark=own[0].gpu),
                whole(median([each.operations for each in own])),
                quantity(_middle([each.reads_per_s for each in own]), Unit.SAMPLES_PER_SECOND, 3),
                quantity(_middle([each.p50_s for each in own]), Unit.SECONDS, 3),
                quantity(_middle([each.p99_s for each in own]), Unit.SECONDS, 3),
            )
            for own in files.values()
        ]
    if not rows:
        return None
    return Table(
        columns=columns(
            *(["at"] if has_points else []), "arm", "target", "#operations", "#rate",
            "#p50 of reads", "#p99 of reads",
        ),
        rows=rows,
        caption="Operations and latency of each target",
    )  # fmt: skip


def _middle(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
