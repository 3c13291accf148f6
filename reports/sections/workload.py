"""The sections of each workload: its bars, time chart, latency, scaling, and all its figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from wattload.core.record.run import RunRecord
from wattload.core.steady import MINIMUM_S, measurement_window
from wattload.core.units import Unit
from wattload.reports.blocks import (
    Block,
    Figure,
    FigureRow,
    Fold,
    Notice,
    Paragraph,
    Section,
    Table,
    columns,
    row,
)
from wattload.reports.charts.arms import (
    PointRows,
    arms_figure,
    parts_figures,
    runs_table,
    stages_figure,
    sweep_figure,
)
from wattload.reports.charts.captions import forced_caption, forced_clause
from wattload.reports.charts.lines import (
    Progression,
    latency_figure,
    progress_of,
    steady_figure,
    verdict,
)
from wattload.reports.charts.sweeps import PANELS_MAX, means_figure, rates_figure, tails_figure
from wattload.reports.charts.timeline import power_figure, rate_figure
from wattload.reports.charts.tracks import Track
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import Phase, leading
from wattload.reports.sections.loads import load_blocks, load_statements, loaded_blocks
from wattload.reports.sections.over_time import (
    OWN,
    drawn_first,
    representative_run,
    swept_rate,
    tracks_of,
    with_choice,
)
from wattload.reports.sections.ratios import (
    by_quantity,
    confidence_fold,
    points_table,
    quantities_table,
)
from wattload.reports.sections.shapes import closing_blocks, opening_blocks, over_time_figures
from wattload.reports.sections.wording import anchor, sentence_of, unique
from wattload.reports.stats.bars import Bars, per_unit, shown_point
from wattload.reports.stats.comparison import Row, compare, one_measurand
from wattload.reports.stats.conditions import is_compared
from wattload.reports.stats.subject import LETTERS, Group, Subject, lettered, named
from wattload.reports.stats.summary import drive_limits, point_rows, rate_scale
from wattload.reports.stats.sweeps import (
    LoadCurves,
    Point,
    Scaling,
    load_curves,
    panels,
    points,
    scalings,
)
from wattload.results.labels import label, workload_title
from wattload.results.quantity import MISSING, counted, listed, one_unit, quantity, whole
from wattload.results.reading import view_named

_STEADY_RULE = (
    "By SNIA's PTS: over five rounds of one minute the rate ranges over at most 20\u00a0% of its "
    "average, and a fitted line rises or falls by at most 10\u00a0%. Pauses are left out."
)


def workload_sections(subject: Subject) -> list[Section]:
    """Return a section per workload; none of more arms than have letters."""
    if len(subject.arms) > len(LETTERS):
        return []
    sections = []
    for group in subject.groups:
        with one_unit(Unit.BYTES_PER_SECOND, rate_scale(subject, group)):
            sections.append(_section(subject, group))
    return sections


def _section(subject: Subject, group: Group) -> Section:
    rows = compare(subject, group)
    heads = [entry for entry in rows if entry.quantity.headline]
    others = [entry for entry in rows if not entry.quantity.headline]
    name = anchor("workload", group.workload)
    blocks: list[Block] = [
        *_forced(subject, heads),
        *_missing_points(subject, group),
        *opening_blocks(subject, group, name),
        *load_statements(subject, group),
        *_bars(subject, group, heads),
    ]
    title, tracks = workload_title(group.workload), tracks_of(subject, group)
    blocks += _over_time(subject, group, name, title, tracks)
    blocks += _folds(subject, group)
    blocks += loaded_blocks(subject, group)
    blocks += load_blocks(subject, group)
    blocks += closing_blocks(subject, group, name, tracks)
    blocks += _tables(group, heads, others)
    if group.is_pair and (confidence := confidence_fold(heads)):
        blocks.append(confidence)
    return Section(anchor=name, title=title, blocks=blocks, remark=_remark(group), open=True)


def _over_time(
    subject: Subject, group: Group, name: str, title: str, tracks: Sequence[Track]
) -> Iterator[Block]:
    """Yield charts of rate and power, or a workload's own, that the page lacks so far."""
    shown = drawn_first(subject)
    if own := over_time_figures(subject, group, f"{name}-rate", title, tracks):
        if shown != (group.workload, OWN):
            own[0] = with_choice(own[0], subject, group, tracks) or own[0]
            yield FigureRow(own)
        return
    over_time = {
        "rate": rate_figure(f"{name}-rate", f"{title}: rate of all I/O over time", tracks),
        "power": power_figure(f"{name}-power", f"{title}: power over time", tracks),
    }
    figures = [
        figure
        for what, drawn in over_time.items()
        if (figure := with_choice(drawn, subject, group, tracks))
        and (group.workload, what) != shown
    ]
    if figures:
        yield FigureRow(figures)


