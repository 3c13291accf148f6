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
"""By role, never by look. No two share a light colour: the style rules tell them apart by it.

The six of the arms stay apart for readers who see no red or no green (15 CIE76 and more).
"""

FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
_LETTER = 6.9
_LABEL_LIMIT = 210
ARM_ROLES = ("a", "b", "c", "d", "e", "f")
"""By the place of an arm on the page; as many as there are letters."""

PART_ROLES = ("part1", "part2", "part3", "part4", "part5", "part6")
"""By the place of a part in its whole; with more parts they begin again."""

_MARKERS = {
    "a": ("circle", "●"),
    "b": ("square", "■"),
    "c": ("triangle-up", "▲"),
    "d": ("diamond", "◆"),
    "e": ("triangle-down", "▼"),
    "f": ("triangle-right", "▶"),
}


@dataclass(frozen=True, slots=True)
class Hatch:
    """A texture that tells a fill apart without its colour; it repeats every ``size`` pixels.

    ``strokes`` is the path that is drawn ``width`` wide in the role's colour, over a tint of it;
    ``swatch`` is the same for a legend, in CSS with ``COLOUR`` for it.
    """

    size: int
    strokes: str
    width: float
    swatch: str


def _stripes(degrees: int, drawn: int, period: int) -> str:
    """Return stripes of a colour, in CSS: so many pixels drawn of so many."""
    return f"repeating-linear-gradient({degrees}deg,COLOUR 0 {drawn}px,#0000 {drawn}px {period}px)"


_SLASH = Hatch(6, "M-1,1L1,-1M0,6L6,0M5,7L7,5", 2.6, _stripes(-45, 3, 5))
_BACKSLASH = Hatch(8, "M-1,-1L9,9M-1,7L1,9M7,-1L9,1", 1.6, _stripes(45, 2, 5))
_DOTS = Hatch(5, "M2.5,2.5h.01", 3.2, "radial-gradient(COLOUR 38%,#0000 42%) 0 0/5px 5px")
_GRID = Hatch(6, "M0,3H6M3,0V6", 1.6, f"{_stripes(0, 2, 5)},{_stripes(90, 2, 5)}")
_UPRIGHT = Hatch(5, "M2.5,0V5", 2.4, _stripes(90, 3, 5))
_LEVEL = Hatch(5, "M0,2.5H5", 2.4, _stripes(0, 3, 5))

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
"""By role; a role without one is drawn plain."""


def arm_role(letter: str) -> str:
    """Return the role that an arm's marks and its swatch in a legend have; ``A`` has ``a``."""
    return letter.lower()


def arm_colour(letter: str) -> str:
    """Return the colour that an arm is drawn in, by its letter, ``A`` to ``F``."""
    return light(arm_role(letter))


def arm_marker(letter: str) -> str:
    """Return the shape of an arm's points, as Vega-Lite names it."""
    return _MARKERS[arm_role(letter)][0]


def arm_hatch(letter: str) -> Hatch | None:
    """Return the texture of an arm's bars and areas; ``None`` for the first, which is plain."""
    return HATCHES.get(arm_role(letter))


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


_MARKED = (
    f"{','.join(f'.swatch-{role}' for role in _MARKERS)}"
    "{position:relative;width:19px;margin-right:15px;font-size:11px;line-height:13px}"
    f"{','.join(f'.swatch-{role}::after' for role in _MARKERS)}"
    "{position:absolute;left:23px;color:var(--strong)}"
)
"""Beside the swatch of an arm stands the marker of its runs."""


def _swatch(role: str) -> str:
    """Return how a role looks in a legend: plain, or its hatch over a tint."""
    hatch = HATCHES.get(role)
    return f"background:{hatch.swatch if hatch else 'COLOUR'}".replace("COLOUR", f"var(--{role})")


def style_rules() -> str:
    """Return the style rules that colour charts and legends, for both schemes."""
    names = "".join(f"--{role}:{colour.light};" for role, colour in PALETTE.items())
    dark = "".join(f"--{role}:{colour.dark};" for role, colour in PALETTE.items())
    rules = [f":root{{{names}}}", f"@media (prefers-color-scheme: dark){{:root{{{dark}}}}}"]
    rules.append(f"@media print{{:root{{{names}}}}}")
    for role, colour in PALETTE.items():
        rules.append(f'.chart [fill="{colour.light}"]{{fill:var(--{role})}}')
        rules.append(f'.chart [stroke="{colour.light}"]{{stroke:var(--{role})}}')
        rules.append(f".swatch-{role}{{{_swatch(role)}}}")
    rules += [f'.swatch-{role}::after{{content:"{sign}"}}' for role, (_, sign) in _MARKERS.items()]
    rules.append(_MARKED)
    return "\n".join(rules)
