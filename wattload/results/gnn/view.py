"""How training on a graph is shown: stages, rates and ceilings, costs, memory, the I/O profile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from wattload.core.power import Scope
from wattload.core.units import KIB, Unit
from wattload.results.facts import divided
from wattload.results.gnn.facts import (
    AGGREGATION,
    DROPPED,
    EMULATED,
    PHASE,
    STAGES,
    GraphFacts,
    Memory,
    ProfiledSteps,
    Run,
)
from wattload.results.gnn.figures import (
    MILLION,
    amplification,
    cpu_s_per_million_rows,
    rows_per_s,
    step_s,
    storage_rows_per_s,
)
from wattload.results.quantity import (
    MISSING,
    block_text,
    counted,
    listed,
    number,
    percent,
    quantity,
    whole,
)
from wattload.results.series import reads_of, step_rates
from wattload.results.shapes import (
    CEILING_ERROR,
    CeilingBar,
    CeilingBars,
    Curve,
    Curves,
    Fact,
    Note,
    Part,
    PartBar,
    PartBars,
    Shape,
    Sheet,
    StepPanels,
    Steps,
    Supply,
    SupplyPanels,
    Text,
    Title,
    sheet,
    unique,
)
from wattload.results.view import (
    Arm,
    Condition,
    Joule,
    Limit,
    Shown,
    ShownRun,
    View,
    mean_of_known,
)
from wattload.results.view import TracedRun as AnyTraced

GraphArm = Arm[GraphFacts]
Traced = AnyTraced[GraphFacts]
Value = Callable[[ShownRun[GraphFacts]], float | None]

_OWN_SAMPLER, _DEMO = "dgl", "demo"
_AT_CEILING = 0.95
"""From this share of a ceiling on, a rate is limited by it."""
_BUSY = 0.7
"""The least share of aggregation in which a drive that limits it has requests in flight."""
_FOREIGN = 0.02
"""Above this share of a profile's bytes, reads of other programs are worth a remark."""
_BINS = 160
_SIZES = (
    (4 * KIB, "4 KiB or less"),
    (16 * KIB, "over 4 to 16 KiB"),
    (64 * KIB, "over 16 to 64 KiB"),
    (128 * KIB, "over 64 to 128 KiB"),
    (float("inf"), "over 128 KiB"),
)
"""Classes of request sizes: the largest of each, and its name."""
_METHODS = {
    "cgroup2": "a cgroup (v2)",
    "cgroup1": "a cgroup (v1)",
    DROPPED: "a page cache dropped before each step",
}


def _memory_text(memory: Memory) -> str:
    return _METHODS.get(memory.method, memory.method)


def _trainer_text(facts: GraphFacts) -> str:
    """Return where a batch is trained on: ``trained on the GPU``."""
    if facts.trainer == EMULATED:
        return "training emulated"
    return f"trained on the {facts.trainer.upper()}"


def _fanout_text(layer: int | tuple[int, ...]) -> str:
    return f"[{','.join(map(str, layer))}]" if isinstance(layer, tuple) else str(layer)


def _job_parts(run: Run) -> list[str]:
    """Return the work: graph, batches, fan-outs and steps."""
    facts, settings = run.facts, run.facts.settings
    fanouts = "-".join(map(_fanout_text, settings.fanouts))
    by_relation = " by relation" if "[" in fanouts else ""
    return [
        f"{facts.graph} from a folder" if settings.source else facts.graph,
        f"batches of {counted(settings.batch_seeds, 'seed')}",
        f"fan-outs {fanouts}{by_relation}",
        counted(facts.steps, "step"),
    ]


def _job(shown: Sequence[Run], _: Sequence[Run]) -> str:
    first, *others = map(_job_parts, shown)
    return ", ".join(part for part in first if all(part in other for other in others))


def _stage_share(stage: str) -> Callable[[Run], float | None]:
    return lambda run: divided(run.facts.stages_s.get(stage), sum(run.facts.stages_s.values()))


