"""Energy by observed power state: a bar per arm and state, with the time that was spent in it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from statistics import median
from typing import Any

from wattload.core.power import Scope
from wattload.core.record.energy import PowerStateShare
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.arms import arms_legend
from wattload.reports.charts.bars import Bar, Dot, Panel, in_range, interval_text
from wattload.reports.energy import phase_energies
from wattload.reports.phases import leading
from wattload.reports.quantity import (
    DIGITS,
    MISSING,
    Scale,
    counted,
    listed,
    percent,
    quantity,
    scale_for,
    scaled,
)
from wattload.reports.subject import LETTERS
from wattload.reports.svg import render
from wattload.reports.themes import arm_marker, arm_role

WIDTH = 700
_LINE = 116
_QUESTION = "In which power state was the energy used?"
_DESCRIPTION = (
    "The timed phases by the power state that the drive was seen in: energy, time in the state and "
    "its share of the time."
)
_NOT_NUMBERED = {"transition": "between states", "unknown": "state unknown"}


@dataclass(frozen=True, slots=True)
class _Spent:
    """What one run spent in one state: ``energy_j`` is ``None`` where only its ends are known."""

    seconds: float
    moved_bytes: int | None
    energy_j: float | None
    lower_j: float | None
    upper_j: float | None


@dataclass(frozen=True, slots=True)
class _Row:
    """One arm in one state: what each of its runs spent there, and of how many seconds."""

    letter: str
    arm: str
    state: str
    spent: Sequence[_Spent]
    whole_s: float

    @property
    def seconds(self) -> float:
        """The median of the seconds that its runs were in the state."""
        return median(each.seconds for each in self.spent)

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

    ``letters`` are those of the arms, in their order.
    ``None`` where fewer than two such bars would stand beside each other: then the energy of the
    whole is all there is.
    """
    rows = [row for pair in zip(letters, arms.items(), strict=False) for row in _rows(*pair)]
    ends = [end for each in rows for end in (*each.known("energy_j"), *each.known("upper_j"))]
    if len(rows) < 2 or not ends:  # noqa: PLR2004 - nothing beside it
        return None
    scale = scale_for(Unit.JOULES, *ends)
    words = _evidence(zip(letters, arms.values(), strict=False), {each.letter for each in rows})
    panel = Panel(
        key="states",
        bars=[in_range(_bar(each, len(arms) > 1)) for each in rows],
        scale=scale,
        question=_QUESTION,
        remark=[f"energy in timed phases, {scale.unit}", *textwrap.wrap(words, _LINE)],
        better="lower",
        width=WIDTH,
    )
    return Figure(
        svg=render(
            panel.chart(),
            panel.data(),
            name=name,
            title=f"{subject}: energy by power state",
            description=" ".join([_DESCRIPTION, f"Energy: {words}.", *_told(panel)]),
        ),
        caption=_DESCRIPTION,
        table=_table(rows, scale),
        legend=arms_legend(list(arms), letters) if len(arms) > 1 else [],
    )


def _told(panel: Panel) -> list[str]:
    return [f"{bar.label}: {bar.text(panel.scale)} {panel.scale.unit}." for bar in panel.bars]


def _evidence(arms: Iterable[tuple[str, Sequence[RunRecord]]], shown: Set[str]) -> str:
    """Return how the energies of the arms that are shown are known, by arm where that differs."""
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
    runs = [_of_run(record) for record in records]
    states = sorted({state for run in runs for state in run}, key=_order)
    whole_s = [sum(spent.seconds for spent in run.values()) for run in runs if run]
    return [
        _Row(letter, arm, state, [run[state] for run in runs if state in run], median(whole_s))
        for state in states
    ]


def _order(state: str) -> tuple[bool, int, str]:
    return not state.isdigit(), int(state) if state.isdigit() else 0, state


def _of_run(record: RunRecord) -> dict[str, _Spent]:
    """Return what a run spent in each state, over its leading phases and its drives."""
    timed = {phase.name for phase in leading(record)}
    shares: dict[str, list[PowerStateShare]] = {}
    for energy in record.power.energy:
        if energy.phase in timed and energy.chosen and energy.scope is Scope.DRIVE:
            for share in energy.states:
                shares.setdefault(share.state, []).append(share)
    return {state: _added(of_state) for state, of_state in shares.items()}


def _added(shares: Sequence[PowerStateShare]) -> _Spent:
    """Return the sum of shares; a figure that one of them lacks is missing from the sum."""
    fields: dict[str, Any] = {}
    for name in ("moved_bytes", "energy_j", "lower_j", "upper_j"):
        values = [getattr(share, name) for share in shares]
        fields[name] = None if None in values else sum(values)
    return _Spent(seconds=sum(share.seconds for share in shares), **fields)


def _bar(each: _Row, several: bool) -> Bar:
    energies, lowers, uppers = (each.known(name) for name in ("energy_j", "lower_j", "upper_j"))
    state = _state_words(each.state)
    known = bool(energies)
    return Bar(
        label=f"{each.letter}, {state}" if several else state,
        role=arm_role(each.letter),
        marker=arm_marker(each.letter),
        value=median(energies) if known else None,
        lower=min(lowers, default=None) if not known else None,
        upper=max(uppers, default=None) if not known else None,
        dots=[Dot(value) for value in energies] if len(energies) > 1 else [],
        note=f"in {_time_words(each)}",
        count=f"n = {len(each.spent)}",
        reason="no figure of its energy",
    )


def _state_words(state: str) -> str:
    return f"PS{state}" if state.isdigit() else _NOT_NUMBERED.get(state, state)


def _time_words(each: _Row) -> str:
    share = each.seconds / each.whole_s if each.whole_s else None
    return f"{quantity(each.seconds, Unit.SECONDS, 3)} ({percent(share)})"


def _table(rows: Sequence[_Row], scale: Scale) -> Table:
    titles = columns(
        "arm", "power state", "#runs", "#seconds", "#share", f"#energy, {scale.unit}", "#moved"
    )
    found = [
        row(
            each.arm,
            _state_words(each.state),
            counted(len(each.spent), "run"),
            quantity(each.seconds, Unit.SECONDS),
            percent(each.seconds / each.whole_s if each.whole_s else None),
            "; ".join(_energy(spent, scale) for spent in each.spent),
            quantity(_middle(each.known("moved_bytes")), Unit.BYTES),
        )
        for each in rows
    ]
    return Table(columns=titles, rows=found, caption="By observed power state, in timed phases")


def _energy(spent: _Spent, scale: Scale) -> str:
    if spent.energy_j is not None:
        return scaled(spent.energy_j, scale)
    if spent.upper_j is None:
        return MISSING
    return interval_text(spent.lower_j, spent.upper_j, scale, DIGITS)


def _middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None
