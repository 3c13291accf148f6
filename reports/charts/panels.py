"""Charts of sweeps over several settings: a panel for each combination, a line for each arm.

Panels share their axes where their figures are comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from wattload.core.units import Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.lines import (
    REQUESTS,
    ceiling_caption,
    draw_ceiling,
    draw_power,
    highest_rate,
    power_axis,
    power_caption,
)
from wattload.reports.charts.plot import Axis, Frame, Labels
from wattload.reports.charts.themes import arm_role
from wattload.reports.stats.sweeps import (
    PERCENTILES,
    LoadCurves,
    LoadPoint,
    Panel,
    RatePoint,
    ScaleCurve,
    Scaling,
)
from wattload.results.labels import label
from wattload.results.quantity import DIRECTIONS, Scale, number, percent, scale_for, scaled, whole
from wattload.results.reading import view_named

PANELS_MAX = 9
"""A chart of more panels is hard to read: its data are then shown as a table only."""

_HEIGHT = 175
_MEDIANS = "Points are medians of valid runs"
_ALIKE = 2.0
"""Panels whose largest values are within this factor have one scale."""
_LOG_FROM = 8.0
_MICROSECONDS_TO = 0.05
"""Mean latencies up to this many seconds are in µs, as papers print them."""
_DASHES: Mapping[str, str] = {"p50": "", "p99": "7 3", "p99.9": "2 2"}


class _HasPanel(Protocol):
    @property
    def panel(self) -> Panel: ...


def _highest(found: Sequence[_HasPanel], most: Sequence[float]) -> list[float]:
    """Return for each panel the largest value on its axis.

    It is that of all panels if these are within a factor, otherwise that of the panels that differ
    in their last setting only, such as the load.
    """
    if max(most) <= _ALIKE * min(most):
        return [max(most)] * len(most)
    groups: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for each, value in zip(found, most, strict=True):
        groups.setdefault(each.panel.at[:-1], []).append(value)
    return [max(groups[each.panel.at[:-1]]) for each in found]


def rate_panels(name: str, subject: str, found: Sequence[Scaling]) -> Figure:
    """Return a rate over one setting, with a panel for each combination of the others."""
    tops = [highest_rate(each) for each in found]
    highest, first = _highest(found, tops), found[0]
    panels = []
    for each, most in zip(found, highest, strict=True):
        shown = scale_for(each.unit, most)
        numbers = sorted({place.number for curve in each.curves for place in curve.places})
        is_log = numbers[-1] / numbers[0] >= _LOG_FROM
        pad = (numbers[-1] - numbers[0]) * 0.06
        ends = (
            (numbers[0] / 1.3, numbers[-1] * 1.3)
            if is_log
            else (numbers[0] - pad, numbers[-1] + pad)
        )
        rates = Axis(low=0, high=shown.shown(most) * 1.15, unit=shown.unit)
        frame = Frame(
            Axis(low=ends[0], high=ends[1], log=is_log, at=numbers),
            rates,
            height=_HEIGHT,
            right=power_axis(found, rates) if each.watts else None,
            title=_titled(each, shown),
            x_title=label(each.axis),
        )
        draw_ceiling(frame, each, shown)
        draw_power(frame, each)
        for curve in each.curves:
            _rate_line(frame, curve, shown)
        panels.append(
            frame.svg(f"{each.label} over {label(each.axis)}, {each.panel.name}", "third")
        )
    return Figure(
        name=name,
        title=f"{subject}: {first.label} over {label(first.axis)}",
        svg="".join(panels),
        caption=" ".join(
            filter(
                None,
                (
                    ", ".join(filter(None, (_MEDIANS, DIRECTIONS[first.better]))) + ".",
                    _scales(highest),
                    "".join(dict.fromkeys(map(ceiling_caption, found))).strip(),
                    "".join(dict.fromkeys(map(power_caption, found))).strip(),
                ),
            )
        ),
        table=_rate_table(found),
        legend=_legend(found),
    )


def _titled(each: Scaling, shown: Scale) -> str:
    return ", ".join(filter(None, (each.panel.name, shown.unit)))


def _rate_line(frame: Frame, curve: ScaleCurve, shown: Scale) -> None:
    role = arm_role(curve.letter)
    xs = [place.number for place in curve.places]
    ys = [shown.shown(place.middle) for place in curve.places]
    frame.line(xs, ys, role)
    for x, y in zip(xs, ys, strict=True):
        tip = f"{curve.letter} at {number(x, 3)}: {number(y, 3)} {shown.unit}"
        frame.mark(x, y, role, tip, radius=3)


def _rate_table(found: Sequence[Scaling]) -> Table:
    every: list[tuple[Scaling, ScaleCurve, RatePoint]] = [
        (each, curve, place) for each in found for curve in each.curves for place in curve.places
    ]
    shown = scale_for(found[0].unit, max(place.middle for _, _, place in every))
    axis = label(found[0].axis)
    has_peak = any(curve.peak is not None for _, curve, _ in every)
    has_watts = any(each.watts for each in found)
    return Table(
        columns=columns(
            *_at_title(found),
            "arm",
            f"#{axis}",
            f"#median, {shown.unit}",
            *(["#kept of the single-drive peak"] if has_peak else []),
            *(["#power of the drives, W"] if has_watts else []),
            "runs",
        ),
        rows=[
            row(
                *_at(found, each),
                curve.name,
                _swept(place.number),
                scaled(place.middle, shown),
                *([percent(place.middle / curve.ideal(place.number))] if has_peak else []),
                *([number(_watts(each, curve, place))] if has_watts else []),
                "; ".join(scaled(rate, shown) for rate in place.rates),
            )
            for each, curve, place in every
        ],
        caption=f"{found[0].label} over {axis}",
    )


def _watts(scaling: Scaling, of: ScaleCurve, at: RatePoint) -> float | None:
    """Return the power of an arm's drives at a point."""
    own = [curve for curve in scaling.watts if curve.letter == of.letter]
    places = (place for curve in own for place in curve.places if place.number == at.number)
    return next((place.middle for place in places), None)


