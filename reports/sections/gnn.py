"""The section of training on a graph: stages, rates, costs, memory, places of rows, I/O profile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from wattload.core.power import Scope
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import (
    Block,
    FigureRow,
    Heading,
    Notice,
    Paragraph,
    Table,
    columns,
    row,
)
from wattload.reports.charts.gnn import (
    TrainingArm,
    losses_figure,
    power_rate_figure,
    profile_figures,
    rates_figure,
    stages_figure,
)
from wattload.reports.charts.timeline import Track
from wattload.reports.runs.details import figure_of
from wattload.reports.runs.energy import phase_energies, scope_energy_j
from wattload.reports.runs.gnn import (
    AGGREGATION,
    DROPPED,
    EMULATED,
    GNN,
    OWN_SAMPLER,
    GraphTraining,
    graph_training,
    middle,
)
from wattload.reports.sections.wording import unique
from wattload.reports.stats.conditions import is_compared
from wattload.reports.stats.subject import Group, Subject, lettered, named
from wattload.reports.stats.sweeps import points
from wattload.results.quantity import (
    MISSING,
    block_text,
    listed,
    number,
    percent,
    quantity,
    whole,
    workload_title,
)

_MILLION = 1e6
_COLUMNS_MAX = 6
"""More arms than these are rows of a table, and not its columns."""
_DEMO = "demo"
_FOREIGN = 0.02
"""Above this share of a profile's bytes, reads of other programs are worth a remark."""

Value = Callable[[RunRecord, GraphTraining], float | None]


@dataclass(frozen=True, slots=True)
class _Place:
    """The valid runs of one arm at one point of a sweep, and how they are drawn."""

    arm: TrainingArm
    records: tuple[RunRecord, ...]

    def middle(self, value: Value) -> float | None:
        """Return the median over the runs that have the figure."""
        return middle(
            value(record, found)
            for record in self.records
            if (found := graph_training(record)) is not None
        )


Fact = tuple[str, Callable[[_Place], str]]
"""The name of a figure of a table, and its text for one arm."""


def training_blocks(subject: Subject, group: Group, name: str) -> Iterator[Block]:
    """Yield what the figures do not show, the stages of a step, rates and costs by arm."""
    if group.workload != GNN:
        return
    if remarks := list(_remarks(group)):
        yield Notice("How to read these figures", remarks)
    title = workload_title(GNN)
    places = list(_places(subject, group))
    arms = [place.arm for place in places]
    if (stages := stages_figure(f"{name}-steps", title, arms)) is not None:
        yield stages
    if (rates := rates_figure(f"{name}-rows", title, arms)) is not None:
        yield rates
    if places:
        yield _costs(places)


def more_training_blocks(
    subject: Subject, group: Group, name: str, tracks: Sequence[Track]
) -> Iterator[Block]:
    """Yield bandwidth with power, the places of rows, memory, the I/O profile and the loss."""
    if group.workload != GNN:
        return
    title = workload_title(GNN)
    places = list(_places(subject, group))
    arms = [place.arm for place in places]
    if (figure := power_rate_figure(f"{name}-supply", title, tracks)) is not None:
        yield figure
    if places:
        yield _rows_table(places)
        yield _memory_table(places)
        yield Heading("I/O profile: what the drive saw")
        yield from _profile(name, places, tracks)
    if (losses := losses_figure(f"{name}-loss", title, arms)) is not None:
        yield FigureRow([losses])


def _places(subject: Subject, group: Group) -> Iterator[_Place]:
    for point in points(group):
        for letter, arm in zip(group.letters, group.arms, strict=True):
            runs = point.group.arms.get(arm, ())
            records = tuple(run.record for run in runs if is_compared(subject, run))
            found = tuple(each for each in map(graph_training, records) if each is not None)
            if found:
                several = len(group.arms) > 1
                parts = [lettered(letter, arm)] if several else []
                parts += [point.words] if point.axis else []
                title = ", ".join(parts) or "all runs"
                yield _Place(
                    TrainingArm(letter=letter if several else "", title=title, runs=found), records
                )