def _arms(arms: Mapping[str, Sequence[Run]]) -> str:
    """Return what each arm spent its steps on, in the mean, and where it trained.

    For example ``A: aggregation 81 % of the time, overlapped; B: ... · trained on the GPU``.
    """
    texts, trainers = [], {}
    for name, runs in arms.items():
        share = mean_of_known(map(_stage_share(AGGREGATION), runs))
        if share is None:
            continue
        ahead = ", overlapped" if any(run.facts.is_ahead for run in runs) else ""
        text = f"aggregation {percent(share, 2)} of the time{ahead}"
        texts.append(f"{name}: {text}" if len(arms) > 1 else text)
        trainers[name] = listed(sorted({_trainer_text(run.facts) for run in runs}))
    if len(set(trainers.values())) == 1:
        return " · ".join([*texts, *dict.fromkeys(trainers.values())])
    return " · ".join([*texts, *(f"{name} {words}" for name, words in trainers.items())])


def _limit(runs: Sequence[Run], busy: float | None) -> Limit | None:
    """Return the longest stage of a step; it is the drive's if that was busy for so much of it."""
    stage, gathering = longest_stage(runs)
    if not stage:
        return None
    is_drive = bool(gathering and busy is not None and busy / gathering >= _BUSY)
    at_drive = f"; the drive was busy {percent(busy, 2)}" if busy is not None else ""
    return Limit(f"limited by {stage}{at_drive}", is_drive=is_drive)


def longest_stage(runs: Sequence[Run]) -> tuple[str, float | None]:
    """Return the stage that took most of a step in words, and aggregation's share if that is it.

    Where runs differ in it all of theirs are named, without a share: ``aggregation or training``.
    Beside aggregation is what it reached of the engine's ceiling, if that is one.
    """
    stages_s = [run.facts.stages_s for run in runs if run.facts.stages_s]
    longest = {max(own, key=lambda stage: own[stage]) for own in stages_s}
    if len(longest) != 1:
        return listed([stage for stage in STAGES if stage in longest], "or"), None
    stage = longest.pop()
    share = mean_of_known(map(_stage_share(stage), runs))
    words = f"{stage}, {percent(share, 2)} of the time"
    if stage != AGGREGATION:
        return words, None
    reached = mean_of_known(
        divided(storage_rows_per_s(run), run.facts.ceilings.engine_rows_per_s) for run in runs
    )
    if reached is not None and reached > CEILING_ERROR:
        words += f", at {number(reached, 2)} times the engine's own reads, which are no ceiling"
    elif reached is not None and reached >= _AT_CEILING:
        words += f", at {number(reached, 2)} of the engine's own reads"
    return words, share


def headroom(run: Run) -> list[float]:
    """Return how far the host's ceilings are above the rows that it gathered in a second.

    A ceiling that these rows exceed bounds nothing, and has no factor.
    """
    ceilings = run.facts.ceilings
    factors = (
        divided(each, rows_per_s(run))
        for each in (ceilings.host_rows_per_s, ceilings.pull_rows_per_s)
    )
    return [each for each in factors if each is not None and each * CEILING_ERROR >= 1]


def _conditions(run: Run) -> Iterator[Condition]:
    own = "DGL" if run.facts.sampler == _OWN_SAMPLER else "wattload"
    yield Condition(
        name="workload batches", value=f"drawn by {own}", differs="different batches: {}"
    )
    yield Condition(name="workload training", value=_trainer_text(run.facts))
    yield Condition(name="workload memory limit", value=_memory_text(run.facts.memory))


def left_bytes(memory: Memory) -> int | None:
    """Return what is left of the budget for the page cache; ``None`` without a cgroup."""
    if memory.method == DROPPED:
        return None
    held = (
        memory.topology_bytes + memory.batch_bytes + memory.host_rows_bytes + memory.working_bytes
    )
    return max(memory.budget_bytes - held, 0)


def _opening(shown: Shown[GraphFacts]) -> Iterator[Shape]:
    if remarks := list(_remarks(shown)):
        yield Note(title="How to read these figures", sentences=remarks)
    if not shown.arms:
        return
    yield _stages(shown.arms)
    yield _rates(shown.arms)
    yield _costs(shown.arms)


def _closing(shown: Shown[GraphFacts]) -> Iterator[Shape]:
    if supplies := list(_supplies(shown.traced)):
        yield SupplyPanels(
            name="supply",
            title="bandwidth and power of the drive",
            caption="Bytes that the drive read in each step ÷ its seconds, left axis; power of the "
            "drive, dashed, right axis. Timed steps of one run of each arm; seconds differ by arm.",
            span="timed steps",
            panels=supplies,
        )
    if shown.arms:
        yield _rows_sheet(shown.arms)
        yield _memory_sheet(shown.arms)
        yield Title("I/O profile: what the drive saw")
        yield from _profile(shown)
    if (losses := _losses(shown.arms)) is not None:
        yield losses


