"""The boxes that stand before any figure: runs that do not count, gaps, warnings."""

from __future__ import annotations

from wattload.reports.admission import counted_group, counts
from wattload.reports.blocks import Link, Notice, Words
from wattload.reports.conditions import changed_together
from wattload.reports.energy import is_simulated
from wattload.reports.load import Run
from wattload.reports.quantity import counted, listed
from wattload.reports.sections.alike import ranged
from wattload.reports.sections.gaps import gaps_notice
from wattload.reports.sections.unsealed import NO_SEAL
from wattload.reports.sections.wording import sentence_of, tallied, unique
from wattload.reports.subject import WARM_UP, Subject

_NOT_VALID = "Shown, but not compared as valid"
VIRTUAL_DRIVE = "a drive here is a virtual drive, whose joules rank nothing"


def limits_notices(subject: Subject) -> tuple[Notice, ...]:
    """Return what limits the figures of a page, the gravest first; the box of gaps always."""
    notices = (_broken(subject), _no_arm(subject), gaps_notice(subject), _warnings(subject))
    return tuple(notice for notice in notices if notice is not None)


def limits_sentence(subject: Subject, notices: tuple[Notice, ...]) -> Words:
    """Return in one sentence how much there is in these boxes, with a link to each."""
    words: list[str | Link] = []
    if subject.forced:
        words += [Link("the comparison was forced past what bars it", "comparison"), "; "]
    together = unique(
        name
        for group in subject.groups
        for name in changed_together(counted_group(subject, group), subject.by)
    )
    if together:
        what = Link(f"arms differ in {listed(together)} at once", "comparison")
        words += [what, ", so that no ratio is of one of these alone; "]
    if any(is_simulated(run.record) for run in subject.runs):
        words += [VIRTUAL_DRIVE, "; "]
    for notice in notices:
        if notice.tone != "good":
            words += [Link(_counts(notice, subject), notice.anchor), "; "]
    checks = Link("checks and evidence", "trust")
    if not words:
        return ("Nothing that was asked for is missing; ", checks, " stand below.")
    return ("Before use: ", *words, checks, " stand below.")


def _counts(notice: Notice, subject: Subject) -> str:
    count = len(notice.sentences)
    every = counted(len(subject.runs), "run")
    if notice.anchor == "broken":
        let_through = sum(counts(subject, run) for run, _ in _faulty(subject))
        left_out = len(_faulty(subject)) - let_through
        told = [f"{left_out} of {every} shown, but not compared as valid"] if left_out else []
        if let_through:
            told.append(f"{let_through} of {every} let through though its checks bar it")
        return "; ".join(told)
    if notice.anchor == "no-arm":
        return f"{_no_arm_count(subject)} of {every} of no arm"
    if notice.anchor == "gaps":
        return f"{counted(count, 'thing')} not measured or not checked"
    return f"{counted(count, 'thing')} to be known with the figures"


def _faulty(subject: Subject) -> list[tuple[Run, list[str]]]:
    """Return the runs that do not count, with the reasons; to be of no arm is no fault of a run."""
    of_arms = {run.id for group in subject.groups for run in group.runs}
    found = []
    for run in subject.runs:
        faults = subject.faults(run)
        own = [fault for fault in faults if fault != WARM_UP or run.id in of_arms]
        if own:
            found.append((run, own))
    return found


def _broken(subject: Subject) -> Notice | None:
    sentences = [
        f"{run.record.workload.name}, run {run.id}: {fault.rstrip('.')}."
        for run, faults in _faulty(subject)
        for fault in faults
    ]
    if not sentences:
        return None
    is_through = subject.forced and any(counts(subject, run) for run, _ in _faulty(subject))
    title = "Barred by checks, and let through by force" if is_through else _NOT_VALID
    return Notice(title, sentences, "bad", "broken")


def _no_arm_count(subject: Subject) -> int:
    return len(subject.runs) - sum(len(group.runs) for group in subject.groups)


def _no_arm(subject: Subject) -> Notice | None:
    """Return how many runs are of no arm, as they were made to be: warm-ups, noise floors."""
    count = _no_arm_count(subject)
    if not count:
        return None
    warm = sum(run.record.comparison.warm_up for run in subject.runs)
    every = counted(len(subject.runs), "run")
    told = []
    if warm:
        told.append(f"{warm} of {every} made before the compared ones, to warm up: in no figure.")
    if count - warm:
        told.append(
            f"{count - warm} of {every} of one setting against itself: in no figure of an arm. "
            "What noise floor they set stands below the comparison."
        )
    return Notice("Runs of no arm", told, "open", "no-arm")


def _warnings(subject: Subject) -> Notice | None:
    """Return remarks, what is known of targets beyond the limits, no seal, which checks warn."""
    said: list[tuple[Run, str]] = []
    for run in subject.runs:
        record = run.record
        told = {sentence_of(limit) for limit in record.limits}
        of_targets = [text for target in record.targets for text in target.facts.warnings]
        own = [text for text in of_targets if sentence_of(text) not in told]
        own += record.workload.remarks
        if run.is_unsealed:
            own.append(NO_SEAL)
        warned = [
            check.name.replace("_", " ") for check in record.checks if check.verdict == "warn"
        ]
        if warned:
            own.append(f"checks warn of {listed(warned)}")
        said.extend((run, text) for text in unique(own))
    sentences = tallied([(run.record, text) for run, text in ranged(said, subject)], subject)
    if not sentences:
        return None
    return Notice("To be known with these figures", sentences, "warn", "warnings")