def mean_panels(name: str, subject: str, found: Sequence[LoadCurves]) -> Figure:
    """Return the mean latency over throughput, both linear, with the swept value at each point."""
    highest = _highest(found, [_most(each, lambda at: at.mean_s) for each in found])
    rates = _highest(found, [_most(each, lambda at: at.rate) for each in found])
    panels = []
    for each, most, fastest in zip(found, highest, rates, strict=True):
        time = Scale(1e-6, "µs") if most < _MICROSECONDS_TO else Scale(1e-3, "ms")
        rate = scale_for(each.unit, fastest)
        frame = _latency_frame(
            each, rate, fastest, Axis(low=0, high=time.shown(most) * 1.2, unit=time.unit)
        )
        labels = Labels(frame)
        for curve in each.curves:
            _latency_line(
                frame,
                each,
                curve.letter,
                [(at, at.mean_s) for at in curve.points],
                (rate, time),
            )
        for curve in each.curves:  # over all lines, so that none crosses a label
            for at in reversed(curve.points):
                labels.add(rate.shown(at.rate), time.shown(at.mean_s), at.value)
        panels.append(
            frame.svg(f"{subject}: mean latency over {each.rate_name}, {each.panel.name}", "third")
        )
    axis = label(found[0].axis)
    return Figure(
        name=name,
        title=f"{subject}: mean latency{_of_kind(found)} over {found[0].rate_name}",
        svg="".join(panels),
        caption=f"Beside a point: {axis}. Lower and further right is better. {_scales(highest)}"
        f"{_failures(found)}{REQUESTS if found[0].kind == 'request' else ''}",
        table=_latency_table(found),
        legend=_legend(found),
    )


def tail_panels(name: str, subject: str, found: Sequence[LoadCurves]) -> Figure | None:
    """Return percentiles of latency over throughput; ``None`` where no run has any."""
    known = [each for each in found if _tails(each)]
    if not known:
        return None
    lowest, most = (pick(value for each in known for value in _tails(each)) for pick in (min, max))
    rates = _highest(known, [_most(each, lambda at: at.rate) for each in known])
    panels = []
    for each, fastest in zip(known, rates, strict=True):
        time = scale_for(Unit.SECONDS, (lowest * most) ** 0.5)
        rate = scale_for(each.unit, fastest)
        y = Axis(low=time.shown(lowest) / 1.5, high=time.shown(most) * 2, unit=time.unit, log=True)
        frame = _latency_frame(each, rate, fastest, y)
        for curve in each.curves:
            for share, dash in _DASHES.items():
                values = [(at, v) for at in curve.points if (v := at.percentiles_s.get(share))]
                _latency_line(
                    frame,
                    each,
                    f"{curve.letter} {share}",
                    values,
                    (rate, time),
                    role=arm_role(curve.letter),
                    dash=dash,
                    radius=2.5,
                )
        panels.append(frame.svg(f"{subject}: latency percentiles, {each.panel.name}", "third"))
    return Figure(
        name=name,
        title=f"{subject}: p50, p99 and p99.9 latency{_of_kind(found)} over {found[0].rate_name}",
        svg="".join(panels),
        caption="Solid p50, dashed p99, dotted p99.9; logarithmic axes of latency, the same in all "
        f"panels. A point is one value of {label(found[0].axis)}.{_failures(known)}",
        table=_latency_table(known),
        legend=_legend(known),
    )


