"""Energy of runs: per phase with its evidence, and per observed power state with its time."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from statistics import median
from typing import Any

from wattload.core.power import Evidence, Scope
from wattload.core.record.energy import PowerStateShare
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.arms import arms_legend
from wattload.reports.charts.bars import Bar, Dot, Panel, checked_range
from wattload.reports.charts.captions import intervals_caption
from wattload.reports.charts.svg import make_figure
from wattload.reports.charts.themes import arm_marker, arm_role
from wattload.reports.quantity import (
    MISSING,
    Scale,
    counted,
    interval_text,
    listed,
    percent,
    quantity,
    scale_for,
    scaled,
)
from wattload.reports.runs.energy import SOFT_BOUND, Energy, energy_text, phase_energies, power_text
from wattload.reports.runs.phases import leading
from wattload.reports.stats.subject import LETTERS

PHASES_WIDTH = 640
STATES_WIDTH = 700
_LINE = 116
_STATES_CAPTION = (
    "The timed phases by the observed power state of the drive: energy, time in the state and its "
    "share of the time."
)
_STATE_WORDS = {"transition": "between states", "unknown": "state unknown"}
"""What a record has in place of the number of a power state."""


def energy_figure(name: str, subject: str, energies: Sequence[Energy]) -> Figure | None:
    """Return the chart of energy per phase; ``None`` where no phase has a figure or a bound."""
    ends_j = [e.upper_j if e.energy_j is None else e.energy_j for e in energies]
    known = [e for e, end_j in zip(energies, ends_j, strict=True) if end_j is not None]
    if not known:
        return None
    scale = scale_for(Unit.JOULES, *ends_j)
    words = list(dict.fromkeys(energy.words for energy in known))
    panel = Panel(
        key="energy",
        bars=[checked_range(_phase_bar(energy, is_named=len(words) > 1)) for energy in energies],
        scale=scale,
        question="How much energy does each phase use?",
        remark=[f"energy, {scale.unit}", *words],
        better="lower",
        width=PHASES_WIDTH,
    )
    legend = [(_phase_bar(energy, is_named=False).role, energy.words) for energy in known]
    return make_figure(
        panel.chart(),
        panel.data(),
        name=name,
        title=f"{subject}: energy per phase",
        caption=_phases_caption(known),
        sentences=_bar_sentences(panel),
        table=_phases_table(energies),
        legend=list(dict.fromkeys(legend)),
    )


def _phase_bar(energy: Energy, *, is_named: bool) -> Bar:
    """Return one phase's bar.

    Args:
        energy: that of the phase.
        is_named: whether its evidence is printed, because the phases differ in it.
    """
    is_bound = energy.energy_j is None
    is_declared = energy.evidence is Evidence.DECLARED
    return Bar(
        label=energy.phase,
        role="bound" if is_bound else "declared" if is_declared else "power",
        value=energy.energy_j,
        lower=energy.lower_j if is_bound else None,
        upper=energy.upper_j if is_bound else None,
        error=energy.uncertainty_j,
        note=energy.words if is_named else "",
        reason=energy.reason,
    )


def _phases_caption(energies: Sequence[Energy]) -> str:
    words = list(dict.fromkeys(energy.words for energy in energies))
    text = f"Energy per timed phase: {'; '.join(words)}."
    bounded = [energy for energy in energies if energy.energy_j is None]
    if bounded:
        text += f" {intervals_caption(energy.words for energy in bounded)}"
    if any(e.evidence is Evidence.BOUNDS and e.lower_j is not None for e in bounded):
        text += f" {SOFT_BOUND}."
    if any(energy.uncertainty_j for energy in energies):
        text += " The line across a bar's end is its uncertainty (k = 2)."
    return text


def _phases_table(energies: Sequence[Energy]) -> Table:
    rows = [
        row(
            energy.phase,
            energy_text(energy),
            power_text(energy),
            quantity(energy.uncertainty_j, Unit.JOULES),
            energy.words,
        )
        for energy in energies
    ]
    titles = columns("phase", "#energy", "#mean power", "#uncertainty (k = 2)", "evidence")
    return Table(columns=titles, rows=rows, caption="Energy per phase")


@dataclass(frozen=True, slots=True)
class _Spent:
    """What one run spent in one state; ``energy_j`` is ``None`` where only its bounds are known."""

    seconds: float
    moved_bytes: int | None
    energy_j: float | None
    lower_j: float | None
    upper_j: float | None


@dataclass(frozen=True, slots=True)
class _Row:
    """One arm in one state: what each of its runs spent there.

    ``whole_s`` is the median of the runs' seconds in all states.
    """

    letter: str
    arm: str
    state: str
    spent: Sequence[_Spent]
    whole_s: float

    @property
    def seconds(self) -> float:
        """The median of the seconds that its runs were in the state."""
        return median(each.seconds for each in self.spent)

    @property
    def share(self) -> str:
        """The share of the time in the state, as a percentage."""
        return percent(self.seconds / self.whole_s if self.whole_s else None)

    @property
    def state_name(self) -> str:
        """The state in words."""
        if self.state.isdigit():
            return f"PS{self.state}"
        return _STATE_WORDS.get(self.state, self.state)

    def known(self, field: str) -> list[float]:
        """Return a figure of every run that has it."""
        return [value for each in self.spent if (value := getattr(each, field)) is not None]


def states_figure(
    name: str,
    subject: str,
    arms: Mapping[str, Sequence[RunRecord]],
    letters: Sequence[str] = LETTERS,
) -> Figure | None:
    """Return energy by arm and observed state, over the timed phases.

    ``None`` where there would be fewer than two bars: one repeats the energy of the whole.

    Args:
        name: unique on the page.
        subject: what the title begins with.
        arms: the valid runs of each arm.
        letters: those of the arms, in their order.
    """
    rows = [row for pair in zip(letters, arms.items(), strict=False) for row in _rows(*pair)]
    ends = [end for each in rows for end in (*each.known("energy_j"), *each.known("upper_j"))]
    if len(rows) < 2 or not ends:  # noqa: PLR2004 - nothing to compare
        return None
    scale = scale_for(Unit.JOULES, *ends)
    words = _evidence(zip(letters, arms.values(), strict=False), {each.letter for each in rows})
    panel = Panel(
        key="states",
        bars=[checked_range(_state_bar(each, len(arms) > 1)) for each in rows],
        scale=scale,
        question="In which power state was the energy used?",
        remark=[f"energy in timed phases, {scale.unit}", *textwrap.wrap(words, _LINE)],
        better="lower",
        width=STATES_WIDTH,
    )
    return make_figure(
        panel.chart(),
        panel.data(),
        name=name,
        title=f"{subject}: energy by power state",
        caption=_STATES_CAPTION,
        sentences=[f"Energy: {words}.", *_bar_sentences(panel)],
        table=_states_table(rows, scale),
        legend=arms_legend(list(arms), letters) if len(arms) > 1 else [],
    )


def _bar_sentences(panel: Panel) -> list[str]:
    return [f"{bar.label}: {bar.text(panel.scale)} {panel.scale.unit}." for bar in panel.bars]


def _evidence(arms: Iterable[tuple[str, Sequence[RunRecord]]], shown: Set[str]) -> str:
    """Return how the energies of the shown arms are known, arm by arm where that differs."""
    known: dict[str, list[str]] = {}
    for letter, records in arms:
        words = [energy.words for record in records for energy in phase_energies(record)]
        if letter in shown:
            known[letter] = list(dict.fromkeys(words))
    if len({tuple(words) for words in known.values()}) == 1:
        return listed(next(iter(known.values())))
    return "; ".join(f"{letter}: {listed(words)}" for letter, words in known.items())


def _rows(letter: str, pair: tuple[str, Sequence[RunRecord]]) -> list[_Row]:
    arm, records = pair
    runs = [_spent_by_state(record) for record in records]
    states = sorted({state for run in runs for state in run}, key=_order)
    whole_s = [sum(spent.seconds for spent in run.values()) for run in runs if run]
    return [
        _Row(letter, arm, state, [run[state] for run in runs if state in run], median(whole_s))
        for state in states
    ]


def _order(state: str) -> tuple[bool, int, str]:
    return not state.isdigit(), int(state) if state.isdigit() else 0, state


def _spent_by_state(record: RunRecord) -> dict[str, _Spent]:
    """Return what a run spent in each state, summed over its leading phases and its drives."""
    timed = {phase.name for phase in leading(record)}
    shares: dict[str, list[PowerStateShare]] = {}
    for energy in record.power.energy:
        if energy.phase in timed and energy.chosen and energy.scope is Scope.DRIVE:
            for share in energy.states:
                shares.setdefault(share.state, []).append(share)
    return {state: _sum(of_state) for state, of_state in shares.items()}


def _sum(shares: Sequence[PowerStateShare]) -> _Spent:
    """Return the sum of shares; the sum lacks each figure that one of them lacks."""
    fields: dict[str, Any] = {}
    for name in ("moved_bytes", "energy_j", "lower_j", "upper_j"):
        values = [getattr(share, name) for share in shares]
        fields[name] = None if None in values else sum(values)
    return _Spent(seconds=sum(share.seconds for share in shares), **fields)


def _state_bar(each: _Row, several: bool) -> Bar:
    energies, lowers, uppers = (each.known(name) for name in ("energy_j", "lower_j", "upper_j"))
    known = bool(energies)
    return Bar(
        label=f"{each.letter}, {each.state_name}" if several else each.state_name,
        role=arm_role(each.letter),
        marker=arm_marker(each.letter),
        value=median(energies) if known else None,
        lower=min(lowers, default=None) if not known else None,
        upper=max(uppers, default=None) if not known else None,
        dots=[Dot(value) for value in energies] if len(energies) > 1 else [],
        note=f"in {quantity(each.seconds, Unit.SECONDS, 3)} ({each.share})",
        count=f"n = {len(each.spent)}",
        reason="energy unknown",
    )


def _states_table(rows: Sequence[_Row], scale: Scale) -> Table:
    titles = columns(
        "arm", "power state", "#runs", "#seconds", "#share", f"#energy, {scale.unit}", "#moved"
    )
    found = [
        row(
            each.arm,
            each.state_name,
            counted(len(each.spent), "run"),
            quantity(each.seconds, Unit.SECONDS),
            each.share,
            "; ".join(_energy(spent, scale) for spent in each.spent),
            quantity(median(moved) if (moved := each.known("moved_bytes")) else None, Unit.BYTES),
        )
        for each in rows
    ]
    return Table(columns=titles, rows=found, caption="By observed power state, in timed phases")


def _energy(spent: _Spent, scale: Scale) -> str:
    if spent.energy_j is not None:
        return scaled(spent.energy_j, scale)
    if spent.upper_j is None:
        return MISSING
    return interval_text(spent.lower_j, spent.upper_j, scale)
