"""MLPerf Storage: the published figures of its jobs, and the rules that runs are held against.

Figures are those of ``mlpstorage/rules.py`` (``calculate_training_data_size``) and of the DLIO
configurations of ``mlcommons/storage``, v1.0 to v3.0.

A rule gives a standing with the figures that decided it. ``closed`` and ``open`` say in which
division a submission could do the same, ``invalid`` that in none, ``not_checked`` that the record
does not say. No run of this suite is a submission: that takes MLPerf's own code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

from wattload.core.base_models import Frozen
from wattload.core.record.run import RunRecord
from wattload.core.units import GIB, format_bytes, format_percent

LAST_EDITION = "v3.0"
MINIMUM_STEPS = 500
"""Minimum steps of an epoch."""
MEMORY_FACTOR = 5
"""Minimum size of a training data set, as a multiple of the hosts' memory."""
CHECKPOINT_MEMORY_FACTOR = 3
"""If a client's data is at least this multiple of its memory, caches need not be dropped."""
RUN_COUNT = 5
"""Number of runs whose mean is the result."""
RUN_SPREAD = 0.05
"""Maximum deviation of each run from the mean."""
CHECKPOINT_COUNT = 10
"""Number of checkpoints written and then read."""
CHECKPOINT_INTERVAL_S = 5.0
"""Seconds between two checkpoints, ``time_between_checkpoints``; fixed in CLOSED."""
SUBSET_RANKS = 8
"""Processes of a larger model's checkpoint in v2.0's subset mode."""

CHECKPOINT_RANKS: Mapping[str, int] = {"8b": 8, "70b": 64, "405b": 512, "1t": 1024}
"""Processes that CLOSED requires, by model."""

CLOSED_WRITER = "torch"
"""The loader that writes checkpoints as CLOSED requires: ``torch.save``, as DLIO calls it."""
CLOSED_LOADERS = frozenset({"torch", "dlio"})
"""The loaders that can read a training data set as CLOSED requires."""
CLOSED_READER = "dlio"
"""The reader they need for it: DLIO's PyTorch data loader (``framework: pytorch`` in DLIO)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The published job of one training workload; sizes are payload bytes of a record."""

    record_mean_bytes: int
    record_stdev_bytes: int
    resize_bytes: int
    batch_samples: int
    epochs: int
    record_format: str
    au_threshold: float
    step_s: Mapping[str, float] = field(default_factory=dict)
    """``computation_time`` of a step in seconds, by accelerator."""
    editions: Mapping[str, str] = field(default_factory=dict)
    """The last edition of MLPerf Storage that has an accelerator."""


