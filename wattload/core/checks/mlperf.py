"""Runs held against MLPerf Storage: what CLOSED or OPEN would take, rule by rule.

A rule gives a standing with the figures that decided it. ``closed`` and ``open`` say in which
division a submission could do the same, ``invalid`` that in none, ``not_checked`` that the record
does not say. No run of this suite is a submission: that takes MLPerf's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wattload.core.checks import mlperf_checkpoint as checkpoint
from wattload.core.checks import mlperf_training as training
from wattload.core.checks.mlperf_case import (
    Answer,
    Case,
    Figures,
    Standing,
    UnknownError,
    cold,
    sound,
)
from wattload.core.record.base import Frozen
from wattload.core.record.run import RunRecord

WORST_FIRST: tuple[Standing, ...] = ("invalid", "not_checked", "open", "closed")
"""A rule that the record can't answer bars both divisions."""
OWN_SETTINGS = ("seed", "label", "repeat", "runs", "sweep")
"""Settings in which the runs of one result may differ."""


class Finding(Frozen):
    """What one rule says of a run."""

    rule: str
    standing: Standing
    sentence: str
    figures: Figures


class Judgement(Frozen):
    """What all rules say of a run: the standing is that of the worst."""

    standing: Standing
    findings: tuple[Finding, ...]


TRAINING, CHECKPOINT = "unet3d", "checkpoint"
RULES: tuple[tuple[str, str, Callable[[Case], Answer]], ...] = (
    (TRAINING, "sound_run", sound),
    (TRAINING, "data_set_size", training.data_set),
    (TRAINING, "steps", training.steps),
    (TRAINING, "record_size", training.record_size),
    (TRAINING, "batch", training.batch),
    (TRAINING, "step_time", training.step_time),
    (TRAINING, "epochs", training.epochs),
    (TRAINING, "accelerator_utilisation", training.utilisation),
    (TRAINING, "cold_cache", cold),
    (TRAINING, "record_format", training.data_format),
    (TRAINING, "data_loader", training.data_loader),
    (TRAINING, "prefetch", training.prefetch),
    (TRAINING, "hosts_alike", training.hosts_alike),
    (TRAINING, "five_runs", training.five_runs),
    (CHECKPOINT, "sound_run", sound),
    (CHECKPOINT, "model", checkpoint.model),
    (CHECKPOINT, "processes", checkpoint.processes),
    (CHECKPOINT, "whole_checkpoint", checkpoint.whole),
    (CHECKPOINT, "checkpoint_count", checkpoint.count),
    (CHECKPOINT, "checkpoint_interval", checkpoint.interval),
    (CHECKPOINT, "writes_before_reads", checkpoint.order),
    (CHECKPOINT, "read_start", checkpoint.read_start),
    (CHECKPOINT, "synchronous", checkpoint.synchronous),
    (CHECKPOINT, "fsync", checkpoint.fsync),
    (CHECKPOINT, "cache_rule", checkpoint.cache_rule),
    (CHECKPOINT, "framework", checkpoint.framework),
)
"""Workload, name of the rule, and what judges it."""


def judge(record: RunRecord, beside: Sequence[RunRecord] = ()) -> Judgement | None:
    """Return what MLPerf Storage's rules say of a run, ``None`` for a workload it does not have.

    Args:
        record: the run.
        beside: the runs it was named with; those with the same settings and drives may make a
            result with it.
    """
    rules = [(name, rule) for workload, name, rule in RULES if workload == record.workload.name]
    if not rules:
        return None
    others = [other for other in beside if other.run_id != record.run_id]
    case = Case(record, [record, *(other for other in others if _alike(record, other))])
    findings = tuple(_finding(case, name, rule) for name, rule in rules)
    standing = min((f.standing for f in findings), key=WORST_FIRST.index)
    return Judgement(standing=standing, findings=findings)


def _finding(case: Case, name: str, rule: Callable[[Case], Answer]) -> Finding:
    try:
        standing, sentence, figures = rule(case)
    except UnknownError as unknown:
        standing, sentence, figures = "not_checked", f"Not checked: {unknown}.", {}
    return Finding(rule=name, standing=standing, sentence=sentence, figures=figures)


def _alike(record: RunRecord, other: RunRecord) -> bool:
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
