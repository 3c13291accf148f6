"""Charts as inline SVG: layers, hatches, and rendering without JavaScript.

Hatches are drawn as strokes, because a pattern prints as a blurred picture.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape, unescape
from typing import Any, Literal, Self

import altair as alt
from pydantic_core import to_json

from wattload.reports.blocks import Figure, Table
from wattload.reports.charts.renderer import ChartError, renderer
from wattload.reports.charts.themes import HATCHES, Hatch, configuration, light, tint
from wattload.reports.sanitize import escape_unseen, sanitize

_NUMBER = r"-?[0-9.]+"
_RECTANGLE = re.compile(
    rf'<path d="M({_NUMBER}),({_NUMBER})h({_NUMBER})v({_NUMBER})h{_NUMBER}Z" '
    r'fill="(#[0-9a-f]{6})"([^>]*)/>'
)
_DOTTED = ' stroke-dasharray="0 {}" stroke-linecap="round"'

Rows = list[dict[str, Any]]
"""What a layer of a chart is drawn from."""
Data = dict[str, Rows]
"""The rows of a chart by the names that its layers give them."""

_ROOT = re.compile(r"^<svg [^>]*?width=\"([0-9.]+)\" height=\"([0-9.]+)\"[^>]*>")
_TAG = re.compile(r"<[^>]+>")
_UNUSED_ATTRIBUTES = re.compile(
    r' (?:pointer-events|aria-hidden|aria-roledescription|role|class)="[^"]*"|'
    r' opacity="1"(?=[ />])'
)
_PATH = re.compile(r'(?<= d=")[^"]*')
_DECIMALS = re.compile(r"(\d+\.\d)\d+")
_LONG_TEXT = re.compile(r'(?<=>)[^<]{161,}(?=</text>)|(?<=aria-label=")[^"]{161,}(?=")')
_EMPTY_PATH = re.compile(r'<path(?: transform="[^"]*")? d="(?:M0,0h0v0h0Z)?"(?: display="none")?/>')


def marker_colour(role: str) -> str:
    """Return the colour that a role's bars are drawn in before they are hatched.

    It differs from the role's own colour in one bit, and no other mark has it.
    """
    return f"#{int(light(role)[1:], 16) ^ 1:06x}"


_ROLES = {marker_colour(role): role for role in HATCHES}


def draw_hatches(svg: str) -> str:
    """Return a chart in which every bar of a hatched role has its hatch.

    A mark in such a role that is not a rectangle gets the role's plain colour.
    """
    svg = _RECTANGLE.sub(_hatch_bar, svg)
    for colour, role in _ROLES.items():
        svg = svg.replace(f'"{colour}"', f'"{light(role)}"')
    return svg


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A bar in pixels: its upper left corner and its size, both sides 0 or more."""

    x: float
    y: float
    width: float
    height: float


def _hatch_bar(found: re.Match[str]) -> str:
    *numbers, colour, rest = found.groups()
    role = _ROLES.get(colour)
    if role is None:
        return found.group()
    x, y, width, height = map(float, numbers)
    bar = Rectangle(min(x, x + width), min(y, y + height), abs(width), abs(height))
    hatch, own = HATCHES[role], light(role)
    outline = rest or f' stroke="{own}"'
    shape = f'd="M{_short(x)},{_short(y)}h{_short(width)}v{_short(height)}h{_short(-width)}Z"'
    strokes = "".join(_STROKES[hatch.kind](bar, hatch))
    return (
        f'<path {shape} fill="{tint(role).light}"/>'
        f'<path d="{strokes}" fill="none" stroke="{own}" stroke-width="{hatch.width}"'
        f"{_DOTTED.format(hatch.period) if hatch.kind == 'dots' else ''}/>"
        f'<path {shape} fill="none"{outline}/>'
    )


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0").replace("-0.0", "0")


