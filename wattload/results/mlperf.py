"""How far runs are from a submission to MLPerf Storage: the judgement, and its outcome in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wattload.core.base_models import Frozen
from wattload.core.mlperf.edition import editions, nearest_edition
from wattload.core.mlperf.published import PublishedRun, PublishedSet
from wattload.core.mlperf.rules import (
    RULES,
    WORST_FIRST,
    Case,
    Finding,
    Rule,
    Standing,
    finding,
)
from wattload.core.record.run import RunRecord
from wattload.results.quantity import counted
from wattload.results.reading import run_of
from wattload.results.registry import results_of
from wattload.results.submission import Own

OWN_SETTINGS = ("seed", "label", "repeat", "runs", "sweep")
"""Settings in which the runs of one result may differ."""


class Judgement(Frozen):
    """The result of all rules for a run; the standing is the worst of all findings."""

    edition: str
    standing: Standing
    findings: tuple[Finding, ...]


def judge(
    record: RunRecord, others: Sequence[RunRecord] = (), edition: str | None = None
) -> Judgement | None:
    """Judge a run by MLPerf Storage's rules; ``None`` for a workload without, or without facts.

    Args:
        record: the run.
        others: the runs given with it; those with the same settings and drives may form a result.
        edition: by whose rules, by default that which the run's parameters match best.
    """
    results, run = results_of(record.workload.name), run_of(record)
    if results is None or results.submission is None or run is None:
        return None
    submission = results.submission
    alike = [o for o in others if o.run_id != record.run_id and _is_comparable(record, o)]
    memory = tuple(host.facts.memory_bytes for host in record.hosts)
    facts = submission.facts(run)
    own_run = PublishedRun(name=record.run_id, host_memory_bytes=memory, facts=facts)
    case = Case(
        PublishedSet(
            tree="", path="", edition=None, division=None, organisation="", system="",
            runs=(own_run,),
        ),
        editions()[edition or nearest_edition(facts, {})[0]],
        (own_run,),
    )  # fmt: skip
    runs = [run, *(found for other in alike if (found := run_of(other)) is not None)]
    own = Own(run, runs, case.edition)
    shared = {rule.name: rule for rule in RULES[facts.kind]}
    findings = tuple(
        finding(
            case,
            shared[name] if of is None else Rule(name, lambda _, of=of: of(own), of_set=True),
        )
        for name, of in submission.rules.items()
    )
    standing = min((found.standing for found in findings), key=WORST_FIRST.index)
    return Judgement(edition=case.edition.name, standing=standing, findings=findings)


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


def submission_text(
    records: Sequence[RunRecord], words: Mapping[str, str], *, but: str = ""
) -> str:
    """Return how far the runs of one arm are from a submission.

    Args:
        records: the runs, which are judged as one result.
        words: what a run is that misses a rule, by the rule's name, with the figures that decided
            it in braces. The first that applies is stated, and the others are counted.
        but: a rule that the outcome states by itself.

    Returns:
        Such as ``not a submission: 28 of 3,500 files, and 4 more rules missed``.
    """
    judgements = [found for record in records if (found := judge(record, records)) is not None]
    findings = [
        each for found in judgements for each in reversed(found.findings) if each.rule != but
    ]
    missed = {each.rule: each for each in findings if each.standing == "invalid"}
    if missed:
        rule = next(name for name in words if name in missed)
        first = words[rule].format(**missed[rule].figures)
        more = f", and {counted(len(missed) - 1, 'more rule')} missed" if len(missed) > 1 else ""
        return f"not a submission: {first}{more}"
    unknown = {each.rule for each in findings if each.standing == "not_checked"}
    if unknown:
        return f"no other rule missed, {counted(len(unknown), 'rule')} not checked"
    is_open = any(each.standing == "open" for each in findings)
    return "otherwise as OPEN allows" if is_open else "otherwise as CLOSED requires"