def _of_kind(found: Sequence[LoadCurves]) -> str:
    """Return which latency it is of a workload that has several; empty for others."""
    first = found[0]
    is_counted = view_named(first.phase).sweep is not None
    return f" of {first.kind}s" if is_counted else ""


def _latency_frame(each: LoadCurves, rate: Scale, fastest: float, y: Axis) -> Frame:
    return Frame(
        Axis(low=0, high=rate.shown(fastest) * 1.1),
        y,
        height=_HEIGHT,
        title=f"{each.panel.name}, {y.unit}".removeprefix(", "),
        x_title=_rate_title(each, rate),
    )


def _rate_title(each: LoadCurves, rate: Scale) -> str:
    return rate.unit if each.is_of_bytes else f"{each.rate_name}, {rate.unit}"


def _latency_line(
    frame: Frame,
    each: LoadCurves,
    name: str,
    values: Sequence[tuple[LoadPoint, float]],
    scales: tuple[Scale, Scale],
    *,
    role: str = "",
    dash: str = "",
    radius: float = 3.5,
) -> None:
    role, (rate, time) = role or arm_role(name), scales
    xs = [rate.shown(at.rate) for at, _ in values]
    ys = [time.shown(value) for _, value in values]
    if each.has_lines:
        frame.line(xs, ys, role, dash=dash)
    for (at, _), x, y in zip(values, xs, ys, strict=True):
        tip = (
            f"{name}, {label(each.axis)} {at.value}: {number(y, 3)} {time.unit} at "
            f"{number(x, 3)} {rate.unit}"
        )
        frame.mark(x, y, role, tip, radius=radius, hollow=at.has_failures)


def _latency_table(found: Sequence[LoadCurves]) -> Table:
    every = [(each, curve, at) for each in found for curve in each.curves for at in curve.points]
    rate = scale_for(found[0].unit, max(at.rate for _, _, at in every))
    time = scale_for(Unit.SECONDS, max(at.mean_s for _, _, at in every))
    titles = [f"#{name}, {time.unit}" for name in ("mean", *PERCENTILES)]
    rate_title = _rate_title(found[0], rate)
    counts = (f"#{label(found[0].axis)}", "#runs", "#operations", f"#{rate_title}")
    heads = (*_at_title(found), "arm", *counts)
    return Table(
        columns=columns(*heads, *titles),
        rows=[
            row(
                *_at(found, each),
                curve.name,
                at.value,
                whole(at.run_count),
                whole(at.operation_count),
                scaled(at.rate, rate),
                scaled(at.mean_s, time),
                *(scaled(at.percentiles_s.get(share), time) for share in PERCENTILES),
            )
            for each, curve, at in every
        ],
        caption=found[0].basis,
    )


def _at_title(found: Sequence[Scaling] | Sequence[LoadCurves]) -> list[str]:
    """Return the title of the column of panels; none where no panel has a name."""
    return ["at"] if any(each.panel.name for each in found) else []


def _at(found: Sequence[Scaling] | Sequence[LoadCurves], each: Scaling | LoadCurves) -> list[str]:
    return [each.panel.name] if _at_title(found) else []


def _swept(value: float) -> str:
    """Return a value of a swept setting; counts have no decimals."""
    return whole(value) if value.is_integer() else number(value)


def _most(each: LoadCurves, value: Callable[[LoadPoint], float]) -> float:
    return max(value(at) for curve in each.curves for at in curve.points)


def _tails(each: LoadCurves) -> list[float]:
    every = [at.percentiles_s for curve in each.curves for at in curve.points]
    return [value for own in every for value in own.values() if value]


def _failures(found: Sequence[LoadCurves]) -> str:
    every = [at for each in found for curve in each.curves for at in curve.points]
    return " Hollow: reads failed, not compared." if any(at.has_failures for at in every) else ""


def _scales(highest: Sequence[float]) -> str:
    if len(highest) < 2:  # noqa: PLR2004 - a single panel
        return ""
    if len(set(highest)) == 1:
        return "All panels have one scale."
    return "Panels that differ in their last setting only have one scale."


def _legend(found: Sequence[Scaling] | Sequence[LoadCurves]) -> list[tuple[str, str]]:
    every = [curve for each in found for curve in each.curves]
    return list(dict.fromkeys((arm_role(curve.letter), curve.name) for curve in every))
