"""A training run of DLIO: what its folder tells, as ``mlpstorage`` of all editions publishes it.

The files are those of ``dlio_benchmark/utils/statscounter.py``: ``summary.json``; the times of
epochs and blocks, of rank 0 in ``per_epoch_stats.json``, since v3 of each rank in
``RANK_per_epoch_stats.json``; the times of steps in ``RANK_output.json``. Times of day have no
zone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from statistics import fmean
from typing import Annotated, Any

from pydantic import Field

from wattload.core.mlperf.edition import editions
from wattload.core.mlperf.files import SUMMARY, Part, RunFolder, When, flat, numbered
from wattload.core.mlperf.formulas import rank_steps
from wattload.core.mlperf.metadata import memory_of, recorded
from wattload.core.mlperf.published import (
    AnyFacts,
    Epoch,
    PublishedRun,
    RankBlock,
    ReportedTraining,
    Setting,
    TrainingFacts,
)
from wattload.core.units import GIB, MIB

UNKNOWN = "unknown"
_TIMES = "per_epoch_stats.json"
_CONFIGS = r"(configs|\.hydra|dlio_config)/(config|overrides)\.yaml"
"""What Hydra composed, in the folders that editions named differently."""
_MOST_SETTINGS = 10_000
"""More than any workload has; aliases of YAML can make a short file endless."""
_MOST_HOSTS = 100_000

_NotNegative = Annotated[float, Field(ge=0)]


class RunSummary(Part):
    """What DLIO's ``summary.json`` says of every run; fields named GB hold GiB."""

    start: When | None = None
    end: When | None = None
    num_accelerators: int = Field(ge=1)
    num_hosts: int | None = Field(default=None, ge=0, le=_MOST_HOSTS)
    host_memory_GB: Sequence[_NotNegative] = ()  # noqa: N815 - the file's name


class _Metric(Part):
    train_au_percentage: Sequence[_NotNegative] = ()
    train_au_mean_percentage: _NotNegative | None = None
    train_throughput_samples_per_second: Sequence[_NotNegative] = ()
    train_throughput_mean_samples_per_second: _NotNegative | None = None
    train_io_mean_MB_per_second: _NotNegative | None = None  # noqa: N815 - the file's name


class _Summary(RunSummary):
    epochs: int | None = Field(default=None, ge=1)
    num_files_train: int = Field(ge=1)
    num_samples_per_file: int = Field(ge=1)
    metric: _Metric


class Span(Part):
    """The start and end of a block, or of a checkpoint."""

    start: When
    end: When


class _Steps(Part):
    """The step lists of an epoch on a rank, by block."""

    proc: dict[str, list[_NotNegative]]
    compute: dict[str, list[_NotNegative]]


def read_training(folder: RunFolder) -> PublishedRun:
    """Return a training run; raises ``UnreadableError`` if a file is missing or bad."""
    summary = folder.part(SUMMARY, _Summary, folder.summary)
    settings, overrides = settings_of(folder)

    def setting(*names: str) -> Setting:
        return next((settings[name] for name in names if name in settings), None)

    jobs = [each for edition in editions().values() for each in edition.training.items()]
    models = {model for model, _ in jobs}
    accelerators = {name for _, job in jobs for name in job.accelerators}
    facts = folder.part(
        "configuration",
        TrainingFacts,
        {
            "model": setting("model.name", "model") or named(folder, overrides, models) or UNKNOWN,
            "accelerator": named(folder, overrides, accelerators),
            "accelerators": summary.num_accelerators,
            "file_count": summary.num_files_train,
            "samples_per_file": summary.num_samples_per_file,
            "record_bytes": setting("dataset.record_length_bytes", "dataset.record_length"),
            "batch_samples": setting("reader.batch_size"),
            "step_s": setting("train.computation_time.mean", "train.computation_time"),
            "epochs": _epochs(folder, summary),
            "reported": _reported(folder, summary),
        },
    )
    if rank_steps(facts) == 0:
        folder.refuse(SUMMARY, f"zero steps: its {facts.file_count} files fill no batch of a rank")
    return published_run(folder, summary, facts, settings, overrides)


