"""Charts of training on a graph: stages of a step, rates and ceilings, I/O profile, power, loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.core.units import KIB, NS_PER_S, Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.bars import Bar, bars_svg, checked_range
from wattload.reports.charts.plot import Axis, Frame, round_ticks, second_axis
from wattload.reports.charts.themes import PART_ROLES, arm_role
from wattload.reports.charts.timeline import Track
from wattload.reports.runs.gnn import CEILING_ERROR, STAGES, GraphTraining, middle
from wattload.reports.runs.gnn_traces import Requests
from wattload.reports.runs.phases import CommonClock
from wattload.results.quantity import (
    MISSING,
    Scale,
    number,
    percent,
    quantity,
    scale_for,
    scaled,
    whole,
    with_unit,
)

Array = NDArray[np.float64]
Value = Callable[[GraphTraining], float | None]

_BINS = 160
_ENLARGED = 4.0
"""Steps longer than this many times the others leave no room for these: they get a panel."""
_FARTHEST = 3.0
"""A ceiling beyond this many times the highest rate is printed only: bars would be too short."""
_HEIGHT, _LOW = 130, 110
_HEADROOM = 1.12
_TABLE_ROWS = 20
_SAME_LOSS = 1e-6
_SIZES = (
    (4 * KIB, "4 KiB or less"),
    (16 * KIB, "over 4 to 16 KiB"),
    (64 * KIB, "over 16 to 64 KiB"),
    (128 * KIB, "over 64 to 128 KiB"),
    (float("inf"), "over 128 KiB"),
)
"""Classes of request sizes: the largest of each, and its name."""
_OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingArm:
    """The valid runs of one arm, at one point of a sweep; ``title`` names both."""

    letter: str
    title: str
    runs: tuple[GraphTraining, ...]

    def middle(self, value: Value) -> float | None:
        """Return the median of a figure over the runs that have it."""
        return middle(map(value, self.runs))

    @property
    def is_ahead(self) -> bool:
        return any(each.is_ahead for each in self.runs)

    @property
    def typical(self) -> GraphTraining | None:
        """The run with the median step, the faster of two; ``None`` if no run has any stages.

        Its stages sum to its step; medians of each stage over runs need not.
        """
        known = [run for run in self.runs if run.stages_s]
        timed = sorted(
            (run for run in known if run.step_s is not None), key=lambda run: run.step_s or 0.0
        )
        return timed[(len(timed) - 1) // 2] if timed else next(iter(known), None)

    @property
    def step_s(self) -> float | None:
        return self.typical.step_s if self.typical is not None else None

    @property
    def stages_s(self) -> Mapping[str, float]:
        """The seconds of each known stage of a step of the typical run."""
        run = self.typical
        if run is None:
            return {}
        return {stage: seconds / run.steps for stage, seconds in run.stages_s.items()}


def stages_figure(name: str, title: str, arms: Sequence[TrainingArm]) -> Figure | None:
    """Return the stages of a step, stacked; ``None`` where no run has any.

    Serial stages sum to the step, with what is between them as another part. Overlapped stages
    take more than the step, which is marked.
    """
    drawn = [arm for arm in arms if arm.stages_s]
    if not drawn:
        return None
    totals = [max(sum(arm.stages_s.values()), arm.step_s or 0.0) for arm in drawn]
    enlarged = [
        arm for arm, total in zip(drawn, totals, strict=True) if total * _ENLARGED <= max(totals)
    ]
    svg = _stages_svg("a step", drawn)
    if enlarged:
        svg += _stages_svg("the same without the slowest", enlarged)
    scale = scale_for(Unit.SECONDS, *totals)
    has_ahead = any(arm.is_ahead for arm in drawn)
    has_serial = not all(arm.is_ahead for arm in drawn)
    caption = ["Seconds per step."]
    if any(len(arm.runs) > 1 for arm in drawn):
        caption = ["Seconds per step of each arm's run with the median step (of two, the faster)."]
    if has_serial:
        caption.append("Serial stages sum to the step; other is the time between them.")
    if has_ahead:
        caption.append(
            "Overlapped stages run at the same time: their bar is longer than the step, which is "
            "the line across it."
        )
    return Figure(
        name=name,
        title=f"{title}: where the time of a step goes",
        svg=svg,
        caption=" ".join(caption),
        table=_stages_table(drawn, scale),
        legend=[
            *((role, stage) for stage, role in _stage_roles().items()),
            *([("untimed", _OTHER)] if has_serial else []),
        ],
    )


def _stage_roles() -> dict[str, str]:
    return dict(zip(STAGES, PART_ROLES, strict=False))


def _stages_svg(what: str, arms: Sequence[TrainingArm]) -> str:
    scale = scale_for(
        Unit.SECONDS, *(sum(arm.stages_s.values()) for arm in arms), *(arm.step_s for arm in arms)
    )
    bars = [checked_range(_stage_bar(arm, scale)) for arm in arms]
    return bars_svg(f"{what}, {scale.unit}", bars, scale)


def _stage_bar(arm: TrainingArm, scale: Scale) -> Bar:
    stages, roles = arm.stages_s, _stage_roles()
    busy_s, step_s = sum(stages.values()), arm.step_s
    parts = [
        (roles[stage], f"{stage} {_shown(seconds, scale)}", seconds)
        for stage, seconds in stages.items()
        if seconds > 0
    ]
    if arm.is_ahead:
        is_known = step_s is not None
        return Bar(
            label=f"{arm.title}, overlapped",
            role="device",
            value=busy_s,
            parts=parts,
            marks=[(f"a step {_shown(step_s, scale)}", step_s)] if step_s is not None else [],
            note=f"in a step of {_shown(step_s, scale)}" if is_known else "",
        )
    other_s = max((step_s or 0.0) - busy_s, 0.0)
    if other_s:
        parts.append(("untimed", f"{_OTHER} {_shown(other_s, scale)}", other_s))
    return Bar(label=arm.title, role="device", value=busy_s + other_s, parts=parts)


def _shown(value: float | None, scale: Scale) -> str:
    return with_unit(scaled(value, scale, 3), scale)


def _stages_table(arms: Sequence[TrainingArm], scale: Scale) -> Table:
    """Return the stages per step, and in all timed steps."""
    names = [*STAGES]
    rows = [
        row(stage, *(_both(arm, arm.stages_s.get(stage), scale) for arm in arms)) for stage in names
    ]
    rows.append(
        row("sum of stages", *(_both(arm, sum(arm.stages_s.values()), scale) for arm in arms))
    )
    rows.append(row("step", *(_both(arm, arm.step_s, scale) for arm in arms)))
    return Table(
        columns=columns("stage", *(f"#{arm.title}" for arm in arms)),
        rows=rows,
        caption=f"Stages per step, in {scale.unit}; in brackets the seconds of all steps",
    )


def _both(arm: TrainingArm, seconds: float | None, scale: Scale) -> str:
    if seconds is None or arm.typical is None:
        return MISSING
    every_s = seconds * arm.typical.steps
    return f"{scaled(seconds, scale, 3)} ({quantity(every_s, Unit.SECONDS, 3)})"


def rates_figure(name: str, title: str, arms: Sequence[TrainingArm]) -> Figure | None:
    """Return rows gathered in a second of aggregation, those of the drive, and the ceilings."""
    gathered = [arm.middle(lambda run: run.rows_per_s) for arm in arms]
    stored = [arm.middle(lambda run: run.storage_rows_per_s) for arm in arms]
    known = [rate for rate in gathered if rate is not None]
    if not known:
        return None
    shown = scale_for(Unit.SAMPLES_PER_SECOND, *known)
    farthest = max(known) * _FARTHEST
    pulls = [arm.middle(lambda run: run.pull_rows_per_s) for arm in arms]
    engines = [arm.middle(lambda run: run.engine_rows_per_s) for arm in arms]
    made = [
        [
            checked_range(_rate_bar(arm, rate, _Ceiling(what, ceiling, rate, shown, farthest)))
            for arm, rate, ceiling in zip(arms, rates, ceilings, strict=True)
        ]
        for rates, ceilings, what in (
            (gathered, pulls, "GPU's link"),
            (stored, engines, "engine alone"),
        )
    ]
    largest = max(end for bars in made for bar in bars if (end := bar.end) is not None)
    titles = ("rows gathered", "rows read from the drive")
    svg = "".join(
        bars_svg(f"{words}, {shown.unit}", bars, shown, largest)
        for words, bars in zip(titles, made, strict=True)
    )
    reasons = dict.fromkeys(
        run.ceiling_reason.rstrip(".") for arm in arms for run in arm.runs if run.ceiling_reason
    )
    missing = f" Missing ceilings: {'; '.join(reasons)}." if reasons else ""
    if any(
        _is_exceeded(rate, ceiling)
        for rates, ceilings in ((gathered, pulls), (stored, engines))
        for rate, ceiling in zip(rates, ceilings, strict=True)
    ):
        missing += (
            " A rate more than 5 % above its ceiling shows that this was measured too low: it is "
            "called none."
        )
    return Figure(
        name=name,
        title=f"{title}: rows per second",
        svg=svg,
        caption="Rows ÷ seconds of aggregation; the first panel counts those from memory and "
        "caches too, as published accesses do. A line across a bar is a ceiling measured without "
        f"sampling and training.{missing}",
        table=Table(
            columns=columns(
                "arm",
                f"#rows gathered, {shown.unit}",
                f"#from the drive, {shown.unit}",
                f"#engine alone, {shown.unit}",
                f"#GPU's link, {shown.unit}",
            ),
            rows=[
                row(arm.title, *(scaled(value, shown, 4) for value in values))
                for arm, *values in zip(arms, gathered, stored, engines, pulls, strict=True)
            ],
            caption="Rows per second of aggregation",
        ),
    )


@dataclass(frozen=True, slots=True)
class _Ceiling:
    """What a rate is beside: its name, rows per second if known, and how far it may be drawn."""

    name: str
    value: float | None
    rate: float | None
    scale: Scale
    farthest: float

    @property
    def words(self) -> str:
        """Its name and figure; empty if it is unknown."""
        if self.value is None:
            return ""
        no_ceiling = ", no ceiling" if _is_exceeded(self.rate, self.value) else ""
        return f"{self.name} {_shown(self.value, self.scale)}{no_ceiling}"

    @property
    def marks(self) -> list[tuple[str, float]]:
        """Its line across a bar; none if it is unknown, too far, or no ceiling."""
        if self.value is None or self.value > self.farthest or _is_exceeded(self.rate, self.value):
            return []
        return [(self.words, self.value)]


def _is_exceeded(rate: float | None, ceiling: float | None) -> bool:
    """Return whether a rate shows that its ceiling was measured too low."""
    return rate is not None and ceiling is not None and rate > ceiling * CEILING_ERROR


def _rate_bar(arm: TrainingArm, rate: float | None, ceiling: _Ceiling) -> Bar:
    return Bar(
        label=arm.title,
        role=arm_role(arm.letter) if arm.letter else "device",
        value=rate,
        marks=ceiling.marks if rate is not None else [],
        note=ceiling.words if rate is not None else "",
        reason="unknown with the page cache",
    )


def profile_figures(
    name: str, title: str, arms: Sequence[TrainingArm], traced: Sequence[tuple[str, str, Requests]]
) -> Iterator[Figure]:
    """Yield request sizes by arm, then depth and bandwidth over time of one run of each arm.

    Args:
        name: what the names of the figures begin with.
        title: what their titles begin with.
        arms: those of the page.
        traced: letter, title and reads of the arms whose requests were traced.
    """
    if (sizes := _sizes_figure(f"{name}-sizes", title, arms)) is not None:
        yield sizes
    if traced:
        yield _over_time(f"{name}-depth", title, traced)


def _sizes_figure(name: str, title: str, arms: Sequence[TrainingArm]) -> Figure | None:
    """Return the reads of a step by their size; ``None`` where none was traced."""
    drawn = [(arm, own) for arm in arms if (own := _classes(arm))]
    if not drawn:
        return None
    roles = dict(zip((words for _, words in _SIZES), PART_ROLES, strict=False))
    scale = scale_for(Unit.COUNT)
    bars = [
        Bar(
            label=arm.title,
            role="device",
            value=sum(own.values()),
            parts=[
                (roles[words], f"{words}: {percent(reads / sum(own.values()))}", reads)
                for words, reads in own.items()
                if reads
            ],
            note=f"mean {quantity(mean, Unit.BYTES, 3)}"
            if (mean := arm.middle(lambda run: run.profile.mean_read_bytes))
            else "",
        )
        for arm, own in drawn
    ]
    return Figure(
        name=name,
        title=f"{title}: request sizes at the drive",
        svg=bars_svg("reads per step", bars, scale),
        caption="Reads as the block layer sent them to the drive, in untimed steps of their own.",
        table=Table(
            columns=columns("size", *(f"#{arm.title}" for arm, _ in drawn)),
            rows=[
                row(words, *(percent(own[words] / sum(own.values())) for _, own in drawn))
                for _, words in _SIZES
            ],
            caption="Share of reads by size",
        ),
        legend=[
            (roles[words], words) for _, words in _SIZES if any(own[words] for _, own in drawn)
        ],
    )


def _classes(arm: TrainingArm) -> dict[str, float]:
    """Return the reads of a step in each class of sizes, over all runs; empty without any."""
    counts = dict.fromkeys((words for _, words in _SIZES), 0.0)
    steps = sum(run.profile.steps for run in arm.runs if run.profile.sizes)
    for size, reads in (each for run in arm.runs for each in run.profile.sizes):
        counts[next(words for most, words in _SIZES if size <= most)] += reads / max(steps, 1)
    return counts if any(counts.values()) else {}


def _over_time(name: str, title: str, traced: Sequence[tuple[str, str, Requests]]) -> Figure:
    panels, rows = [], []
    edges = [reads.edges_s(_BINS) for _, _, reads in traced]
    depths = [reads.depth(own) for (_, _, reads), own in zip(traced, edges, strict=True)]
    rates = [reads.bytes_per_s(own) for (_, _, reads), own in zip(traced, edges, strict=True)]
    deepest = max(float(depth.max()) for depth in depths)
    fastest = max(float(rate.max()) for rate in rates)
    scale = scale_for(Unit.BYTES_PER_SECOND, fastest)
    for (letter, arm, reads), own, depth, rate in zip(traced, edges, depths, rates, strict=True):
        x = Axis(low=0, high=reads.seconds, unit="s")
        role = arm_role(letter) if letter else "read"
        for what, values, high, unit in (
            ("reads in flight", depth, deepest, ""),
            (f"bandwidth, {scale.unit}", rate / scale.factor, fastest / scale.factor, scale.unit),
        ):
            frame = Frame(
                x, Axis(low=0, high=high * _HEADROOM, unit=unit), height=_LOW,
                title=f"{arm}: {what}",
            )  # fmt: skip
            frame.steps(own, values, role, what)
            panels.append(frame.svg(f"{arm}: {what} over time", "half"))
        every = max(_BINS // _TABLE_ROWS, 1)
        rows += [
            row(
                arm,
                number(float(own[index]), 3),
                number(float(depth[index : index + every].mean()), 3),
                scaled(float(rate[index : index + every].mean()), scale, 3),
            )
            for index in range(0, _BINS, every)
        ]
    return Figure(
        name=name,
        title=f"{title}: depth and bandwidth at the drive over time",
        svg="".join(panels),
        caption="Traced reads of the untimed steps, one run of each arm. Panels of depth "
        "share a scale, and so do those of bandwidth; seconds differ by arm. Depth is the "
        "mean number of reads in flight.",
        table=Table(
            columns=columns("arm", "#from, s", "#reads in flight", f"#bandwidth, {scale.unit}"),
            rows=rows,
            caption="Depth and bandwidth over time",
        ),
    )


def losses_figure(name: str, title: str, arms: Sequence[TrainingArm]) -> Figure | None:
    """Return the loss of one run of each arm over the steps; ``None`` where no model was trained.

    Equal batches give equal losses, on one kind of trainer: such arms are one line.
    """
    known = [(arm, arm.runs[0].losses) for arm in arms if arm.runs and arm.runs[0].losses]
    known = [(arm, losses) for arm, losses in known if len(losses) > 1]
    if not known:
        return None
    first = np.array(known[0][1])
    is_same = len(known) > 1 and all(
        len(losses) == first.size and np.allclose(losses, first, rtol=_SAME_LOSS)
        for _, losses in known
    )
    drawn = known[:1] if is_same else known
    longest = max(len(losses) for _, losses in drawn)
    high = max(max(losses) for _, losses in drawn)
    ticks = round_ticks(0, longest - 1, 8)
    frame = Frame(
        Axis(low=0, high=longest - 1, at=[at for at in ticks if at.is_integer()]),
        Axis(low=0, high=(high or 1.0) * _HEADROOM),
        height=_LOW,
        x_title="step",
    )
    for arm, losses in drawn:
        role = "strong" if is_same or not arm.letter else arm_role(arm.letter)
        line = "all arms" if is_same else arm.title
        frame.line([float(step) for step in range(len(losses))], list(losses), role, line)
    ends = [
        f"{arm.title} {number(losses[0], 3)} to {number(losses[-1], 3)}" for arm, losses in known
    ]
    same = "All arms have the same losses: they trained on the same batches. " if is_same else ""
    return Figure(
        name=name,
        title=f"{title}: loss",
        svg=frame.svg(f"loss over steps: {'; '.join(ends)}", "half"),
        caption=f"{same}Labels follow from the features, so the loss falls only if the right rows "
        "arrive.",
        table=Table(
            columns=columns("arm", "#steps", "#first loss", "#last loss"),
            rows=[
                row(arm.title, whole(len(losses)), number(losses[0]), number(losses[-1]))
                for arm, losses in known
            ],
            caption="First and last loss",
        ),
        legend=[]
        if is_same or len(drawn) == 1
        else [(arm_role(arm.letter), arm.title) for arm, _ in drawn if arm.letter],
    )


@dataclass(frozen=True, slots=True)
class _Supplied:
    """One run over its timed steps: bandwidth of the drive by bin, and its power by sample."""

    track: Track
    edges_s: Array
    rate: Array
    time_s: Array
    watts: Array


def power_rate_figure(name: str, title: str, tracks: Sequence[Track]) -> Figure | None:
    """Return bandwidth and power of the drive on one axis of time, a panel for each arm.

    ``None`` where no run has both.
    """
    found = [each for each in map(_supplied, tracks) if each is not None]
    if not found:
        return None
    scale = scale_for(Unit.BYTES_PER_SECOND, *(float(each.rate.max()) for each in found))
    rates = Axis(
        low=0,
        high=max(scale.shown(float(each.rate.max())) for each in found) * _HEADROOM,
        unit=scale.unit,
    )
    most_w = max(float(np.nanmax(each.watts)) for each in found) * _HEADROOM
    right = second_axis(rates, most_w, "W")
    panels, rows = [], []
    for each in found:
        track = each.track
        arm = f"{track.letter}: " if len(tracks) > 1 else ""
        end_s = float(each.edges_s[-1])
        frame = Frame(
            Axis(low=0, high=end_s, unit="s"), rates, height=_HEIGHT, right=right,
            title=f"{arm}{track.name}",
        )  # fmt: skip
        frame.steps(each.edges_s, each.rate / scale.factor, "read", "bandwidth")
        factor = rates.high / right.high
        frame.line(each.time_s.tolist(), (each.watts * factor).tolist(), "power", dash="6 3")
        panels.append(frame.svg(f"{track.name}: bandwidth and power over time", "half"))
        mean_rate = float((each.rate * np.diff(each.edges_s)).sum() / end_s)
        rows.append(
            row(
                track.name,
                quantity(end_s, Unit.SECONDS, 3),
                scaled(mean_rate, scale, 3),
                number(float(np.nanmean(each.watts)), 3),
            )
        )
    return Figure(
        name=name,
        title=f"{title}: bandwidth and power of the drive",
        svg="".join(panels),
        caption="Bytes that the drive read in each step ÷ its seconds, left axis; power of the "
        "drive, dashed, right axis. Timed steps of one run of each arm; seconds differ by arm.",
        table=Table(
            columns=columns("arm", "#timed steps", f"#mean bandwidth, {scale.unit}", "#mean W"),
            rows=rows,
            caption="Bandwidth and power over the timed steps",
        ),
        legend=[("read", "bandwidth"), ("power", "power")],
    )


def _supplied(track: Track) -> _Supplied | None:
    steps = track.run.traces.steps
    lines = [line for line in track.timeline.watts if line.role == "power"]
    if steps is None or len(lines) != 1 or np.isnan(steps.storage_bytes).any():
        return None
    edges_s, rate = steps.rates(_BINS)
    host = track.run.record.windows[0].host if track.run.record.windows else ""
    clock = CommonClock(track.run.record)
    first_s = (int(steps.start_ns[0]) + clock.shift_ns(host)) / NS_PER_S
    since_s = lines[0].time_s - first_s
    inside = (since_s >= 0) & (since_s <= edges_s[-1])
    if not np.isfinite(lines[0].value[inside]).any() or not rate.any():
        return None
    time_s, watts = _means(since_s[inside], lines[0].value[inside])
    return _Supplied(track, edges_s, rate, time_s, watts)


def _means(time_s: Array, value: Array) -> tuple[Array, Array]:
    """Return the means of at most ``_BINS`` groups of successive samples, and their first times."""
    first = np.arange(0, value.size, -(-value.size // _BINS))
    known = ~np.isnan(value)
    counts = np.add.reduceat(known.astype(np.float64), first)
    sums = np.add.reduceat(np.where(known, value, 0.0), first)
    return time_s[first], np.where(counts > 0, sums / np.maximum(counts, 1.0), np.nan)
