"""Values over steps and over time, of one run of each arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattload.core.units import NS_PER_S, Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.plot import Axis, Frame, round_ticks, second_axis
from wattload.reports.charts.themes import arm_role
from wattload.reports.charts.timeline import Track
from wattload.reports.runs.phases import CommonClock
from wattload.results.quantity import number, quantity, scale_for, scaled, whole
from wattload.results.shapes import Curves, StepPanels, Steps, Supply, SupplyPanels

Array = NDArray[np.float64]

_BINS = 160
_TABLE_ROWS = 20
_SAME = 1e-6
_HEIGHT, _LOW = 130, 110
_HEADROOM = 1.12


def step_panels_figure(chart: StepPanels) -> Figure:
    """Return a panel for each value over time; those of one quantity share a scale."""
    highest: dict[str, float] = {}
    for panel in chart.panels:
        highest[panel.what] = max(highest.get(panel.what, 0.0), float(panel.values.max()))
    panels = []
    for panel in chart.panels:
        scale = scale_for(panel.unit, highest[panel.what])
        what = f"{panel.what}, {scale.unit}" if scale.unit else panel.what
        frame = Frame(
            Axis(low=0, high=float(panel.edges_s[-1]), unit="s"),
            Axis(low=0, high=highest[panel.what] / scale.factor * _HEADROOM, unit=scale.unit),
            height=_LOW,
            title=f"{panel.title}: {what}",
        )
        role = arm_role(panel.letter) if panel.letter else "read"
        frame.steps(panel.edges_s, panel.values / scale.factor, role, what)
        panels.append(frame.svg(f"{panel.title}: {what} over time", "half"))
    return Figure(
        name=chart.name,
        title=chart.title,
        svg="".join(panels),
        caption=chart.caption,
        table=_panels_table(chart, highest),
    )


def _panels_table(chart: StepPanels, highest: Mapping[str, float]) -> Table:
    """Return means over equal parts of the time."""
    scales = {panel.what: scale_for(panel.unit, highest[panel.what]) for panel in chart.panels}
    by_arm: dict[str, list[Steps]] = {}
    for panel in chart.panels:
        by_arm.setdefault(panel.title, []).append(panel)
    rows = []
    for arm, panels in by_arm.items():
        count = panels[0].values.size
        each = max(count // _TABLE_ROWS, 1)
        for index in range(0, count, each):
            means = [
                scaled(float(panel.values[index : index + each].mean()), scales[panel.what], 3)
                for panel in panels
            ]
            rows.append(row(arm, number(float(panels[0].edges_s[index]), 3), *means))
    titles = [f"#{what}, {scale.unit}".removesuffix(", ") for what, scale in scales.items()]
    return Table(columns=columns("arm", "#from, s", *titles), rows=rows, caption="Means over time")


def curves_figure(chart: Curves) -> Figure:
    """Return lines over numbered steps; equal ones are one line."""
    first = np.array(chart.curves[0].values)
    is_same = len(chart.curves) > 1 and all(
        len(curve.values) == first.size and np.allclose(curve.values, first, rtol=_SAME)
        for curve in chart.curves
    )
    drawn = chart.curves if not is_same else [replace(chart.curves[0], letter="", title="all arms")]
    longest = max(len(curve.values) for curve in drawn)
    high = max(max(curve.values) for curve in drawn)
    ticks = round_ticks(0, longest - 1, 8)
    frame = Frame(
        Axis(low=0, high=longest - 1, at=[at for at in ticks if at.is_integer()]),
        Axis(low=0, high=(high or 1.0) * _HEADROOM),
        height=_LOW,
        x_title=chart.over,
    )
    for curve in drawn:
        role = arm_role(curve.letter) if curve.letter else "strong"
        frame.line([float(step) for step in range(len(curve.values))], list(curve.values), role,
                   curve.title)  # fmt: skip
    ends = [
        f"{curve.title} {number(curve.values[0], 3)} to {number(curve.values[-1], 3)}"
        for curve in chart.curves
    ]
    return Figure(
        name=chart.name,
        title=chart.title,
        svg=frame.svg(f"{chart.what} over {chart.over}s: {'; '.join(ends)}", "half"),
        caption=" ".join(filter(None, (chart.same if is_same else "", chart.caption))),
        table=Table(
            columns=columns(
                "arm", f"#{chart.over}s", f"#first {chart.what}", f"#last {chart.what}"
            ),
            rows=[
                row(
                    curve.title,
                    whole(len(curve.values)),
                    number(curve.values[0]),
                    number(curve.values[-1]),
                )
                for curve in chart.curves
            ],
            caption=f"First and last {chart.what}",
        ),
        legend=[(arm_role(each.letter), each.title) for each in drawn if each.letter]
        if len(drawn) > 1
        else [],
    )


@dataclass(frozen=True, slots=True)
class _Supplied:
    """One run: bandwidth of the drive by bin, and its power by sample."""

    track: Track
    edges_s: Array
    rate: Array
    time_s: Array
    watts: Array


def supply_figure(chart: SupplyPanels, tracks: Sequence[Track]) -> Figure | None:
    """Return bandwidth and power of the drive on one axis of time, a panel for each run.

    ``None`` where no run has both.
    """
    found = [
        each
        for panel in chart.panels
        if (each := _supplied(panel, tracks[panel.track])) is not None
    ]
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
        name=chart.name,
        title=chart.title,
        svg="".join(panels),
        caption=chart.caption,
        table=Table(
            columns=columns("arm", f"#{chart.span}", f"#mean bandwidth, {scale.unit}", "#mean W"),
            rows=rows,
            caption=f"Bandwidth and power over the {chart.span}",
        ),
        legend=[("read", "bandwidth"), ("power", "power")],
    )


def _supplied(panel: Supply, track: Track) -> _Supplied | None:
    lines = [line for line in track.timeline.watts if line.role == "power"]
    if len(lines) != 1 or np.isnan(panel.bytes_per_s).any() or not panel.bytes_per_s.any():
        return None
    host = track.run.record.windows[0].host if track.run.record.windows else ""
    start_ns = int(panel.edges_ns[0])
    edges_s = (panel.edges_ns - start_ns) / NS_PER_S
    since_s = lines[0].time_s - CommonClock(track.run.record).seconds(host, start_ns)
    inside = (since_s >= 0) & (since_s <= edges_s[-1])
    if not np.isfinite(lines[0].value[inside]).any():
        return None
    time_s, watts = _means(since_s[inside], lines[0].value[inside])
    return _Supplied(track, edges_s, panel.bytes_per_s, time_s, watts)


def _means(time_s: Array, value: Array) -> tuple[Array, Array]:
    """Return the means of at most ``_BINS`` groups of successive samples, and their first times."""
    first = np.arange(0, value.size, -(-value.size // _BINS))
    known = ~np.isnan(value)
    counts = np.add.reduceat(known.astype(np.float64), first)
    sums = np.add.reduceat(np.where(known, value, 0.0), first)
    return time_s[first], np.where(counts > 0, sums / np.maximum(counts, 1.0), np.nan)