def _remarks(shown: Shown[GraphFacts]) -> Iterator[str]:
    """Yield what a reader has to know of the figures, each once."""
    every = [run.facts for run in shown.runs]
    if any(run.record.workload.scale == _DEMO for run in shown.runs):
        seeds = listed(unique(whole(each.settings.batch_seeds) for each in every))
        yield f"Scale demo has batches of {seeds} seeds: too small to measure a drive."
    if any(not each.settings.source for each in every):
        yield (
            "Synthetic graphs have no locality: do not compare hit rates with those of real data "
            "sets."
        )
    own = [
        arm.name
        for arm in shown.every
        if any(run.facts.sampler == _OWN_SAMPLER for run in arm.runs)
    ]
    if own:
        of = f" of {listed(own)}" if len(shown.every) > 1 else ""
        yield f"The batches{of} are drawn by DGL itself: they are not those of other loaders."
    yield from _memory_remarks(every)
    emulated = unique(
        quantity(each.emulated_step_s, Unit.SECONDS, 3)
        for each in every
        if each.trainer == EMULATED
    )
    if emulated:
        yield (
            f"Training is emulated: each step sleeps {listed(emulated, 'or')}. No model is "
            "trained, so there is no loss."
        )


def _memory_remarks(every: Sequence[GraphFacts]) -> Iterator[str]:
    """Yield how the memory of the host was limited: a sentence for each method and reason."""
    shares: dict[tuple[str, str, str], list[str]] = {}
    for memory in (each.memory for each in every):
        key = (memory.method, _memory_text(memory), (memory.reason or "").rstrip("."))
        shares.setdefault(key, []).append(percent(memory.share, 2))
    for (method, words, why), own in shares.items():
        of = f"{listed(unique(own), 'or')} of the features"
        if method == DROPPED:
            reason = f" ({why})" if why else ""
            yield (
                f"The page cache was dropped before each step, in place of a limit of {of}{reason}"
                ". Within a step it may hold more."
            )
        else:
            yield f"Memory of the host was limited to {of} by {words}."


def _stage_parts(arm: GraphArm, whole_s: float) -> list[Part]:
    """Return the stages of a step: their shares of the steps of all runs, of the mean step."""
    sums: dict[str, float] = {}
    for run in arm.runs:
        for stage, seconds in run.facts.stages_s.items():
            sums[stage] = sums.get(stage, 0.0) + seconds / run.facts.steps
    every_s = sum(map(step_s, arm.runs))
    return [Part(stage, seconds / every_s * whole_s) for stage, seconds in sums.items()]


def _stages(arms: Sequence[GraphArm]) -> PartBars:
    """Return the stages of a step, stacked.

    Serial stages sum to the step, with what is between them as another part. Overlapped stages
    take more than the step, which is marked.
    """
    means_s = [arm.mean(step_s) or 0.0 for arm in arms]
    has_ahead = [any(run.facts.is_ahead for run in arm.runs) for arm in arms]
    caption = ["Seconds per step."]
    if any(len(arm.runs) > 1 for arm in arms):
        caption = [
            "The geometric mean of the runs' steps, by the stages' shares of all their time."
        ]
    if not all(has_ahead):
        caption.append("Serial stages sum to the step; other is the time between them.")
    if any(has_ahead):
        caption.append(
            "Overlapped stages run at the same time: their bar is longer than the step, which is "
            "the line across it."
        )
    return PartBars(
        name="steps",
        title="where the time of a step goes",
        caption=" ".join(caption),
        what="a step",
        whole="a step",
        kind="stage",
        unit=Unit.SECONDS,
        names=STAGES,
        bars=[
            PartBar(
                label=f"{arm.words}, overlapped" if is_ahead else arm.words,
                parts=_stage_parts(arm, mean_s),
                whole=mean_s,
                overlaps=is_ahead,
            )
            for arm, mean_s, is_ahead in zip(arms, means_s, has_ahead, strict=True)
        ],
    )  # fmt: skip