def _remark(group: Group) -> str:
    if len(group.arms) == 1:
        return counted(len(group.runs), "run")
    counts = {len(runs) for runs in group.arms.values()}
    if len(counts) == 1:
        return f"{counted(counts.pop(), 'run')} of each arm"
    arms = zip(group.letters, group.arms.items(), strict=True)
    return ", ".join(
        f"{named(letter, arm)}: {counted(len(runs), 'run')}" for letter, (arm, runs) in arms
    )


def _forced(subject: Subject, rows: Sequence[Row]) -> Iterator[Notice]:
    reasons = unique(entry.forced for entry in rows if entry.forced)
    if subject.forced and reasons:
        opening = "Forced by --force. Without it, these reasons would exclude the verdicts."
        yield Notice("Forced comparison", [opening, *map(sentence_of, reasons)], "bad")


def _missing_points(subject: Subject, group: Group) -> Iterator[Notice]:
    """Yield the points of a sweep where an arm lacks a valid run."""
    texts = []
    for point in points(group):
        lacking = [
            named(letter, arm)
            for letter, arm in zip(group.letters, group.arms, strict=True)
            if not any(is_compared(subject, run) for run in point.group.arms.get(arm, ()))
        ]
        if point.axis and lacking:
            texts.append(f"{point.words}: no valid run of {listed(lacking, 'or')}.")
    if texts:
        yield Notice("Missing points", texts, "warn")


def _bars(subject: Subject, group: Group, heads: Sequence[Row]) -> Iterator[Block]:
    """Yield the bars of one point, or of a sweep, whose points are never pooled."""
    name = anchor("workload", group.workload)
    if len(panels(group)) > 1:
        return  # the panels have every point
    if any(entry.axis for entry in heads):
        if figure := sweep_figure(f"{name}-points", subject, group):
            yield figure
        return
    if len(group.runs) == 1:
        return  # its figures are on the first screen and in the table
    is_per_gb = not view_named(group.workload).has_size
    point = shown_point(subject, group)
    shown = [row.quantity.key for row in (point.rate, point.energy) if row is not None]
    directed = [
        entry
        for entry in one_measurand(heads)
        if entry.quantity.better != "neither"
        and (entry.call != "derived" or (entry.quantity.unit is Unit.JOULES and not is_per_gb))
    ]
    energies = "a whole run"
    if point.work is not None and point.work.count > 1:
        energies, work = f"one {point.work.name}", point.work
        directed = [
            per_unit(entry, work) if entry.quantity.unit is Unit.JOULES else entry
            for entry in directed
        ]
    others = [entry for entry in directed if entry.quantity.key not in shown]
    rows = [PointRows("", others, group.arms)]
    title = workload_title(group.workload)
    if figure := arms_figure(f"{name}-arms", title, rows, group.letters, energies=energies):
        yield figure
    if first := [entry for entry in directed if entry.quantity.key in shown]:
        table = runs_table(first, [*group.arms], energies)
        yield Fold("Every run of the bars on the first screen", [table], data=True)


