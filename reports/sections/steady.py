"""Whether writing phases reached a steady state, by the rule of SNIA's PTS."""

from __future__ import annotations

from collections.abc import Iterator

from wattload.core.units import Unit
from wattload.reports.blocks import Block, Notice, Paragraph, Section, Table, columns, row
from wattload.reports.charts.steady import Track, steady_figure, verdict
from wattload.reports.chosen import CHOICE, middle_run
from wattload.reports.load import Run
from wattload.reports.phases import Phase, leading
from wattload.reports.points import points
from wattload.reports.quantity import quantity, whole
from wattload.reports.sections.wording import anchor, sentence_of
from wattload.reports.steady import LEAST_S, progress_of, window_of
from wattload.reports.subject import LETTERS, Group, Subject, lettered

_RULE = (
    "The rule is that of SNIA's PTS: over five rounds of one minute the rate ranges over at most "
    "20\u00a0% of its average, and the line that fits it rises or falls by at most 10\u00a0%. The "
    "first window that keeps both is shown, else the last one. Rounds are of active time: what "
    "lies between two writes of a phase is in none."
)


def steady_section(subject: Subject) -> Section | None:
    """Return the judgement of every writing phase that is long enough, and why others have none.

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
    blocks: list[Block] = [Paragraph(_RULE)] if parts else []
    if short:
        blocks.append(Notice("Not judged", list(_why(short)), "open"))
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
            if active_s >= LEAST_S:
                long[run.id] = phase
            else:
                shorter_s.append(active_s)
    return long, shorter_s


def _why(short: dict[str, list[float]]) -> Iterator[str]:
    for name, seconds in short.items():
        least, most = (quantity(end, Unit.SECONDS, 3) for end in (min(seconds), max(seconds)))
        between = least if least == most else f"{least} to {most}"
        yield f"{name}: {between} of active time; five rounds of one minute need {LEAST_S} s."


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
            blocks.append(Paragraph(sentence_of(f"Drawn: {CHOICE}")))
        blocks.append(steady_figure(f"{place}-chart", f"Steady state of {title}", tracks))
    blocks.append(_table(subject, group, judged))
    return Section(anchor=place, title=title, blocks=blocks)


def _judged(run: Run, phase: Phase, letter: str, name: str) -> Track | None:
    progress = progress_of(run, phase)
    window = window_of(progress.rounds) if progress is not None else None
    if progress is None or window is None:
        return None
    return Track(letter=letter, name=name, progress=progress, window=window)


def _tracks(subject: Subject, group: Group, phases: dict[str, Phase]) -> Iterator[Track]:
    """Yield the run that stands for each arm, at the last point of a sweep."""
    last = points(group)[-1].group
    for letter, arm in zip(LETTERS, subject.arms, strict=False):
        own = [run for run in last.arms.get(arm, ()) if run.id in phases]
        run = middle_run(subject, own)
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
    titles = columns("run", "arm", "#rounds", "#rate in the window", "by the rule")
    return Table(columns=titles, rows=rows, caption="Every run that was long enough")