def _rates(arms: Sequence[GraphArm]) -> CeilingBars:
    """Return rows gathered in a second of aggregation, those of the drive, and the ceilings."""
    reasons = unique(run.facts.ceiling_reason.rstrip(".") for arm in arms for run in arm.runs)
    missing = f" Missing ceilings: {'; '.join(reasons)}." if reasons else ""

    def bar(arm: GraphArm, rate: Value, name: str, ceiling: Value) -> CeilingBar:
        return CeilingBar(
            letter=arm.letter,
            label=arm.words,
            value=arm.mean(rate),
            ceiling=arm.mean(ceiling),
            ceiling_name=name,
            reason="unknown with the page cache",
        )

    def pull(run: Run) -> float | None:
        return run.facts.ceilings.pull_rows_per_s

    def engine(run: Run) -> float | None:
        return run.facts.ceilings.engine_rows_per_s

    return CeilingBars(
        name="rows",
        title="rows per second",
        caption="Rows ÷ seconds of aggregation; the first panel counts those from memory and "
        "caches too, as published accesses do. Beside a rate is its ceiling, measured without "
        f"sampling and training; a line marks it where it is near.{missing}",
        unit=Unit.SAMPLES_PER_SECOND,
        panels=[
            ("rows gathered", [bar(arm, rows_per_s, "GPU's link", pull) for arm in arms]),
            (
                "rows read from the drive",
                [bar(arm, storage_rows_per_s, "engine alone", engine) for arm in arms],
            ),
        ],
    )


def _shown(value: Value, unit: Unit) -> Callable[[GraphArm], str]:
    return lambda arm: quantity(arm.mean(value), unit, 3)


def _sheet(
    caption: str, arms: Sequence[GraphArm], facts: Sequence[Fact[GraphArm]], note: str
) -> Sheet:
    return sheet(caption, arms, [arm.words for arm in arms], facts, note)


def _joules(scope: Scope, per: Callable[[GraphFacts], float | None]) -> Callable[[GraphArm], str]:
    """Return the text of an energy per step, per million rows or per epoch."""
    return _shown(lambda run: divided(run.joules(scope, PHASE), per(run.facts)), Unit.JOULES)


def _costs(arms: Sequence[GraphArm]) -> Sheet:
    drive, gpu = Scope.DRIVE, Scope.GPU

    def steps(facts: GraphFacts) -> float:
        return facts.steps

    def millions(facts: GraphFacts) -> float:
        return facts.rows / MILLION

    def epochs(facts: GraphFacts) -> float | None:
        return divided(facts.steps, facts.steps_per_epoch)

    facts: list[Fact[GraphArm]] = [
        ("step", _shown(step_s, Unit.SECONDS)),
        (
            "aggregation, share of the stages",
            lambda arm: percent(arm.mean(_stage_share(AGGREGATION))),
        ),
        ("CPU s per million rows", _shown(cpu_s_per_million_rows, Unit.SECONDS)),
        ("drive, per step", _joules(drive, steps)),
        ("drive, per million rows", _joules(drive, millions)),
        ("GPU, per step", _joules(gpu, steps)),
        ("GPU, per million rows", _joules(gpu, millions)),
        ("epoch", _shown(lambda run: step_s(run) * run.facts.steps_per_epoch, Unit.SECONDS)),
        ("drive, per epoch", _joules(drive, epochs)),
        ("GPU, per epoch", _joules(gpu, epochs)),
    ]
    runs = [run for arm in arms for run in arm.runs]
    evidence = unique(run.evidence(PHASE) for run in runs)
    drives = f" Drives: {listed(evidence)}." if evidence else " Power of the drive: not measured."
    return _sheet(
        "Time, CPU and energy",
        arms,
        facts,
        "Geometric means of valid runs. Rows are those of all batches, wherever they came from. "
        "Energies of drives and GPUs are in the window, and never added."
        f"{drives}{_epoch_text(runs)}",
    )


def _epoch_text(runs: Sequence[Run]) -> str:
    """Return whether epochs were run whole, or from how many steps they are computed."""
    if all(run.facts.has_whole_epoch for run in runs):
        return " Whole epochs were run."
    steps = listed(unique(whole(run.facts.steps) for run in runs), "or")
    epoch = listed(unique(whole(run.facts.steps_per_epoch) for run in runs), "or")
    return f" Epochs of {epoch} steps are computed from {steps}."