def _steps(length: float, period: float) -> Iterator[float]:
    """Yield the positions of strokes along a side; they do not depend on where the bar is."""
    count = int((length + period / 2) // period)
    return (period / 2 + index * period for index in range(count))


def _slash(bar: Rectangle, hatch: Hatch) -> Iterator[str]:
    for at in _steps(bar.width + bar.height, hatch.period):
        x, y = max(0.0, at - bar.height), min(at, bar.height)
        length = min(at, bar.width) - x
        yield f"M{_short(bar.x + x)},{_short(bar.y + y)}l{_short(length)},{_short(-length)}"


def _backslash(bar: Rectangle, hatch: Hatch) -> Iterator[str]:
    for at in _steps(bar.width + bar.height, hatch.period):
        x, y = max(0.0, at - bar.height), max(0.0, bar.height - at)
        length = min(at, bar.width) - x
        yield f"M{_short(bar.x + x)},{_short(bar.y + y)}l{_short(length)},{_short(length)}"


def _level(bar: Rectangle, hatch: Hatch) -> Iterator[str]:
    for at in _steps(bar.height, hatch.period):
        yield f"M{_short(bar.x)},{_short(bar.y + at)}h{_short(bar.width)}"


def _upright(bar: Rectangle, hatch: Hatch) -> Iterator[str]:
    for at in _steps(bar.width, hatch.period):
        yield f"M{_short(bar.x + at)},{_short(bar.y)}v{_short(bar.height)}"


def _grid(bar: Rectangle, hatch: Hatch) -> Iterator[str]:
    yield from _level(bar, hatch)
    yield from _upright(bar, hatch)


def _dots(bar: Rectangle, hatch: Hatch) -> Iterator[str]:
    """Yield a line for each row; dashes of no length with round ends make it dots."""
    room = bar.width - hatch.period
    for at in _steps(bar.height, hatch.period):
        if room > 0:
            x = bar.x + hatch.period / 2
            yield f"M{_short(x)},{_short(bar.y + at)}h{_short(room + 0.1)}"


_STROKES: Mapping[str, Callable[[Rectangle, Hatch], Iterator[str]]] = {
    "slash": _slash,
    "backslash": _backslash,
    "level": _level,
    "upright": _upright,
    "grid": _grid,
    "dots": _dots,
}


class _Uncopied:
    def copy(self, deep: bool | Iterable[Any] = True, ignore: list[str] | None = None) -> Self:
        """Return the chart itself, whatever the arguments."""
        del deep, ignore
        return self


class Layers(_Uncopied, alt.LayerChart):
    """Charts over each other."""


class Grid(_Uncopied, alt.ConcatChart):
    """Panels in rows of a fixed number of columns."""


class HorizontalPanels(_Uncopied, alt.HConcatChart):
    """Panels from left to right."""


class VerticalPanels(_Uncopied, alt.VConcatChart):
    """Panels from top to bottom."""


def layer_charts(
    layers: Sequence[alt.Chart], *, width: int, height: int, title: alt.TitleParams | None = None
) -> alt.LayerChart:
    """Return charts over each other, the first at the bottom; width and height are in pixels."""
    heading = alt.Undefined if title is None else title
    panel = Layers(width=width, height=height, title=heading)
    panel.layer = list(layers)  # given to the class, they would be copied
    return panel


def join_panels(
    way: Literal["concat", "hconcat", "vconcat"],
    panels: Sequence[alt.TopLevelMixin],
    **settings: Any,
) -> alt.TopLevelMixin:
    """Return panels as one chart, like Altair's function of the same name as ``way``."""
    classes = {"concat": Grid, "hconcat": HorizontalPanels, "vconcat": VerticalPanels}
    chart: alt.TopLevelMixin = classes[way](**settings)
    setattr(chart, way, list(panels))
    return chart


def fill_of(role: str) -> str:
    """Return the colour to fill a role's bars with: ``make_figure`` replaces it where hatched."""
    return marker_colour(role) if role in HATCHES else light(role)


def make_figure(
    chart: alt.TopLevelMixin,
    data: Mapping[str, Rows],
    *,
    name: str,
    title: str,
    caption: str,
    table: Table,
    sentences: Sequence[str] = (),
    legend: Sequence[tuple[str, str]] = (),
) -> Figure:
    """Return a chart with its caption and its data as a table, or why it can't be drawn.

    Args:
        chart: a chart over named data.
        data: the rows by the name that the chart gives them.
        name: unique on the page.
        title: what the chart is, for readers who cannot see it.
        caption: what it shows.
        table: all that is drawn.
        sentences: the figures in words, for readers who cannot see the chart.
        legend: pairs of a role and what it means.
    """
    description = " ".join([caption, *sentences])
    svg = missing = ""
    try:
        svg = render(chart, data, name=name, title=title, description=description)
    except ChartError as error:
        missing = str(error)
    return Figure(name=name, svg=svg, missing=missing, caption=caption, table=table, legend=legend)


def render(
    chart: alt.TopLevelMixin,
    data: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    name: str,
    title: str,
    description: str,
) -> str:
    """Return a chart as an ``<svg>`` element with ``<title>`` and ``<desc>``.

    Args:
        chart: a chart over named data, so that Altair does not validate every row.
        data: the rows by the name that the chart gives them.
        name: unique on the page; ids in the SVG begin with it.
        title: what the chart is.
        description: what it shows, for readers who cannot see it.

    Raises:
        ChartError: it can't be drawn.
    """
    document = chart.to_dict(validate=False)  # checked as it was built, channel by channel
    document["config"] = configuration()
    document["datasets"] = {key: list(rows) for key, rows in data.items()}
    try:
        encoded = to_json(document, inf_nan_mode="null")
    except ValueError as error:
        raise ChartError(
            f"This chart is missing: it has text that is not Unicode ({error})."
        ) from error
    svg = renderer().draw(encoded)
    return _labelled(_TAG.sub(_compact_tag, svg), name, title, description)


def _compact_tag(tag: re.Match[str]) -> str:
    """Return a tag without what only Vega's scripts read, and paths to a tenth of a pixel."""
    text = tag.group()
    if text.startswith("<svg"):
        return text
    short = _UNUSED_ATTRIBUTES.sub("", text)
    return _PATH.sub(lambda path: _DECIMALS.sub(r"\1", path.group()), short)


def _labelled(svg: str, name: str, title: str, description: str) -> str:
    root = _ROOT.match(svg)
    if root is None:
        raise ChartError(f"This chart is missing: vl-convert made no SVG of {name}.")
    width, height = root.groups()
    body = escape_unseen(_EMPTY_PATH.sub("", svg[root.end() :]))
    body = draw_hatches(_LONG_TEXT.sub(_sanitized, body))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" '
        f'aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(sanitize(title))}</title>'
        f'<desc id="{name}-desc">{escape(sanitize(description))}</desc>'
        f"{body}"
    )


def _sanitized(text: re.Match[str]) -> str:
    return escape(sanitize(unescape(text.group())))