def _remarks(group: Group) -> Iterator[str]:
    """Yield what a reader has to know of the figures, each once."""
    by_arm = {
        arm: [found for run in runs if (found := graph_training(run.record)) is not None]
        for arm, runs in group.arms.items()
    }
    every = [found for own in by_arm.values() for found in own]
    if any(run.record.workload.scale == _DEMO for run in group.runs):
        seeds = listed(unique(whole(each.batch_seeds) for each in every))
        yield f"Scale demo has batches of {seeds} seeds: too small to measure a drive."
    if any(not each.source for each in every):
        yield (
            "Synthetic graphs have no locality: do not compare hit rates with those of real data "
            "sets."
        )
    letters = dict(zip(group.arms, group.letters, strict=True))
    own = [
        named(letters[arm], arm)
        for arm, runs in by_arm.items()
        if any(each.sampler == OWN_SAMPLER for each in runs)
    ]
    if own:
        of = f" of {listed(own)}" if len(by_arm) > 1 else ""
        yield f"The batches{of} are drawn by DGL itself: they are not those of other loaders."
    yield from _memory_remarks(every)
    emulated = unique(
        quantity(_slept_s(run.record, found), Unit.SECONDS, 3)
        for run in group.runs
        if (found := graph_training(run.record)) is not None
        and EMULATED in (found.training, found.trainer)
    )
    if emulated:
        yield (
            f"Training is emulated: each step sleeps {listed(emulated, 'or')}. No model is "
            "trained, so there is no loss."
        )


def _slept_s(record: RunRecord, found: GraphTraining) -> float | None:
    """Return the seconds that a step was to sleep by the settings, else those that it took."""
    accelerator = record.config.get("accelerator")
    step_s = accelerator.get("step_s") if isinstance(accelerator, Mapping) else None
    asked = figure_of(step_s.get("gnn")) if isinstance(step_s, Mapping) else None
    return found.stages_s.get("training", 0.0) / found.steps if asked is None else asked


def _memory_remarks(every: Sequence[GraphTraining]) -> Iterator[str]:
    """Yield how the memory of the host was limited: a sentence for each method and reason."""
    shares: dict[tuple[str, str, str], list[str]] = {}
    for memory in (each.memory for each in every):
        share = percent(memory.share, 2) if memory.share is not None else "an unknown share"
        key = (memory.method, memory.words, memory.reason.rstrip("."))
        shares.setdefault(key, []).append(share)
    for (method, words, why), own in shares.items():
        of = f"{listed(unique(own), 'or')} of the features"
        if method == DROPPED:
            reason = f" ({why})" if why else ""
            yield (
                f"The page cache was dropped before each step, in place of a limit of {of}{reason}"
                ". Within a step it may hold more."
            )
        else:
            yield f"Memory of the host was limited to {of} by {words or 'unknown means'}."


def _sheet(caption: str, places: Sequence[_Place], facts: Sequence[Fact], note: str) -> Table:
    """Return a table of figures by arm; of few arms, these are its columns."""
    if len(places) <= _COLUMNS_MAX:
        return Table(
            columns=columns("", *(f"#{place.arm.title}" for place in places)),
            rows=[row(name, *map(text, places)) for name, text in facts],
            caption=caption,
            note=note,
        )
    return Table(
        columns=columns("arm", *(f"#{name}" for name, _ in facts)),
        rows=[row(place.arm.title, *(text(place) for _, text in facts)) for place in places],
        caption=caption,
        note=note,
    )


def _known(places: Sequence[_Place], facts: Sequence[Fact]) -> list[Fact]:
    """Return the facts that some arm has, and no bytes are not a fact."""
    nothing = (MISSING, quantity(0, Unit.BYTES))
    return [fact for fact in facts if any(fact[1](place) not in nothing for place in places)]


def _shown(value: Value, unit: Unit, digits: int = 3) -> Callable[[_Place], str]:
    return lambda place: quantity(place.middle(value), unit, digits)