def _rows_sheet(arms: Sequence[GraphArm]) -> Sheet:
    def share(name: str) -> Callable[[GraphArm], str]:
        return lambda arm: percent(
            arm.mean(
                lambda run: (
                    None if (count := getattr(run.facts, name)) is None else count / run.facts.rows
                )
            )
        )

    facts: list[Fact[GraphArm]] = [
        ("rows per step", lambda arm: whole(arm.mean(lambda r: r.facts.rows / r.facts.steps))),
        ("from the host's memory", share("host_rows")),
        ("from the GPU's cache", share("cache_rows")),
        ("merged with a read under way", share("merged_rows")),
        ("from the drive", share("storage_rows")),
        (
            "drive bytes per step",
            _shown(lambda run: run.facts.storage_bytes / run.facts.steps, Unit.BYTES),
        ),
        ("drive bytes ÷ row bytes", lambda arm: number(arm.mean(amplification), 3)),
        (
            "major faults per step",
            lambda arm: whole(
                arm.mean(
                    lambda run: (
                        run.facts.major_faults / run.facts.steps if run.facts.major_faults else None
                    )
                )
            ),
        ),
    ]
    sizes = listed(unique(block_text(run.facts.row_bytes) for arm in arms for run in arm.runs))
    return _sheet(
        "Where rows came from",
        arms,
        facts,
        f"Shares of all rows, of {sizes} each; where the page cache decides, no place is counted. "
        "Drive bytes ÷ row bytes: of loaders that count, per row read from the drive; else per row "
        "of a batch.",
    )


def _memory_sheet(arms: Sequence[GraphArm]) -> Sheet:
    def size(name: str) -> Callable[[GraphArm], str]:
        return _shown(lambda run: getattr(run.facts.memory, name), Unit.BYTES)

    def budget(arm: GraphArm) -> str:
        share = arm.mean(lambda run: run.facts.memory.share)
        return f"{size('budget_bytes')(arm)} ({percent(share, 2)})"

    def left(arm: GraphArm) -> str:
        if any(run.facts.memory.method == DROPPED for run in arm.runs):
            return "dropped before each step"
        return quantity(arm.mean(lambda run: left_bytes(run.facts.memory)), Unit.BYTES, 3)

    facts: list[Fact[GraphArm]] = [
        ("features", _shown(lambda run: run.facts.feature_bytes, Unit.BYTES)),
        ("host: budget", budget),
        ("host: topology", size("topology_bytes")),
        ("host: batches", size("batch_bytes")),
        ("host: rows of the loader", size("host_rows_bytes")),
        ("host: the loader's own", size("working_bytes")),
        ("host: left to the page cache", left),
        ("host: beside the budget", size("own_bytes")),
        ("host: limit of the cgroup", size("limit_bytes")),
        ("host: page cache, at most", size("page_cache_bytes")),
        ("host: most in use", size("peak_bytes")),
        ("GPU: cache of rows", size("gpu_cache_bytes")),
        ("GPU: batches", size("gpu_batch_bytes")),
        ("GPU: topology", size("gpu_topology_bytes")),
    ]
    return _sheet(
        "Memory of the host and of the GPU",
        arms,
        facts,
        "Every loader has the same budget of host memory. What topology, batches and the loader "
        "leave of it is for the page cache; O_DIRECT does not use it. The limit of a cgroup also "
        "has room beside the budget, for libraries and activations: the page cache may have at "
        "most what the process itself did not hold of that limit.",
    )


def _profiles(arm: GraphArm) -> list[ProfiledSteps]:
    return [run.facts.profile for run in arm.runs if run.facts.profile is not None]


def _of_profile(value: Callable[[ProfiledSteps], float | None]) -> Value:
    return lambda run: None if run.facts.profile is None else value(run.facts.profile)


