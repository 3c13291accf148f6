"""Charts as SVG that fits any width: marks follow the width, texts keep their size.

A chart needs no script. With one, the page reads values off lines (``data-x``, ``data-y``) and
marks (``data-tip``), and zooms the axis of time by the view box of what is drawn in ``svg.area``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from wattload.reports.charts.themes import light
from wattload.reports.sanitize import sanitize
from wattload.results.quantity import number

AREA = 1000
"""The units across the area that lines are drawn in; they are stretched to its width."""

MARKS_MAX = 60
"""The most runs of an arm that are drawn one by one; the data of a chart lists all of them."""

_LINE_HEIGHT = 15
_PANEL, _LETTER = 280, 7
"""Pixels of the area of a panel among others, and of a letter or a digit."""
_FEW_TICKS = 3
"""So many labels of the horizontal axis have room in a narrow chart."""
_ROW_LETTERS, _STAGGER = 24, 12
"""Letters of names under the axis that a telephone has room for in one row; pixels of another."""
_GUTTERS = {4: "slim", 7: ""}
"""The classes of charts whose vertical axis has labels of at most that many characters."""

_TICKS = (1, 2, 2.5, 5, 10)
_LOG_DIGITS = (
    (1,),
    (1, 3),
    (1, 2, 5),
    (1, 1.5, 2, 3, 5, 7),
    (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9),
)
"""Ever denser ticks of a logarithmic axis, in each decade."""
Array = NDArray[np.float64]
Mark = TypeVar("Mark")


def words(text: str) -> str:
    """Return any text as it may stand in an SVG."""
    return escape(sanitize(text))


def thin_marks(marks: Sequence[Mark], value: Callable[[Mark], float]) -> list[Mark]:
    """Return at most ``MARKS_MAX`` marks, chosen evenly by rank, with the lowest and the highest.

    Args:
        marks: one for each run.
        value: what the marks are ranked by.
    """
    if len(marks) <= MARKS_MAX:
        return list(marks)
    ranked = sorted(marks, key=value)
    last = len(ranked) - 1
    return [ranked[round(index * last / (MARKS_MAX - 1))] for index in range(MARKS_MAX)]


def round_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Return about ``count`` round numbers from ``low`` to ``high``, which is above it."""
    span = high - low
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(size * power for size in _TICKS if size * power * (count + 0.5) >= span)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers between the ends of a logarithmic axis, above 0."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in _LOG_DIGITS:
        found = [float(f"{digit}e{decade}") for decade in decades for digit in digits]
        if sum(low <= tick <= high for tick in found) >= 3:  # noqa: PLR2004 - fewer show no scale
            break
    return [tick for tick in found if low <= tick <= high]


def tick_text(value: float) -> str:
    """Return the label of a tick, which is a round number."""
    return number(value, 3) if abs(value) >= 1e6 or 0 < abs(value) < 1e-4 else f"{value:g}"  # noqa: PLR2004 - readable without an exponent


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis of a chart, in the unit that is printed.

    ``names`` label the ticks of an axis of categories, which are at 0, 1, 2... Ticks ``at`` given
    places are printed ÷ ``factor``.
    """

    low: float
    high: float
    unit: str = ""
    log: bool = False
    names: Sequence[str] = ()
    at: Sequence[float] = ()
    factor: float = 1

    def share(self, value: float) -> float:
        """Return the place of a value between both ends, 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, count: int) -> list[tuple[float, str]]:
        if self.names:
            return [(float(index), name) for index, name in enumerate(self.names)]
        if self.at:
            return [(value, tick_text(value / self.factor)) for value in self.at]
        found = log_ticks(self.low, self.high) if self.log else None
        if found is None:
            found = round_ticks(self.low, self.high, count)
        return [(value, tick_text(value)) for value in found]

    @property
    def data(self) -> str:
        """What a script needs to read values off the axis."""
        return words(
            f"{self.low:.9g} {self.high:.9g} {'log' if self.log else 'linear'} {self.unit}"
        )


def second_axis(first: Axis, most: float, unit: str) -> Axis:
    """Return an axis from 0 to ``most`` or above, with round labels at those of ``first``.

    Both begin at 0; ``most`` is above 0.
    """
    ticks = [value for value, _ in first.ticks(4)]
    step = next((value for value in ticks if value > 0), first.high)
    steps = first.high / step
    power = 10.0 ** math.floor(math.log10(most / steps))
    own = next(size * power for size in _TICKS if size * power * steps >= most)
    at = [float(f"{value / step * own:.12g}") for value in ticks]
    return Axis(low=0, high=own * steps, unit=unit, at=at)


def text(
    x: str, y: float, content: str, *, role: str = "text", anchor: str = "start", more: str = ""
) -> str:
    """Return a text; ``x`` is in pixels or a percentage."""
    side = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x}" y="{y:g}" fill="{light(role)}"{side}{more}>{words(content)}</text>'


def share_of(share: float) -> str:
    """Return a share of the width as SVG writes it."""
    return f"{share * 100:.2f}%"


