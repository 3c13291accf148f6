"""Hatches of bars, drawn as strokes: a pattern would be a blurred picture once it is printed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from wattload.reports.themes import HATCHES, Hatch, light, tint

_NUMBER = r"-?[0-9.]+"
_RECTANGLE = re.compile(
    rf'<path d="M({_NUMBER}),({_NUMBER})h({_NUMBER})v({_NUMBER})h{_NUMBER}Z" '
    r'fill="(#[0-9a-f]{6})"([^>]*)/>'
)


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A bar in pixels: its upper left corner and its size, both sides 0 or more."""

    x: float
    y: float
    width: float
    height: float


def stand_in(role: str) -> str:
    """Return the colour to draw a role's bars in before they are hatched.

    It is the role's own but for one bit: no plain mark is drawn in it.
    """
    return f"#{int(light(role)[1:], 16) ^ 1:06x}"


_ROLES = {stand_in(role): role for role in HATCHES}


def hatched(svg: str) -> str:
    """Return a chart in which every bar of a hatched role has its hatch.

    What is drawn in such a role and is no rectangle has its plain colour.
    """
    svg = _RECTANGLE.sub(_bar, svg)
    for colour, role in _ROLES.items():
        svg = svg.replace(f'"{colour}"', f'"{light(role)}"')
    return svg


def _bar(found: re.Match[str]) -> str:
    *numbers, colour, rest = found.groups()
    role = _ROLES.get(colour)
    if role is None:
        return found.group()
    x, y, width, height = map(float, numbers)
    bar = Rectangle(min(x, x + width), min(y, y + height), abs(width), abs(height))
    hatch, own = HATCHES[role], light(role)
    outline = rest or f' stroke="{own}"'
    shape = f'd="M{_short(x)},{_short(y)}h{_short(width)}v{_short(height)}h{_short(-width)}Z"'
    strokes = "".join(_DRAWN[hatch.kind](bar, hatch))
    return (
        f'<path {shape} fill="{tint(role).light}"/>'
        f'<path d="{strokes}" fill="none" stroke="{own}" stroke-width="{hatch.width}"'
        f"{_DOTTED.format(hatch.period) if hatch.kind == 'dots' else ''}/>"
        f'<path {shape} fill="none"{outline}/>'
    )


_DOTTED = ' stroke-dasharray="0 {}" stroke-linecap="round"'


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0").replace("-0.0", "0")


def _steps(length: float, period: float) -> Iterator[float]:
    """Yield where strokes stand on a side, the same way from bar to bar."""
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
    """Yield a line per row, which dashes of no length and round ends make dots of."""
    room = bar.width - hatch.period
    for at in _steps(bar.height, hatch.period):
        if room > 0:
            x = bar.x + hatch.period / 2
            yield f"M{_short(x)},{_short(bar.y + at)}h{_short(room + 0.1)}"


_DRAWN: Mapping[str, Callable[[Rectangle, Hatch], Iterator[str]]] = {
    "slash": _slash,
    "backslash": _backslash,
    "level": _level,
    "upright": _upright,
    "grid": _grid,
    "dots": _dots,
}
