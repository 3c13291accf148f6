"""Training on a graph: batches are sampled, their rows of features gathered, and trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import fsum
from typing import Literal

from wattload.core.base_models import Frozen
from wattload.core.host.io_profile import IOProfile
from wattload.core.record.results import Verdict, VerifiedBytes
from wattload.core.units import Unit, format_bytes, format_percent
from wattload.results.checks import (
    CheckFigures,
    CheckRule,
    cold_cache,
    data_path,
    written_extents,
)
from wattload.results.declaration import Results
from wattload.results.facts import Facts, Settings, divided, fact
from wattload.results.facts import Run as AnyRun
from wattload.results.figures import Figure
from wattload.results.tables import Column, TraceTable
from wattload.results.view import View

PHASE = "gnn"
AGGREGATION, TRANSFER, TRAINING, VERIFICATION = (
    "aggregation", "transfer", "training", "verification",
)  # fmt: skip
STAGES = ("sampling", AGGREGATION, TRANSFER, TRAINING, VERIFICATION)
"""The stages of a step, in their order."""
PLACES = ("storage_rows", "host_rows", "cache_rows", "merged_rows")
"""The places that rows come from; each row from one."""
AHEAD, EMULATED = "ahead", "emulated"
MILLION = 1e6
CLOSURE = 0.02
"""What the stages of serial steps may lack of their time."""
GPU_CLOCK = 0.02
"""What a stage may take longer by the GPU's clock than by the host's."""


class GraphSettings(Settings):
    """The settings of the workload that are read here."""

    source: str | None
    batch_seeds: int
    fanouts: tuple[int | tuple[int, ...], ...]
    overlap: Literal["serial", "ahead"]
    compare_every: int


class TrainingGpu(Frozen):
    """A GPU, by its PCI address."""

    address: str
    name: str


class Memory(Frozen):
    """The memory of a run, in bytes; ``None`` where it is unknown."""

    share: float = fact("host memory for topology, batches, loader and page cache ÷ features")
    budget_bytes: int = fact("that share", "B", ge=0)
    method: str = fact("cgroup1, cgroup2, or drop_cache: the page cache dropped before each step")
    reason: str | None = fact("why there is no cgroup")
    limit_bytes: int | None = fact("the limit of the cgroup", "B")
    peak_bytes: int | None = fact("the most that the cgroup used", "B")
    own_bytes: int | None = fact("what the process itself held of the limit", "B")
    page_cache_bytes: int | None = fact("what it did not hold of the limit", "B")
    topology_bytes: int = fact("the topology, in host memory", "B", ge=0)
    batch_bytes: int = fact("batches, in host memory", "B", ge=0)
    host_rows_bytes: int = fact("rows that the loader keeps in host memory", "B", ge=0)
    working_bytes: int = fact("the loader's own", "B", ge=0)
    gpu_cache_bytes: int = fact("the cache of rows in the GPU", "B", ge=0)
    gpu_batch_bytes: int = fact("batches in the GPU", "B", ge=0)
    gpu_topology_bytes: int = fact("the topology in the GPU", "B", ge=0)


class Ceilings(Frozen):
    """Rows per second without sampling and training; ``None`` where not measured."""

    engine_rows_per_s: float | None = fact("random reads of the engine by itself", "1/s")
    host_rows_per_s: float | None = fact("the engine without drives", "1/s")
    pull_rows_per_s: float | None = fact("rows over the GPU's link", "1/s")


class ProfiledSteps(Frozen):
    """What the drives saw of a few untimed steps, and what the loader counted in them."""

    seen: IOProfile
    steps: int = fact("steps", ge=1)
    own_reads: int | None = fact("reads of the loader")
    own_read_bytes: int = fact("bytes that storage gave the loader", "B", ge=0)


class GraphFacts(Facts):
    """The facts of the timed steps of a run, in all.

    Each row of the batches came from one of four places. These are ``None`` where the page cache
    decided, as it does for mapped files: nothing counts them.
    """

    settings: GraphSettings = fact("of the workload", exclude=True)
    graph: str = fact("name of the graph's shape")
    nodes: Mapping[str, int] = fact("nodes by type")
    edges: Mapping[str, int] = fact("edges by relation")
    largest_degree: int = fact("most edges of a node")
    row_bytes: int = fact("a row of features", "B", ge=1)
    training_seeds: int = fact("nodes that train", ge=1)
    trainer: Literal["gpu", "cpu", "emulated"] = fact("what trains")
    emulated_step_s: float | None = fact("what an emulated step sleeps", "s")
    gpu: TrainingGpu | None = fact("the GPU that trains or that rows are gathered into")
    sampler: Literal["c", "torch", "dgl"] = fact("who draws batches: all but dgl draw the same")
    sampler_threads: int | None = fact("threads that sample; None on a GPU")
    torch: str = fact("version of PyTorch")
    memory: Memory
    steps: int = fact("timed steps", ge=1)
    stages_s: Mapping[str, float] = fact("seconds of each stage that there is", "s")
    transfer_gpu_s: float | None = fact("transfer by CUDA events", "s")
    training_gpu_s: float | None = fact("training by CUDA events", "s")
    eviction_s: float = fact("dropping caches, which serial steps leave out", "s", ge=0)
    rows: int = fact("rows gathered", ge=1)
    storage_rows: int | None = fact("rows read from the drive", ge=0)
    host_rows: int | None = fact("rows from the loader's host memory", ge=0)
    cache_rows: int | None = fact("rows from the GPU's cache", ge=0)
    merged_rows: int | None = fact("rows that came with another row's read under way", ge=0)
    storage_bytes: int = fact("bytes that storage gave", "B", ge=0)
    operations: int = fact("reads; through the page cache, rows", ge=0)
    read_bytes: int | None = fact("bytes of each read; None through the page cache", "B")
    read_bytes_per_row: int = fact("bytes that a reader of blocks moves for a row", "B", ge=1)
    major_faults: int | None = fact("page faults that read", ge=0)
    cpu_s: float = fact("CPU time of gathering", "s", ge=0)
    losses: tuple[float, ...] = fact("cross entropy of each step; empty without training")
    compared_rows: int = fact("rows compared where the model takes them; all were right", ge=0)
    ceilings: Ceilings
    ceiling_reason: str = fact("why ceilings are missing")
    profile: ProfiledSteps | None = fact("the I/O profile")

    @property
    def is_ahead(self) -> bool:
        """Whether the next batch is fetched while one is trained on."""
        return self.settings.overlap == AHEAD

    @property
    def is_counted(self) -> bool:
        """Whether the loader counts the places of rows."""
        return self.storage_rows is not None

    @property
    def feature_bytes(self) -> int:
        return sum(self.nodes.values()) * self.row_bytes

    @property
    def steps_per_epoch(self) -> int:
        return self.training_seeds // self.settings.batch_seeds

    @property
    def has_whole_epoch(self) -> bool:
        return self.steps >= self.steps_per_epoch

    @property
    def aggregation_s(self) -> float:
        return self.stages_s.get(AGGREGATION, 0.0)


Run = AnyRun[GraphFacts]


def wall_s(run: Run) -> float:
    """Return the time from the first step to the end of the last, without dropping caches.

    With overlap caches are dropped beside other stages, so that nothing is taken off.
    """
    return run.seconds(PHASE) - (0.0 if run.facts.is_ahead else run.facts.eviction_s)


def step_s(run: Run) -> float:
    return wall_s(run) / run.facts.steps


def unverified_s(run: Run) -> float | None:
    """Return the time of all steps without verification, which published figures do not have."""
    verification_s = run.facts.stages_s.get(VERIFICATION)
    if run.facts.is_ahead or verification_s is None:
        return None
    return wall_s(run) - verification_s


def rows_per_s(run: Run) -> float | None:
    return divided(run.facts.rows, run.facts.aggregation_s)


def storage_rows_per_s(run: Run) -> float | None:
    return divided(run.facts.storage_rows, run.facts.aggregation_s)


def amplification(run: Run) -> float | None:
    """Return what the drive read ÷ the bytes of the rows that it was read for."""
    rows = run.facts.rows if run.facts.storage_rows is None else run.facts.storage_rows
    return divided(run.facts.storage_bytes, rows * run.facts.row_bytes)


def cpu_s_per_million_rows(run: Run) -> float:
    return run.facts.cpu_s / run.facts.rows * MILLION


_UNCOUNTED = "the page cache decides which rows are read, and nothing counts them"
_MEANINGS = {
    "sampling": "drawing neighbours and classes of the batches, in all",
    AGGREGATION: "gathering their rows of features, in all",
    TRANSFER: "copying rows from pinned memory to the GPU, in all",
    TRAINING: "forward, backward and update of the model, in all",
    VERIFICATION: "recomputing rows where the model takes them, in all",
}

figure = partial(Figure[GraphFacts], phase=PHASE)


def _stage_figures(run: Run) -> Sequence[Figure[GraphFacts]]:
    is_ahead = run.facts.is_ahead

    def of(stage: str) -> Figure[GraphFacts]:
        return figure(
            name=f"{stage}_s",
            of=lambda run: run.facts.stages_s.get(stage),
            unit=Unit.SECONDS,
            better="lower",
            meaning=_MEANINGS[stage] + (", beside other stages" if is_ahead else ""),
            part_of="" if is_ahead else "wall_s",
            reason=_not_transferred,
        )

    return [of(stage) for stage in STAGES]


def _not_transferred(run: Run) -> str:
    if run.facts.memory.batch_bytes == 0:
        return f"loader={run.record.workload.loader} gathers into the memory of the GPU"
    return "nothing is transferred: the rows stay in host memory"


def _hit_rate(place: str) -> Figure[GraphFacts]:
    where = "the GPU's cache" if place == "cache" else "the loader's rows in host memory"
    return figure(
        name=f"{place}_hit_rate",
        of=lambda run: divided(getattr(run.facts, f"{place}_rows"), run.facts.rows),
        unit=Unit.FRACTION,
        better="neither",
        meaning=f"rows found in {where} / rows",
        reason=_UNCOUNTED,
    )


def _epoch(run: Run) -> Sequence[Figure[GraphFacts]]:
    steps = run.facts.steps_per_epoch
    computed = "" if run.facts.has_whole_epoch else ", computed: no whole epoch ran"
    return [
        figure(
            name="epoch_s",
            of=lambda run: step_s(run) * steps,
            unit=Unit.SECONDS,
            better="lower",
            meaning=f"mean time of a step x {steps} steps of an epoch{computed}",
        )
    ]


FIGURES = (
    figure(
        name="step_s",
        of=step_s,
        unit=Unit.SECONDS,
        better="lower",
        meaning="mean time of a step, with its comparison of rows",
        headline=True,
    ),
    figure(
        name="rows_per_s",
        of=rows_per_s,
        unit=Unit.SAMPLES_PER_SECOND,
        better="higher",
        meaning="rows of features gathered / time of gathering, wherever they came from",
        label="rows gathered per second",
    ),
    figure(
        name="storage_rows_per_s",
        of=storage_rows_per_s,
        unit=Unit.SAMPLES_PER_SECOND,
        better="higher",
        meaning="rows read from the drive / time of gathering",
        label="rows from the drive per second",
        reason=_UNCOUNTED,
    ),
    figure(
        name="storage_bytes_per_s",
        of=lambda run: divided(run.facts.storage_bytes, run.facts.aggregation_s),
        unit=Unit.BYTES_PER_SECOND,
        better="higher",
        meaning="bytes that storage gave / time of gathering",
    ),
    figure(
        name="read_bytes_per_s",
        of=lambda run: divided(run.facts.storage_bytes, run.seconds(PHASE)),
        unit=Unit.BYTES_PER_SECOND,
        better="higher",
        meaning="bytes that storage gave / time of all steps",
        rate_of="read",
    ),
    _stage_figures,
    figure(
        name="wall_s",
        of=wall_s,
        unit=Unit.SECONDS,
        better="lower",
        meaning="time of all timed steps",
        label="time of all steps",
    ),
    figure(
        name="unverified_s",
        of=unverified_s,
        unit=Unit.SECONDS,
        better="lower",
        meaning="time of all timed steps without verification, as published figures have it",
        label="time of all steps without verification",
        reason="stages overlap",
    ),
    figure(
        name="aggregation_share",
        of=lambda run: divided(run.facts.aggregation_s, wall_s(run)),
        unit=Unit.FRACTION,
        better="neither",
        meaning="time of gathering / time of all steps",
    ),
    _hit_rate("cache"),
    _hit_rate("host"),
    figure(
        name="read_amplification",
        of=lambda run: run.facts.storage_bytes / (run.facts.rows * run.facts.row_bytes),
        unit=Unit.COUNT,
        better="lower",
        meaning="bytes that storage gave / bytes of the rows gathered; below 1 where caches held "
        "rows",
    ),
    figure(
        name="cpu_s_per_million_rows",
        of=cpu_s_per_million_rows,
        unit=Unit.SECONDS,
        better="lower",
        meaning="CPU time of gathering a million rows",
        label="CPU time per million rows",
    ),
    figure(
        name="last_loss",
        of=lambda run: run.facts.losses[-1] if run.facts.losses else None,
        unit=Unit.COUNT,
        better="neither",
        meaning="cross entropy of the last step",
        reason="training was emulated",
    ),
    _epoch,
)


def _passes(holds: bool, otherwise: Verdict = "fail") -> Verdict:
    return "pass" if holds else otherwise


def _verified(run: Run) -> tuple[VerifiedBytes, ...]:
    moved_bytes = run.facts.storage_bytes
    if not moved_bytes:
        return ()
    verified_bytes = min(run.facts.compared_rows * run.facts.row_bytes, moved_bytes)
    return (
        VerifiedBytes(
            phase=PHASE, kind="read", moved_bytes=moved_bytes, verified_bytes=verified_bytes
        ),
    )


def _compared(figures: CheckFigures, _: Verdict) -> str:
    how = "recomputed from its number" if figures["recomputed"] else "read again from its file"
    return (
        f"{figures['compared_rows']:,} of {figures['rows']:,} rows were compared where the model "
        f"takes them, each {how}: none was wrong."
    )


def _place_figures(run: Run) -> CheckFigures:
    facts = run.facts
    return {
        "rows": facts.rows,
        **{name: getattr(facts, name) for name in PLACES},
        "storage_bytes": facts.storage_bytes,
        "read_bytes_per_row": facts.read_bytes_per_row,
    }


def _are_placed(figures: CheckFigures) -> Verdict:
    count = {name: int(figures[name] or 0) for name in (*PLACES, "rows")}
    read_bytes = count["storage_rows"] * int(figures["read_bytes_per_row"] or 0)
    is_whole = sum(count[name] for name in PLACES) == count["rows"]
    return _passes(is_whole and read_bytes == figures["storage_bytes"])


def _placed(figures: CheckFigures, verdict: Verdict) -> str:
    read = format_bytes(int(figures["storage_bytes"] or 0))
    ending = ": these must add up, with the bytes of the rows read." if verdict == "fail" else "."
    return (
        f"Of {figures['rows']:,} rows {figures['storage_rows']:,} read from storage ({read}), "
        f"{figures['host_rows']:,} from host memory, {figures['cache_rows']:,} from the GPU's "
        f"cache and {figures['merged_rows']:,} merged with another's read{ending}"
    )


def _time_figures(run: Run) -> CheckFigures:
    facts = run.facts
    return {
        "stages_s": fsum(facts.stages_s.values()),
        "wall_s": wall_s(run),
        "transfer_s": facts.stages_s.get(TRANSFER),
        "training_s": facts.stages_s.get(TRAINING),
        "transfer_gpu_s": facts.transfer_gpu_s,
        "training_gpu_s": facts.training_gpu_s,
    }


def _are_closed(figures: CheckFigures) -> Verdict:
    """Judge whether stages add up to the steps, and the GPU's clock agrees with the host's."""
    for name in (TRANSFER, TRAINING):
        by_gpu, by_host = figures[f"{name}_gpu_s"], figures[f"{name}_s"]
        if by_gpu is not None and float(by_gpu) > (1 + GPU_CLOCK) * float(by_host or 0):
            return "warn"
    sum_s, of_s = float(figures["stages_s"] or 0), float(figures["wall_s"] or 0)
    return _passes((1 - CLOSURE) * of_s <= sum_s <= (1 + 1e-6) * of_s, "warn")


def _closed(figures: CheckFigures, verdict: Verdict) -> str:
    share = format_percent(float(figures["stages_s"] or 0) / float(figures["wall_s"] or 1), 1)
    by_gpu = "; neither transfer nor training is longer by the GPU's own clock" * (
        figures["training_gpu_s"] is not None and verdict == "pass"
    )
    return f"The stages add up to {share} of the time of the steps{by_gpu}."


def _overlap_figures(run: Run) -> CheckFigures:
    stages_s = run.facts.stages_s
    longest = max(stages_s, key=lambda stage: stages_s[stage])
    return {
        "longest_stage": longest,
        "longest_stage_s": stages_s[longest],
        "wall_s": wall_s(run),
    }


def _overlapped(figures: CheckFigures, _: Verdict) -> str:
    factor = float(figures["wall_s"] or 0) / float(figures["longest_stage_s"] or 1)
    return (
        f"The steps took {factor:.2f} times their longest stage, {figures['longest_stage']}; 1 "
        "would be a perfect overlap."
    )


def _operations(run: Run) -> int:
    return run.facts.operations


def _read_bytes(run: Run) -> int | None:
    return run.facts.read_bytes


CHECKS = (
    CheckRule[GraphFacts](
        name="compared_rows",
        fault="no row was compared where the model takes it; a wrong row ends the run",
        figures=lambda run: {
            "compared_rows": run.facts.compared_rows,
            "rows": run.facts.rows,
            "compare_every": run.facts.settings.compare_every,
            "recomputed": int(run.facts.settings.source is None),
        },
        judge=lambda figures: _passes(int(figures["compared_rows"] or 0) > 0),
        sentence=_compared,
        mandatory=True,
        verified=_verified,
    ),
    CheckRule[GraphFacts](
        name="stage_times",
        fault="time is spent outside the stages, or by the GPU after the host took its work as "
        "done",
        figures=_time_figures,
        judge=_are_closed,
        sentence=_closed,
        applies=lambda run: not run.facts.is_ahead,
    ),
    CheckRule[GraphFacts](
        name="overlapped_times",
        fault="a stage took longer than all steps together, so its clock is wrong",
        figures=_overlap_figures,
        judge=lambda figures: _passes(
            float(figures["longest_stage_s"] or 0) <= (1 + CLOSURE) * float(figures["wall_s"] or 0)
        ),
        sentence=_overlapped,
        applies=lambda run: run.facts.is_ahead,
    ),
    CheckRule[GraphFacts](
        name="row_counts",
        fault="a row came from no place or from two, or reads moved other bytes than those of "
        "their rows",
        figures=_place_figures,
        judge=_are_placed,
        sentence=_placed,
        mandatory=True,
        applies=lambda run: run.facts.is_counted,
    ),
    data_path(_operations, _read_bytes),
)

STEPS = TraceTable(
    name="steps",
    row="a timed step; with overlap its stages ran beside those of other steps",
    columns=(
        Column("step", "int64", "number, from 0"),
        Column("start_ns", "int64", "CLOCK_MONOTONIC"),
        Column("end_ns", "int64", "CLOCK_MONOTONIC"),
        *(Column(f"{stage}_s", "float64", _MEANINGS[stage]) for stage in STAGES),
        Column("transfer_gpu_s", "float64", "transfer by CUDA events"),
        Column("training_gpu_s", "float64", "training by CUDA events"),
        Column("rows", "int64", "rows gathered"),
        *(Column(name, "int64", "rows from this place") for name in PLACES),
        Column("storage_bytes", "int64", "bytes that storage gave"),
        Column("loss", "float64", "cross entropy"),
    ),
    drawn=("start_ns", "end_ns", "storage_bytes"),
)
REQUESTS = TraceTable(
    name="io_requests",
    row="a request of the I/O profile, in order of issue",
    columns=(
        Column("issued_ns", "int64", "CLOCK_MONOTONIC"),
        Column("completed_ns", "int64", "CLOCK_MONOTONIC"),
        Column("bytes", "int64", "size"),
        Column("device", "string", "kernel's name of the device"),
        Column("is_read", "bool", "whether it is a read"),
    ),
    drawn=("issued_ns", "completed_ns", "bytes", "is_read"),
    of_operations=True,
)


RESULTS = Results(
    name="gnn",
    facts=GraphFacts,
    figures=FIGURES,
    checks=CHECKS,
    observed=(
        cold_cache(),
        written_extents(lambda run: run.facts.settings.source is None),
    ),
    tables=(STEPS, REQUESTS),
    view=View(title="GNN training", labels={"gnn": "GNN training"}),
)
