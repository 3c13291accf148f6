"""Training on a graph as recorded: stages of a step, rows and their places, memory, I/O profile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from wattload.core.record.run import RunRecord
from wattload.results import gnn as results
from wattload.results.gnn import GraphFacts, ProfiledSteps
from wattload.results.identity_cache import cache_by_identity
from wattload.results.quantity import counted, listed, number, percent
from wattload.results.reading import run_of

GNN = "gnn"
"""The name of the workload and of its only timed phase."""
STEP_S = "step_s"
UNVERIFIED_S = "unverified_s"
"""The time of all steps without verification, which published figures do not have."""
AGGREGATION = "aggregation"
TRAINING = "training"
VERIFICATION = "verification"
STAGES = ("sampling", AGGREGATION, "transfer", TRAINING, VERIFICATION)
"""The stages of a step, in their order."""
AHEAD, SERIAL = "ahead", "serial"
EMULATED = "emulated"
OWN_SAMPLER = "dgl"
"""The sampler that draws batches of its own; all others draw the same ones."""
DROPPED = "drop_cache"
"""The method of a memory limit where there is no cgroup."""

Fanout = int | tuple[int, ...]
"""Neighbours drawn for a node in a layer: of every relation, or of each of them."""

_AT_CEILING = 0.95
"""From this share of a ceiling on, a rate is limited by it."""
CEILING_ERROR = 1.05
"""A rate above this many times its ceiling shows that the ceiling was measured too low."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of a run, in bytes; ``None`` where it is unknown.

    ``budget_bytes`` are ``share`` of the features: for topology, batches, the rows that the loader
    keeps, its ``working_bytes``, and the page cache. ``limit_bytes`` are those of a cgroup, which
    adds ``own_bytes`` for libraries and activations; of it ``page_cache_bytes`` are beyond what the
    process itself held. ``peak_bytes`` is the most that the cgroup used.
    """

    share: float | None
    method: str
    reason: str
    budget_bytes: float | None
    limit_bytes: float | None
    own_bytes: float | None
    peak_bytes: float | None
    page_cache_bytes: float | None
    topology_bytes: float | None
    batch_bytes: float | None
    host_rows_bytes: float | None
    working_bytes: float | None
    gpu_cache_bytes: float | None
    gpu_batch_bytes: float | None
    gpu_topology_bytes: float | None

    @property
    def left_bytes(self) -> float | None:
        """What is left of the budget for the page cache; ``None`` without a cgroup."""
        held = (self.topology_bytes, self.batch_bytes, self.host_rows_bytes, self.working_bytes)
        if self.budget_bytes is None or not self.is_limited or None in held:
            return None
        return max(self.budget_bytes - sum(filter(None, held)), 0.0)

    @property
    def is_limited(self) -> bool:
        return self.method not in ("", DROPPED)

    @property
    def words(self) -> str:
        """How the memory was limited: ``a cgroup (v2)``."""
        known = {
            "cgroup2": "a cgroup (v2)",
            "cgroup1": "a cgroup (v1)",
            DROPPED: "a page cache dropped before each step",
        }
        return known.get(self.method, self.method)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What the drive saw during a few untimed steps.

    ``source`` is ``tracefs`` if every request was traced, ``block counters`` if only means are
    known, and empty if neither, for a ``reason``. ``sizes`` are pairs of bytes and reads.
    ``own_reads`` and ``own_read_bytes`` are what the loader counted in these steps; the drive's
    include those of other programs.
    """

    source: str
    reason: str
    seconds: float | None
    steps: int
    reads: int
    read_bytes: int
    own_reads: float | None
    own_read_bytes: float | None
    mean_read_bytes: float | None
    sizes: tuple[tuple[int, int], ...]
    mean_depth: float | None
    peak_depth: float | None
    p50_s: float | None
    p99_s: float | None
    mean_s: float | None
    lost_events: int

    @property
    def foreign_share(self) -> float | None:
        """The share of the drive's bytes that the loader did not read, below 0 if it read more."""
        if self.own_read_bytes is None or not self.read_bytes:
            return None
        return 1 - self.own_read_bytes / self.read_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphTraining:
    """What a run of training on a graph did.

    ``stages_s`` are the seconds of each stage in all, ``wall_s`` those of the timed steps. The rows
    of all batches, ``rows``, came from one of four places: ``host_rows`` from memory of the host,
    ``cache_rows`` from the GPU's cache, ``joined_rows`` from another row's read under way, and
    ``storage_rows`` from the drive. These are ``None`` where the page cache decided. ``row_bytes``
    are the bytes of a row, ``storage_bytes`` what the drive read. ``fanouts`` are those of each
    layer: one, or one for each relation. ``gpu`` is the name of the GPU,
    empty without one. ``engine_rows_per_s``, ``host_rows_per_s`` and ``pull_rows_per_s`` are the
    ceilings of the engine, of the engine without the drives, and of the GPU's link.
    """

    graph: str
    source: str
    row_bytes: int
    feature_bytes: int
    batch_seeds: int
    fanouts: tuple[Fanout, ...]
    steps: int
    overlap: str
    training: str
    trainer: str
    sampler: str
    sampler_device: str
    gpu: str
    memory: Memory
    stages_s: Mapping[str, float]
    wall_s: float | None
    rows: int
    storage_rows: float | None
    host_rows: float | None
    cache_rows: float | None
    joined_rows: float | None
    storage_bytes: float | None
    amplification: float | None
    major_faults: float | None
    cpu_s: float | None
    losses: tuple[float, ...]
    steps_per_epoch: int
    is_whole_epoch: bool
    compared_rows: int
    engine_rows_per_s: float | None
    host_rows_per_s: float | None
    pull_rows_per_s: float | None
    ceiling_reason: str
    profile: Profile

    @property
    def is_ahead(self) -> bool:
        """Whether the next batch is fetched while one is trained on."""
        return self.overlap == AHEAD

    @property
    def step_s(self) -> float | None:
        return _divided(self.wall_s, self.steps)

    @property
    def unverified_s(self) -> float | None:
        """The seconds of the timed steps without verification; ``None`` if stages overlap."""
        verification_s = self.stages_s.get(VERIFICATION)
        if self.wall_s is None or verification_s is None or self.is_ahead:
            return None
        return self.wall_s - verification_s

    @property
    def rows_per_step(self) -> float | None:
        return _divided(self.rows, self.steps)

    @property
    def aggregation_s(self) -> float | None:
        return self.stages_s.get(AGGREGATION)

    @property
    def rows_per_s(self) -> float | None:
        return _divided(self.rows, self.aggregation_s)

    @property
    def storage_rows_per_s(self) -> float | None:
        """Rows read from the drive in a second of aggregation."""
        return _divided(self.storage_rows, self.aggregation_s)

    @property
    def cpu_s_per_million_rows(self) -> float | None:
        return None if self.cpu_s is None or not self.rows else self.cpu_s / self.rows * 1e6

    def stage_share(self, stage: str) -> float | None:
        """Return a stage's share of all stages, which is that of the wall if they are serial."""
        return _divided(self.stages_s.get(stage), sum(self.stages_s.values()))

    @property
    def largest_stage(self) -> str:
        """The stage that took the most time; empty if none is known."""
        return max(self.stages_s, key=lambda stage: self.stages_s[stage], default="")

    @property
    def at_engine_ceiling(self) -> float | None:
        """Rows read from the drive as a share of what the engine read by itself."""
        return _divided(self.storage_rows_per_s, self.engine_rows_per_s)

    @property
    def host_factors(self) -> list[float]:
        """How far the host's ceilings are above the rows that it gathered in a second.

        A ceiling that these rows exceed bounds nothing, and has no factor.
        """
        factors = (
            _divided(each, self.rows_per_s) for each in (self.host_rows_per_s, self.pull_rows_per_s)
        )
        return [each for each in factors if each is not None and each * CEILING_ERROR >= 1]

    @property
    def load_words(self) -> str:
        """The work: ``igb_small, batches of 1,024 seeds, fan-outs 10-5-5, 20 steps``."""
        of = f"{self.graph} from a folder" if self.source else self.graph
        fanouts = "-".join(map(_fanout_text, self.fanouts))
        parts = [of, f"batches of {counted(self.batch_seeds, 'seed')}"]
        by_relation = " by relation" if "[" in fanouts else ""
        parts += [f"fan-outs {fanouts}{by_relation}"] if fanouts else []
        return ", ".join([*parts, counted(self.steps, "step")])

    @property
    def trainer_words(self) -> str:
        """Where a batch is trained on: ``trained on the GPU``."""
        if EMULATED in (self.training, self.trainer):
            return "training emulated"
        return f"trained on the {self.trainer.upper()}" if self.trainer else ""


