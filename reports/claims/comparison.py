"""Published claims compared with the runs of a page.

Ratio and interval, and whether the records match the conditions that a paper states.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.claims.papers import (
    Claim,
    Condition,
    Expected,
    Fact,
    Pair,
    Paper,
    Requirement,
    axis_text,
    papers,
    value_text,
)
from wattload.reports.runs.energy import is_simulated
from wattload.reports.runs.load import Run
from wattload.reports.stats.comparison import Row, compare
from wattload.reports.stats.conditions import exclusions, link_text, served_of
from wattload.reports.stats.effects import MINIMUM_PAIRS, MINIMUM_RUNS, Effect
from wattload.reports.stats.subject import Group, Subject, facts_of, power_state_text
from wattload.reports.stats.sweeps import Point, points
from wattload.results.labels import label
from wattload.results.quantity import MISSING, listed, quantity
from wattload.results.reading import asked, run_of, view_of

ClaimVerdict = Literal[
    "agrees", "differs", "wide", "few", "unmeasured", "unlike", "virtual", "absolute"
]
Match = Literal["alike", "differs", "other name", "not recorded", "not stated"]
Found = str | float
TOLERANCE = 0.10
"""Numbers such as bytes of memory match within this: a paper may print 256 GB for 256 GiB."""

WIDEST = 1.25
"""An interval agrees only if its ends are within this factor: wider ones agree with anything."""

_TARGETS = "targets"
"""A point of a claim that is counted in the records: the drives, which targets may share."""

_OTHER_MACHINE: tuple[ClaimVerdict, str] = ("absolute", "an absolute figure of another machine")

_FLOOR = (
    f"an interval needs {MINIMUM_RUNS} runs per arm, or {MINIMUM_PAIRS} pairs of alternating runs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The formula of a claim over this page's arms: a ratio of geometric means, 95 % interval.

    ``medians`` is the same ratio of the arms' medians. ``at`` is the point of a sweep; it is empty
    without a sweep. ``value`` is the page's figure next to an absolute one, in SI base units.
    """

    verdict: ClaimVerdict
    reason: str
    at: str = ""
    ratio: float | None = None
    lower: float | None = None
    upper: float | None = None
    medians: float | None = None
    counts: tuple[int, int] | None = None
    value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedClaims:
    """The claims of one paper and pair on one workload, each with its measurements.

    ``straight`` is whether the page's first arm corresponds to the paper's ``a``.
    """

    paper: Paper
    pair: Pair
    group: Group
    straight: bool
    claims: tuple[tuple[Claim, tuple[Measured, ...]], ...]


def compare_claims(subject: Subject) -> tuple[ComparedClaims, ...]:
    """Return the claims about the workloads of a page; none unless it compares two arms."""
    groups = [group for group in subject.groups if group.is_pair]
    return tuple(
        _of_pair(subject, group, paper, name)
        for group in groups
        for paper in papers()
        for name in paper.pairs
        if _claims(paper, name, group.workload)
    )


def unmeasured_claims(
    shown_parts: Sequence[ComparedClaims],
) -> tuple[tuple[Paper, tuple[Claim, ...]], ...]:
    """Return the claims of each paper that no workload of the page measures."""
    shown = {(part.paper.id, claim.id) for part in shown_parts for claim, _ in part.claims}
    rest = [
        (paper, tuple(claim for claim in paper.claims if (paper.id, claim.id) not in shown))
        for paper in papers()
    ]
    return tuple((paper, claims) for paper, claims in rest if claims)


def _of_pair(subject: Subject, group: Group, paper: Paper, name: str) -> ComparedClaims:
    pair = paper.pairs[name]
    straight = is_in_paper_order(pair, *group.arms.values())
    compared = [_ComparedPoint(subject, pair, point, straight) for point in points(group)]
    found = [(claim, _measured(claim, compared)) for claim in _claims(paper, name, group.workload)]
    return ComparedClaims(
        paper=paper, pair=pair, group=group, straight=straight, claims=tuple(found)
    )


def _claims(paper: Paper, pair: str, workload: str) -> list[Claim]:
    return [each for each in paper.claims if each.pair == pair and each.workload == workload]


