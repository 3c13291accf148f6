"""One source of one device: from its traces to the energy record of a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattload.core.power import (
    MEASURING,
    Boxcar,
    Channel,
    Counter,
    Evidence,
    Integral,
    SourceFacts,
    weakest,
)
from wattload.core.record.energy import EnergyRecord, Freshness, PowerStateShare
from wattload.core.units import NS_PER_S
from wattload.power.boxcar import resolve_boxcar
from wattload.power.energy import WindowResult, integrate_profile, window_curve
from wattload.power.profile import Profile
from wattload.power.sensors import profile_of
from wattload.power.staleness import Staleness, staleness
from wattload.power.states import ENERGIES, Divided, shares
from wattload.power.trace import Trace, TraceKey
from wattload.power.traffic import ByteSeries
from wattload.power.uncertainty import Uncertainty, uncertainty

Window = tuple[int, int]
"""Start and end in ns of CLOCK_MONOTONIC."""

Figure = tuple[float | None, str]
"""A value, and why there is none."""


def resolved(facts: SourceFacts, by_key: Mapping[TraceKey, Trace]) -> SourceFacts:
    """Return the facts with what the trace shows of an averaging sensor's updates."""
    trace = by_key.get(TraceKey(facts.name, facts.device, Channel.POWER_W))
    if trace is None or not isinstance(facts.sensor, Boxcar):
        return facts
    return facts.model_copy(update={"sensor": resolve_boxcar(trace, facts.sensor)})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """One trace of the source as power over time, for all windows; what is stale is a hole."""

    trace: Trace
    profile: Profile
    staleness: Staleness | None

    @classmethod
    def build(
        cls,
        trace: Trace,
        facts: SourceFacts,
        resets_ns: Sequence[int],
        by_key: Mapping[TraceKey, Trace],
    ) -> _Part:
        found = staleness(trace, facts, by_key)
        live = trace if found is None else found.without_stale(trace)
        profile = profile_of(live, facts.sensor, period_s=facts.period_s, resets_ns=resets_ns)
        return cls(trace=trace, profile=profile, staleness=found)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Meter:
    """One source of one device: its figure, its bounds, and the power states seen on the device.

    ``parts`` maps the record's field (``energy_j``, ``lower_j``, ``upper_j``) to what gives it.
    """

    facts: SourceFacts
    parts: Mapping[str, _Part]
    states: Trace | None
    changes: Trace | None
    idle: Figure

    @classmethod
    def build(
        cls,
        by_key: Mapping[TraceKey, Trace],
        stated: SourceFacts,
        *,
        idle: Window | None,
        resets_ns: Sequence[int],
    ) -> Meter:
        """Return the meter of one source; ``idle`` is the baseline's window, if there was one."""
        facts = resolved(stated, by_key)
        channels = {
            "energy_j": Channel.ENERGY_J if isinstance(facts.sensor, Counter) else Channel.POWER_W,
            "lower_j": Channel.LOWER_W,
            "upper_j": Channel.UPPER_W,
        }
        keys = {name: TraceKey(facts.name, facts.device, chan) for name, chan in channels.items()}
        parts = {
            # A meter outside of a drive counts on while the drive starts anew.
            name: _Part.build(by_key[key], facts, resets_ns if facts.asks_drive else (), by_key)
            for name, key in keys.items()
            if key in by_key
        }
        return cls(
            facts=facts,
            parts=parts,
            states=_fullest(facts.device, Channel.POWER_STATE, by_key),
            changes=_fullest(facts.device, Channel.POWER_STATE_CHANGES, by_key),
            idle=_idle_w(facts, parts.get("energy_j"), idle),
        )

    @property
    def measures(self) -> bool:
        """Whether there is a sensor behind the source, and it is read."""
        return self.facts.evidence in MEASURING and not isinstance(self.facts.sensor, Integral)

    def span(self) -> Window | None:
        """Return the first and the last moment at which power was read, ``None`` for neither."""
        part = self.parts.get("energy_j")
        if part is None or not part.trace.time_ns.size:
            return None
        return int(part.trace.time_ns[0]), int(part.trace.time_ns[-1])

    def record(
        self, phase: str, window: Window, *, host: str, traffic: ByteSeries | None = None
    ) -> EnergyRecord:
        """Return the record of one window, with a reason for whatever it lacks."""
        seconds = (window[1] - window[0]) / NS_PER_S
        results = self._results(window)
        energies = {name: self._energy(name, results) for name in ENERGIES}
        stated = self._uncertainty(results, window)
        telling = _telling(results)
        stale_s, freshness, why = self._freshness(window)
        figures: dict[str, Figure] = {
            **energies,
            "mean_w": _over(energies["energy_j"], seconds),
            "coverage": _coverage(telling),
            "idle_w": self.idle,
            "net_j": self._net(energies["energy_j"], seconds),
            "uncertainty_j": (stated.total_j, stated.reason or ""),
            "change_count": self._change_count(window),
        }
        return EnergyRecord(
            **self._identity(phase, window, host),
            evidence=self._evidence(telling),
            seconds=seconds,
            uncertainty_parts_j=stated.parts_j,
            sample_count=max((result.sample_count for result in telling), default=0),
            states=self._shares(window, energies, traffic),
            stale_s=stale_s,
            freshness=freshness,
            freshness_reason=why,
            missing={name: why for name, (value, why) in figures.items() if value is None},
            **{name: value for name, (value, _) in figures.items()},
        )

    def _identity(self, phase: str, window: Window, host: str) -> dict[str, Any]:
        """Return the fields that say whose record it is, and of when."""
        return {
            "host": host,
            "device": self.facts.device,
            "source": self.facts.name,
            "scope": self.facts.scope,
            "phase": phase,
            "start_ns": window[0],
            "end_ns": window[1],
        }

    def _results(self, window: Window) -> Mapping[str, WindowResult]:
        return {
            name: integrate_profile(part.trace, part.profile, self.facts.sensor, *window)
            for name, part in self.parts.items()
        }

    def _change_count(self, window: Window) -> Figure:
        part = self.parts.get("energy_j")
        count = None if part is None else part.trace.change_count(*window)
        return count, f"{self.facts.name} reads no power"

    def _freshness(self, window: Window) -> tuple[float, Freshness, str]:
        part = self.parts.get("energy_j")
        if part is None or part.staleness is None or not self.measures:
            return 0.0, "", ""
        return part.staleness.stale_s(*window), *part.staleness.freshness(*window)

    def _energy(self, name: str, results: Mapping[str, WindowResult]) -> Figure:
        if name in results:
            return results[name].energy_j, results[name].reason or ""
        if not results:
            return None, f"{self.facts.name} gave no sample"
        if name == "energy_j":
            return None, f"{self.facts.name} gives bounds, no figure"
        return None, f"{self.facts.name} gives no {name.removesuffix('_j')} bound"

    def _evidence(self, telling: Sequence[WindowResult]) -> Evidence:
        if not telling:
            return Evidence.NONE
        return weakest([self.facts.evidence, *(result.evidence for result in telling)])

    def _net(self, energy: Figure, seconds: float) -> Figure:
        idle_w, why_no_idle = self.idle
        energy_j, why_no_energy = energy
        if energy_j is None:
            return None, why_no_energy
        if idle_w is None:
            return None, why_no_idle
        return energy_j - idle_w * seconds, ""

    def _uncertainty(self, results: Mapping[str, WindowResult], window: Window) -> Uncertainty:
        if "energy_j" not in results or not self.measures:
            reason = f"{self.facts.name} measures nothing"
            return Uncertainty(total_j=None, parts_j={}, reason=reason)
        part = self.parts["energy_j"]
        return uncertainty(part.trace, part.profile, results["energy_j"], self.facts, window)

    def _shares(
        self, window: Window, energies: Mapping[str, Figure], traffic: ByteSeries | None
    ) -> tuple[PowerStateShare, ...]:
        if self.states is None or window[0] >= window[1]:
            return ()
        divided = {
            name: Divided(curve=None, reason=reason)
            if value is None
            else Divided(
                curve=window_curve(
                    self.parts[name].profile, self.parts[name].trace.key.channel, *window
                )
            )
            for name, (value, reason) in energies.items()
        }
        return shares(
            self.states,
            divided,
            *window,
            period_s=self.states.usual_period_s() or self.facts.period_s,
            traffic=traffic,
            changes=self.changes,
        )


