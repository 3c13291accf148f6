"""Power against rate: a dot for each run, on lines of equal energy per byte.

In the window, where a joule per second by a byte per second is a joule per byte.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wattload.core.units import GB, Unit
from wattload.reports.blocks import Figure, listing
from wattload.reports.charts.arms import arms_legend
from wattload.reports.charts.plot import (
    Axis,
    Frame,
    round_ticks,
    share_of,
    text,
    thin_marks,
    tick_text,
)
from wattload.reports.charts.themes import arm_role
from wattload.reports.runs.energy import Energy
from wattload.reports.stats.effects import mean_log
from wattload.results.quantity import Scale, listed, number, quantity, scale_for, scaled, with_unit

_HEIGHT = 170
_ROOM = 1.25
"""How far the axes go beyond the largest figure."""
_ROUND = (1, 1.5, 2, 3, 5, 7)
"""The energies per byte that have a line, in each decade: apart enough for their labels."""
_LINES_MAX = 5
_REACH = 1.6
"""How far lines go beyond the energies of runs, either way: there is always one."""
_ARMS_MAX = 3
"""So many arms have their figures in the title."""
_SHOWN = 3
"""Significant digits, as on the first screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One run: its rate over all of its phases, and the drives' mean power meanwhile.

    ``at`` is its point of a sweep, empty without one.
    """

    run: str
    at: str
    bytes_per_s: float
    watts: float
    evidence: str

    @property
    def j_per_byte(self) -> float:
        return self.watts / self.bytes_per_s


def spot(run: str, at: str, energy: Energy) -> Spot | None:
    """Return where a run is; ``None`` without a measured energy, bytes, or a common window.

    Where hosts end apart, mean power by rate is not energy per byte.
    """
    if not energy.illustrates or energy.energy_j is None or not energy.mean_w:
        return None
    if not energy.moved_bytes or not math.isclose(
        energy.mean_w * energy.seconds, energy.energy_j, rel_tol=0.01
    ):
        return None
    return Spot(
        run=run,
        at=at,
        bytes_per_s=energy.moved_bytes / energy.seconds,
        watts=energy.mean_w,
        evidence=energy.words,
    )


def efficiency_figure(
    name: str, subject: str, what: str, arms: Mapping[str, Sequence[Spot]], letters: Sequence[str]
) -> Figure | None:
    """Return the chart of a workload; ``None`` where no run has a place on it.

    Args:
        name: unique on the page.
        subject: what the title begins with.
        what: of which bytes the rates are, such as ``read``.
        arms: the spots of each arm.
        letters: those of the arms.
    """
    every = [each for spots in arms.values() for each in spots]
    if not every:
        return None
    rates = scale_for(Unit.BYTES_PER_SECOND, *(each.bytes_per_s for each in every))
    high = rates.shown(max(each.bytes_per_s for each in every)) * _ROOM
    x = Axis(low=0, high=high, unit=rates.unit, at=round_ticks(0, high))
    y = Axis(low=0, high=max(each.watts for each in every) * _ROOM, unit="W")
    title = f"rate, {rates.unit} {what}".rstrip()
    frame = Frame(x, y, height=_HEIGHT, title="mean power, W", x_title=title)
    costs = [each.j_per_byte * GB for each in every]
    for cost in _round_costs(min(costs), max(costs)):
        _draw_line(frame, cost, cost * rates.factor / GB)
    for letter, spots in zip(letters, arms.values(), strict=False):
        for each in thin_marks(spots, lambda one: one.j_per_byte):
            at = f", {each.at}" if each.at else ""
            words = f"{letter}{at}: {_words([each], rates)}, {number(each.watts, _SHOWN)} W"
            frame.mark(rates.shown(each.bytes_per_s), each.watts, arm_role(letter), words)
    known = listed(list(dict.fromkeys(each.evidence for each in every)))
    return Figure(
        name=name,
        title=f"{subject}: {_finding(arms, letters, rates)}",
        svg=frame.svg(f"{subject}: mean power by rate"),
        caption="A dot is one run, in the window of its timed phases. Along a grey line the energy "
        f"per GB is the same; lower lines are better. Power: {known}.",
        table=listing(
            "Rate, power and energy per byte of each run",
            [(arm, each) for arm, spots in arms.items() for each in spots],
            {
                "run": lambda of: of[1].run,
                "arm": lambda of: of[0],
                **({"point": lambda of: of[1].at} if any(each.at for each in every) else {}),
                "#rate": lambda of: quantity(of[1].bytes_per_s, Unit.BYTES_PER_SECOND),
                "#mean power": lambda of: quantity(of[1].watts, Unit.WATTS),
                "#energy per byte": lambda of: quantity(of[1].j_per_byte, Unit.JOULES_PER_BYTE),
            },
        ),
        legend=arms_legend([*arms], letters),
    )


def _finding(arms: Mapping[str, Sequence[Spot]], letters: Sequence[str], rates: Scale) -> str:
    """Return what a byte costs at which rate: in each arm, or in the first and last of many.

    Points of a sweep are not pooled: of them it is the range of the runs.
    """
    known = {letter: own for letter, own in zip(letters, arms.values(), strict=False) if own}
    every = [each for own in known.values() for each in own]
    if len({each.at for each in every}) > 1:
        costs = [number(end(s.j_per_byte for s in every) * GB, _SHOWN) for end in (min, max)]
        return f"{' to '.join(costs)} J/GB"
    if len(arms) == 1:
        return _words(every, rates)
    texts = {letter: f"{letter} {_words(own, rates)}" for letter, own in known.items()}
    if len(known) <= _ARMS_MAX:
        return listed([*texts.values()])
    ranked = sorted(known, key=lambda letter: mean_log([s.j_per_byte for s in known[letter]]))
    return f"{texts[ranked[0]]} to {texts[ranked[-1]]}"


def _words(spots: Sequence[Spot], rates: Scale) -> str:
    """Return energy per byte and rate, geometric means: ``1.10 J/GB at 6.97 GB/s``."""
    cost, rate = (
        math.exp(mean_log(values))
        for values in ([s.j_per_byte for s in spots], [s.bytes_per_s for s in spots])
    )
    shown = with_unit(scaled(rate, rates, _SHOWN), rates)
    return f"{quantity(cost, Unit.JOULES_PER_BYTE, _SHOWN)} at {shown}"


def _round_costs(low: float, high: float) -> list[float]:
    """Return a few round energies per byte about those of the runs."""
    first, last = low / _REACH, high * _REACH
    decades = range(math.floor(math.log10(first)), math.ceil(math.log10(last)))
    every = [float(f"{digits}e{decade}") for decade in decades for digits in _ROUND]
    found = [cost for cost in every if first <= cost <= last]
    return found[:: -(-len(found) // _LINES_MAX)]


def _draw_line(frame: Frame, cost: float, slope: float) -> None:
    """Draw the line of an energy per byte from the origin to the edge, with its label there."""
    x, y = frame.x.high, slope * frame.x.high
    is_cut = y > frame.y.high
    if is_cut:
        x, y = frame.y.high / slope, frame.y.high
    frame.line([0, x], [0, y], "axis", width=1)
    top = frame.top + (1 - frame.y.share(y)) * frame.height
    frame.over(
        text(
            share_of(frame.x.share(x)),
            top + (11 if is_cut else -4),
            f"{tick_text(cost)} J/GB",
            anchor="end",
            more=' class="halo" dx="-4"',
        )
    )
