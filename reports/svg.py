"""From a Vega-Lite chart to inline SVG: named, hatched, and the same bytes each time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape, unescape
from typing import TYPE_CHECKING, Any, Literal

from wattload.reports.hatching import hatched, stand_in
from wattload.reports.plain import exact, plain
from wattload.reports.themes import HATCHES, configuration, light

if TYPE_CHECKING:
    import altair as alt

VEGALITE_VERSION = "6.4"
Rows = Sequence[Mapping[str, Any]]

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


def fill_of(role: str) -> str:
    """Return what to fill a role's bars with: what becomes its hatch, or its plain colour."""
    return stand_in(role) if role in HATCHES else light(role)


def layered(
    layers: Sequence[alt.Chart], *, width: int, height: int, title: alt.TitleParams | None = None
) -> alt.LayerChart:
    """Return charts over each other, the first at the bottom, sizes in pixels."""
    import altair as alt

    from wattload.reports.panels import Layers

    heading = alt.Undefined if title is None else title
    panel = Layers(width=width, height=height, title=heading)
    panel.layer = list(layers)  # given to the class, they would be copied
    return panel


def joined(
    way: Literal["concat", "hconcat", "vconcat"],
    panels: Sequence[alt.TopLevelMixin],
    **settings: Any,  # noqa: ANN401 - as Altair's class has them
) -> alt.TopLevelMixin:
    """Return panels beside each other: what Altair calls by the same name, without its copies."""
    from wattload.reports.panels import Below, Beside, Grid

    whole = {"concat": Grid, "hconcat": Beside, "vconcat": Below}
    chart: alt.TopLevelMixin = whole[way](**settings)
    setattr(chart, way, list(panels))
    return chart


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
    body = hatched(_LONG_TEXT.sub(_shortened, exact(_NOTHING.sub("", svg[root.end() :]))))
    said, shown = escape(plain(title)), escape(plain(description))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" '
        f'aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{said}</title>'
        f'<desc id="{name}-desc">{shown}</desc>'
        f"{body}"
    )


def _shortened(text: re.Match[str]) -> str:
    return escape(plain(unescape(text.group())))