def _drive_j(record: RunRecord, _: GraphTraining) -> float | None:
    energy = next((each for each in phase_energies(record) if each.phase == GNN), None)
    return energy.energy_j if energy is not None else None


def _gpu_j(record: RunRecord, _: GraphTraining) -> float | None:
    return scope_energy_j(record, Scope.GPU, GNN)


def _per_step(energy: Value) -> Value:
    def of(record: RunRecord, found: GraphTraining) -> float | None:
        joules = energy(record, found)
        return None if joules is None else joules / found.steps

    return of


def _per_million(energy: Value) -> Value:
    def of(record: RunRecord, found: GraphTraining) -> float | None:
        joules = energy(record, found)
        return None if joules is None or not found.rows else joules / found.rows * _MILLION

    return of


def _epoch_s(_: RunRecord, found: GraphTraining) -> float | None:
    step_s = found.step_s
    return step_s * found.steps_per_epoch if step_s and found.steps_per_epoch else None


def _epoch_j(energy: Value) -> Value:
    def of(record: RunRecord, found: GraphTraining) -> float | None:
        joules = _per_step(energy)(record, found)
        return joules * found.steps_per_epoch if joules and found.steps_per_epoch else None

    return of


def _epoch_words(places: Sequence[_Place]) -> str:
    """Return whether epochs were run whole, or from how many steps they are computed."""
    runs = [each for place in places for each in place.arm.runs if each.steps_per_epoch]
    if not runs:
        return ""
    if all(each.is_whole_epoch for each in runs):
        return " Whole epochs were run."
    steps = listed(unique(whole(each.steps) for each in runs), "or")
    epoch = listed(unique(whole(each.steps_per_epoch) for each in runs), "or")
    return f" Epochs of {epoch} steps are computed from {steps}."


def _costs(places: Sequence[_Place]) -> Table:
    facts: list[Fact] = [
        ("step", _shown(lambda _, found: found.step_s, Unit.SECONDS)),
        (
            "aggregation, share of the stages",
            lambda place: percent(place.middle(lambda _, found: found.stage_share(AGGREGATION))),
        ),
        ("CPU s per million rows", _shown(_cpu, Unit.SECONDS)),
        ("drive, per step", _shown(_per_step(_drive_j), Unit.JOULES)),
        ("drive, per million rows", _shown(_per_million(_drive_j), Unit.JOULES)),
        ("GPU, per step", _shown(_per_step(_gpu_j), Unit.JOULES)),
        ("GPU, per million rows", _shown(_per_million(_gpu_j), Unit.JOULES)),
        ("epoch", _shown(_epoch_s, Unit.SECONDS)),
        ("drive, per epoch", _shown(_epoch_j(_drive_j), Unit.JOULES)),
        ("GPU, per epoch", _shown(_epoch_j(_gpu_j), Unit.JOULES)),
    ]
    evidence = unique(
        energy.words
        for place in places
        for record in place.records
        for energy in phase_energies(record)
        if energy.phase == GNN and energy.energy_j is not None
    )
    drives = f" Drives: {listed(evidence)}." if evidence else " Power of the drive: not measured."
    return _sheet(
        "Time, CPU and energy",
        places,
        _known(places, facts),
        "Medians of valid runs. Rows are those of all batches, wherever they came from. Energies "
        f"of drives and GPUs are never added.{drives}{_epoch_words(places)}",
    )


def _cpu(_: RunRecord, found: GraphTraining) -> float | None:
    return found.cpu_s_per_million_rows


def _share_of_rows(name: str) -> Callable[[_Place], str]:
    def text(place: _Place) -> str:
        def share(_: RunRecord, found: GraphTraining) -> float | None:
            count: float | None = getattr(found, name)
            return count / found.rows if count is not None and found.rows else None

        return percent(place.middle(share))

    return text


