"""One run, from headline to record; folded when there are many."""

from __future__ import annotations

from collections.abc import Callable

from wattload.core.units import NS_PER_S
from wattload.reports.blocks import Facts, Section
from wattload.reports.load import DETAILED_RUNS, Run
from wattload.reports.quantity import counted
from wattload.reports.sections.checks import checks_section
from wattload.reports.sections.energy import energy_section
from wattload.reports.sections.headline import headline_section
from wattload.reports.sections.latency import latency_section
from wattload.reports.sections.machine import machine_section
from wattload.reports.sections.overtime import overtime_section
from wattload.reports.sections.phases import phases_section
from wattload.reports.sections.reproduce import reproduce_section
from wattload.reports.sections.runs import runs_section
from wattload.reports.sections.scatter import scatter_section
from wattload.reports.sections.whole import whole_section
from wattload.reports.sections.wording import anchor, moment, run_badges
from wattload.reports.subject import Subject

PARTS: tuple[Callable[[Subject, Run], Section | None], ...] = (
    headline_section,
    overtime_section,
    energy_section,
    whole_section,
    checks_section,
    phases_section,
    latency_section,
    scatter_section,
    machine_section,
    reproduce_section,
)
FOLDED_FROM = 5
"""With this many runs on a page, or with two of one workload, each is folded under its title."""


def run_sections(subject: Subject) -> list[Section]:
    """Return a section per run, group by group, folded if several; of many one with a row each."""
    if len(subject.runs) > DETAILED_RUNS:
        return [runs_section(subject)]
    sided = [run for group in subject.groups for run in group.runs]
    shown = {run.id for run in sided}
    others = [run for run in subject.runs if run.id not in shown]
    sections = [_run(subject, run) for run in (*sided, *others)]
    if not _folds(subject):
        return sections
    heading = Section(
        anchor="runs",
        title="Runs",
        remark="each opens to all that is known of it; on paper it has its figures and charts",
    )
    return [heading, *sections]


def _folds(subject: Subject) -> bool:
    return len(subject.runs) >= FOLDED_FROM or len(subject.runs) > len(subject.groups)


def _run(subject: Subject, run: Run) -> Section:
    record = run.record
    arm = subject.arm(run)
    parts = [part(subject, run) for part in PARTS]
    title = record.workload.name
    if len(subject.runs) > len(subject.groups):
        title += f", {arm}, {moment(record.started_utc)[11:19]}"
    return Section(
        anchor=anchor("run", run.id),
        title=title,
        remark=f"run {run.id}",
        badges=run_badges(run, subject.faults(run)),
        blocks=[Facts(_facts(run), "brief")],
        parts=[part for part in parts if part is not None],
        folded=_folds(subject),
        listed=not _folds(subject),
    )


def _facts(run: Run) -> list[tuple[str, str]]:
    record = run.record
    work = record.workload
    facts = [
        ("label", record.label),
        ("loader", work.loader),
        ("scale", work.scale),
        ("accelerator", work.accelerator),
        ("processes", counted(work.rank_count, "rank")),
        ("started", moment(record.started_utc)),
        ("lasted", _lasted(run)),
    ]
    if record.status != "complete":
        facts.append(("ended", f"{record.status}: {record.status_reason}"))
    return facts


def _lasted(run: Run) -> str:
    """Return how long the phases took from first to last, on the host's monotonic clock."""
    windows = run.record.windows
    if not windows:
        return "no phase was finished"
    first, last = min(w.start_ns for w in windows), max(w.end_ns for w in windows)
    return f"{(last - first) / NS_PER_S:.1f} s from first to last phase"