def _telling(results: Mapping[str, WindowResult]) -> Sequence[WindowResult]:
    """Return the results that a record's evidence and coverage rest on: the figure, else bounds."""
    return [results["energy_j"]] if "energy_j" in results else list(results.values())


def _coverage(telling: Sequence[WindowResult]) -> Figure:
    worst = min((result.coverage for result in telling), default=None)
    return worst, "there is no sample that could cover anything"


def _over(energy: Figure, seconds: float) -> Figure:
    energy_j, reason = energy
    return (None, reason) if energy_j is None else (energy_j / seconds, "")


def _fullest(device: str, channel: Channel, by_key: Mapping[TraceKey, Trace]) -> Trace | None:
    """Return what any source read of the device on a channel: of several, the most readings."""
    found = [
        trace for key, trace in by_key.items() if key.device == device and key.channel is channel
    ]
    return max(found, key=_known_count, default=None)


def _known_count(trace: Trace) -> int:
    return int(np.count_nonzero(~np.isnan(trace.value)))


def _idle_w(facts: SourceFacts, part: _Part | None, idle: Window | None) -> Figure:
    """Return the mean power in the idle baseline."""
    if part is None or facts.evidence not in MEASURING:
        return None, f"{facts.name} measures nothing"
    if idle is None:
        return None, "no idle baseline was taken"
    result = integrate_profile(part.trace, part.profile, facts.sensor, *idle)
    return result.mean_w, f"in the idle baseline, {result.reason}"