def _measured(claim: Claim, compared: Sequence[_ComparedPoint]) -> tuple[Measured, ...]:
    """Return the measurement at each point of the claim, or why there is none."""
    if not claim.point:
        return tuple(each.measured(claim) for each in compared)
    meant = [each for each in compared if each.is_at(claim.point)]
    if len(meant) > 1 and claim.printed.up_to:
        return (_largest(claim, [each.measured(claim) for each in meant]),)
    if meant:
        return tuple(each.measured(claim) for each in meant)
    here = ", ".join(f"{axis_text(axis)} = {_values(axis, compared)}" for axis in claim.point)
    reason = f"the paper has {claim.point_text}; this page has {here}"
    return (Measured(verdict="unmeasured", reason=reason),)


def _values(axis: str, compared: Sequence[_ComparedPoint]) -> str:
    """Return the values that a page has of a setting: ``8 and 32``."""
    every = dict.fromkeys(value for each in compared for value in each.values(axis))
    return listed([value_text(axis, value) for value in every if value]) or "not set"


def _largest(claim: Claim, found: Sequence[Measured]) -> Measured:
    """Return the measurement with the largest ratio; its interval ignores that it was chosen."""
    known = [each for each in found if each.ratio is not None]
    if not known:
        return found[0]
    # A printed loss is largest where its ratio is smallest.
    sign = 1 if claim.printed.read >= 1 else -1
    most = max(known, key=lambda each: sign * (each.ratio or 0.0))
    at = f"{most.at}, the largest of {len(known)} points; the interval ignores that choice"
    return replace(most, at=at)