def published_run(
    folder: RunFolder,
    summary: RunSummary,
    facts: AnyFacts,
    settings: Mapping[str, Setting],
    overrides: Mapping[str, str],
) -> PublishedRun:
    """Return the run with these facts, unless it ends before it starts.

    Its sources are the files that were read of it.
    """
    if summary.start is not None and summary.end is not None and summary.end < summary.start:
        folder.refuse(SUMMARY, "its end is before its start")
    return PublishedRun(
        name=folder.name,
        started_s=summary.start,
        ended_s=summary.end,
        host_memory_bytes=memory_of(folder) or _memory(summary),
        settings=settings,
        overrides=overrides,
        facts=facts,
        sources=folder.sources,
    )


def joined_epochs(calls: Sequence[PublishedRun]) -> PublishedRun:
    """Return the run of which calls of DLIO each made some epochs, in the order of their starts."""
    calls = sorted(calls, key=lambda call: call.started_s or 0.0)
    facts = [call.facts for call in calls if isinstance(call.facts, TrainingFacts)]
    reports = [each.reported for each in facts if each.reported is not None]
    reported = ReportedTraining(
        au=tuple(value for each in reports for value in each.au),
        au_mean=_mean([each.au_mean for each in reports]),
        samples_per_s=tuple(value for each in reports for value in each.samples_per_s),
        samples_per_s_mean=_mean([each.samples_per_s_mean for each in reports]),
        nominal_bytes_per_s=_mean([each.nominal_bytes_per_s for each in reports]),
    )
    epochs = tuple(epoch for each in facts for epoch in each.epochs)
    return calls[0].model_copy(
        update={
            "name": "epochs",
            "ended_s": calls[-1].ended_s,
            "facts": facts[0].model_copy(update={"epochs": epochs, "reported": reported}),
            "sources": {path: digest for call in calls for path, digest in call.sources.items()},
        }
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def settings_of(folder: RunFolder) -> tuple[dict[str, Setting], dict[str, str]]:
    """Return a run's settings by dotted name, and those that its command changed, as text.

    Names don't begin with ``workload``. The overrides have ``workload`` itself, such as
    ``unet3d_h100``. What Hydra wrote wins over ``mlpstorage``'s metadata; both are empty without
    the files.

    Raises:
        UnreadableError: a file is not YAML, or not of this kind.
    """
    settings: dict[str, Setting] = {}
    overrides: dict[str, str] = {}
    for name in (match[0] for match in folder.matching(_CONFIGS)):
        found = folder.yaml(name)
        if name.endswith("config.yaml") and isinstance(found, dict):
            job = found.get("workload", found)
            own = flat(job if isinstance(job, dict) else found)
            settings.update(islice(own, _MOST_SETTINGS))
            if next(own, None):
                folder.refuse(name, f"has more than {_MOST_SETTINGS} settings")
        elif name.endswith("overrides.yaml") and isinstance(found, list):
            for each in found:
                key, _, value = str(each).lstrip("+~").partition("=")
                overrides[key.removeprefix("workload.")] = value
        else:
            folder.refuse(name, "is not a configuration of DLIO")
    more, changed = recorded(folder)
    return more | settings, overrides or changed


def named(folder: RunFolder, overrides: Mapping[str, str], known: set[str]) -> str | None:
    """Return which known name the workload that was chosen has, or a folder."""
    for text in (overrides.get("workload", ""), *reversed(folder.path.split("/"))):
        found = known.intersection(re.split(r"[^a-z0-9]+", text.lower()))
        if found:
            return min(found)
    return None


def _memory(summary: RunSummary) -> tuple[int | None, ...]:
    """Return the memory of each host.

    DLIO writes the memory of each host once, by its first local rank, into the slot rank // ranks
    per host, and adds up slots. So if ranks were dealt to hosts in turn, the first slots have sums
    over several hosts, and the others have 0. The sum over all slots is right in both cases, so
    each host then gets its mean.
    """
    slots = summary.host_memory_GB
    hosts = summary.num_hosts or len(slots) or 1
    if all(slots) and len(slots) == hosts:
        return tuple(round(each * GIB) for each in slots)
    return (round(sum(slots) * GIB / hosts) or None,) * hosts


def _reported(folder: RunFolder, summary: _Summary) -> ReportedTraining:
    metric = summary.metric
    percents, rates = metric.train_au_percentage, metric.train_throughput_samples_per_second
    if summary.epochs is not None and {len(percents), len(rates)} - {0, summary.epochs}:
        lengths = f"{len(percents)} utilisations and {len(rates)} rates"
        folder.refuse(SUMMARY, f"has {lengths} of {summary.epochs} epochs")
    percent, mib_per_s = metric.train_au_mean_percentage, metric.train_io_mean_MB_per_second
    return ReportedTraining(
        au=tuple(each / 100 for each in percents),
        au_mean=None if percent is None else percent / 100,
        samples_per_s=tuple(rates),
        samples_per_s_mean=metric.train_throughput_mean_samples_per_second,
        nominal_bytes_per_s=None if mib_per_s is None else mib_per_s * MIB,
    )


def _epochs(folder: RunFolder, summary: _Summary) -> tuple[Epoch, ...]:
    """Return the blocks of all epochs; none if no rank's times of blocks are there.

    A rank without its own has those of the first rank: all wait for each other after every step.
    """
    times = folder.by_rank(r"(\d+)_per_epoch_stats\.json")
    if not times and _TIMES in folder.files:
        times = {0: _TIMES}
    if not times:
        return ()
    lists = folder.by_rank(r"(\d+)_output\.json")
    first = spans_of(folder, times[min(times)], "block")
    blocks: dict[int, list[RankBlock]] = {key[0]: [] for key in first}
    if summary.epochs not in (None, len(blocks)):
        reason = f"has the times of {len(blocks)} epochs; {SUMMARY} has {summary.epochs}"
        folder.refuse(times[min(times)], reason)
    for rank in sorted({*times, *lists}):
        own = spans_of(folder, times[rank], "block") if rank in times else first
        steps = _steps(folder, lists[rank]) if rank in lists else {}
        if (
            rank >= summary.num_accelerators
            or not own.keys() == first.keys() == (steps or first).keys()
        ):
            reason = f"its rank, or its blocks, are not those of {SUMMARY} and of the first rank"
            folder.refuse(lists.get(rank) or times[rank], reason)
        for key, span in own.items():
            seconds = span.end - span.start
            blocks[key[0]].append(RankBlock(rank=rank, duration_s=seconds, **steps.get(key, {})))
    return tuple(map(tuple, blocks.values()))


def spans_of(folder: RunFolder, name: str, *kinds: str) -> dict[tuple[int, str, int], Span]:
    """Return the times of blocks or checkpoints by epoch, the members' kind, and number."""
    found = {}
    last = dict.fromkeys(kinds, 0.0)
    for epoch, members in numbered(folder.json(name), ""):
        for kind in kinds:
            for number, member in numbered(members, kind):
                span = found[epoch, kind, number] = folder.part(name, Span, member)
                if not last[kind] <= span.start < span.end:
                    folder.refuse(name, f"epoch {epoch}, {kind}{number}: its times run backwards")
                last[kind] = span.end
    return found


def _steps(folder: RunFolder, name: str) -> dict[tuple[int, str, int], dict[str, Any]]:
    """Return what the step lists of a rank say of each block, by the keys of ``spans_of``."""
    found: dict[tuple[int, str, int], dict[str, Any]] = {}
    for epoch, member in numbered(folder.json(name), ""):
        lists = folder.part(name, _Steps, member)
        compute = dict(numbered(lists.compute, "block"))
        for block, steps in numbered(lists.proc, "block"):
            counts = len(steps), len(compute.get(block, ()))
            if not steps or counts[0] != counts[1]:
                lengths = "{} steps and {} times of computation".format(*counts)
                reason = f"epoch {epoch}, block {block} has {lengths}; both need the same number"
                folder.refuse(name, f"{reason}, at least one")
            found[epoch, "block", block] = {
                "steps": len(steps),
                "first_step_s": steps[0],
                "first_compute_s": compute[block][0],
                "compute_s": math.fsum(compute[block]),
            }
    return found