@cache_by_identity
def graph_training(record: RunRecord) -> GraphTraining | None:
    """Return what a run of training on a graph did; ``None`` for another workload."""
    run = run_of(record)
    if run is None or not isinstance(run.facts, GraphFacts):
        return None
    found: GraphFacts = run.facts
    memory = found.memory.model_dump()
    memory["reason"] = memory["reason"] or ""
    return GraphTraining(
        graph=found.graph,
        source=found.settings.source or "",
        row_bytes=found.row_bytes,
        feature_bytes=found.feature_bytes,
        batch_seeds=found.settings.batch_seeds,
        fanouts=found.settings.fanouts,
        steps=found.steps,
        overlap=found.settings.overlap,
        training="emulated" if found.trainer == EMULATED else "torch",
        trainer=found.trainer,
        sampler=found.sampler,
        sampler_device="gpu" if found.sampler == "torch" else "cpu",
        gpu=found.gpu.name if found.gpu else "",
        memory=Memory(**memory),
        stages_s=found.stages_s,
        wall_s=results.wall_s(run),
        rows=found.rows,
        storage_rows=found.storage_rows,
        host_rows=found.host_rows,
        cache_rows=found.cache_rows,
        joined_rows=found.merged_rows,
        storage_bytes=found.storage_bytes,
        amplification=results.amplification(run),
        major_faults=found.major_faults,
        cpu_s=found.cpu_s,
        losses=found.losses,
        steps_per_epoch=found.steps_per_epoch,
        is_whole_epoch=found.has_whole_epoch,
        compared_rows=found.compared_rows,
        **found.ceilings.model_dump(),
        ceiling_reason=found.ceiling_reason,
        profile=_profile(found.profile),
    )