def _rows_table(places: Sequence[_Place]) -> Table:
    facts: list[Fact] = [
        ("rows per step", lambda place: whole(place.middle(lambda _, each: each.rows_per_step))),
        ("from the host's memory", _share_of_rows("host_rows")),
        ("from the GPU's cache", _share_of_rows("cache_rows")),
        ("joined to a read under way", _share_of_rows("joined_rows")),
        ("from the drive", _share_of_rows("storage_rows")),
        (
            "drive bytes per step",
            _shown(
                lambda _, each: (
                    None if each.storage_bytes is None else each.storage_bytes / each.steps
                ),
                Unit.BYTES,
            ),
        ),
        (
            "drive bytes ÷ row bytes",
            lambda place: number(place.middle(lambda _, each: each.amplification), 3),
        ),
        (
            "major faults per step",
            lambda place: whole(
                place.middle(
                    lambda _, each: each.major_faults / each.steps if each.major_faults else None
                )
            ),
        ),
    ]
    sizes = listed(
        unique(block_text(each.row_bytes) for place in places for each in place.arm.runs)
    )
    return _sheet(
        "Where rows came from",
        places,
        _known(places, facts),
        f"Shares of all rows, of {sizes} each; where the page cache decides, no place is counted. "
        "Drive bytes ÷ row bytes: of loaders that count, per row read from the drive; else per row "
        "of a batch.",
    )


def _bytes(name: str) -> Callable[[_Place], str]:
    def value(_: RunRecord, found: GraphTraining) -> float | None:
        known: float | None = getattr(found.memory, name)
        return known

    return _shown(value, Unit.BYTES)


def _memory_table(places: Sequence[_Place]) -> Table:
    facts: list[Fact] = [
        ("features", _shown(lambda _, each: float(each.feature_bytes or 0) or None, Unit.BYTES)),
        ("host: budget", _budget),
        ("host: topology", _bytes("topology_bytes")),
        ("host: batches", _bytes("batch_bytes")),
        ("host: rows of the loader", _bytes("host_rows_bytes")),
        ("host: the loader's own", _bytes("working_bytes")),
        ("host: left to the page cache", _left),
        ("host: beside the budget", _bytes("own_bytes")),
        ("host: limit of the cgroup", _bytes("limit_bytes")),
        ("host: page cache, at most", _bytes("page_cache_bytes")),
        ("host: most in use", _bytes("peak_bytes")),
        ("GPU: cache of rows", _bytes("gpu_cache_bytes")),
        ("GPU: batches", _bytes("gpu_batch_bytes")),
        ("GPU: topology", _bytes("gpu_topology_bytes")),
    ]
    return _sheet(
        "Memory of the host and of the GPU",
        places,
        _known(places, facts),
        "Every loader has the same budget of host memory. What topology, batches and the loader "
        "leave of it is for the page cache; O_DIRECT does not use it. The limit of a cgroup also "
        "has room beside the budget, for libraries and activations: the page cache may have at "
        "most what the process itself did not hold of that limit.",
    )


def _budget(place: _Place) -> str:
    budget = _bytes("budget_bytes")(place)
    share = place.middle(lambda _, each: each.memory.share)
    return budget if share is None or budget == MISSING else f"{budget} ({percent(share, 2)})"


def _left(place: _Place) -> str:
    if any(each.memory.method == DROPPED for each in place.arm.runs):
        return "dropped before each step"
    return quantity(place.middle(lambda _, found: found.memory.left_bytes), Unit.BYTES, 3)


