"""Colours of the charts in light and dark, as style rules.

Charts are drawn in the light colours, as attributes. The page's style sheet selects on them, so
that one SVG follows the reader's scheme and is right on paper, without a script.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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


def arm_role(letter: str) -> str:
    """Return the role of an arm's marks and of its swatch in a legend: ``a`` for ``A``."""
    return letter.lower()


def light(role: str) -> str:
    return PALETTE[role].light


def style_rules() -> str:
    """Return the style rules that colour charts and legends, for both schemes."""
    names = "".join(f"--{role}:{colour.light};" for role, colour in PALETTE.items())
    dark = "".join(f"--{role}:{colour.dark};" for role, colour in PALETTE.items())
    rules = [f":root{{{names}}}", f"@media (prefers-color-scheme: dark){{:root{{{dark}}}}}"]
    rules.append(f"@media print{{:root{{{names}}}}}")
    for role, colour in PALETTE.items():
        rules.append(f'.pic [fill="{colour.light}"]{{fill:var(--{role})}}')
        rules.append(f'.pic [stroke="{colour.light}"]{{stroke:var(--{role})}}')
        rules.append(f".swatch-{role}{{background:var(--{role})}}")
    return "\n".join(rules)
