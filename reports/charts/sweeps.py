"""Charts of sweeps: rates and latencies, with a line for each arm.

A sweep of several settings has a panel for each combination of those that are not on an axis.
Panels share their axes where their figures are comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from wattload.core.units import GB, Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.plot import Axis, Frame, Labels, second_axis
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
from wattload.results.quantity import (
    DIRECTIONS,
    Scale,
    number,
    percent,
    quantity,
    scale_for,
    scaled,
    whole,
)
from wattload.results.registry import results_of

PANELS_MAX = 9
"""A chart of more panels is hard to read: its data are then shown as a table only."""

_HEIGHT = 175
_ALIKE = 2.0
"""Panels whose largest values are within this factor have one scale."""
_LOG_FROM = 8.0
"""An axis whose largest number is so many times the smallest is logarithmic."""
_NEAR = 2.5
"""Ceilings up to this factor above the rates are in their chart; farther ones would flatten it."""
_IDEAL_STEPS = 32
_POWER_DASH = "8 3 2 3"
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


def rates_figure(name: str, subject: str, found: Sequence[Scaling]) -> Figure:
    """Return rates over one setting: several of them, or the panels of one."""
    labels = dict.fromkeys(each.label for each in found)
    tops = [_highest_rate(each) for each in found]
    highest = _highest(found, tops) if len(labels) == 1 else tops
    axis = label(found[0].axis)
    captions = [
        "Lines connect the geometric means of valid runs, as in the ratios; a dot is one run.",
        f"{DIRECTIONS[found[0].better].capitalize()}.",
        _scales(highest) if len(labels) == 1 else "",
        *map(_ideal_caption, found),
        *(caption for each in found for caption in _ceiling_captions(each)),
        *("Dash-dotted, right axis: mean power of the drives." for each in found if each.watts),
    ]
    return Figure(
        name=name,
        title=f"{subject}: {next(iter(labels)) if len(labels) == 1 else 'rates'} over {axis}",
        svg="".join(
            _rate_panel(each, most, found) for each, most in zip(found, highest, strict=True)
        ),
        caption=" ".join(dict.fromkeys(filter(None, captions))),
        table=_rate_table(found),
        legend=_legend(found),
    )


def _rate_panel(each: Scaling, most: float, found: Sequence[Scaling]) -> str:
    shown = scale_for(each.unit, most)
    numbers = sorted({point.number for curve in each.curves for point in curve.points})
    pad = (numbers[-1] - numbers[0]) * 0.06
    is_log = numbers[-1] / numbers[0] >= _LOG_FROM
    ends = (
        (numbers[0] / 1.2, numbers[-1] * 1.2) if is_log else (numbers[0] - pad, numbers[-1] + pad)
    )
    rates = Axis(low=0, high=shown.shown(most) * 1.15, unit=shown.unit)
    is_large = each.axis.endswith("_bytes") and numbers[-1] >= GB
    frame = Frame(
        Axis(low=ends[0], high=ends[1], log=is_log, at=numbers, factor=GB if is_large else 1),
        rates,
        height=_HEIGHT,
        right=_power_axis(found, rates) if each.watts else None,
        title=", ".join(filter(None, (each.panel.name or each.label, shown.unit))),
        x_title=label(each.axis) + ", GB" * is_large,
    )
    _draw_ceilings(frame, each, shown)
    _draw_power(frame, each)
    words = []
    for curve in each.curves:
        if _has_ideal(each):
            _draw_ideal(frame, curve, numbers[-1], shown)
        ys = _draw_rates(frame, curve, shown)
        words.append(f"{curve.letter}: {', '.join(number(y, 3) for y in ys)}")
    where = ", ".join(filter(None, (each.panel.name, shown.unit)))
    return frame.svg(
        f"{each.label} over {label(each.axis)}, {where}. {'; '.join(words)}",
        "third" if each.panel.name else "",
    )


def _draw_rates(frame: Frame, curve: ScaleCurve, shown: Scale) -> list[float]:
    """Draw an arm's means, and its runs where there are several; return the means as shown."""
    role = arm_role(curve.letter)
    ys = [shown.shown(point.mean) for point in curve.points]
    frame.line([point.number for point in curve.points], ys, role)
    for point, y in zip(curve.points, ys, strict=True):
        for rate in point.rates if len(point.rates) > 1 else ():
            at = shown.shown(rate)
            frame.mark(point.number, at, role, f"{number(at, 3)} {shown.unit}", radius=2)
        tip = f"{curve.letter} at {number(point.number, 3)}: {number(y, 3)} {shown.unit}"
        frame.mark(point.number, y, role, tip, radius=3.5)
    return ys