def _profile(shown: Shown[GraphFacts]) -> Iterator[Shape]:
    arms = shown.arms
    if (sizes := _sizes(arms)) is not None:
        yield sizes
    if (over_time := _over_time(shown.traced)) is not None:
        yield over_time

    def lost_events(arm: GraphArm) -> str:
        traced = [each.seen.lost_events or 0 for each in _profiles(arm) if each.seen.sizes]
        return whole(max(traced)) if traced else MISSING

    def latency(name: str) -> Callable[[GraphArm], str]:
        return _shown(
            _of_profile(lambda p: getattr(p.seen.latency, name) if p.seen.latency else None),
            Unit.SECONDS,
        )

    def per_step(of: Callable[[ProfiledSteps], float | None]) -> Value:
        return _of_profile(lambda p: divided(of(p), p.steps))

    facts: list[Fact[GraphArm]] = [
        ("source", lambda arm: listed(unique(p.seen.source or "none" for p in _profiles(arm)))),
        ("reads per step", lambda arm: whole(arm.mean(per_step(lambda p: p.seen.reads)))),
        ("mean size", _shown(_of_profile(lambda p: p.seen.mean_read_bytes), Unit.BYTES)),
        ("mean depth", lambda arm: number(arm.mean(_of_profile(lambda p: p.seen.mean_depth)), 3)),
        ("highest depth", lambda arm: whole(arm.mean(_of_profile(lambda p: p.seen.peak_depth)))),
        ("bytes per step", _shown(per_step(lambda p: p.seen.read_bytes), Unit.BYTES)),
        ("by the loader's own count", _shown(per_step(lambda p: p.own_read_bytes), Unit.BYTES)),
        (
            "bandwidth",
            _shown(
                _of_profile(lambda p: divided(p.seen.read_bytes, p.seen.seconds)),
                Unit.BYTES_PER_SECOND,
            ),
        ),
        ("mean latency", latency("mean_s")),
        ("latency p50", latency("p50_s")),
        ("latency p99", latency("p99_s")),
        ("lost events", lost_events),
    ]
    yield _sheet(
        "Requests at the drive",
        arms,
        facts,
        "From untimed steps of their own, so that tracing costs nothing in timed ones. "
        + " ".join(_latency_texts(arms)),
    )
    if foreign := list(_foreign_texts(arms)):
        yield Note(title="Not all reads in the profile are the loader's", sentences=foreign)
    reasons = unique((p.seen.reason or "").rstrip(".") for arm in arms for p in _profiles(arm))
    if reasons:
        yield Text(f"Not traced, means only: {'; '.join(reasons)}.", quiet=True)


_LATENCIES = {
    "tracefs": "Latency is that of reads, from issue to completion at the driver",
    "block counters": (
        "Latency is the mean over reads and writes, from entry to the block layer on, queueing "
        "included"
    ),
}
"""What latency is by each source of a profile."""


def _latency_texts(arms: Sequence[GraphArm]) -> Iterator[str]:
    """Yield what latency is, a sentence for each source that has one."""
    found = {p.seen.source for arm in arms for p in _profiles(arm) if p.seen.latency is not None}
    for source, words in _LATENCIES.items():
        if source in found:
            yield f"{words} ({source})." if len(found) > 1 else f"{words}."


def foreign_share(profile: ProfiledSteps) -> float | None:
    """Return the share of the drive's bytes that the loader did not read, below 0 if it read more.

    Through the page cache only what the drive saw is known.
    """
    if profile.own_reads is None:
        return None
    own = divided(profile.own_read_bytes, profile.seen.read_bytes)
    return None if own is None else 1 - own


def _foreign_texts(arms: Sequence[GraphArm]) -> Iterator[str]:
    """Yield how far the drive's bytes are from the loader's own count, for arms in which they are.

    Of several runs of an arm the farthest counts.
    """
    for arm in arms:
        known = [share for p in _profiles(arm) if (share := foreign_share(p)) is not None]
        share = max(known, key=abs, default=0.0)
        if abs(share) <= _FOREIGN:
            continue
        of = f"{arm.words}: " if len(arms) > 1 else ""
        up_to = "up to " if len(arm.runs) > 1 else ""
        if share > 0:
            yield f"{of}{up_to}{percent(share, 2)} of the bytes are of other programs."
        else:
            yield (
                f"{of}the loader counted {up_to}{percent(-share, 2)} more bytes than the drive "
                "saw: its reads were served elsewhere, or the profile is incomplete."
            )


