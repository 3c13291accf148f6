"""From a Vega-Lite chart to inline SVG: named, hatched, and the same bytes each time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape, unescape
from typing import TYPE_CHECKING, Any

from wattload.reports.plain import exact, plain
from wattload.reports.themes import HATCHES, configuration, light

if TYPE_CHECKING:
    import altair as alt

VEGALITE_VERSION = "6.4"
Rows = Sequence[Mapping[str, Any]]

HATCHED = {f"hatch-{role}": role for role in HATCHES}
"""Name of a hatch to the role that colours it; ``hatch_fill`` is drawn, then replaced."""

_HATCH_FILLS = {name: f"#{int(light(role)[1:], 16) ^ 1:06x}" for name, role in HATCHED.items()}
"""The role's colour but for one bit: no plain mark is drawn in it."""

_ROOT = re.compile(r"^<svg [^>]*?width=\"([0-9.]+)\" height=\"([0-9.]+)\"[^>]*>")
_TAG = re.compile(r"<[^>]+>")
_CHATTER = re.compile(
    r' (?:pointer-events|aria-hidden|aria-roledescription|role|class)="[^"]*"|'
    r' opacity="1"(?=[ />])'
)
_PATH = re.compile(r'(?<= d=")[^"]*')
_DECIMALS = re.compile(r"(\d+\.\d)\d+")
_LONG_TEXT = re.compile(r'(?<=>)[^<]{161,}(?=</text>)|(?<=aria-label=")[^"]{161,}(?=")')
_NOTHING = re.compile(r'<path(?: transform="[^"]*")? d="(?:M0,0h0v0h0Z)?"(?: display="none")?/>')


def hatch_fill(name: str) -> str:
    """Return the colour to draw a hatched mark in: the hatch takes its place in the SVG."""
    return _HATCH_FILLS[name]


def fill_of(role: str) -> str:
    """Return what to fill a role's bars and areas with: its hatch, or its plain colour."""
    return _HATCH_FILLS.get(f"hatch-{role}") or light(role)


def layered(
    layers: Sequence[alt.Chart], *, width: int, height: int, title: alt.TitleParams | None = None
) -> alt.LayerChart:
    """Return charts over each other, the first at the bottom, sizes in pixels."""
    import altair as alt

    heading = alt.Undefined if title is None else title
    return alt.LayerChart(layer=list(layers), width=width, height=height, title=heading)


def render(
    chart: alt.TopLevelMixin, data: Mapping[str, Rows], *, name: str, title: str, description: str
) -> str:
    """Return a chart as an ``<svg>`` element with ``<title>`` and ``<desc>``.

    Args:
        chart: a chart over named data, so that Altair need not validate every row.
        data: the rows by the name that the chart gives them.
        name: unique on the page; ids in the SVG begin with it.
        title: what the chart is.
        description: what it shows, for who can't see it.
    """
    import vl_convert

    document = chart.to_dict(validate=False)  # checked as it was built, channel by channel
    document["config"] = configuration()
    document["datasets"] = {key: list(rows) for key, rows in data.items()}
    # An empty list of base URLs: a chart that names one is refused, none is ever fetched.
    svg = vl_convert.vegalite_to_svg(
        document, vl_version=VEGALITE_VERSION, allowed_base_urls=[], show_warnings=False
    )
    return _dressed(_TAG.sub(_bare, svg), name, title, description)


def _bare(tag: re.Match[str]) -> str:
    """Return a tag without what only Vega's scripts would read, paths to a tenth of a pixel."""
    text = tag.group()
    if text.startswith("<svg"):
        return text
    return _PATH.sub(lambda path: _DECIMALS.sub(r"\1", path.group()), _CHATTER.sub("", text))


def _dressed(svg: str, name: str, title: str, description: str) -> str:
    root = _ROOT.match(svg)
    if root is None:
        raise ValueError(f"vl-convert made no SVG of the chart {name}")
    width, height = root.groups()
    body = _LONG_TEXT.sub(_shortened, exact(_NOTHING.sub("", svg[root.end() :])))
    hatches = ""
    for hatch, fill in _HATCH_FILLS.items():
        if fill in body:
            body = body.replace(f'fill="{fill}"', f'fill="url(#{name}-{hatch})"')
            hatches += _pattern(f"{name}-{hatch}", HATCHED[hatch])
    said, shown = escape(plain(title)), escape(plain(description))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" '
        f'aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{said}</title>'
        f'<desc id="{name}-desc">{shown}</desc>'
        f"{f'<defs>{hatches}</defs>' if hatches else ''}{body}"
    )


def _shortened(text: re.Match[str]) -> str:
    return escape(plain(unescape(text.group())))


def _pattern(identifier: str, role: str) -> str:
    """Return a hatch over a tint of its colour, with no line of the grid shining through."""
    hatch, colour = HATCHES[role], light(role)
    size = f'width="{hatch.size}" height="{hatch.size}"'
    return (
        f'<pattern id="{identifier}" {size} patternUnits="userSpaceOnUse">'
        f'<rect {size} fill="{light("surface")}"/><rect {size} fill="{colour}" '
        f'fill-opacity="0.22"/><path d="{hatch.strokes}" fill="none" stroke="{colour}" '
        f'stroke-width="{hatch.width}" stroke-linecap="round"/></pattern>'
    )