def rows_of_phase(record: RunRecord, phase: str) -> int | None:
    """Return the rows that a phase gathered, whose energy is of interest; else ``None``."""
    found = graph_training(record)
    return found.rows or None if found is not None and phase == GNN else None


def payload_bytes(record: RunRecord) -> int | None:
    """Return the bytes of all rows gathered, which equal work has; ``None`` for other workloads.

    The bytes that a drive moves for them are a result: caches save some, read-ahead adds some.
    """
    found = graph_training(record)
    return found.rows * found.row_bytes if found is not None else None


def effective_settings(record: RunRecord) -> Mapping[str, str]:
    """Return the settings of a run that may follow from its scale, with their value in effect."""
    found = graph_training(record)
    if found is None:
        return {}
    return {"workload.graph": found.graph}


def batches_words(record: RunRecord) -> str:
    """Return whose batches a run trained on; empty for other workloads."""
    found = graph_training(record)
    if found is None:
        return ""
    return "drawn by DGL" if found.sampler == OWN_SAMPLER else "drawn by wattload"


def training_words(record: RunRecord) -> str:
    """Return where a run trained; empty for other workloads."""
    found = graph_training(record)
    return found.trainer_words if found is not None else ""


def memory_words(record: RunRecord) -> str:
    """Return how the memory of a run was limited; empty for other workloads."""
    found = graph_training(record)
    return found.memory.words if found is not None else ""


def is_filled_by_gpu(record: RunRecord) -> bool:
    """Return whether counts prove that a GPU asked for every row that was read."""
    paths = record.workload.paths
    is_proved = bool(paths) and all(path.path_effective == "gpu_pull" for path in paths)
    return graph_training(record) is not None and is_proved