def picture(
    body: Iterable[str], *, height: float, label: str, kind: str = "", data: str = ""
) -> str:
    """Return an SVG of full width; ``label`` says what it shows to who cannot see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{f"pic {kind}".strip()}" width="100%" '
        f'height="{height:g}" font-family="system-ui, sans-serif" font-size="12" role="img" '
        f'aria-label="{words(label)}"{data}>{"".join(body)}</svg>'
    )


class Frame:
    """A chart with two axes: grid, lines, bands, shades and marks.

    Args:
        x: the horizontal axis.
        y: the vertical axis.
        height: of the area, in pixels.
        title: the line over it; empty for none.
        x_title: the line under the ticks; empty for none.
        head: pixels between the title and the area.
        right: a second vertical axis from 0, as ``y`` is; its labels are at the lines of the grid.
    """

    def __init__(
        self,
        x: Axis,
        y: Axis,
        *,
        height: int,
        title: str = "",
        x_title: str = "",
        head: int = 0,
        right: Axis | None = None,
    ) -> None:
        self.x, self.y, self.height, self.right = x, y, height, right
        self.top = (_LINE_HEIGHT + 7 if title else 0 if head else 14) + head
        self._title, self._x_title = title, x_title
        self._is_staggered = sum(map(len, x.names)) > _ROW_LETTERS
        self._area: list[str] = []
        self._over: list[str] = []

    def _px(self, value: float) -> float:
        return self.x.share(value) * AREA

    def _py(self, value: float) -> float:
        return (1 - self.y.share(value)) * self.height

    def _path(self, xs: Sequence[float], ys: Sequence[float | None]) -> str:
        parts, pen = [], "M"
        for x, y in zip(xs, ys, strict=True):
            if y is None or math.isnan(y):
                pen = "M"
                continue
            parts.append(f"{pen}{self._px(x):.1f} {self._py(y):.1f}")
            pen = "L"
        return "".join(parts)

    def shade(self, start: float, end: float, role: str, opacity: float) -> None:
        """Shade the whole height from one value of x to another."""
        left, right = self._px(start), self._px(end)
        self._area.insert(
            0,
            f'<rect x="{left:.1f}" y="0" width="{max(right - left, 0):.1f}" height="{self.height}" '
            f'fill="{light(role)}" opacity="{opacity}"/>',
        )

    def box(
        self, x: tuple[float, float], y: tuple[float, float], role: str, opacity: float
    ) -> None:
        left, right, low, high = self._px(x[0]), self._px(x[1]), self._py(y[0]), self._py(y[1])
        self._area.append(
            f'<rect x="{left:.1f}" y="{high:.1f}" width="{right - left:.1f}" '
            f'height="{low - high:.1f}" fill="{light(role)}" opacity="{opacity}"/>'
        )

    def band(self, edges: Array, low: Array, high: Array, role: str, opacity: float = 0.2) -> None:
        """Fill between two steps; ``low`` and ``high`` are (n,), ``edges`` (n + 1,), NaN a gap."""
        parts = [
            f"M{self._px(start):.1f} {self._py(above):.1f}H{self._px(end):.1f}"
            f"V{self._py(below):.1f}H{self._px(start):.1f}Z"
            for start, end, below, above in zip(
                edges[:-1].tolist(), edges[1:].tolist(), low.tolist(), high.tolist(), strict=True
            )
            if not math.isnan(below) and above > below
        ]
        if parts:
            self._area.append(
                f'<path d="{"".join(parts)}" fill="{light(role)}" opacity="{opacity}"/>'
            )

    def steps(
        self,
        edges: Array,
        values: Array,
        role: str,
        name: str,
        *,
        dash: str = "",
        width: float = 1.8,
    ) -> None:
        """Draw a value for each bin as a line; ``values`` (n,), ``edges`` (n + 1,), NaN a gap."""
        pairs = zip(edges[:-1].tolist(), edges[1:].tolist(), values.tolist(), strict=True)
        parts, is_open = [], False
        for start, end, value in pairs:
            if math.isnan(value):
                is_open = False
                continue
            y = f"{self._py(value):.1f}"
            parts.append(f"V{y}" if is_open else f"M{self._px(start):.1f} {y}")
            parts.append(f"H{self._px(end):.1f}")
            is_open = True
        self._stroke("".join(parts), role, name, dash, width)

    def line(
        self,
        xs: Sequence[float],
        ys: Sequence[float | None],
        role: str,
        name: str = "",
        *,
        dash: str = "",
        width: float = 1.8,
    ) -> None:
        """Connect points, with gaps at ``None``; a line with a name can be read off."""
        self._stroke(self._path(xs, ys), role, name, dash, width)

    def _stroke(self, path: str, role: str, name: str, dash: str, width: float = 1.8) -> None:
        if path:
            named = f' class="line" data-name="{words(name)}"' if name else ""
            dashed = f' stroke-dasharray="{dash}"' if dash else ""
            self._area.append(
                f'<path d="{path}" fill="none" stroke="{light(role)}" stroke-width="{width}"'
                f'{dashed} vector-effect="non-scaling-stroke"{named}/>'
            )

    def specks(self, xs: Sequence[float], ys: Sequence[float], role: str, *, square: bool) -> None:
        """Draw many small dots in one path, round or square; of dots on one spot one is drawn."""
        spots = dict.fromkeys(
            f"M{self._px(x):.0f} {self._py(y):.0f}h0" for x, y in zip(xs, ys, strict=True)
        )
        path = "".join(spots)
        cap = "square" if square else "round"
        if path:
            self._area.append(
                f'<path d="{path}" fill="none" stroke="{light(role)}" stroke-width="3" '
                f'stroke-linecap="{cap}" vector-effect="non-scaling-stroke"/>'
            )

    def mark(
        self, x: float, y: float, role: str, tip: str, *, radius: float = 4, hollow: bool = False
    ) -> None:
        """Draw one point; ``tip`` is what it says when pointed at."""
        fill, edge = (light("surface"), light(role)) if hollow else (light(role), light("surface"))
        self._over.append(
            f'<circle cx="{share_of(self.x.share(x))}" cy="{self.top + self._py(y):.1f}" '
            f'r="{radius:g}" fill="{fill}" stroke="{edge}" data-tip="{words(tip)}"/>'
        )

    def label(self, x: float, y: float, content: str) -> None:
        self._over.append(
            text(
                share_of(self.x.share(x)),
                self.top + self._py(y) - 8,
                content,
                role="strong",
                anchor="middle",
                more=' class="halo"',
            )
        )

    def over(self, part: str) -> None:
        self._over.append(part)

    def svg(self, label: str, kind: str = "") -> str:
        """Return the chart; ``label`` says what it shows to who cannot see it."""
        bottom = self.top + self.height
        body = []
        if self._title:
            body.append(text("0", 12, self._title, role="strong", more=' font-weight="600"'))
        body += [
            f'<line x1="0" x2="100%" y1="{self.top + self._py(value):.1f}" '
            f'y2="{self.top + self._py(value):.1f}" stroke="{light("grid")}"/>'
            for value, _ in self.y.ticks(4)
        ]
        body.append(
            f'<svg class="area" x="0" y="{self.top}" width="100%" height="{self.height}" '
            f'viewBox="0 0 {AREA} {self.height}" preserveAspectRatio="none">'
            f"{''.join(self._area)}</svg>"
        )
        labels = [(value, f"{name} {self.y.unit}".rstrip()) for value, name in self.y.ticks(4)]
        body += [
            text("-6", self.top + self._py(value) + 4, shown, anchor="end")
            for value, shown in labels
        ]
        if self.right is not None:
            body += self._right_labels(self.right)
        longest = max((len(shown) for _, shown in labels), default=0)
        gutter = next((name for most, name in _GUTTERS.items() if longest <= most), "broad")
        body += self._over
        body += self._x_ticks(bottom)
        height = bottom + 20 + _STAGGER * self._is_staggered
        if self._x_title:
            body.append(text("50%", height + 10, self._x_title, anchor="middle"))
            height += 16
        return picture(
            body,
            height=height,
            label=label,
            kind=" ".join(filter(None, ("plot", gutter, "two" if self.right else "", kind))),
            data=f' data-x="{self.x.data}" data-y="{self.y.data}"',
        )

    def _right_labels(self, right: Axis) -> Iterable[str]:
        for value, name in right.ticks(4):
            y = self.top + (1 - right.share(value)) * self.height + 4
            yield text("100%", y, f"{name} {right.unit}", more=' dx="6"')

    def _x_ticks(self, bottom: float) -> Iterable[str]:
        ticks = self.x.ticks(10)
        for index, (value, name) in enumerate(ticks):
            share = self.x.share(value)
            anchor = "start" if share < 0.03 else "end" if share > 0.97 else "middle"  # noqa: PLR2004 - at an end it would be cut
            also = " also" if index % 2 and len(ticks) > _FEW_TICKS and not self.x.names else ""
            shown = f"{name} {self.x.unit}".rstrip()
            y = bottom + 15 + _STAGGER * (self._is_staggered and index % 2)
            yield text(share_of(share), y, shown, anchor=anchor, more=f' class="xt{also}"')


class Labels:
    """The labels of points in a panel; one that would overlap an earlier one is left out.

    ``lacks_some`` is whether any was. A panel is taken to be as narrow as it is beside others.
    """

    def __init__(self, frame: Frame) -> None:
        self.lacks_some = False
        self._frame = frame
        self._placed: list[tuple[float, float, float]] = []

    def add(self, x: float, y: float, content: str) -> None:
        """Print a label over a point if there is room."""
        across = self._frame.x.share(x) * _PANEL
        up = self._frame.y.share(y) * self._frame.height
        half = len(content) * _LETTER / 2
        if any(
            abs(across - other) < half + own + _LETTER / 2 and abs(up - height) < _LINE_HEIGHT
            for other, height, own in self._placed
        ):
            self.lacks_some = True
            return
        self._placed.append((across, up, half))
        self._frame.label(x, y, content)