def _profile(name: str, places: Sequence[_Place], tracks: Sequence[Track]) -> Iterator[Block]:
    arms = [place.arm for place in places]
    traced = [
        (track.letter if len(tracks) > 1 else "", _track_title(track, tracks), reads)
        for track in tracks
        if (reads := track.run.traces.requests) is not None
    ]
    yield from profile_figures(f"{name}-profile", workload_title(GNN), arms, traced)
    facts: list[Fact] = [
        (
            "source",
            lambda place: listed(unique(e.profile.source or "none" for e in place.arm.runs)),
        ),
        ("reads per step", lambda place: whole(place.middle(_reads_per_step))),
        ("mean size", _shown(lambda _, each: each.profile.mean_read_bytes, Unit.BYTES)),
        ("mean depth", lambda place: number(place.middle(lambda _, e: e.profile.mean_depth), 3)),
        ("highest depth", lambda place: whole(place.middle(lambda _, e: e.profile.peak_depth))),
        ("bytes per step", _shown(_bytes_per_step, Unit.BYTES)),
        ("by the loader's own count", _shown(_own_bytes_per_step, Unit.BYTES)),
        ("bandwidth", _shown(_bandwidth, Unit.BYTES_PER_SECOND)),
        ("mean latency", _shown(lambda _, each: each.profile.mean_s, Unit.SECONDS)),
        ("latency p50", _shown(lambda _, each: each.profile.p50_s, Unit.SECONDS)),
        ("latency p99", _shown(lambda _, each: each.profile.p99_s, Unit.SECONDS)),
        ("lost events", _lost_events),
    ]
    yield _sheet(
        "Requests at the drive",
        places,
        _known(places, facts),
        "From untimed steps of their own, so that tracing costs nothing in timed ones. "
        + " ".join(_latency_words(arms)),
    )
    if foreign := list(_foreign_words(places)):
        yield Notice("Not all reads in the profile are the loader's", foreign)
    reasons = unique(
        each.profile.reason.rstrip(".") for arm in arms for each in arm.runs if each.profile.reason
    )
    if reasons:
        yield Paragraph(f"Not traced, means only: {'; '.join(reasons)}.", quiet=True)


_LATENCIES = {
    "tracefs": "Latency is that of reads, from issue to completion at the driver",
    "block counters": (
        "Latency is the mean over reads and writes, from entry to the block layer on, queueing "
        "included"
    ),
}
"""What latency is by each source of a profile."""


def _latency_words(arms: Sequence[TrainingArm]) -> Iterator[str]:
    """Yield what latency is, a sentence for each source that has one."""
    found = {each.profile.source for arm in arms for each in arm.runs if each.profile.mean_s}
    for source, words in _LATENCIES.items():
        if source in found:
            yield f"{words} ({source})." if len(found) > 1 else f"{words}."


def _foreign_words(places: Sequence[_Place]) -> Iterator[str]:
    """Yield how far the drive's bytes are from the loader's own count, for arms in which they are.

    Of several runs of an arm the farthest counts.
    """
    for place in places:
        shares = [
            share
            for each in place.arm.runs
            if (share := each.profile.foreign_share) is not None and abs(share) > _FOREIGN
        ]
        if not shares:
            continue
        share = max(shares, key=abs)
        of = f"{place.arm.title}: " if len(places) > 1 else ""
        up_to = "up to " if len(place.arm.runs) > 1 else ""
        if share > 0:
            yield f"{of}{up_to}{percent(share, 2)} of the bytes are of other programs."
        else:
            yield (
                f"{of}the loader counted {up_to}{percent(-share, 2)} more bytes than the drive "
                "saw: its reads were served elsewhere, or the profile is incomplete."
            )


def _lost_events(place: _Place) -> str:
    traced = [each.profile.lost_events for each in place.arm.runs if each.profile.sizes]
    return whole(max(traced)) if traced else MISSING


def _track_title(track: Track, tracks: Sequence[Track]) -> str:
    return lettered(track.letter, track.name) if len(tracks) > 1 else track.name


def _reads_per_step(_: RunRecord, found: GraphTraining) -> float | None:
    profile = found.profile
    return profile.reads / profile.steps if profile.steps and profile.reads else None


def _bytes_per_step(_: RunRecord, found: GraphTraining) -> float | None:
    profile = found.profile
    return profile.read_bytes / profile.steps if profile.steps and profile.read_bytes else None


def _own_bytes_per_step(_: RunRecord, found: GraphTraining) -> float | None:
    own_bytes, steps = found.profile.own_read_bytes, found.profile.steps
    return own_bytes / steps if steps and own_bytes is not None else None


def _bandwidth(_: RunRecord, found: GraphTraining) -> float | None:
    profile = found.profile
    return profile.read_bytes / profile.seconds if profile.seconds and profile.read_bytes else None