class _ComparedPoint:
    """One point of a group's sweep, compared once for all claims on it."""

    def __init__(self, subject: Subject, pair: Pair, point: Point, straight: bool) -> None:
        self.point = point
        self._pair = pair
        self._straight = straight
        self._rows = {row.quantity.key: row for row in compare(subject, point.group)}
        self._exclusions = exclusions(subject, point.group)

    def is_at(self, wanted: Mapping[str, float | str]) -> bool:
        """Return whether the runs were made at these values, swept or configured."""
        return all(self._has(axis, value) for axis, value in wanted.items())

    def _has(self, axis: str, value: float | str) -> bool:
        return all(_is_value(own, value) for own in self.values(axis))

    def values(self, axis: str) -> list[str]:
        """Return the values of a setting in the runs, swept or configured; empty texts if unset."""
        records = [run.record for run in self.point.group.runs]
        if axis == _TARGETS:
            return [str(_drive_count(record)) for record in records]
        swept = dict(self.point.settings)
        if axis in swept:
            return [swept[axis]]
        facts = [facts_of(record) for record in records]
        return [own.get(axis, own.get(f"workload.{axis}", "")) for own in facts]

    def measured(self, claim: Claim) -> Measured:
        """Return the formula of the claim over the runs of this point, and its verdict."""
        row = self._rows.get(claim.figure or "")
        at = self.point.words if self.point.axis else ""
        if claim.parsed.under is None:
            return self._absolute(claim, row, at)
        found = row.effect if row is not None else None
        if found is None:
            verdict, reason = self._judge(claim, row, None)
            return Measured(verdict=verdict, reason=reason, at=at)
        ends = _as_printed(claim, found, self._straight)
        verdict, reason = self._judge(claim, row, ends)
        return Measured(
            verdict=verdict,
            reason=reason,
            at=at,
            ratio=ends.ratio,
            lower=ends.lower,
            upper=ends.upper,
            medians=ends.medians,
            counts=(found.count_a, found.count_b),
        )

    def _absolute(self, claim: Claim, row: Row | None, at: str) -> Measured:
        """Return the figure of a claim's arm, next to the one measured on another machine."""
        arms = list(self.point.group.arms)
        arm = arms[(claim.parsed.over == "a") != self._straight] if len(arms) > 1 else arms[0]
        value = row.centres.get(arm) if row is not None else None
        verdict, reason = next(self._absolute_obstacles(claim, arm, value), _OTHER_MACHINE)
        return Measured(
            verdict=verdict, reason=reason, at=at, value=None if verdict == "unmeasured" else value
        )

    def _absolute_obstacles(
        self, claim: Claim, arm: str, value: float | None
    ) -> Iterator[tuple[ClaimVerdict, str]]:
        records = [run.record for run in self.point.group.arms[arm]]
        if any(map(is_simulated, records)):
            yield "virtual", "rates and power of a simulated drive are made up"
        yield from _not_drives(records)
        for each in self._pair.requires:
            is_of_arm = each.arm in ("both", claim.parsed.over)
            if each.absolute and is_of_arm and not all(meets(record, each) for record in records):
                yield "unmeasured", each.reason
        if value is None:
            yield "unmeasured", "no valid run has this figure"

    def _judge(self, claim: Claim, row: Row | None, ends: _Ends | None) -> tuple[ClaimVerdict, str]:
        exclusion = next(self._obstacles(claim, row), None)
        if exclusion is not None:
            return exclusion
        if ends is None:
            return "unmeasured", "no valid run has this figure in both arms"
        if ends.lower is None or ends.upper is None:
            return "few", _FLOOR
        return _agreement(claim.printed.read, ends.ratio, ends.lower, ends.upper)

    def _obstacles(self, claim: Claim, row: Row | None) -> Iterator[tuple[ClaimVerdict, str]]:
        """Yield each reason against a verdict, the most important first."""
        group = self.point.group
        if any(is_simulated(run.record) for run in group.runs):
            yield "virtual", "rates and power of a simulated drive are made up"
        if not group.is_pair:
            yield "unmeasured", "only one arm ran here"
        elif not arms_differ(self._pair.between, list(group.arms.values())):
            yield "unmeasured", f"the arms have the same {self._pair.differ_in}"
        else:
            yield from _not_drives([run.record for run in group.runs])
            yield from self._unmet(claim)
        if row is None:
            yield "unmeasured", f"no run here has the figure {label(claim.figure or '')}"
            return
        if reason := row.forced or listed([*self._exclusions.reasons(row.quantity)]):
            yield "unlike", reason
        for figure in (figure for figures in row.figures.values() for figure in figures):
            if not figure.ranks:
                yield "unmeasured", f"not comparable: {figure.note or 'the evidence is too weak'}"
        is_barred = row.call in ("barred", "derived") and row.reason not in ("", row.shortage)
        if row.quantity.is_energy and is_barred:
            yield "unmeasured", row.reason

    def _unmet(self, claim: Claim) -> Iterator[tuple[ClaimVerdict, str]]:
        """Yield why runs are not what the paper's pair requires."""
        arms = list(self.point.group.arms.values())
        of_a, of_b = arms if self._straight else reversed(arms)
        runs = {"a": of_a, "b": of_b, "both": self.point.group.runs}
        for each in self._pair.requires:
            is_of_claim = not each.figures or claim.figure in each.figures
            if is_of_claim and not all(meets(run.record, each) for run in runs[each.arm]):
                yield "unmeasured", each.reason


def meets(record: RunRecord, requirement: Requirement) -> bool:
    """Return whether a run is what a pair of arms requires."""
    found = set(_required(record, requirement.what))
    if requirement.values:
        return bool(found) and found <= set(requirement.values)
    return not found & set(requirement.excluded)


def _required(record: RunRecord, what: str) -> Iterator[str]:
    if what == "path":
        yield from (path.path_effective for path in record.workload.paths)
    else:
        yield str(_value_at(record, what))


def _value_at(record: RunRecord, place: str) -> Any:  # noqa: ANN401 - JSON
    parts = place.split(".")
    roots = {"loader": record.workload.loader, "facts": record.workload.facts,
             "config": record.config}  # fmt: skip
    value: Any = roots[parts[0]]
    for part in parts[1:]:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def is_as_a(pair: Pair, runs: Sequence[Run]) -> bool:
    """Return whether all runs of an arm took the path of the paper's ``a``."""
    of_a = [each for each in pair.requires if each.arm == "a"]
    return bool(runs and of_a) and all(meets(run.record, each) for run in runs for each in of_a)


