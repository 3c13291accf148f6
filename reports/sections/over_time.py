"""Runs over time: throughput and power, traced operations, and the steady state of writes.

Where one run of an arm is drawn, it is the representative one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wattload.core.steady import MINIMUM_S, measurement_window
from wattload.core.units import Unit
from wattload.reports.blocks import Absent, Block, Notice, Paragraph, Section, Table, columns, row
from wattload.reports.charts.scatter import make_scatter, scatter_figure
from wattload.reports.charts.steady_state import Track, progress_of, steady_figure, verdict
from wattload.reports.charts.timeline import arms_timeline_figure, timeline_figure
from wattload.reports.quantity import listed, quantity, whole
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import Phase, leading
from wattload.reports.runs.timeline import make_timeline
from wattload.reports.sections.wording import anchor, sentence_of
from wattload.reports.stats.subject import LETTERS, Group, Subject, lettered
from wattload.reports.stats.sweeps import Point, points

_REPRESENTATIVE = "for each arm, the valid run with the median rate"
_STEADY_RULE = (
    "The rule is that of SNIA's PTS: over five rounds of one minute the rate ranges over at most "
    "20\u00a0% of its average, and a line fitted to it rises or falls by at most 10\u00a0%. "
    "The first window that meets both conditions is shown, or else the last one. Rounds cover "
    "active time only: pauses between the writes of a phase are left out."
)


def representative_run(subject: Subject, runs: Sequence[Run]) -> Run | None:
    """Return the valid run of median rate, the lower of two; ``None`` where no run is valid."""
    valid = sorted((run for run in runs if not subject.faults(run)), key=_rate)
    return valid[(len(valid) - 1) // 2] if valid else None


def _rate(run: Run) -> tuple[float, str]:
    """Return the rate over all leading phases, total bytes ÷ total seconds, and the id for ties."""
    phases = leading(run.record)
    seconds = sum(phase.active_s for phase in phases)
    moved_bytes = sum(phase.moved_bytes for phase in phases)
    return (moved_bytes / seconds if seconds > 0 else 0.0), run.id


def arms_overtime_section(subject: Subject) -> Section | None:
    """Return a run of each arm over time, side by side; ``None`` unless there are two arms."""
    parts = [part for group in subject.groups if (part := _arms_part(subject, group)) is not None]
    if not parts:
        return None
    return Section(anchor="arms-over-time", title="Over time, arm by arm", parts=parts)


def _arms_part(subject: Subject, group: Group) -> Section | None:
    """Return the last point of a sweep at which both arms have a valid run."""
    if len(subject.arms) != 2 or len(group.arms) != 2:  # noqa: PLR2004 - A and B
        return None
    for point in reversed(points(group)):
        runs = _representative_runs(subject, point)
        if len(runs) == 2:  # noqa: PLR2004 - A and B
            break
    else:
        return None
    name = anchor("arms-over-time", group.workload)
    timelines = {
        lettered(letter, arm): make_timeline(runs[arm])
        for letter, arm in zip(LETTERS, subject.arms, strict=False)
    }
    figure = arms_timeline_figure(f"{name}-chart", group.workload, timelines)
    if figure is None:
        return None
    where = f" at {point.axis} = {point.value}" if point.axis else ""
    ids = listed([run.id for run in runs.values()])
    opening = Paragraph(sentence_of(f"{_REPRESENTATIVE}{where}: {ids}"))
    return Section(anchor=name, title=group.workload, blocks=[opening, figure])


def _representative_runs(subject: Subject, point: Point) -> dict[str, Run]:
    found = {arm: representative_run(subject, runs) for arm, runs in point.group.arms.items()}
    return {arm: run for arm, run in found.items() if run is not None}


def overtime_section(subject: Subject, run: Run) -> Section | None:
    """Return throughput and power over one time axis."""
    timeline = make_timeline(run)
    name = anchor(run.id, "over-time")
    blocks: list[Block] = []
    figure = timeline_figure(name + "-chart", f"{run.record.workload.name} {run.id}", timeline)
    if figure is not None:
        blocks.append(figure)
    if not timeline.rates:
        blocks.append(Absent("No throughput", _missing_trace_reason(run, "throughput")))
    if not timeline.watts and not timeline.bands:
        used = any(source.used for source in run.record.power.sources)
        title = "No power" if used else "No power source"
        blocks.append(Absent(title, _missing_power_reason(run)))
    if run.traces.notes:
        blocks.append(Notice("Traces", run.traces.notes, "open"))
    return Section(anchor=name, title="Over time", blocks=blocks)


def _missing_trace_reason(run: Run, name: str) -> str:
    reasons = [note for note in run.traces.notes if f" {name} trace" in note]
    return reasons[0] if reasons else f"The {name} trace has no bytes."


def _missing_power_reason(run: Run) -> str:
    """Return why no power is drawn: no source, or no samples of one."""
    used = [source for source in run.record.power.sources if source.used]
    if used and run.traces.power is None:
        return _missing_trace_reason(run, "power")
    if used:
        return "The power trace has no sample of the drive's power."
    return run.record.power.choice


def scatter_section(subject: Subject, run: Run) -> Section | None:
    """Return the chart of traced operations; ``None`` for a run whose loader traced none."""
    scatter = make_scatter(run)
    if scatter is None:
        return None
    name = anchor(run.id, "operations")
    strips = make_timeline(run).strips
    title = f"{run.record.workload.name} {run.id}"
    figure = scatter_figure(f"{name}-chart", title, scatter, strips)
    return Section(anchor=name, title="Operations over time", blocks=[figure])


def steady_section(subject: Subject) -> Section | None:
    """Return whether each writing phase reached a steady state, and which ones were too short.

    ``None`` where no run writes in a timed phase.
    """
    parts: list[Section] = []
    short: dict[str, list[float]] = {}
    for group in subject.groups:
        for name in _writing(group):
            long, shorter_s = _by_length(group, name)
            if shorter_s:
                short[f"{group.workload}, {name}"] = shorter_s
            if long:
                parts.append(_part(subject, group, name, long))
    if not parts and not short:
        return None
    blocks: list[Block] = [Paragraph(_STEADY_RULE)] if parts else []
    if short:
        blocks.append(Notice("Too short to judge", list(_too_short_sentences(short)), "open"))
    return Section(anchor="steady", title="Steady state", blocks=blocks, parts=parts)


def _writing(group: Group) -> list[str]:
    """Return the names of timed phases that write more than they read in some run."""
    found = (
        phase.name
        for run in group.runs
        for phase in leading(run.record)
        if phase.written_bytes > phase.read_bytes
    )
    return list(dict.fromkeys(found))


def _by_length(group: Group, name: str) -> tuple[dict[str, Phase], list[float]]:
    """Return the phases that hold a window, by run id, and the seconds of those that do not."""
    long: dict[str, Phase] = {}
    shorter_s = []
    for run in group.runs:
        for phase in leading(run.record):
            if phase.name != name:
                continue
            active_s = sum(end - start for start, end in phase.intervals_s)
            if active_s >= MINIMUM_S:
                long[run.id] = phase
            else:
                shorter_s.append(active_s)
    return long, shorter_s


def _too_short_sentences(short: dict[str, list[float]]) -> Iterator[str]:
    for name, seconds in short.items():
        least, most = (quantity(end, Unit.SECONDS, 3) for end in (min(seconds), max(seconds)))
        between = least if least == most else f"{least} to {most}"
        yield f"{name}: {between} of active time; five rounds of one minute need {MINIMUM_S} s."


def _part(subject: Subject, group: Group, name: str, phases: dict[str, Phase]) -> Section:
    title = f"{group.workload}, {name}"
    place = anchor("steady", group.workload, name)
    judged = {
        run.id: found
        for run in group.runs
        if run.id in phases and (found := _judged(run, phases[run.id], "", "")) is not None
    }
    tracks = list(_tracks(subject, group, phases))
    blocks: list[Block] = []
    if tracks:
        if len(group.runs) > len(tracks):
            blocks.append(Paragraph(sentence_of(f"Drawn: {_REPRESENTATIVE}")))
        blocks.append(steady_figure(f"{place}-chart", f"Steady state of {title}", tracks))
    blocks.append(_table(subject, group, judged))
    return Section(anchor=place, title=title, blocks=blocks)


def _judged(run: Run, phase: Phase, letter: str, name: str) -> Track | None:
    progress = progress_of(run, phase)
    window = measurement_window(progress.rounds) if progress is not None else None
    if progress is None or window is None:
        return None
    return Track(letter=letter, name=name, progress=progress, window=window)


def _tracks(subject: Subject, group: Group, phases: dict[str, Phase]) -> Iterator[Track]:
    """Yield the representative run of each arm, at the last point of a sweep."""
    last = points(group)[-1].group
    for letter, arm in zip(LETTERS, subject.arms, strict=False):
        own = [run for run in last.arms.get(arm, ()) if run.id in phases]
        run = representative_run(subject, own)
        name = lettered(letter, arm) if len(subject.arms) > 1 else ""
        track = _judged(run, phases[run.id], letter, name) if run is not None else None
        if track is not None:
            yield track


def _table(subject: Subject, group: Group, judged: dict[str, Track]) -> Table:
    rows = [
        row(
            run.id,
            subject.arm(run),
            whole(judged[run.id].progress.rounds.size),
            quantity(judged[run.id].window.average, Unit.BYTES_PER_SECOND),
            sentence_of(verdict(judged[run.id].window)),
        )
        for run in group.runs
        if run.id in judged
    ]
    titles = columns("run", "arm", "#rounds", "#rate in the window", "result")
    return Table(columns=titles, rows=rows, caption="Every run that was long enough")
