"""The rules of MLPerf Storage's editions, for sets of runs: published ones, and ours.

A rule gives a standing with the figures that decided it. ``closed`` and ``open`` say in which
division a submission could do the same, ``invalid`` that in none, ``not_checked`` that the files
don't say. ``warning`` is where the text leaves a limit open, or its own tool misses it by rounding.
No run of this suite is a submission: that takes MLPerf's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Literal

from wattload.core.base_models import Frozen
from wattload.core.mlperf import formulas
from wattload.core.mlperf.edition import (
    CHECKPOINT_PARAMETERS,
    OPEN_PARAMETERS,
    TOOL_PARAMETERS,
    Edition,
    class_division,
    core_config,
)
from wattload.core.mlperf.formulas import UnknownError
from wattload.core.mlperf.published import (
    CacheFacts,
    CheckpointFacts,
    Division,
    Kind,
    PublishedRun,
    PublishedSet,
    TrainingFacts,
    VectorFacts,
)
from wattload.core.units import format_bytes, format_percent

MINIMUM_STEPS = 500
"""Minimum steps of an epoch."""
MEMORY_FACTOR = 5
"""Minimum size of a training data set, as a multiple of the hosts' memory."""
MEMORY_ROUNDING = 0.003
"""The share that a data set lacks at most if hosts of 250 GiB were declared in whole GiB."""
RUN_SPREAD = 0.05
"""Maximum deviation of each run from the mean."""
CHECKPOINT_COUNT, CHECKPOINT_INTERVAL_S = 10, 5.0
"""Number of checkpoints written and then read; ``time_between_checkpoints``, fixed in CLOSED."""
CHECKPOINT_MEMORY_FACTOR = 3
"""If a client's data is at least this multiple of its memory, caches need not be dropped."""
LEAST_RANKS_PER_HOST, READ_START_S = 5, 30.0
"""Of checkpoints; a command that only reads starts within this time after the one that wrote."""
CACHE_OPTIONS, CACHE_TRIALS = "1, 2, 3", 3
"""The options of the KV cache, and the trials of each."""
ALLOWED_VALUES = {"reader.prefetch_size": ("0", "1", "2")}
ODIRECT_ELSEWHERE = {"reader.odirect": ("false",)}
"""The values that a command may give to free parameters; only unet3d may use O_DIRECT."""
CLOSED_INDEXES = ("DISKANN", "HNSW", "AISAQ")
"""The indexes of Milvus in CLOSED."""

Standing = Literal["closed", "open", "warning", "invalid", "not_checked", "note"]
Figures = Mapping[str, float | int | str | None]
Answer = tuple[Standing, str, Figures]

WORST_FIRST: tuple[Standing, ...] = ("invalid", "not_checked", "open", "warning", "closed")
"""A rule that the files can't answer bars both divisions."""


class Finding(Frozen):
    """The result of one rule; ``id`` is the rule's number or section in the edition's text."""

    rule: str
    id: str
    standing: Standing
    sentence: str
    figures: Figures

    def fails(self, division: Division | None) -> bool:
        """Whether the standing is worse than a division allows; without one, OPEN counts."""
        return self.standing == "invalid" or (self.standing == "open" and division == "closed")