def _valid_records(subject: Subject, group: Group) -> dict[str, list[RunRecord]]:
    """Return the records that count, by arm."""
    return {
        arm: [run.record for run in runs if is_compared(subject, run)]
        for arm, runs in group.arms.items()
    }


def _folds(subject: Subject, group: Group) -> Iterator[Block]:
    """Yield latency, the parts of times and steady state in folds, and the curves of a sweep."""
    name, title = anchor("workload", group.workload), workload_title(group.workload)
    view = view_named(group.workload)
    is_swept = len(points(group)) > 1
    records = _valid_records(subject, group)
    clause = forced_clause(each for each in compare(subject, group) if each.quantity.headline)
    if not is_swept:
        found = latency_figure(f"{name}-latency", title, records, group.letters, view.latencies)
        if found is not None:
            yield Fold("Latency", [_marked(found, clause)])
    yield from _curves(subject, group, name, title, is_swept=is_swept)
    if not is_swept:
        pairs = zip(group.letters, records.items(), strict=True)
        bars = {lettered(letter, arm): own for letter, (arm, own) in pairs}
        stages = stages_figure(f"{name}-stages", title, bars)
        parts = [*([stages] if stages else [])]
        if not view.draws_parts:
            parts += parts_figures(name, title, bars, view.useful_part)
        if parts:
            yield Fold("Where the time goes", [_marked(part, clause) for part in parts])
    # The verdicts of some workloads are their own: a plateau of minutes is not a steady drive.
    if not view.judges_steady and (steady := list(_steady(subject, group))):
        yield Fold("Steady state", steady)


def _curves(
    subject: Subject, group: Group, name: str, title: str, *, is_swept: bool
) -> Iterator[Block]:
    """Yield the curves of a sweep, in a fold without one; of too many panels only the data."""
    view = view_named(group.workload)
    count = len(panels(group))
    rows: list[list[Figure]] = []
    by_kind: dict[tuple[str, str], list[LoadCurves]] = defaultdict(list)
    for curves in load_curves(subject, group):
        by_kind[curves.phase, curves.kind].append(curves)
    for kind, found in by_kind.items():
        place = f"{name}-{anchor(*kind)}"
        means = means_figure(f"{place}-mean", title, found, view.latencies)
        tails = tails_figure(f"{place}-tails", title, found)
        rows.append([means] if tails is None else [means, tails])
    scaled = scalings(subject, group)
    if drawn_first(subject)[0] == group.workload and (first := swept_rate(subject, group)):
        scaled = tuple(each for each in scaled if each.label != first.label)
    if count == 1 and scaled:
        rows.append([rates_figure(f"{name}-scaling", title, scaled)])
    elif count > 1:
        by_rate: dict[str, list[Scaling]] = defaultdict(list)
        for scaling in scaled:
            if scaling.unit is Unit.BYTES_PER_SECOND or view.sweep is not None:
                by_rate[scaling.label].append(scaling)
        for rate, of_rate in by_rate.items():
            rows.append([rates_figure(f"{name}-{anchor(rate)}-panels", title, of_rate)])
    figures = [figure for row in rows for figure in row]
    if count > PANELS_MAX:
        yield from (Fold(each.title, [each.table], data=True) for each in figures)
        return
    # Charts of one panel have room beside each other.
    blocks: list[Block] = [FigureRow(own) for own in rows] if count == 1 else [*figures]
    if count == 1 and (limits := drive_limits(subject, group)):
        blocks.append(_limits_table(subject, group, f"What limits each point: {' '.join(limits)}"))
    yield from blocks if is_swept else ([Fold("Scaling", blocks)] if blocks else ())