UNET3D = Training(
    record_mean_bytes=146_600_628,
    record_stdev_bytes=68_341_808,
    resize_bytes=2_097_152,
    batch_samples=7,
    epochs=5,
    record_format="npz",
    au_threshold=0.90,
    step_s={"a100": 0.636, "h100": 0.323, "b200": 0.162},
    editions={"a100": "v2.0", "h100": "v2.0", "b200": "v3.0"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSetRule:
    """The minimum number of files of a training job, at one sample per file.

    ``memory_bytes`` is the sum over the hosts. It is rounded up to whole GiB, so that a kernel
    update, which changes MemTotal by some pages, does not require new data.
    """

    accelerators: int
    batch_samples: int
    record_bytes: int
    memory_bytes: int

    @property
    def by_memory(self) -> int:
        memory_bytes = -(-self.memory_bytes // GIB) * GIB
        return MEMORY_FACTOR * memory_bytes // self.record_bytes

    @property
    def by_steps(self) -> int:
        return MINIMUM_STEPS * self.accelerators * self.batch_samples

    @property
    def files(self) -> int:
        """The required number of files: ``max(5 * memory // record, 500 * N * batch)``."""
        return max(self.by_memory, self.by_steps)

    @property
    def steps(self) -> int:
        """The steps of an epoch with at least that many files, in whole batches."""
        return -(-self.files // (self.accelerators * self.batch_samples))


Standing = Literal["closed", "open", "invalid", "not_checked"]
Figures = Mapping[str, float | int | str | None]
Answer = tuple[Standing, str, Figures]

MOST_PREFETCHED_BATCHES = 2
"""PyTorch's ``prefetch_factor`` at most, with DLIO and ``reader.prefetch_size`` 0 to 2."""

WORST_FIRST: tuple[Standing, ...] = ("invalid", "not_checked", "open", "closed")
"""A rule that the record can't answer bars both divisions."""
OWN_SETTINGS = ("seed", "label", "repeat", "runs", "sweep")
"""Settings in which the runs of one result may differ."""

TRAINING, CHECKPOINT = "unet3d", "checkpoint"


@dataclass(frozen=True, slots=True)
class Case:
    """A run, and the comparable runs: those with the same settings, itself included."""

    record: RunRecord
    comparable_runs: Sequence[RunRecord]

    def fact(self, name: str) -> Any:  # noqa: ANN401 - any JSON value of the workload
        """Return a fact that the workload recorded; raises ``UnknownError`` if it is absent."""
        value = self.record.workload.facts.get(name)
        if value is None:
            raise UnknownError(f"the record has no {name}")
        return value

    def setting(self, group: str, name: str) -> Any:  # noqa: ANN401 - whatever is configured
        """Return a setting; raises ``UnknownError`` if the record has none of the name."""
        settings = self.record.config.get(group)
        if not isinstance(settings, Mapping) or name not in settings:
            raise UnknownError(f"the record has no {group}.{name}")
        return settings[name]

    def memory_bytes(self) -> dict[str, int]:
        """Return each host's memory; raises ``UnknownError`` if one's is not known."""
        found = {host.facts.name: host.facts.memory_bytes for host in self.record.hosts}
        known = {name: size for name, size in found.items() if size is not None}
        if not found or len(known) < len(found):
            raise UnknownError("the memory of a host is unknown")
        return known


class UnknownError(Exception):
    """The record lacks what a rule needs; the message says what."""


def same(what: str, got: object, required: object, otherwise: Standing = "invalid") -> Answer:
    figures = {"got": _figure(got), "asked": _figure(required)}
    if got == required:
        return "closed", f"{what} is {got}.", figures
    return otherwise, f"{what} is {got}; the rules require {required}.", figures


def setting_is(
    what: str, name: str, required: object, otherwise: Standing = "invalid"
) -> Callable[[Case], Answer]:
    """Return the rule that requires a value of a workload's setting."""
    return lambda case: same(what, case.setting("workload", name), required, otherwise)


def fact_is(what: str, name: str, required: object) -> Callable[[Case], Answer]:
    """Return the rule that requires a value of a fact that the workload recorded."""
    return lambda case: same(what, case.fact(name), required)


def checked(name: str) -> Callable[[Case], Answer]:
    """Return the rule that one of the run's own checks decides."""
    return lambda case: judge_by_check(case, name)


def at_least(what: str, got: float, required: float) -> Answer:
    standing: Standing = "closed" if got >= required else "invalid"
    return standing, f"{what}: {got:g} of at least {required:g}.", {"got": got, "asked": required}


def _figure(value: object) -> float | int | str | None:
    return value if isinstance(value, int | float | str) or value is None else str(value)


def faults(record: RunRecord) -> list[str]:
    """Return why a run's figures can't be trusted: its status and failed checks, power excepted."""
    found = [] if record.status == "complete" else [f"it is {record.status}"]
    return found + [
        f"{check.name} failed"
        for check in record.checks
        if check.verdict == "fail" and not check.is_of_power
    ]


def sound_run(case: Case) -> Answer:
    bad = faults(case.record)
    figures = {"checks": len(case.record.checks), "faults": len(bad)}
    if bad:
        return "invalid", f"The run's figures can't be trusted: {', '.join(bad)}.", figures
    return "closed", "The run is complete and none of its checks failed.", figures


def judge_by_check(case: Case, name: str) -> Answer:
    """Judge by one of the run's own checks; raises ``UnknownError`` if there is none."""
    check = next((c for c in case.record.checks if c.name.startswith(name)), None)
    if check is None or check.verdict == "not_checked":
        raise UnknownError(check.sentence if check else f"the record has no check {name}")
    return "closed" if check.verdict == "pass" else "invalid", check.sentence, check.figures


def _subset(model: str) -> bool:
    return model.startswith("mlperf_subset")


def checkpoint_model(case: Case) -> Answer:
    """Judge the model: one of the published ones, or a subset of one."""
    name = case.setting("workload", "model")
    known = name in CHECKPOINT_RANKS or _subset(name)
    named = ", ".join(CHECKPOINT_RANKS)
    sentence = f"The model is {name}" + ("." if known else f", not one of {named}.")
    return "closed" if known else "invalid", sentence, {"model": name}


def checkpoint_processes(case: Case) -> Answer:
    """Judge the number of processes: exactly the model's ranks, or a subset of 8."""
    name, ranks = case.setting("workload", "model"), case.record.workload.rank_count
    required = CHECKPOINT_RANKS.get(name)
    if _subset(name) or (required is not None and ranks == SUBSET_RANKS < required):
        standing, sentence, figures = same("The number of processes", ranks, SUBSET_RANKS)
        return standing, f"{sentence} This is v2.0's subset; v3.0 has it for 8b only.", figures
    if required is None:
        raise UnknownError(f"the rules give no number of processes for {name}")
    return same("The number of processes", ranks, required)


def whole_checkpoint(case: Case) -> Answer:
    """Judge whether each rank writes its whole shard, neither sliced nor scaled down."""
    got, required = sum(case.fact("rank_bytes")), case.fact("whole_bytes")
    return same("The size of a checkpoint over all ranks in bytes", got, required)


def writes_before_reads(case: Case) -> Answer:
    kept, count = case.fact("kept"), case.setting("workload", "checkpoint_count")
    good = kept >= count
    return (
        "closed" if good else "invalid",
        f"{min(kept, count)} of {count} checkpoints are on the target when reading starts"
        + ("." if good else "; the rules require all to be written before the first is read."),
        {"kept": kept, "count": count},
    )


def cache_rule(case: Case) -> Answer:
    """Judge caches between writing and reading, on the host with the least data per memory."""
    memory, held = case.memory_bytes(), Counter[str]()
    sizes = case.fact("rank_bytes")
    for rank in case.record.ranks:
        held[rank.host] += sizes[rank.rank]
    host = min(held, key=lambda name: held[name] / memory[name])
    factor, limit = held[host] / memory[host], CHECKPOINT_MEMORY_FACTOR
    figures = {"client_bytes": held[host], "memory_bytes": memory[host], "factor": factor}
    share = f"A client's part of a checkpoint is {factor:.2f} times its memory"
    if factor >= limit:
        return "closed", f"{share}, {limit} or more: caches may stay warm.", figures
    standing, sentence, _ = judge_by_check(case, "cold_cache")
    return standing, f"{share}, under {limit}: caches must be dropped. {sentence}", figures


def data_set(case: Case) -> Answer:
    """Judge the files of an epoch: at least 500 steps and five times the memory."""
    rule = DataSetRule(
        accelerators=case.fact("accelerators"),
        batch_samples=UNET3D.batch_samples,
        record_bytes=UNET3D.record_mean_bytes,
        memory_bytes=sum(case.memory_bytes().values()),
    )
    files = case.fact("epoch_files")
    standing, _, figures = at_least("files", files, rule.files)
    return (
        standing,
        f"{files} files per epoch, at least {rule.files} required: the larger of "
        f"{rule.by_memory} (5 x {format_bytes(rule.memory_bytes)} of memory) and {rule.by_steps} "
        f"(500 steps; accelerators: {rule.accelerators}).",
        {**figures, "by_memory": rule.by_memory, "by_steps": rule.by_steps},
    )


def record_size(case: Case) -> Answer:
    required = {
        "mean": UNET3D.record_mean_bytes,
        "stdev": UNET3D.record_stdev_bytes,
        "resize": UNET3D.resize_bytes,
    }
    got = {
        name: case.setting("workload", setting) / case.setting("workload", "record_divisor")
        for name, setting in (
            ("mean", "record_mean_bytes"),
            ("stdev", "record_stdev_bytes"),
            ("resize", "resize_bytes"),
        )
    }
    same = all(got[name] == required[name] for name in required)
    configured = ", ".join(f"{name} {got[name]:.0f}" for name in required)
    wanted = ", ".join(f"{name} {required[name]}" for name in required)
    realised = case.fact("record_stdev_bytes")
    return (
        "closed" if same else "invalid",
        f"Configured records in bytes: {configured}"
        + ("" if same else f"; the rules require {wanted}")
        + f". The files' own stdev is {realised:.0f}.",
        {**got, "realised_stdev": realised},
    )


def step_time(case: Case) -> Answer:
    name, step_s = case.setting("accelerator", "name"), case.fact("step_s")
    required = UNET3D.step_s.get(name)
    if required is None:
        known = ", ".join(UNET3D.step_s)
        return "invalid", f"Accelerator {name!r} is not one of {known}.", {"step_s": step_s}
    return same(f"The step of {name} in seconds", step_s, required)


def utilisation(case: Case) -> Answer:
    """Judge the accelerator utilisation: the smaller of the two that DLIO's releases compute.

    2.0.0 sums the nominal step time, later ones the time that steps took, oversleep included.
    """
    found: dict[str, float] = {}
    for name in ("au_dlio", "au_nominal"):
        metric = case.record.metric(name)
        if metric is None or metric.value is None:
            raise UnknownError(metric.missing["value"] if metric else f"the record has no {name}")
        found[name] = metric.value
    least = UNET3D.au_threshold
    return (
        "closed" if min(found.values()) >= least else "invalid",
        f"AU is {format_percent(found['au_dlio'], 2)} by DLIO's formula and "
        f"{format_percent(found['au_nominal'], 2)} by nominal steps; the smaller must be at least "
        f"{format_percent(least)}.",
        dict(found),
    )


def data_loader(case: Case) -> Answer:
    """Judge the data loader: CLOSED uses DLIO's PyTorch data loader."""
    loader, reader = case.record.workload.loader, _reader(case)
    own = _reads_as_closed(case)
    loaded_by = f"loader={loader}" + ("" if reader == CLOSED_READER else f" with reader {reader}")
    return (
        "closed" if own else "open",
        f"{loaded_by} {'is as in CLOSED' if own else 'differs from CLOSED, as OPEN allows'}.",
        {"loader": loader},
    )


def prefetch(case: Case) -> Answer:
    """Judge a worker's prefetched batches: CLOSED allows ``reader.prefetch_size`` 0 to 2.

    DLIO passes ``ceil(prefetch_size / read_threads)`` to PyTorch, and 2 for 0.
    """
    if not _reads_as_closed(case):
        loader = case.record.workload.loader
        return (
            "open",
            "The data loader is not CLOSED's, so its prefetching is not either.",
            {"loader": loader},
        )
    got, most = case.setting("loader", "prefetch_factor"), MOST_PREFETCHED_BATCHES
    standing: Standing = "closed" if got <= most else "open"
    sentence = f"Each worker prefetches {got} batches; CLOSED allows at most {most}."
    return standing, sentence, {"got": got, "most": most}


def _reader(case: Case) -> str:
    settings = case.record.config.get("loader") or {}
    return str(settings.get("reader", CLOSED_READER))


def _reads_as_closed(case: Case) -> bool:
    loader = case.record.workload.loader
    return loader in CLOSED_LOADERS and _reader(case) == CLOSED_READER


def hosts_equal(case: Case) -> Answer:
    ranks = Counter(rank.host for rank in case.record.ranks)
    if not ranks:
        raise UnknownError("the record has no ranks")
    equal = len(set(ranks.values())) == 1
    by_host = ", ".join(f"{host}: {count}" for host, count in sorted(ranks.items()))
    per_rank = case.fact("accelerators") // case.record.workload.rank_count
    return (
        "closed" if equal else "invalid",
        f"Ranks by host are {by_host}; accelerators per rank: {per_rank}"
        + ("." if equal else "; all hosts must drive the same number."),
        dict(ranks),
    )


def five_runs(case: Case) -> Answer:
    """Judge the runs of one result: five, with different seeds, within 5 % of their mean."""
    valid_runs = [record for record in case.comparable_runs if not faults(record)]
    rates = [
        metric.value
        for record in valid_runs
        if (metric := record.metric("samples_per_s")) is not None and metric.value is not None
    ]
    if len(rates) < RUN_COUNT:
        raise UnknownError(
            f"valid runs with these settings: {len(rates)}; a result needs {RUN_COUNT}"
        )
    spread = max(abs(rate / fmean(rates) - 1) for rate in rates)
    seeds = len({record.config.get("seed") for record in valid_runs})
    good = spread <= RUN_SPREAD and seeds == len(valid_runs)
    return (
        "closed" if good else "invalid",
        f"{len(rates)} runs with {seeds} seeds are within {format_percent(spread, 1)} of their "
        "mean samples/s; "
        f"{format_percent(RUN_SPREAD)} and different seeds are required.",
        {"runs": len(rates), "seeds": seeds, "spread": spread},
    )


class Finding(Frozen):
    """The result of one rule for a run."""

    rule: str
    standing: Standing
    sentence: str
    figures: Figures


class Judgement(Frozen):
    """The result of all rules for a run; the standing is the worst of all findings."""

    standing: Standing
    findings: tuple[Finding, ...]


RULES: tuple[tuple[str, str, Callable[[Case], Answer]], ...] = (
    (TRAINING, "sound_run", sound_run),
    (TRAINING, "data_set_size", data_set),
    (
        TRAINING,
        "steps",
        lambda case: at_least("steps of an epoch", case.fact("steps_per_epoch"), MINIMUM_STEPS),
    ),
    (TRAINING, "record_size", record_size),
    (TRAINING, "batch", setting_is("The batch", "batch_samples", UNET3D.batch_samples)),
    (TRAINING, "step_time", step_time),
    (TRAINING, "epochs", setting_is("The number of epochs", "epochs", UNET3D.epochs)),
    (TRAINING, "accelerator_utilisation", utilisation),
    # MLPerf drops the page cache before each epoch; wattload verifies that.
    (TRAINING, "cold_cache", checked("cold_cache")),
    (
        TRAINING,
        "record_format",
        setting_is("The record format", "record_format", UNET3D.record_format, "open"),
    ),
    (TRAINING, "data_loader", data_loader),
    (TRAINING, "prefetch", prefetch),
    (TRAINING, "hosts_alike", hosts_equal),
    (TRAINING, "five_runs", five_runs),
    (CHECKPOINT, "sound_run", sound_run),
    (CHECKPOINT, "model", checkpoint_model),
    (CHECKPOINT, "processes", checkpoint_processes),
    (CHECKPOINT, "whole_checkpoint", whole_checkpoint),
    (
        CHECKPOINT,
        "checkpoint_count",
        setting_is(
            "The number of checkpoints written and read", "checkpoint_count", CHECKPOINT_COUNT
        ),
    ),
    # In the pause between two checkpoints, a drive can flush its cache.
    (
        CHECKPOINT,
        "checkpoint_interval",
        fact_is(
            "The interval between two checkpoints in seconds", "interval_s", CHECKPOINT_INTERVAL_S
        ),
    ),
    (CHECKPOINT, "writes_before_reads", writes_before_reads),
    # With workload.protocol=mlperf.
    (CHECKPOINT, "read_start", checked("mlperf_read_start")),
    (CHECKPOINT, "synchronous", setting_is("The mode", "mode", "sync")),
    (CHECKPOINT, "fsync", setting_is("fsync of every file", "fsync", True)),
    (CHECKPOINT, "cache_rule", cache_rule),
    # CLOSED uses torch.save in DLIO.
    (
        CHECKPOINT,
        "framework",
        lambda case: same("The loader", case.record.workload.loader, CLOSED_WRITER, "open"),
    ),
)
"""Workload, name of the rule, and its function."""


def judge(record: RunRecord, others: Sequence[RunRecord] = ()) -> Judgement | None:
    """Judge a run by MLPerf Storage's rules; ``None`` for a workload without rules.

    Args:
        record: the run.
        others: the runs given with it; those with the same settings and drives may form a result.
    """
    rules = [(name, rule) for workload, name, rule in RULES if workload == record.workload.name]
    if not rules:
        return None
    others = [other for other in others if other.run_id != record.run_id]
    case = Case(record, [record, *(other for other in others if _is_comparable(record, other))])
    findings = tuple(_finding(case, name, rule) for name, rule in rules)
    standing = min((f.standing for f in findings), key=WORST_FIRST.index)
    return Judgement(standing=standing, findings=findings)


def _finding(case: Case, name: str, rule: Callable[[Case], Answer]) -> Finding:
    try:
        standing, sentence, figures = rule(case)
        return Finding(rule=name, standing=standing, sentence=sentence, figures=figures)
    except UnknownError as unknown:
        reason = str(unknown)
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError):
        # Facts and settings are not typed in a record, which may have been edited.
        reason = "a figure that the rule needs is not of the kind that runs record"
    return Finding(
        rule=name, standing="not_checked", sentence=f"Not checked: {reason}.", figures={}
    )


def _is_comparable(record: RunRecord, other: RunRecord) -> bool:
    def settings(of: RunRecord) -> Mapping[str, Any]:
        return {name: value for name, value in of.config.items() if name not in OWN_SETTINGS}

    def drives(of: RunRecord) -> list[tuple[str, ...]]:
        return [(*target.facts.devices, *target.facts.controllers) for target in of.targets]

    return (
        other.workload.name == record.workload.name
        and other.status == record.status
        and settings(other) == settings(record)
        and drives(other) == drives(record)
    )