@dataclass(frozen=True, slots=True)
class Case:
    """The runs that make the result of a set, the warm-up left out, and the edition."""

    published: PublishedSet
    edition: Edition
    runs: Sequence[PublishedRun]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule; ``of`` takes a case, and unless it is ``of_set`` each of its runs and their facts.

    ``text`` is its name in the editions, if several rules are one there.
    """

    name: str
    of: Callable[..., Answer]
    text: str = ""
    of_set: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSetRule:
    """The minimum number of files of a training job; ``memory_bytes`` is the sum over the hosts.

    Each division rounds down, as MLPerf's own tool does.
    """

    accelerators: int
    batch_samples: int
    record_bytes: float
    memory_bytes: int
    samples_per_file: int = 1

    @property
    def by_memory(self) -> int:
        samples = int(MEMORY_FACTOR * self.memory_bytes // self.record_bytes)
        return samples // self.samples_per_file

    @property
    def by_steps(self) -> int:
        return MINIMUM_STEPS * self.accelerators * self.batch_samples // self.samples_per_file

    @property
    def files(self) -> int:
        """The required number of files: ``max(5 * memory // record, 500 * N * batch)``."""
        return max(self.by_memory, self.by_steps)

    @property
    def steps(self) -> int:
        """The steps of an epoch with at least that many files, in whole batches."""
        return -(-self.files * self.samples_per_file // (self.accelerators * self.batch_samples))


def same(
    what: str, got: float | str | None, required: float | str, otherwise: Standing = "invalid"
) -> Answer:
    if got is None:
        raise UnknownError(f"{what[0].lower()}{what[1:]} is unknown")
    is_same, figures = got == required, {"got": got, "asked": required}
    rest = "" if is_same else f"; the rules require {required}"
    return _if(is_same, otherwise), f"{what} is {got}{rest}.", figures


def equal(what: str, name: str, required: float) -> Callable[[Case, PublishedRun, object], Answer]:
    """Return the rule that requires a value of a fact."""
    return lambda _, __, facts: same(what, getattr(facts, name), required)


def at_least(what: str, got: float, required: float) -> Answer:
    sentence = f"{what}: {got:g} of at least {required:g}."
    return _if(got >= required), sentence, {"got": got, "asked": required}


def _if(is_kept: bool, otherwise: Standing = "invalid") -> Standing:
    return "closed" if is_kept else otherwise


def total_memory(run: PublishedRun) -> int:
    """Return the memory of all hosts; raises ``UnknownError`` if one's is not known."""
    known = [size for size in run.host_memory_bytes if size is not None]
    if not known or len(known) < len(run.host_memory_bytes):
        raise UnknownError("the memory of a host is unknown")
    return sum(known)


def sizing(case: Case, facts: TrainingFacts, memory_bytes: int) -> DataSetRule:
    """Return the rule for a data set, with the batch and the records of the edition's job."""
    job = case.edition.training.get(facts.model)
    accelerator = job and job.accelerators.get(facts.accelerator or "")
    batch = accelerator.batch_samples if accelerator else facts.batch_samples
    record_bytes = job.record_bytes if job else facts.record_bytes
    if batch is None or record_bytes is None:
        raise UnknownError("the batch or the record size is unknown")
    return DataSetRule(
        accelerators=facts.accelerators,
        batch_samples=batch,
        record_bytes=record_bytes,
        memory_bytes=memory_bytes,
        samples_per_file=facts.samples_per_file,
    )


def data_set_size(case: Case, run: PublishedRun, facts: TrainingFacts) -> Answer:
    """Judge the files of an epoch: at least 500 steps and five times the memory.

    The known memory of some hosts can be enough to say that files are missing.
    """
    known = sum(size or 0 for size in run.host_memory_bytes)
    rule = sizing(case, facts, known)
    got, asked = facts.file_count, rule.files
    if got >= asked:
        total_memory(run)
    sentence = (
        f"{got} files per epoch, at least {asked} required: the larger of {rule.by_memory} "
        f"(5 x {format_bytes(known)} of memory) and {rule.by_steps} (500 steps; accelerators: "
        f"{rule.accelerators})."
    )
    figures = {"got": got, "asked": asked, "by_memory": rule.by_memory, "by_steps": rule.by_steps}
    if got >= asked:
        return "closed", sentence, figures
    if got >= max(rule.by_steps, (1 - MEMORY_ROUNDING) * asked):
        lack = format_percent(1 - got / asked, 2)
        return (
            "warning",
            f"{sentence} That is {lack} short, as if memory were in whole GiB.",
            figures,
        )
    return "invalid", sentence, figures


def steps(case: Case, _: PublishedRun, facts: TrainingFacts) -> Answer:
    """Judge the steps of an epoch by exact arithmetic; MLPerf's own sizing can give 497 to 499."""
    got = formulas.rank_steps(facts)
    if got is None:
        raise UnknownError("the batch is unknown")
    standing, sentence, figures = at_least("Steps of an epoch", got, MINIMUM_STEPS)
    if standing == "invalid" and facts.file_count >= sizing(case, facts, 0).by_steps:
        return "warning", f"{sentence} The data set is as sized by the official tool.", figures
    return standing, sentence, figures


def utilisation(case: Case, _: PublishedRun, facts: TrainingFacts) -> Answer:
    """Judge the accelerator utilisation, recomputed if there are step lists."""
    (got, reason), how = formulas.au(facts), "recomputed"
    if got is None and facts.reported:
        got, how = facts.reported.au_mean, "as reported"
    job = case.edition.training.get(facts.model)
    if got is None or job is None:
        raise UnknownError(reason if job else f"{case.edition.name} has no {facts.model}")
    sentence = f"AU {how} is {format_percent(got, 2)}; {format_percent(job.au)} is required."
    return _if(got >= job.au), sentence, {"got": got, "asked": job.au}


def job(case: Case, _: PublishedRun, facts: TrainingFacts | CheckpointFacts) -> Answer:
    """Judge what a run's own facts say of the job: accelerator, batch, step, epochs, records."""
    differences = case.edition.differences(facts)
    listed = f"the model {facts.model}" if differences is None else ", ".join(differences)
    sentence = f"The job has {listed or 'the published parameters'}."
    return _if(not listed), sentence, {"differences": listed}


def hosts_alike(_: Case, run: PublishedRun, facts: TrainingFacts) -> Answer:
    count, hosts = facts.accelerators, len(run.host_memory_bytes)
    if not hosts:
        raise UnknownError("the number of hosts is unknown")
    sentence = f"{count} accelerators on {hosts} hosts, which must drive equally many."
    return _if(count % hosts == 0), sentence, {"accelerators": count, "hosts": hosts}


def overrides(case: Case, run: PublishedRun, facts: TrainingFacts | CheckpointFacts) -> Answer:
    """Judge the parameters that the command changed, by what each division lets it change."""
    edition, is_training = case.edition, isinstance(facts, TrainingFacts)
    if not run.overrides:
        raise UnknownError("the parameters of its command are unknown")
    free = edition.closed_parameters if is_training else CHECKPOINT_PARAMETERS
    others = [n for n in run.overrides if n not in free and not n.startswith(TOOL_PARAMETERS)]
    values = ALLOWED_VALUES | ({} if facts.model == "unet3d" else ODIRECT_ELSEWHERE)
    others += [
        f"{name} {run.overrides[name]}"
        for name in sorted(values.keys() & run.overrides.keys() - set(others))
        if run.overrides[name].lower() not in values[name]
    ]
    listed = ", ".join(others)
    if not others:
        return "closed", f"All {len(run.overrides)} parameters of its command are free.", {}
    if is_training and OPEN_PARAMETERS.issuperset(others):
        return "open", f"Only OPEN may change {listed}.", {"others": listed}
    return "invalid", f"{listed} must not be changed.", {"others": listed}


def comparability_class(case: Case, run: PublishedRun, _: object) -> Answer:
    """Judge all settings that define the workload, whoever changed them, by their hash."""
    own = core_config(run.settings)
    if own is None:
        raise UnknownError("its configuration is unknown")
    division = class_division(run.facts, run.settings, case.edition)
    if division == "closed":
        return "closed", f"Its settings are those of class {own}.", {"hash": own}
    if division == "open":
        changed = ", ".join(f"{name} {run.settings.get(name)}" for name in sorted(OPEN_PARAMETERS))
        return "open", f"Its settings are of a class but for OPEN's: {changed}.", {"hash": own}
    return "invalid", f"Its settings are of no class; their hash is {own}.", {"hash": own}


def run_count(case: Case) -> Answer:
    edition, got = case.edition, len(case.published.runs)
    asked = edition.runs + (edition.warm_up_runs if case.published.facts.kind == "training" else 0)
    if got < asked <= got + (lacking := lacking_runs(case.published)):
        raise UnknownError(f"{lacking} of its runs can't be read or are not in this copy")
    sentence = f"Runs: {got} of {asked}" + (", a warm-up included" if asked > edition.runs else "")
    return _if(got == asked), f"{sentence}.", {"got": got, "asked": asked}


def lacking_runs(published: PublishedSet) -> int:
    """Return how many runs a set has, by its folder or its report, besides those that are read."""
    names = {Path(run.name).parts[0] for run in published.runs}
    unread = {Path(each.path).relative_to(published.path).parts[0] for each in published.unread}
    listed = len(published.reported.runs) if published.reported else 0
    return max(len(unread - names), listed - len(names))


def consecutive(case: Case) -> Answer:
    """Judge the gaps between runs: each shorter than a run, so that no other fits in."""
    runs = sorted(case.published.runs, key=lambda run: run.started_s or 0)
    gaps = []
    for run, after in pairwise(runs):
        if run.started_s is None or run.ended_s is None or after.started_s is None:
            raise UnknownError("the times of a run are unknown")
        gaps.append((after.started_s - run.ended_s, run.ended_s - run.started_s, after.name))
    if not gaps:
        raise UnknownError("it is the only run")
    gap_s, run_s, name = max(gaps, key=lambda gap: gap[0] / max(gap[1], 1))
    least_s = min(gap[0] for gap in gaps)
    sentence = f"{gap_s:.0f} s without a run before {name}, after a run of {run_s:.0f} s"
    if least_s < 0:
        sentence = f"Two runs overlap by {-least_s:.0f} s"
    elif gap_s >= run_s and lacking_runs(case.published):
        raise UnknownError(f"{sentence}, and one of its runs is not here")
    figures = {"gap_s": gap_s, "run_s": run_s, "least_s": least_s}
    bad: Standing = "invalid" if case.edition.gap_is_limited else "warning"
    return _if(least_s >= 0 and gap_s < run_s, bad), f"{sentence}.", figures


def spread(case: Case) -> Answer:
    """Judge how far runs are apart; which results must be within 5 %, the texts leave open."""
    reported = [r.facts.reported for r in case.runs if isinstance(r.facts, TrainingFacts)]
    rates = [each.samples_per_s_mean for each in reported if each and each.samples_per_s_mean]
    if len(rates) < len(case.runs):
        raise UnknownError("the throughput of a run is unknown")
    worst = farthest(rates)
    limit = format_percent(RUN_SPREAD)
    sentence = f"A run is {format_percent(worst, 1)} from the mean; at most {limit} is repeatable."
    return _if(worst <= RUN_SPREAD, "warning"), sentence, {"spread": worst}


def farthest(rates: Sequence[float]) -> float:
    """Return by what share the rate farthest from the mean of all differs from it."""
    mean = fmean(rates)
    return max(abs(rate / mean - 1) for rate in rates)


def processes_per_host(_: Case, run: PublishedRun, facts: CheckpointFacts) -> Answer:
    if not run.host_memory_bytes:
        raise UnknownError("the number of hosts is unknown")
    return at_least(
        "Processes per host", facts.ranks / len(run.host_memory_bytes), LEAST_RANKS_PER_HOST
    )


def checkpoint_count(case: Case) -> Answer:
    facts = [run.facts for run in case.runs if isinstance(run.facts, CheckpointFacts)]
    if any(each.source == "summary" for each in facts):
        raise UnknownError("the times of its checkpoints are not in this copy")
    got = f"{sum(len(f.writes) for f in facts)} + {sum(len(f.reads) for f in facts)}"
    asked = f"{CHECKPOINT_COUNT} + {CHECKPOINT_COUNT}"
    return same("The number of checkpoints, written + read,", got, asked)


def cache_rule(_: Case, run: PublishedRun, facts: CheckpointFacts) -> Answer:
    """Judge whether caches had to be dropped between writing and reading; no file says if."""
    if facts.checkpoint_bytes is None:
        raise UnknownError("the size of a checkpoint is unknown")
    return client_share(facts.checkpoint_bytes / total_memory(run))


def client_share(factor: float) -> Answer:
    """Judge a client's part of a checkpoint over its memory."""
    least = CHECKPOINT_MEMORY_FACTOR
    rest = f"{least} or more: caches may stay warm"
    if factor < least:
        rest = f"under {least}: caches must be dropped"
    sentence = f"A client's part of a checkpoint is {factor:.2f} times its memory, {rest}."
    return _if(factor >= least, "warning"), sentence, {"factor": factor, "asked": least}


def read_start(case: Case) -> Answer:
    """Judge how soon a command that reads followed the one that wrote.

    MLPerf's rule counts from the start of mlpstorage, which is not published; DLIO's is later.
    """
    parts = [(run, run.facts) for run in case.runs if isinstance(run.facts, CheckpointFacts)]
    ends = [run.ended_s for run, facts in parts if facts.writes]
    starts = [run.started_s for run, facts in parts if not facts.writes]
    if not starts:
        return "closed", "One command wrote and read.", {}
    if len(ends) != 1 or len(starts) != 1 or ends[0] is None or starts[0] is None:
        raise UnknownError("the times of the two commands are unknown")
    gap_s = starts[0] - ends[0]
    sentence = f"DLIO read {gap_s:.1f} s after its last write; {READ_START_S:g} s are allowed."
    return _if(0 <= gap_s <= READ_START_S, "warning"), sentence, {"gap_s": gap_s}


def cache_options(_: Case, __: PublishedRun, facts: CacheFacts) -> Answer:
    names = ", ".join(sorted(each.option for each in facts.options))
    return same("The set of options", names, CACHE_OPTIONS)


def cache_reads(_: Case, __: PublishedRun, facts: CacheFacts) -> Answer:
    got = sum(bool(each.read_bytes_per_s) for each in facts.options)
    return at_least("Options that read from storage", got, len(facts.options))


def recall(_: Case, __: PublishedRun, facts: VectorFacts) -> Answer:
    return at_least("Published recalls", int(facts.recall is not None), 1)


def database(_: Case, __: PublishedRun, facts: VectorFacts) -> Answer:
    return same("The database", facts.database.lower(), "milvus", "open")


def index(_: Case, __: PublishedRun, facts: VectorFacts) -> Answer:
    is_closed, known = facts.index.upper() in CLOSED_INDEXES, " or ".join(CLOSED_INDEXES)
    return same("The index", facts.index, facts.index if is_closed else known, "open")


RULES: Mapping[Kind, Sequence[Rule]] = {
    "training": (
        Rule("run_count", run_count, of_set=True),
        Rule("consecutive", consecutive, of_set=True),
        Rule("spread", spread, of_set=True),
        Rule("accelerator_utilisation", utilisation),
        Rule("data_set_size", data_set_size),
        Rule("steps", steps),
        Rule("hosts_alike", hosts_alike),
        Rule("job", job, "parameters"),
        Rule("overrides", overrides, "parameters"),
        Rule("comparability_class", comparability_class),
    ),
    "checkpointing": (
        Rule("processes", job),
        Rule("processes_per_host", processes_per_host),
        Rule("checkpoint_count", checkpoint_count, of_set=True),
        Rule("checkpoint_interval", equal("The interval", "interval_s", CHECKPOINT_INTERVAL_S)),
        Rule("fsync", equal("fsync of every file", "fsync", True)),
        Rule("cache_rule", cache_rule),
        Rule("read_start", read_start, of_set=True),
        Rule("overrides", overrides, "checkpoint_parameters"),
        Rule("comparability_class", comparability_class),
    ),
    "kv_cache": (
        Rule("cache_options", cache_options),
        Rule("cache_trials", equal("The number of trials", "trials", CACHE_TRIALS)),
        Rule("cache_reads", cache_reads),
    ),
    "vector_database": (
        Rule("vector_runs", run_count, of_set=True),
        Rule("recall", recall),
        Rule("database", database),
        Rule("index", index),
    ),
}
"""The rules of each kind of run."""


def judge(published: PublishedSet, edition: Edition) -> tuple[Finding, ...]:
    """Judge a set by those rules that an edition's text has."""
    runs = sorted(published.runs, key=lambda run: run.started_s or 0)
    is_warmed = published.facts.kind == "training" and len(runs) > edition.runs
    case = Case(published, edition, runs[edition.warm_up_runs if is_warmed else 0 :])
    rules = RULES[published.facts.kind]
    return tuple(finding(case, rule) for rule in rules if (rule.text or rule.name) in edition.rules)


def finding(case: Case, rule: Rule) -> Finding:
    """Return the result of a rule: of its runs, that of the worst."""
    if rule.of_set:
        answers = {"": _ask(rule, case)}
    else:
        answers = {run.name: _ask(rule, case, run, run.facts) for run in case.runs}
    standing, sentence, figures = min(answers.values(), key=_badness)
    named = [name for name, answer in answers.items() if answer[0] == standing]
    if len(named) < len(answers):
        sentence = f"{', '.join(named)}: {sentence}"
    own = case.edition.rules.get(rule.text or rule.name, f"wl-{rule.name}")
    return Finding(rule=rule.name, id=own, standing=standing, sentence=sentence, figures=figures)


def _ask(rule: Rule, *arguments: object) -> Answer:
    try:
        return rule.of(*arguments)
    except UnknownError as unknown:
        return "not_checked", f"Not checked: {unknown}.", {}


def _badness(answer: Answer) -> tuple[int, float]:
    got = answer[2].get("got")
    return WORST_FIRST.index(answer[0]), got if isinstance(got, int | float) else 0