def _limits_table(subject: Subject, group: Group, caption: str) -> Table:
    found = points(group)
    rows = point_rows(subject, group)
    has_energy = not all(each.energies.missing for each in rows)
    energy = ["drive energy"] if has_energy else []
    return Table(
        columns=columns(f"#{label(found[0].axis)}", "arm", "#rate", "limit", *energy),
        rows=[
            row(
                at.value,
                arm,
                _of_arm(of_point.rates, arm),
                of_point.limits[arm].removeprefix("limited by ").removeprefix("limit "),
                *([_of_arm(of_point.energies, arm)] if has_energy else []),
            )
            for at, of_point in zip(found, rows, strict=True)
            for arm in at.group.arms
        ],
        caption=caption,
    )


def _of_arm(bars: Bars, arm: str) -> str:
    """Return an arm's figure with its unit, or why there is none."""
    bar = bars.of(arm)
    return bars.missing or (f"{bar.text} {bars.title}" if bar is not None else MISSING)


def _marked(figure: Figure, clause: str) -> Figure:
    return replace(figure, caption=forced_caption(figure.caption, clause))


def _tables(group: Group, heads: Sequence[Row], others: Sequence[Row]) -> Iterator[Block]:
    if any(entry.axis for entry in heads):
        tables = [points_table(rows, group) for rows in by_quantity([*heads, *others])]
    else:
        tables = [quantities_table(heads, group, "Headline figures and energy")]
        if others:
            tables.append(quantities_table(others, group, "Other figures"))
    yield Fold("All figures", tables, data=True)


def _steady(subject: Subject, group: Group) -> Iterator[Block]:
    """Yield whether each writing phase reached a steady state; nothing for too short ones."""
    names = dict.fromkeys(
        phase.name
        for run in group.runs
        for phase in leading(run.record)
        if phase.written_bytes > phase.read_bytes
    )
    for name in names:
        long = dict(_long_phases(group, name))
        judged = {
            run.id: found
            for run in group.runs
            if run.id in long and (found := _judged(run, long[run.id], "", "")) is not None
        }
        if not judged:
            continue
        place = anchor("workload", group.workload, "steady", name)
        yield Paragraph(_STEADY_RULE)
        if tracks := list(_progressions(subject, points(group)[-1], group, long)):
            yield steady_figure(f"{place}-chart", f"{group.workload}, {name}: steady state", tracks)
        yield Table(
            columns=columns("run", "arm", "#rounds", "#rate in the window", "result"),
            rows=[
                row(
                    run.id,
                    subject.arm(run),
                    whole(judged[run.id].progress.rounds.size),
                    quantity(judged[run.id].window.average, Unit.BYTES_PER_SECOND),
                    sentence_of(verdict(judged[run.id].window)),
                )
                for run in group.runs
                if run.id in judged
            ],
            caption=f"Every run of {label(name)} that was long enough",
        )


def _long_phases(group: Group, name: str) -> Iterator[tuple[str, Phase]]:
    """Yield the id of each run and its phase of this name, if it holds a window of rounds."""
    for run in group.runs:
        for phase in leading(run.record):
            active_s = sum(end - start for start, end in phase.intervals_s)
            if phase.name == name and active_s >= MINIMUM_S:
                yield run.id, phase


def _judged(run: Run, phase: Phase, letter: str, name: str) -> Progression | None:
    progress = progress_of(run, phase)
    window = measurement_window(progress.rounds) if progress is not None else None
    if progress is None or window is None:
        return None
    return Progression(letter=letter, name=name, progress=progress, window=window)


def _progressions(
    subject: Subject, last: Point, group: Group, phases: Mapping[str, Phase]
) -> Iterator[Progression]:
    """Yield the representative run of each arm, at the last point of a sweep."""
    for letter, arm in zip(group.letters, group.arms, strict=False):
        own = [run for run in last.group.arms.get(arm, ()) if run.id in phases]
        run = representative_run(subject, own)
        name = lettered(letter, arm) if len(subject.arms) > 1 else ""
        track = _judged(run, phases[run.id], letter, name) if run is not None else None
        if track is not None:
            yield track
