"""Colours of the charts in light and dark, as an Altair configuration and as style rules.

Charts are drawn in the light colours, as attributes. The page's style sheet selects on them, so
that one SVG follows the reader's scheme and is right on paper, without a script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True, slots=True)
class Colour:
    """One colour in both schemes, ``#rrggbb``."""

    light: str
    dark: str


PALETTE: Mapping[str, Colour] = {
    "read": Colour("#0b7a75", "#3cc4b6"),
    "write": Colour("#7a4fb5", "#b99bf0"),
    "device": Colour("#7d8894", "#8a97a5"),
    "power": Colour("#c05f00", "#ffab4a"),
    "bound": Colour("#c06001", "#ffab4b"),
    "declared": Colour("#8a6d00", "#e0c04a"),
    "a": Colour("#1c69b0", "#6db5ff"),
    "b": Colour("#c2481f", "#ff9970"),
    "c": Colour("#4f7a12", "#a4cf5f"),
    "d": Colour("#9a3f86", "#e394d1"),
    "e": Colour("#6b5b00", "#d8c657"),
    "f": Colour("#36707f", "#7fc3d4"),
    "part1": Colour("#d97706", "#f5a742"),
    "part2": Colour("#7c5cc4", "#b8a1f5"),
    "part3": Colour("#2f8f6f", "#5cc9a5"),
    "part4": Colour("#b0436e", "#ee8fb4"),
    "part5": Colour("#8b97a3", "#75828f"),
    "part6": Colour("#3d7fc0", "#7fbcf2"),
    "timed": Colour("#bfdedb", "#1d4f4e"),
    "untimed": Colour("#dde2e7", "#2c3641"),
    "text": Colour("#4a5764", "#a9b5c2"),
    "strong": Colour("#17212c", "#e9eef3"),
    "grid": Colour("#e4e8ec", "#28323d"),
    "axis": Colour("#aab4be", "#4d5a68"),
    "surface": Colour("#fffffe", "#151c25"),
}
"""By role, never by look. No two share a light colour: the style rules tell them apart by it."""

FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
_LETTER = 6.9
_LABEL_LIMIT = 210
ARM_ROLES = ("a", "b", "c", "d", "e", "f")
"""By the place of an arm on the page; as many as there are letters."""

PART_ROLES = ("part1", "part2", "part3", "part4", "part5", "part6")
"""By the place of a part in its whole; with more parts they begin again."""


def light(role: str) -> str:
    """Return the colour that charts are drawn in."""
    return PALETTE[role].light


def named_axis(names: Sequence[str]) -> alt.Axis:
    """Return a vertical axis of names with room for them in whatever font the reader has.

    The widths that vl-convert measures are those of its own fonts.
    """
    import altair as alt

    room = min(_LABEL_LIMIT, max((len(name) for name in names), default=0) * _LETTER + 12)
    return alt.Axis(title=None, labelLimit=_LABEL_LIMIT, minExtent=room)


def configuration() -> dict[str, Any]:
    """Return the Vega-Lite configuration that all charts share."""
    text, strong = light("text"), light("strong")
    return {
        "aria": False,  # one title and description per chart, not one per mark
        "background": None,
        "font": FONT,
        "padding": 4,
        "view": {"stroke": None},
        "axis": {
            "labelColor": text,
            "labelFontSize": 11.5,
            "titleColor": text,
            "titleFontSize": 11.5,
            "titleFontWeight": 500,
            "gridColor": light("grid"),
            "domainColor": light("axis"),
            "tickColor": light("axis"),
            "tickSize": 4,
            "labelPadding": 5,
            "labelFlush": False,
        },
        "axisY": {"domain": False, "ticks": False},
        "title": {
            "color": strong,
            "fontSize": 13,
            "fontWeight": 600,
            "anchor": "start",
            "frame": "group",
            "offset": 7,
            "subtitleColor": text,
            "subtitleFontSize": 11.5,
            "subtitlePadding": 3,
        },
        "text": {"color": strong, "fontSize": 11.5},
    }


def style_rules() -> str:
    """Return the style rules that colour charts and legends, for both schemes."""
    names = "".join(f"--{role}:{colour.light};" for role, colour in PALETTE.items())
    dark = "".join(f"--{role}:{colour.dark};" for role, colour in PALETTE.items())
    rules = [f":root{{{names}}}", f"@media (prefers-color-scheme: dark){{:root{{{dark}}}}}"]
    rules.append(f"@media print{{:root{{{names}}}}}")
    for role, colour in PALETTE.items():
        rules.append(f'.chart [fill="{colour.light}"]{{fill:var(--{role})}}')
        rules.append(f'.chart [stroke="{colour.light}"]{{stroke:var(--{role})}}')
        rules.append(f".swatch-{role}{{background:var(--{role})}}")
    return "\n".join(rules)
