"""How far runs are from a submission to MLPerf Storage, for the outcome that a view states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattload.core.mlperf.judge import judge
from wattload.core.record.run import RunRecord
from wattload.results.quantity import counted


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
