"""A run of a chart over time: its phases, its rest and idle times, and what they took in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wattload.core.units import Unit
from wattload.reports.runs.energy import Energy, phase_energies, whole_energy
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import Phase, leading
from wattload.reports.runs.timeline import Timeline, make_timeline
from wattload.results.labels import label
from wattload.results.quantity import counted, listed, quantity
from wattload.results.reading import run_of, view_of

_LONGEST_NAMES = 16
"""Characters of the names of phases that a narrow chart has room for."""
_QUIET_WORDS = {"rest": "rest", "idle": "idle", "idle_after": "idle"}
"""The phases without work in which drives are measured, as a chart of power names them."""
_IDLE_SHARE = 0.2
"""The most of an idle time that is drawn, as a share of the timed part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One run of a chart over time: its arm's letter and name, and its series.

    ``zero_s`` is the start of its first timed phase, where the axis begins to count.
    """

    letter: str
    name: str
    run: Run
    timeline: Timeline
    zero_s: float
    phases: tuple[Phase, ...]

    @property
    def end_s(self) -> float:
        """The end of its last timed phase, from its start."""
        ends = [phase.intervals_s[-1][1] for phase in self.phases]
        return max(ends, default=self.timeline.end_s) - self.zero_s

    @property
    def quiet(self) -> list[tuple[float, float, str]]:
        """Its rest and idle times on the axis, in order, with their names; of long ones a part.

        Of an idle time before the timed part it is the end, of one after it the beginning.
        """
        most_s = max(_IDLE_SHARE * self.end_s, min(2.0, self.end_s))
        found = []
        for strip in self.timeline.strips:
            name = _QUIET_WORDS.get(strip.name, "")
            start_s, end_s = strip.start_s - self.zero_s, strip.end_s - self.zero_s
            if name == "idle":
                is_before = end_s <= 0
                start_s = max(start_s, end_s - most_s) if is_before else start_s
                end_s = end_s if is_before else min(end_s, start_s + most_s)
            if name:
                found.append((start_s, end_s, name))
        return sorted(found)

    @property
    def active_s(self) -> float:
        """How long its timed phases took in all."""
        return sum(phase.active_s for phase in self.phases)

    @property
    def work(self) -> str:
        """How many units of work its timed phases are, ``2 checkpoints``; empty for one."""
        view, run = view_of(self.run.record), run_of(self.run.record)
        if view.work is None or not view.has_size or run is None:
            return ""
        name, count = view.work(run, [phase.name for phase in self.phases]) or ("", 0.0)
        return counted(int(count), name) if count > 1 else ""

    @property
    def summary(self) -> str:
        """How long its timed phases took in all, and their energy, with their names."""
        energies = phase_energies(self.run.record)
        whole = whole_energy(self.run.record) or (energies[0] if len(self.phases) == 1 else None)
        names = self.work or _names(self.phases)
        return _spent(names if len(names) <= _LONGEST_NAMES else "in all", self.active_s, whole)

    @property
    def parts(self) -> tuple[str, ...]:
        energies = {energy.phase: energy for energy in phase_energies(self.run.record)}
        return tuple(
            _spent(label(phase.name), phase.active_s, energies.get(phase.name))
            for phase in self.phases
        )


def _names(phases: Sequence[Phase]) -> str:
    return listed([label(phase.name) for phase in phases])


def _spent(name: str, seconds: float, energy: Energy | None) -> str:
    words = f"{name} {quantity(seconds, Unit.SECONDS, 3)}"
    if energy is not None and energy.energy_j is not None:
        words += f", {quantity(energy.energy_j, Unit.JOULES, 3)} in the window"
    return words


def make_track(letter: str, name: str, run: Run) -> Track:
    phases = leading(run.record)
    timeline = make_timeline(run)
    zero_s = min((phase.start_s for phase in phases), default=timeline.start_s)
    return Track(letter=letter, name=name, run=run, timeline=timeline, zero_s=zero_s, phases=phases)


def has_power(track: Track) -> bool:
    """Return whether a run's power is known over time, as a line or as bounds."""
    return bool(track.timeline.watts or track.timeline.bands)