def _not_drives(records: Sequence[RunRecord]) -> Iterator[tuple[ClaimVerdict, str]]:
    """Yield what answered reads in place of drives."""
    served = list(map(served_of, records))
    yield from (("unmeasured", each.instead) for each in served if each.instead)
    yield from (("unmeasured", each.cached) for each in served if each.cached)


def _drive_count(record: RunRecord) -> int:
    """Return the targets of a run, or where targets share drives the drives."""
    sweep, count = view_of(record).sweep, len(record.targets)
    return count if sweep is None else asked(record, sweep.targets, count)


def _agreement(
    published: float, ratio: float, lower: float, upper: float
) -> tuple[ClaimVerdict, str]:
    """Return the verdict of an interval on a published ratio.

    It agrees only if it also excludes 1: an interval with both shows no difference, and may be
    mostly on the other side of 1. Its ends may differ by a factor of ``WIDEST`` at most; otherwise
    noisy runs would agree with anything.
    """
    if not lower <= published <= upper:
        return "differs", "the published value is outside the interval"
    if (ratio < 1) != (published < 1):
        return (
            "wide",
            "the published value is in the interval, but 1 is between it and the ratio",
        )
    if lower <= 1 <= upper:
        return "wide", "the interval includes both the published value and 1"
    if upper / lower > WIDEST:
        reason = f"the interval includes the published value but spans a factor above {WIDEST}"
        return "wide", reason
    return "agrees", "the interval includes the published value"


@dataclass(frozen=True, slots=True)
class _Ends:
    """A ratio in the direction of a formula, of geometric means with their interval.

    ``medians`` is the same ratio of the medians of the arms, which may be outside the interval.
    """

    ratio: float
    lower: float | None
    upper: float | None
    medians: float


def _as_printed(claim: Claim, effect: Effect, straight: bool) -> _Ends:
    """Return B/A of the page as the formula's ratio: inverted if the arms are in reverse order."""
    lower, upper = effect.lower, effect.upper
    if (claim.parsed.over == "b") == straight:
        return _Ends(effect.ratio, lower, upper, effect.medians)
    lower, upper = (1 / end if end else None for end in (upper, lower))
    return _Ends(1 / effect.ratio, lower, upper, 1 / effect.medians)


def _is_value(text: str, value: float | str) -> bool:
    if isinstance(value, str):
        return text == value
    try:
        return float(text) == value
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class ConditionMatch:
    """A condition in the records of one arm, and whether it matches the printed one."""

    text: str
    match: Match


def match_condition(
    runs: Sequence[Run], condition: Condition, expected: Expected
) -> ConditionMatch:
    """Return the value of a condition in an arm's runs, and whether it matches the paper's."""
    found = list(dict.fromkeys(each for run in runs for each in _read(run.record, condition)))
    if not found:
        return ConditionMatch(MISSING, "not recorded")
    texts = (each if isinstance(each, str) else quantity(each, Unit.BYTES, 3) for each in found)
    text = listed([*dict.fromkeys(texts)])
    matches = [_match(each, condition, expected) for each in found]
    return ConditionMatch(text, matches[0] if len(set(matches)) == 1 else "differs")


def _match(found: Found, condition: Condition, expected: Expected) -> Match:
    """Return whether one value matches the printed one; a drive may have another name."""
    if isinstance(found, str):
        if not expected.found:
            return "not stated"
        if any(_contains(each, found) for each in expected.found):
            return "alike"
        return "other name" if condition.fact is Fact.DRIVE else "differs"
    if expected.number is None:
        return "not stated"
    near = abs(found - expected.number) <= TOLERANCE * expected.number
    return "alike" if near else "differs"


def _contains(name: str, text: str) -> bool:
    """Return whether a text contains a name, in any case, but not within a longer number."""
    return re.search(rf"(?<!\d){re.escape(name)}(?!\d)", text, re.IGNORECASE) is not None


def conditions_for(pair: Pair, common: Sequence[Condition], workload: str) -> list[Condition]:
    """Return the conditions of a paper for one pair and workload, those of the drives first."""
    return [each for each in (*pair.conditions, *common) if each.workload in ("", workload)]