def _ceilings(scaling: Scaling) -> list[tuple[str, tuple[tuple[float, float], ...]]]:
    """Return what bounds the rate, by its name: positions on the axis, and rates."""
    found = [(scaling.ceiling_text, scaling.ceilings)] if scaling.ceilings else []
    found += [
        (f"{bound.name}, without storage", tuple((at.number, at.mean) for at in bound.points))
        for bound in scaling.bounds
    ]
    return found


def _highest_rate(scaling: Scaling) -> float:
    """Return the largest value of a chart of rates: with the ceilings, unless they are far off."""
    rates = [rate for curve in scaling.curves for point in curve.points for rate in point.rates]
    every = [[value for _, value in own] for _, own in _ceilings(scaling)]
    near = [value for own in every if min(own) <= max(rates) * _NEAR for value in own]
    return max([*rates, *near])


def _draw_ceilings(frame: Frame, scaling: Scaling, shown: Scale) -> None:
    """Draw what bounds the rate as lines, where the chart reaches so high."""
    for name, own in _ceilings(scaling):
        inside = [(x, shown.shown(y)) for x, y in own if shown.shown(y) <= frame.y.high]
        xs, ys = [x for x, _ in inside], [y for _, y in inside]
        frame.line(xs, ys, "strong", name, dash="1 4", width=2.2)
        for x, y in inside:
            tip = f"{name} at {number(x, 3)}: {number(y, 3)} {shown.unit}"
            frame.mark(x, y, "strong", tip, radius=1.6)


def _ceiling_captions(scaling: Scaling) -> Iterator[str]:
    """Yield what the lines of ceilings are, or where they are if the chart does not reach them."""
    highest = _highest_rate(scaling)
    for name, own in _ceilings(scaling):
        least, most = (pick(value for _, value in own) for pick in (min, max))
        if least <= highest:
            yield f"Dotted: {name}."
        else:
            ends = [quantity(each, scaling.unit, 3) for each in (least, most)]
            over = f", over {label(scaling.axis)}" if ends[0] != ends[1] else ""
            yield f"Above the chart{over}: {name}, {' to '.join(dict.fromkeys(ends))}."


def _has_ideal(scaling: Scaling) -> bool:
    """Return whether a rate is beside its ideal; in panels only where that is the drives' best."""
    has_peak = any(curve.peak is not None for curve in scaling.curves)
    return scaling.is_count and (has_peak or not scaling.panel.name)


def _draw_ideal(frame: Frame, curve: ScaleCurve, last: float, shown: Scale) -> None:
    first = curve.points[0].number
    xs = [first * (last / first) ** (step / _IDEAL_STEPS) for step in range(_IDEAL_STEPS + 1)]
    ys = [shown.shown(curve.ideal(x)) for x in xs]
    kept = [y if y <= frame.y.high else None for y in ys]
    frame.line(xs, kept, arm_role(curve.letter), dash="5 4", width=1)


def _ideal_caption(scaling: Scaling) -> str:
    """Return what the line of ideal scaling is, or why a count has none."""
    axis = label(scaling.axis)
    if not _has_ideal(scaling):
        return scaling.note
    if any(curve.peak is not None for curve in scaling.curves):
        return f"Dashed: the best rate of a single drive, times the number of {axis}."
    return f"Dashed: the rate at the first value of {axis}, scaled in proportion."