def _sizes(arms: Sequence[GraphArm]) -> PartBars | None:
    """Return the reads of a step by their size; ``None`` where none was traced."""
    drawn = [(arm, own) for arm in arms if (own := _classes(arm))]
    if not drawn:
        return None
    return PartBars(
        name="profile-sizes",
        title="request sizes at the drive",
        caption="Reads as the block layer sent them to the drive, in untimed steps of their own.",
        what="reads per step",
        unit=Unit.COUNT,
        kind="size",
        names=[words for _, words in _SIZES],
        bars=[
            PartBar(
                label=arm.words,
                parts=[Part(words, reads) for words, reads in own.items()],
                note=f"mean {quantity(mean, Unit.BYTES, 3)}"
                if (mean := arm.mean(_of_profile(lambda p: p.seen.mean_read_bytes)))
                else "",
            )
            for arm, own in drawn
        ],
    )  # fmt: skip


def _classes(arm: GraphArm) -> dict[str, float]:
    """Return the reads of a step in each class of sizes, over all runs; empty without any."""
    counts = dict.fromkeys((words for _, words in _SIZES), 0.0)
    traced = [each for each in _profiles(arm) if each.seen.sizes]
    steps = sum(each.steps for each in traced)
    for size in (size for each in traced for size in each.seen.sizes or ()):
        words = next(words for most, words in _SIZES if size.bytes <= most)
        counts[words] += size.count / steps
    return counts if any(counts.values()) else {}


def _over_time(traced: Sequence[Traced]) -> StepPanels | None:
    """Return depth and bandwidth at the drive over time, of one run of each arm."""
    panels: list[Steps] = []
    for each in traced:
        reads = reads_of(each.tables["io_requests"]) if "io_requests" in each.tables else None
        if reads is None:
            continue
        edges = reads.edges_s(_BINS)
        for what, values, unit in (
            ("reads in flight", reads.depth(edges), Unit.COUNT),
            ("bandwidth", reads.bytes_per_s(edges), Unit.BYTES_PER_SECOND),
        ):
            panels.append(
                Steps(letter=each.letter, title=each.title, what=what, edges_s=edges,
                      values=values, unit=unit)
            )  # fmt: skip
    if not panels:
        return None
    return StepPanels(
        name="profile-depth",
        title="depth and bandwidth at the drive over time",
        caption="Traced reads of the untimed steps, one run of each arm. Panels of depth "
        "share a scale, and so do those of bandwidth; seconds differ by arm. Depth is the "
        "mean number of reads in flight.",
        panels=panels,
    )


def _supplies(traced: Sequence[Traced]) -> Iterator[Supply]:
    for each in traced:
        steps = each.tables.get("steps")
        rates = None if steps is None else step_rates(steps, "storage_bytes", _BINS)
        if rates is not None:
            yield Supply(track=each.track, edges_ns=rates[0], bytes_per_s=rates[1])


def _losses(arms: Sequence[GraphArm]) -> Curves | None:
    """Return the loss of one run of each arm over the steps; ``None`` where no model was trained.

    Equal batches give equal losses, on one kind of trainer.
    """
    known = [(arm, losses) for arm in arms if len(losses := arm.runs[0].facts.losses) > 1]
    if not known:
        return None
    return Curves(
        name="loss",
        title="loss",
        caption="Labels follow from the features, so the loss falls only if the right rows arrive.",
        same="All arms have the same losses: they trained on the same batches.",
        what="loss",
        over="step",
        curves=[Curve(letter=arm.letter, title=arm.words, values=losses) for arm, losses in known],
    )


VIEW = View[GraphFacts](
    title="GNN training",
    labels={PHASE: "GNN training"},
    job=_job,
    arms=_arms,
    rate_titles={"step_s": "{unit} per step"},
    work=lambda run, _: ("step", float(run.facts.steps)),
    joule=Joule(
        one="row", many="rows", count=lambda run, phase: run.facts.rows if phase == PHASE else None
    ),
    payload_bytes=lambda run: run.facts.rows * run.facts.row_bytes,
    settings=lambda run: {"workload.graph": run.facts.graph},
    conditions=_conditions,
    not_work=frozenset(
        {"overlap", "sampler", "sampler_threads", "outstanding", "profile_steps", "gpus",
         "training"}
    ),
    limit=_limit,
    headroom=headroom,
    accelerators=lambda run: [run.facts.gpu.name] if run.facts.gpu else [],
    opening=_opening,
    closing=_closing,
    draws_parts=True,
)  # fmt: skip
"""Batches are the same by every sampler of ours, in whatever order stages are done: settings of
these are not work. What training came down to is a condition of its own."""
