"""What a page of many runs keeps of each: what its rows, ratios and charts are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar, cast

from wattload.core.record.base import Frozen
from wattload.core.record.check import Check
from wattload.core.record.controller import ControllerRecord
from wattload.core.record.energy import EnergyRecord, PowerSection
from wattload.core.record.host import HostRecord
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.run import RunRecord
from wattload.core.record.target import TargetRecord
from wattload.reports.closure import close
from wattload.reports.load import Run
from wattload.reports.sections.heat import highest_k

Same = TypeVar("Same", bound=Frozen)
Part = TypeVar("Part", HostRecord, TargetRecord, ControllerRecord)


class Lightener:
    """Makes runs light: their figures are held against each other first.

    A record takes a quarter of a megabyte in memory. Half of it are details that no comparison
    reads: idle and polling, the whole run by every source, counters, every span of every rank, the
    figures of checks that passed. Much of the rest is said alike by every run of a machine.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[type[Frozen], str], Frozen] = {}

    def __call__(self, run: Run) -> Run:
        """Return a run without what only its own page has; a light one shares what others say."""
        warmest_k = highest_k(run)  # asked now, while its trace is at hand
        closures = _brief(close(run) if run.closures is None else run.closures)
        record = self._record(run.record)
        return replace(run, record=record, closures=closures, highest_k=warmest_k)

    def _record(self, record: RunRecord) -> RunRecord:
        return record.model_copy(
            update={
                "software": self._once(record.software),
                "hosts": self._with_shared_facts(record.hosts),
                "targets": self._with_shared_facts(record.targets),
                "controllers": self._with_shared_facts(record.controllers),
                "spans": _one_each(record.spans),
                "power": self._power(record.power),
                "checks": _brief(record.checks),
                "counters": (),
                "ranks": (),
            }
        )

    def _power(self, power: PowerSection) -> PowerSection:
        return power.model_copy(
            update={
                "sources": tuple(self._once(source) for source in power.sources),
                "energy": tuple(map(_light_energy, power.energy)),
                "whole_run": (),
                "idle": (),
                "polling": (),
                "samplers": (),
            }
        )

    def _with_shared_facts(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        return tuple(part.model_copy(update={"facts": self._once(part.facts)}) for part in parts)

    def _once(self, part: Same) -> Same:
        """Return the first part that says the same: all runs of one machine then share it."""
        found = self._seen.setdefault((type(part), part.model_dump_json()), part)
        return cast("Same", found)


def _one_each(spans: Sequence[PhaseSpan]) -> tuple[PhaseSpan, ...]:
    """Return one span of each phase: a page needs them for which phase lies in which."""
    return tuple({span.name: span for span in spans}.values())


def _light_energy(energy: EnergyRecord) -> EnergyRecord:
    dropped: dict[str, object] = {"histogram": (), "freshness_reason": ""}
    if not energy.chosen:
        dropped |= {"states": (), "uncertainty_parts_j": {}}
    return energy.model_copy(update=dropped)


def _brief(checks: Sequence[Check]) -> tuple[Check, ...]:
    """Return checks, those that passed without sentence and figures: the same in every run."""
    return tuple(
        _passed(check.name, check.mandatory) if check.verdict == "pass" else check
        for check in checks
    )


@cache
def _passed(name: str, mandatory: bool) -> Check:
    return Check(
        name=name,
        verdict="pass",
        sentence="It passed; each run's record has its figures.",
        mandatory=mandatory,
    )
