"""The opening: what is said in five sentences, what the arms are, what limits it, the figures."""

from __future__ import annotations

from wattload.reports.blocks import Arm, Arms, Block, Cards, Link, Section, Sentences, Words
from wattload.reports.conditions import conditions
from wattload.reports.quantity import counted, listed
from wattload.reports.sections.cards import workload_card
from wattload.reports.sections.executive import compared_sentences
from wattload.reports.sections.limits import limits_notices, limits_sentence
from wattload.reports.sections.singles import single_sentences
from wattload.reports.sections.wording import anchor, host_words, moment, target_words, unique
from wattload.reports.subject import LETTERS, Subject, lettered
from wattload.reports.themes import arm_role

_OF_ARMS = ("drive", "firmware", "power state", "loader", "host")


def title(subject: Subject) -> str:
    """Return what the page is about."""
    workloads = listed([group.workload for group in subject.groups])
    if subject.compares:
        return f"{subject.arms[0]} against {subject.arms[1]}: {workloads}"
    places = unique(
        target.facts.path or target.facts.kind
        for run in subject.runs
        for target in run.record.targets
    )
    return f"{workloads} on {listed(places)}" if places else workloads


def summary_section(subject: Subject) -> Section:
    """Return the opening of the page; each of its sentences is computed from the records."""
    notices = limits_notices(subject)
    told = compared_sentences(subject) if subject.compares else single_sentences(subject)
    blocks: list[Block] = [
        Sentences([_what(subject), *told, limits_sentence(subject, notices)]),
    ]
    if 1 < len(subject.arms) <= len(LETTERS):
        blocks.append(_arms(subject))
    blocks.extend(notices)
    blocks.append(Cards([workload_card(subject, group) for group in subject.groups]))
    return Section(anchor="summary", title="Summary", blocks=blocks)


def _what(subject: Subject) -> Words:
    records = [run.record for run in subject.runs]
    workloads = listed([group.workload for group in subject.groups])
    scales = listed(unique(record.workload.scale for record in records))
    loaders = listed(unique(record.workload.loader for record in records))
    hosts = listed(unique(host_words(record) for record in records))
    targets = listed(unique(target_words(t.facts) for r in records for t in r.targets))
    first = min(record.started_utc for record in records)
    last = max(record.finished_utc or record.started_utc for record in records)
    runs = Link(counted(len(records), "run"), anchor("run", subject.runs[0].id))
    what = (
        f" of {workloads} at scale {scales}, loader {loaders}, on "
        f"{hosts}, against {targets or 'no target'}, {_period(first, last)}"
    )
    if not subject.compares:
        return (runs, f"{what}.")
    arms = [lettered(*pair) for pair in zip(LETTERS, subject.arms, strict=False)]
    by = subject.by.replace("_", " ")
    return (runs, f"{what}; {listed(arms)} are ", Link(f"told apart by {by}", "comparison"), ".")


def _period(first: str, last: str) -> str:
    """Return from when to when, the day once if it is one."""
    start, end = moment(first), moment(last)
    if start[:10] == end[:10]:
        return f"on {start[:10]} from {start[11:19]} to {end[11:]}"
    return f"from {start} to {end}"


def _arms(subject: Subject) -> Arms:
    """Return what each arm is: how many runs it has, and the drive and setting of them."""
    arms = []
    for letter, arm in zip(LETTERS, subject.arms, strict=False):
        runs = [run for group in subject.groups for run in group.arms.get(arm, ())]
        valid = sum(not subject.faults(run) for run in runs)
        found = [conditions(run.record) for run in runs]
        told = {fact: unique(each[fact] for each in found if fact in each) for fact in _OF_ARMS}
        pairs = [("runs", f"{len(runs)}, {'all' if valid == len(runs) else valid} valid")]
        pairs += [(name, listed(values)) for name, values in told.items() if values]
        arms.append(Arm(letter, arm_role(letter), arm, pairs))
    return Arms(arms)
