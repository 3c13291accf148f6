"""The energy record of one source of one device, for any windows of a run.

A phase that was entered several times counts over its active intervals only: between two epochs or
two checkpoints a run does other work, such as evicting caches or reading back what it wrote, and
that energy does not belong to the phase's bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from wattload.core.base_models import ValueOrReason, fields_of
from wattload.core.power import Channel, Counter, Evidence, Scope, SourceFacts, weakest
from wattload.core.record.energy import (
    CalibrationRecord,
    EnergyRecord,
    PowerStateShare,
    SensorRecord,
)
from wattload.power.energy.activity import RunTimes, Tail
from wattload.power.energy.faults import pinned, saturated
from wattload.power.energy.integration import (
    COVERAGE_FACTOR,
    Course,
    Limits,
    Window,
    WindowResult,
    seconds_of,
    uncovered,
)
from wattload.power.energy.measured import Idle, MeasuredPower
from wattload.power.energy.power_states import shares
from wattload.power.energy.profile import profile_of
from wattload.power.energy.sensor import usual_s
from wattload.power.energy.statistics import power_statistics
from wattload.power.energy.trace import (
    Refused,
    Trace,
    TraceKey,
    plausible,
)

ENERGIES = ("energy_j", "lower_j", "upper_j")
_OF_TAIL = ("tail_j", "tail_uncertainty_j", "work_uncertainty_j")
_MEASURED = (*_OF_TAIL, "uncertainty_j", "statistics")

Figures = dict[str, tuple[Any, str]]
"""Figures of a record by name, each with the reason if it is ``None``."""

IDLE_DRIFT = 0.1
"""Idle times before and after the run whose power differs by more than this share are remarked. So
much is the uncertainty (k = 2) of the only one."""
AT_IDLE = 0.05
"""Power at the end of a rest is at idle if it is at most this share above."""
EDGE_SHARE = 0.001
"""A disagreement at an edge is remarked if it is more than this share of the energy."""
HOLE_S = 0.5
"""Holes that are longer are remarked."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SourceLedger:
    """One source of one device: its power, its bounds, and what is read of the device's state.

    ``energies`` has what the source reads by the field of the record. ``before`` and ``after`` are
    the idle power before and after the run.
    """

    facts: SourceFacts
    times: RunTimes
    energies: Mapping[str, MeasuredPower | Limits]
    refused: Sequence[Refused]
    states: Trace | None
    changes: Trace | None
    temperature: Trace | None
    before: Idle | None
    after: Idle | None

    @classmethod
    def build(
        cls,
        by_key: Mapping[TraceKey, Trace],
        facts: SourceFacts,
        *,
        times: RunTimes,
        calibrations: Sequence[CalibrationRecord],
        resets_ns: Sequence[int],
    ) -> SourceLedger:
        """Return the ledger of one source from the traces of all."""
        measured: MeasuredPower | None = None
        energies: dict[str, MeasuredPower | Limits] = {}
        peaks = by_key.get(TraceKey(facts.name, facts.device, Channel.MAX_W))
        refused = [saturated(peaks, facts)]
        # A meter outside the drive keeps counting while the drive restarts.
        own_ns = resets_ns if facts.asks_drive else ()
        channels = facts.figure_channel, Channel.LOWER_W, Channel.UPPER_W
        for name, channel in zip(ENERGIES, channels, strict=True):
            read = by_key.get(TraceKey(facts.name, facts.device, channel))
            if read is None:
                continue
            trace, bad = plausible(read, facts)
            refused.append(bad)
            profile = profile_of(trace, facts.sensor, period_s=facts.period_s, resets_ns=own_ns)
            if name == "energy_j" and facts.measures and profile.start_ns.size:
                measured = MeasuredPower.of(trace, profile, facts, times, calibrations)
                energies[name] = measured
                if not isinstance(facts.sensor, Counter):
                    refused.append(pinned(trace, facts, measured.sensor, times.of_run()))
            else:
                energies[name] = Limits.of(trace, profile, facts)
        return cls(
            facts=facts,
            times=times,
            energies=energies,
            refused=[each for each in refused if each is not None],
            states=_fullest(facts.device, Channel.POWER_STATE, by_key),
            changes=_fullest(facts.device, Channel.POWER_STATE_CHANGES, by_key),
            temperature=_fullest(facts.device, Channel.TEMPERATURE_K, by_key),
            before=None if measured is None else measured.idle(times.before),
            after=None if measured is None else measured.idle(times.after),
        )

    @property
    def measured(self) -> MeasuredPower | None:
        """What the source measured, ``None`` for limits, a data sheet, or too few readings."""
        part = self.energies.get("energy_j")
        return part if isinstance(part, MeasuredPower) else None

    @property
    def sensor(self) -> SensorRecord | None:
        """The sensor as its energies use it, ``None`` without readings."""
        return None if self.measured is None else self.measured.sensor

    @property
    def _unmeasured(self) -> str:
        """Why there is no measured power."""
        lacks = "too few readings" if self.facts.measures else "no power sensor"
        if self.facts.has_declared_readings:
            lacks = "declared readings only"
        return f"{self.facts.name} has {lacks}"

    def idle_w(self) -> ValueOrReason:
        """Return idle power: the mean of both idle times, or the only one."""
        if self.measured is None:
            return None, self._unmeasured
        window = self.times.before
        refused = self._refusal([window] if window is not None else [])
        known = [idle.watts for idle in (self.before, self.after) if idle is not None]
        if known and not refused:
            return sum(known) / len(known), ""
        if window is None:
            return None, "no idle baseline was taken"
        return None, f"in the idle baseline, {refused or self.measured.result([window]).reason}"

    def record(
        self,
        phase: str,
        windows: Sequence[Window],
        *,
        host: str,
        tail: Tail | None = None,
        others: Sequence[str] = (),
        moved_bytes: Course | None = None,
    ) -> EnergyRecord:
        """Return the energy in some windows, with a reason for each missing figure.

        ``tail`` are the rests behind a timed phase, ``others`` the phases that ran at the same time
        and ``moved_bytes`` the bytes that it moved on this device over time.
        """
        seconds, part = seconds_of(windows), self.energies.get("energy_j")
        results = {name: part.result(windows) for name, part in self.energies.items()}
        energies = {name: self._energy(name, results, windows) for name in ENERGIES}
        energy_j, why = energies["energy_j"]
        # Evidence and coverage are those of the energy, else of the bounds.
        decisive = [results["energy_j"]] if part is not None else [*results.values()]
        if tail is None:
            tail = Tail(reason="only timed phases have a tail")
            idle: ValueOrReason = (None, "idle power is not subtracted from a whole run")
        else:
            idle = self.idle_w()
        measured, fields = self.measured, dict[str, Any]()
        missing = self._unmeasured if measured is None else why
        figures: Figures = dict.fromkeys(_MEASURED, (None, missing))
        if measured is not None and energy_j is not None:
            figures, fields = self._measured_figures(measured, energy_j, windows, tail)
            fields["remarks"] = self._remarks(measured, energy_j, windows, tail, others=others)
        found = [self.facts.evidence, *(result.evidence for result in decisive)]
        figures |= {
            **energies,
            "mean_w": (None if energy_j is None else energy_j / seconds, why),
            "coverage": (
                min((result.coverage for result in decisive), default=None),
                "there are no samples",
            ),
            "idle_w": idle,
            "net_j": self._net(energies["energy_j"], idle, seconds),
            "change_count": (
                None if part is None else _change_count(part.trace, windows),
                f"{self.facts.name} does not read power",
            ),
            "max_interval_w": (None, "only a drive's own measurement of the run (25h) has it"),
        }
        return EnergyRecord(
            host=host,
            device=self.facts.device,
            source=self.facts.name,
            scope=self.facts.scope,
            phase=phase,
            start_ns=windows[0][0],
            end_ns=windows[-1][1],
            evidence=weakest(found) if decisive else Evidence.NONE,
            seconds=seconds,
            rest_s=seconds_of(tail.windows),
            sample_count=max((result.sample_count for result in decisive), default=0),
            states=self._shares(energies, windows, moved_bytes),
            **fields,
            **fields_of(figures),
        )

    def _refusal(self, windows: Sequence[Window]) -> str:
        """Return why windows have no energy for a reading in them; empty if there is none."""
        for refused in self.refused:
            if any(refused.in_window(*window) for window in windows):
                return refused.reason
        return ""

    def _energy(
        self, name: str, results: Mapping[str, WindowResult], windows: Sequence[Window]
    ) -> ValueOrReason:
        refused = self._refusal(windows)
        if refused:
            return None, refused
        if name in results:
            return results[name].energy_j, results[name].reason
        if not results:
            return None, f"{self.facts.name} has no samples"
        if name == "energy_j":
            return None, f"{self.facts.name} reports bounds only"
        return None, f"{self.facts.name} reports no {name.removesuffix('_j')} bound"

    def _net(self, energy: ValueOrReason, idle: ValueOrReason, seconds: float) -> ValueOrReason:
        if energy[0] is None:
            return energy
        if self.facts.scope is not Scope.DRIVE:
            return None, "idle power is subtracted for drives only: the host is busy"
        return idle if idle[0] is None else (energy[0] - idle[0] * seconds, "")

    def _measured_figures(
        self, measured: MeasuredPower, energy_j: float, windows: Sequence[Window], tail: Tail
    ) -> tuple[Figures, dict[str, Any]]:
        """Return the figures that only a measured energy has, and the other fields."""
        found = power_statistics(measured.profile, measured.edges, self.facts, windows)
        stated = measured.uncertainty(energy_j, windows)
        figures: Figures = {
            "uncertainty_j": (stated.total_j, stated.reason or ""),
            "statistics": (found, ""),
        }
        fields: dict[str, Any] = {"uncertainty_parts_j": stated.parts_j}
        base, rests, why = self.after or self.before, tail.windows, tail.reason
        if self.facts.scope is not Scope.DRIVE:
            why = "only drives have a tail"
        elif base is None:
            why = "no idle power was measured"
        elif not why:
            why = self._refusal([*rests, *self.times.idle()]) or uncovered(
                measured.result(rests).coverage
            )
        if why or base is None:
            return dict.fromkeys(_OF_TAIL, (None, why)) | figures, fields
        rest_s = seconds_of(rests)
        idle_w = math.hypot(base.uncertainty_w, self._drift_w(base))
        tail_j = measured.gross_j(rests) - base.watts * rest_s
        of_tail = measured.uncertainty(tail_j, (), rests, idle_w * rest_s)
        of_work = measured.uncertainty(energy_j + tail_j, windows, rests, idle_w * rest_s)
        figures |= {
            "tail_j": (tail_j, ""),
            "tail_uncertainty_j": (of_tail.total_j, of_tail.reason or ""),
            "work_uncertainty_j": (of_work.total_j, of_work.reason or ""),
        }
        ends = [end for end in map(measured.idle_at_end, rests) if end is not None]
        fields["work_uncertainty_parts_j"] = of_work.parts_j
        fields["is_at_least"] = any(
            end.watts - base.watts
            > max(
                AT_IDLE * abs(base.watts), COVERAGE_FACTOR * math.hypot(end.uncertainty_w, idle_w)
            )
            for end in ends
        )
        return figures, fields

    def _drift_w(self, base: Idle) -> float:
        """Return the standard uncertainty of idle power in a rest by its drift over the run.

        It may be as before the run or as after it, of which only one is subtracted.
        """
        if self.before is None or self.after is None:
            return IDLE_DRIFT / COVERAGE_FACTOR * abs(base.watts)
        return abs(self.after.watts - self.before.watts) / math.sqrt(3)

    def _remarks(
        self,
        measured: MeasuredPower,
        energy_j: float,
        windows: Sequence[Window],
        tail: Tail,
        *,
        others: Sequence[str],
    ) -> tuple[str, ...]:
        """Return a sentence on each thing that widened an uncertainty of the phase."""
        edges_j = measured.disagreement_j([*windows, *tail.windows])
        missed_s = seconds_of(windows) * (1 - measured.result(windows).coverage)
        idle_w = [each.watts for each in (self.before, self.after) if each is not None] or [0.0]
        before, rested = self._state([self.times.before]), self._state(tail.windows[-1:])
        remarks = {
            f"at an edge, energies by the readings before and after it differ by {edges_j:.3g} J": (
                edges_j > EDGE_SHARE * abs(energy_j)
            ),
            f"{self.facts.name} failed its calibration: its mean of a fast load is wrong": (
                measured.sensor.is_aliasing
            ),
            f"no reading covers {missed_s:.2g} s of it": missed_s > HOLE_S,
            "idle power after the job was not measured for long enough, so that before it is "
            "subtracted": (bool(tail.windows) and self.after is None),
            f"it includes the energy of {' and '.join(others)}, which ran at the same time": (
                bool(others)
            ),
            f"idle power was {idle_w[0]:.3g} W before the job and {idle_w[-1]:.3g} W after": (
                abs(idle_w[-1] - idle_w[0]) > IDLE_DRIFT * abs(idle_w[0])
            ),
            f"the drive idled in power state {before} before the job and in {rested} at the end of "
            "its rest": None not in (before, rested) and before != rested,
        }
        return (*measured.remarks, *(text for text, applies in remarks.items() if applies))

    def _state(self, windows: Sequence[Window | None]) -> int | None:
        """Return the last power state read in some windows, ``None`` without any."""
        if self.states is None:
            return None
        values = [self.states.values(*window) for window in windows if window is not None]
        read = np.concatenate((*values, ()))
        return int(read[-1]) if read.size else None

    def _shares(
        self,
        energies: Mapping[str, ValueOrReason],
        windows: Sequence[Window],
        moved_bytes: Course | None,
    ) -> tuple[PowerStateShare, ...]:
        if self.states is None:
            return ()
        totals: dict[str, tuple[Course | None, str]] = {
            name: (None if value is None else partial(self.energies[name].energy_j, windows), why)
            for name, (value, why) in energies.items()
        }
        why = "the bytes of this device were not counted over time"
        return shares(
            self.states,
            {**totals, "moved_bytes": (moved_bytes, why)},
            windows,
            period_s=usual_s(self.states.time_ns) or self.facts.period_s,
            changes=self.changes,
        )


def _fullest(device: str, channel: Channel, by_key: Mapping[TraceKey, Trace]) -> Trace | None:
    """Return the device's trace on a channel, by the source with the most successful reads."""
    found = [
        trace for key, trace in by_key.items() if key.device == device and key.channel is channel
    ]
    return max(found, key=lambda trace: trace.known()[0].size, default=None)


def _change_count(trace: Trace, windows: Sequence[Window]) -> int:
    """Return how often the reading changed within some windows."""
    return sum(int(np.count_nonzero(np.diff(trace.values(*window)))) for window in windows)