def _power_axis(found: Sequence[Scaling], rates: Axis) -> Axis | None:
    """Return the axis of the drives' power, the same in all panels; ``None`` without power."""
    curves = [curve for each in found for curve in each.watts]
    most = max((point.mean for curve in curves for point in curve.points), default=0.0)
    return second_axis(rates, most, "W") if most > 0 else None


def _draw_power(frame: Frame, scaling: Scaling) -> None:
    """Draw the mean power of the drives of each arm on the right axis."""
    if frame.right is None:
        return
    factor = frame.y.high / frame.right.high
    for curve in scaling.watts:
        role = arm_role(curve.letter)
        xs = [point.number for point in curve.points]
        watts = [point.mean for point in curve.points]
        frame.line(xs, [value * factor for value in watts], role, dash=_POWER_DASH, width=1.4)
        for x, value in zip(xs, watts, strict=True):
            tip = f"{curve.letter} at {number(x, 3)}: drives {number(value, 3)} W"
            frame.mark(x, value * factor, role, tip, radius=3, hollow=True)


def _rate_table(found: Sequence[Scaling]) -> Table:
    tops: dict[str, float] = {}
    for each in found:
        tops[each.label] = max(tops.get(each.label, 0.0), _highest_rate(each))
    has_ideal = any(map(_has_ideal, found))
    has_peak = any(curve.peak is not None for each in found for curve in each.curves)
    has_watts = any(each.watts for each in found)
    rows = []
    for each in found:
        shown = scale_for(each.unit, tops[each.label])
        for curve in each.curves:
            for point in curve.points:
                ideal = curve.ideal(point.number) if _has_ideal(each) else None
                kept = percent(point.mean / ideal if ideal else None)
                cells = [each.label, shown.unit, curve.name, _swept(point.number)]
                cells.append(scaled(point.mean, shown))
                cells += [scaled(ideal, shown), kept] if has_ideal else []
                cells += [number(_watts(each, curve, point))] if has_watts else []
                rates = "; ".join(scaled(rate, shown) for rate in point.rates)
                rows.append(row(*_at(found, each), *cells, rates))
    kept = "#kept of the single-drive peak" if has_peak else "#kept of ideal"
    axis = label(found[0].axis)
    titles = [*_at_title(found), "rate", "unit", "arm", f"#{axis}", "#mean"]
    titles += ["#ideal", kept] if has_ideal else []
    titles += ["#power of the drives, W"] if has_watts else []
    return Table(columns=columns(*titles, "runs"), rows=rows, caption=f"Rates over {axis}")


def _watts(scaling: Scaling, of: ScaleCurve, at: RatePoint) -> float | None:
    """Return the power of an arm's drives at a point."""
    own = [curve for curve in scaling.watts if curve.letter == of.letter]
    points = (point for curve in own for point in curve.points if point.number == at.number)
    return next((point.mean for point in points), None)


def means_figure(
    name: str, subject: str, found: Sequence[LoadCurves], latencies: Mapping[str, str]
) -> Figure:
    """Return the mean latency over throughput, both linear, with the swept value at each point.

    ``latencies`` is how long operations of some kinds last, in words.
    """
    highest = _highest(found, [_most(each, lambda at: at.mean_s) for each in found])
    rates = _highest(found, [_most(each, lambda at: at.rate) for each in found])
    panels = []
    lacks_some = False
    for each, most, fastest in zip(found, highest, rates, strict=True):
        time, rate = scale_for(Unit.SECONDS, most), scale_for(each.unit, fastest)
        y = Axis(low=0, high=time.shown(most) * 1.2, unit=time.unit)
        frame = _latency_frame(each, rate, fastest, y)
        for curve in each.curves:
            values = [(at, at.mean_s) for at in curve.points]
            _latency_line(frame, each, curve.letter, values, (rate, time))
        labels = Labels(frame)
        for curve in each.curves:  # over all lines, so that none crosses a label
            for at in reversed(curve.points):
                labels.add(rate.shown(at.rate), time.shown(at.mean_s), at.value)
        lacks_some |= labels.lacks_some
        what = f"{subject}: mean latency over {each.rate_name}"
        panels.append(frame.svg(", ".join(filter(None, (what, each.panel.name))), "third"))
    captions = (
        f"Beside a point: {label(found[0].axis)}.",
        "Where points lie close, only some are named." if lacks_some else "",
        "Lower and further right is better.",
        _scales(highest),
        _failures(found),
        latencies.get(found[0].kind, ""),
    )
    return Figure(
        name=name,
        title=f"{subject}: mean latency{_of_kind(found)} over {found[0].rate_name}",
        svg="".join(panels),
        caption=" ".join(filter(None, captions)),
        table=_latency_table(found),
        legend=_legend(found),
    )


