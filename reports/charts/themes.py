"""Colours of the charts in light and dark, as an Altair configuration and as style rules.

Charts are drawn in the light colours, as attributes. The page's style sheet selects on them, so
that one SVG follows the reader's scheme and is right on paper, without a script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import altair as alt

FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
_LETTER = 6.9
_LABEL_LIMIT = 210
_SIZES = {"circle": 42, "square": 40, "diamond": 60}
_TRIANGLE_SIZE = 80


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
    "a": Colour("#1761a8", "#62a8f5"),
    "b": Colour("#c2481f", "#ff8f63"),
    "c": Colour("#1d7a52", "#5fd39a"),
    "d": Colour("#c46ab2", "#efa3dd"),
    "e": Colour("#27313c", "#e9eef4"),
    "f": Colour("#c08a00", "#e2bb45"),
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
"""By role. No two roles share a light colour: the style rules select on it.

The six colours of arms can be distinguished without seeing red or green: they differ by 15 CIE76 or
more.
"""

PART_ROLES = ("part1", "part2", "part3", "part4", "part5", "part6")
"""By the position of a part in its whole; with more parts the roles repeat."""

_MARKERS = {
    "a": ("circle", "●"),
    "b": ("square", "■"),
    "c": ("triangle-up", "▲"),
    "d": ("diamond", "◆"),
    "e": ("triangle-down", "▼"),
    "f": ("triangle-right", "▶"),
}
"""By the role of an arm: the shape of its points, in Vega-Lite's words and as a character."""


@dataclass(frozen=True, slots=True)
class Hatch:
    """A texture that distinguishes a fill without its colour.

    Strokes of ``kind`` are drawn ``width`` pixels wide in the role's colour, ``period`` pixels
    apart, over a tint of it. ``swatch`` is the same for a legend: CSS, with ``COLOUR`` in place of
    the role's colour.
    """

    kind: Literal["slash", "backslash", "dots", "grid", "upright", "level"]
    period: int
    width: float
    swatch: str


def _stripes(degrees: int, drawn: int, period: int) -> str:
    """Return CSS stripes in which ``drawn`` of every ``period`` pixels have the colour."""
    return f"repeating-linear-gradient({degrees}deg,COLOUR 0 {drawn}px,#0000 {drawn}px {period}px)"


_SLASH = Hatch("slash", 7, 2.6, _stripes(-45, 3, 5))
_BACKSLASH = Hatch("backslash", 9, 1.4, _stripes(45, 2, 6))
_DOTS = Hatch("dots", 5, 3, "radial-gradient(COLOUR 38%,#0000 42%) 0 0/5px 5px")
_GRID = Hatch("grid", 6, 1.4, f"{_stripes(0, 1, 5)},{_stripes(90, 1, 5)}")
_UPRIGHT = Hatch("upright", 5, 2.4, _stripes(90, 3, 5))
_LEVEL = Hatch("level", 5, 2.2, _stripes(0, 2, 5))

HATCHES: Mapping[str, Hatch] = {
    "b": _SLASH,
    "c": _DOTS,
    "d": _GRID,
    "e": _UPRIGHT,
    "f": _BACKSLASH,
    "declared": _LEVEL,
    "part2": _SLASH,
    "part3": _DOTS,
    "part4": _GRID,
    "part5": _UPRIGHT,
    "part6": _BACKSLASH,
}
"""By role; a role without a hatch has a plain fill."""

_TINT = 0.22
"""The share of a hatch's own colour in the fill under its strokes; the rest is the page's."""


def tint(role: str) -> Colour:
    """Return the fill under a hatch's strokes; opaque, so that print keeps the hatch as lines."""
    own, page = PALETTE[role], PALETTE["surface"]
    return Colour(_mix(own.light, page.light), _mix(own.dark, page.dark))


def _mix(colour: str, other: str) -> str:
    pairs = [(int(colour[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(a * _TINT + b * (1 - _TINT)):02x}" for a, b in pairs)


def arm_role(letter: str) -> str:
    """Return the role of an arm's marks and of its swatch in a legend: ``a`` for ``A``."""
    return letter.lower()


def arm_colour(letter: str) -> str:
    """Return the colour of an arm, by its letter, ``A`` to ``F``."""
    return light(arm_role(letter))


def arm_marker(letter: str) -> str:
    """Return the shape of an arm's points, as Vega-Lite names it."""
    return _MARKERS[arm_role(letter)][0]


def marker_size(shape: str) -> int:
    """Return the area at which a shape looks as large as the others."""
    return _SIZES.get(shape, _TRIANGLE_SIZE)


def light(role: str) -> str:
    """Return the colour that charts are drawn in."""
    return PALETTE[role].light


def name_axis(names: Sequence[str]) -> alt.Axis:
    """Return a vertical axis of names with room for them in any font.

    vl-convert measures text in its own fonts, which may be narrower than the reader's.
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


_MARKED = (
    f"{','.join(f'.swatch-{role}' for role in _MARKERS)}"
    "{position:relative;width:19px;margin-right:15px;font-size:11px;line-height:13px}"
    f"{','.join(f'.swatch-{role}::after' for role in _MARKERS)}"
    "{position:absolute;left:23px;color:var(--strong)}"
)
"""Puts the marker of an arm's runs next to the arm's swatch."""


def _swatch(role: str) -> str:
    """Return the CSS background of a role in a legend: plain, or its hatch over a tint."""
    hatch = HATCHES.get(role)
    if hatch is None:
        return f"background:var(--{role})"
    texture = hatch.swatch.replace("COLOUR", f"var(--{role})")
    return f"background:{texture},var(--{role}-tint)"


def style_rules() -> str:
    """Return the style rules that colour charts and legends, for both schemes."""
    tints = {f"{role}-tint": tint(role) for role in HATCHES}
    colours = {**PALETTE, **tints}
    names = "".join(f"--{role}:{colour.light};" for role, colour in colours.items())
    dark = "".join(f"--{role}:{colour.dark};" for role, colour in colours.items())
    rules = [f":root{{{names}}}", f"@media (prefers-color-scheme: dark){{:root{{{dark}}}}}"]
    rules.append(f"@media print{{:root{{{names}}}}}")
    rules += [
        f'.chart [fill="{colour.light}"]{{fill:var(--{role})}}' for role, colour in colours.items()
    ]
    for role, colour in PALETTE.items():
        rules.append(f'.chart [stroke="{colour.light}"]{{stroke:var(--{role})}}')
        rules.append(f".swatch-{role}{{{_swatch(role)}}}")
    rules += [f'.swatch-{role}::after{{content:"{sign}"}}' for role, (_, sign) in _MARKERS.items()]
    rules.append(_MARKED)
    return "\n".join(rules)