def is_in_paper_order(pair: Pair, first: Sequence[Run], second: Sequence[Run]) -> bool:
    """Return whether a page's first arm is the paper's ``a``, and its second the paper's ``b``.

    Of two paths the one that the pair requires of ``a`` is that. Otherwise
    the first condition of the pair that matches one order better decides; without one, the order of
    the page is used.
    """
    own = [is_as_a(pair, arm) for arm in (first, second)]
    if pair.between == "paths" and own[0] != own[1]:
        return own[0]
    for condition in pair.conditions:
        a, b = condition.a, condition.b
        if b is None:
            continue
        straight = _match_count(first, condition, a) + _match_count(second, condition, b)
        crossed = _match_count(first, condition, b) + _match_count(second, condition, a)
        if straight != crossed:
            return straight > crossed
    return True


def _match_count(runs: Sequence[Run], condition: Condition, expected: Expected) -> int:
    return match_condition(runs, condition, expected).match == "alike"


def arms_differ(between: Literal["drives", "paths"], arms: Sequence[Sequence[Run]]) -> bool:
    """Return whether two arms differ as a pair requires: in drives or states, or in paths."""
    read = _drives if between == "drives" else _paths
    first, second = ({each for run in runs for each in read(run.record)} for runs in arms)
    return first != second


def _drives(record: RunRecord) -> Iterator[str]:
    yield from (controller.facts.serial for controller in record.controllers)
    yield from _power_states(record)
    if not record.controllers:
        yield from (target.facts.path or target.facts.kind for target in record.targets)


def _paths(record: RunRecord) -> Iterator[str]:
    yield record.workload.loader
    yield from (path.path_effective for path in record.workload.paths)


def _models(record: RunRecord) -> Iterator[str]:
    models = [controller.facts.model for controller in record.controllers]
    yield from (model for model in models if model)
    if not models and any(target.facts.virtual for target in record.targets):
        yield "a virtual disk on unknown hardware"


def _links(record: RunRecord) -> Iterator[str]:
    for controller in record.controllers:
        state = controller.before
        if state is not None and state.link_speed_gt_per_s is not None:
            yield link_text(state.link_speed_gt_per_s, state.link_width)


def _power_states(record: RunRecord) -> Iterator[str]:
    yield from (power_state_text(record, state) for state in record.power.states)


def _accelerators(record: RunRecord) -> Iterator[str]:
    own, run = view_of(record).accelerators, run_of(record)
    if own is not None and run is not None:
        yield from own(run)
        return
    settings = record.config.get("accelerator")
    count = settings.get("count") if isinstance(settings, Mapping) else None
    if count is not None:
        yield f"{count * record.workload.rank_count} x {record.workload.accelerator}"


def _read(record: RunRecord, condition: Condition) -> Iterator[Found]:
    """Yield the values of a condition in a record: texts, or numbers in SI base units."""
    if isinstance(condition.fact, Fact):
        yield from _READ[condition.fact](record)
    elif isinstance(value := _value_at(record, condition.place), (list, tuple)):
        yield float(sum(value))
    elif value is not None:
        yield str(value) if isinstance(value, str) else float(value)


def _memory_traffic(record: RunRecord) -> Iterator[str]:
    for load in record.loads:
        meter = "the load itself" if load.meter == "self_reported" else "hardware"
        yield f"share of the {load.peak_of} peak, counted by {meter}"


_READ: Mapping[Fact, Callable[[RunRecord], Iterator[Found]]] = {
    Fact.DRIVE: _models,
    Fact.LINK: _links,
    Fact.POWER_STATE: _power_states,
    Fact.PROCESSOR: lambda record: (h.facts.cpu_model for h in record.hosts if h.facts.cpu_model),
    Fact.MEMORY: lambda record: (
        float(h.facts.memory_bytes) for h in record.hosts if h.facts.memory_bytes
    ),
    Fact.SYSTEM: lambda record: (h.facts.os for h in record.hosts if h.facts.os),
    Fact.KERNEL: lambda record: (h.facts.kernel for h in record.hosts),
    Fact.ACCELERATOR: _accelerators,
    Fact.MEMORY_TRAFFIC: _memory_traffic,
}