def tails_figure(name: str, subject: str, found: Sequence[LoadCurves]) -> Figure | None:
    """Return percentiles of latency over throughput; ``None`` where no run has any."""
    known = [each for each in found if _tails(each)]
    if not known:
        return None
    lowest, most = (pick(value for each in known for value in _tails(each)) for pick in (min, max))
    rates = _highest(known, [_most(each, lambda at: at.rate) for each in known])
    time = scale_for(Unit.SECONDS, (lowest * most) ** 0.5)
    y = Axis(low=time.shown(lowest) / 1.5, high=time.shown(most) * 2, unit=time.unit, log=True)
    panels = []
    for each, fastest in zip(known, rates, strict=True):
        rate = scale_for(each.unit, fastest)
        frame = _latency_frame(each, rate, fastest, y)
        for curve in each.curves:
            for share, dash in _DASHES.items():
                values = [(at, v) for at in curve.points if (v := at.percentiles_s.get(share))]
                name_ = f"{curve.letter} {share}"
                _latency_line(frame, each, name_, values, (rate, time), dash=dash, radius=2.5)
        what = f"{subject}: latency percentiles"
        panels.append(frame.svg(", ".join(filter(None, (what, each.panel.name))), "third"))
    captions = (
        "Solid p50, dashed p99, dotted p99.9; logarithmic axes of latency, the same in all panels.",
        f"A point is one value of {label(found[0].axis)}.",
        _failures(known),
    )
    return Figure(
        name=name,
        title=f"{subject}: p50, p99 and p99.9 latency{_of_kind(found)} over {found[0].rate_name}",
        svg="".join(panels),
        caption=" ".join(filter(None, captions)),
        table=_latency_table(known),
        legend=_legend(known),
    )


def _of_kind(found: Sequence[LoadCurves]) -> str:
    """Return which latency it is: of a kind of operation, in a phase that is not the whole job."""
    first = found[0]
    where = "" if results_of(first.phase) is not None else f" in {first.phase}"
    return f" of {first.kind}s{where}"


def _latency_frame(each: LoadCurves, rate: Scale, fastest: float, y: Axis) -> Frame:
    return Frame(
        Axis(low=0, high=rate.shown(fastest) * 1.1),
        y,
        height=_HEIGHT,
        title=f"{each.panel.name or 'latency'}, {y.unit}",
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
    dash: str = "",
    radius: float = 3.5,
) -> None:
    """Draw a line of an arm; ``name`` begins with the arm's letter."""
    role, (rate, time) = arm_role(name[0]), scales
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
    counts = (f"#{label(found[0].axis)}", "#runs", "#operations", f"#{_rate_title(found[0], rate)}")
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
    return "Hollow: reads failed, not compared." if any(at.has_failures for at in every) else ""


def _scales(highest: Sequence[float]) -> str:
    if len(highest) < 2:  # noqa: PLR2004 - a single panel
        return ""
    if len(set(highest)) == 1:
        return "All panels have one scale."
    return "Panels that differ in their last setting only have one scale."


def _legend(found: Sequence[Scaling] | Sequence[LoadCurves]) -> list[tuple[str, str]]:
    every = [curve for each in found for curve in each.curves]
    return list(dict.fromkeys((arm_role(curve.letter), curve.name) for curve in every))
