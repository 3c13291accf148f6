"""What a page of many runs keeps of each: what its rows, ratios and charts are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from wattload.core.record.check import Check
from wattload.core.record.energy import EnergyRecord, PowerSection
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.run import RunRecord
from wattload.reports.closure import close
from wattload.reports.load import Run
from wattload.reports.sections.heat import highest_k


def lightened(run: Run) -> Run:
    """Return a run whose figures were held against each other, without what only its own page has.

    A record takes a quarter of a megabyte in memory, half of it for details that no comparison
    reads: idle and polling, the whole run by every source, counters, every span of every rank.
    """
    closures = tuple(_brief(check) for check in close(run))
    light = replace(run, record=_light(run.record), closures=closures)
    highest_k(light)  # kept with the run: asked now, while its trace is at hand
    return light


def _light(record: RunRecord) -> RunRecord:
    return record.model_copy(
        update={
            "spans": _one_each(record.spans),
            "power": _light_power(record.power),
            "counters": (),
            "ranks": (),
        }
    )


def _one_each(spans: Sequence[PhaseSpan]) -> tuple[PhaseSpan, ...]:
    """Return one span of each phase: a page needs them for which phase lies in which."""
    return tuple({span.name: span for span in spans}.values())


def _light_power(power: PowerSection) -> PowerSection:
    return power.model_copy(
        update={
            "energy": tuple(map(_light_energy, power.energy)),
            "whole_run": (),
            "idle": (),
            "polling": (),
            "samplers": (),
        }
    )


def _light_energy(energy: EnergyRecord) -> EnergyRecord:
    dropped: dict[str, object] = {"histogram": (), "freshness_reason": ""}
    if not energy.chosen:
        dropped |= {"states": (), "uncertainty_parts_j": {}}
    return energy.model_copy(update=dropped)


def _brief(check: Check) -> Check:
    """Return a check, one that passed without its figures: the same object in every run."""
    return _passed(check.name, check.mandatory) if check.verdict == "pass" else check


@cache
def _passed(name: str, mandatory: bool) -> Check:
    return Check(name=name, verdict="pass", sentence="It passed.", mandatory=mandatory)