def work_words(shown: Sequence[RunRecord]) -> str:
    """Return the work of runs: graph, batches and steps. Parts that differ are left out."""
    found = [each for each in map(graph_training, shown) if each is not None]
    parts = [each.load_words.split(", ") for each in found]
    if not parts:
        return ""
    first, *others = parts
    return ", ".join(word for word in first if all(word in other for other in others))


def arms_stages(arms: Mapping[str, Sequence[RunRecord]]) -> str:
    """Return what each arm spent its steps on, in the median, and where it trained.

    For example ``A: aggregation 81 % of the stages, overlapped; B: ... · trained on the GPU``.
    """
    texts, trainers = [], {}
    for name, records in arms.items():
        found = [each for each in map(graph_training, records) if each is not None]
        share = middle(each.stage_share(AGGREGATION) for each in found)
        if share is None:
            continue
        ahead = ", overlapped" if any(each.is_ahead for each in found) else ""
        text = f"aggregation {percent(share, 2)} of the time{ahead}"
        texts.append(f"{name}: {text}" if len(arms) > 1 else text)
        trainers[name] = listed(sorted({each.trainer_words for each in found} - {""}))
    if len(set(trainers.values())) == 1:
        texts += [words for words in dict.fromkeys(trainers.values()) if words]
    else:
        texts += [f"{name} {words}" for name, words in trainers.items() if words]
    return " · ".join(texts)


def stage_limit(records: Sequence[RunRecord]) -> tuple[str, float | None]:
    """Return the stage that took most of a step in words, and aggregation's share if that is it.

    Where runs differ in it all of theirs are named, without a share: ``aggregation or training``.
    The words are empty for other workloads. Beside aggregation is what it reached of the engine's
    ceiling, if that is one.
    """
    found = [each for each in map(graph_training, records) if each is not None]
    stages = {each.largest_stage for each in found} - {""}
    if len(stages) != 1:
        return listed([stage for stage in STAGES if stage in stages], "or"), None
    stage = stages.pop()
    share = middle(each.stage_share(stage) for each in found)
    words = f"{stage}, {percent(share, 2)} of the time"
    if stage != AGGREGATION:
        return words, None
    reached = middle(each.at_engine_ceiling for each in found)
    if reached is not None and reached > CEILING_ERROR:
        words += f", at {number(reached, 2)} times the engine's own reads, which are no ceiling"
    elif reached is not None and reached >= _AT_CEILING:
        words += f", at {number(reached, 2)} of the engine's own reads"
    return words, share


def middle(values: Iterable[float | None]) -> float | None:
    """Return the median of the known values; ``None`` without one."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _profile(found: ProfiledSteps | None) -> Profile:
    if found is None:
        return Profile(
            source="", reason="", seconds=None, steps=0, reads=0, read_bytes=0, own_reads=None,
            own_read_bytes=None, mean_read_bytes=None, sizes=(), mean_depth=None, peak_depth=None,
            p50_s=None, p99_s=None, mean_s=None, lost_events=0,
        )  # fmt: skip
    seen = found.seen
    return Profile(
        source=seen.source or "",
        reason=seen.reason or "",
        seconds=seen.seconds,
        steps=found.steps,
        reads=seen.reads or 0,
        read_bytes=seen.read_bytes or 0,
        own_reads=found.own_reads,
        own_read_bytes=found.own_read_bytes,
        mean_read_bytes=seen.mean_read_bytes,
        sizes=tuple(sorted((each.bytes, each.count) for each in seen.sizes or ())),
        mean_depth=seen.mean_depth,
        peak_depth=seen.peak_depth,
        p50_s=seen.latency.p50_s if seen.latency else None,
        p99_s=seen.latency.p99_s if seen.latency else None,
        mean_s=seen.latency.mean_s if seen.latency else None,
        lost_events=seen.lost_events or 0,
    )


def _fanout_text(layer: Fanout) -> str:
    return f"[{','.join(map(str, layer))}]" if isinstance(layer, tuple) else str(layer)


def _divided(part: float | None, of: float | None) -> float | None:
    return part / of if part is not None and of else None
