"""The compact form of a run, for pages of many runs.

With many runs, a page keeps only the data for its rows, ratios and charts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar, cast

import numpy as np

from wattload.core.base_models import Frozen
from wattload.core.power import Channel
from wattload.core.record.energy import EnergyRecord, PowerSection
from wattload.core.record.host import HostRecord
from wattload.core.record.phase import IoCounter
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord
from wattload.core.record.target import ControllerRecord, TargetRecord
from wattload.reports.runs.load import Run
from wattload.reports.runs.validity import checks_of_files
from wattload.results.identity_cache import cache_by_identity

Same = TypeVar("Same", bound=Frozen)
Part = TypeVar("Part", HostRecord, TargetRecord, ControllerRecord)


class Compactor:
    """Makes runs compact, after their file checks.

    A record takes a quarter of a megabyte in memory. Half of it are details that no comparison
    reads: idle power, the whole run by every source, most counters, the figures of checks
    that passed. Much of the rest is the same in every run of a machine.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[type[Frozen], str], Frozen] = {}

    def __call__(self, run: Run) -> Run:
        """Return a run without details of its own page; equal parts are shared between runs."""
        highest_k = highest_temperature_k(run)  # now, while its trace is loaded
        found = checks_of_files(run) if run.file_checks is None else run.file_checks
        record = self._record(run.record)
        return replace(
            run, record=record, file_checks=_compact_checks(found), highest_temperature_k=highest_k
        )

    def _record(self, record: RunRecord) -> RunRecord:
        return record.model_copy(
            update={
                "software": self._shared(record.software),
                "hosts": self._with_shared_facts(record.hosts),
                "targets": self._with_shared_facts(record.targets),
                "controllers": self._with_shared_facts(record.controllers),
                "power": self._power(record.power),
                "checks": _compact_checks(record.checks),
                "counters": _block_counters(record),
            }
        )

    def _power(self, power: PowerSection) -> PowerSection:
        return power.model_copy(
            update={
                "sources": tuple(self._shared(source) for source in power.sources),
                "energy": tuple(map(_compact_energy, power.energy)),
                "whole_run": (),
                "idle": (),
                "samplers": (),
                "calibrations": (),
            }
        )

    def _with_shared_facts(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        return tuple(part.model_copy(update={"facts": self._shared(part.facts)}) for part in parts)

    def _shared(self, part: Same) -> Same:
        """Return the first equal part: all runs of one machine then share it."""
        found = self._seen.setdefault((type(part), part.model_dump_json()), part)
        return cast("Same", found)


def _block_counters(record: RunRecord) -> tuple[IoCounter, ...]:
    """Return what shows whether a drive was busy in a timed phase."""
    timed = {window.name for window in record.timed_windows()}
    return tuple(counter for counter in record.counters if counter.phase in timed)


def _compact_energy(energy: EnergyRecord) -> EnergyRecord:
    dropped: dict[str, object] = {"histogram": (), "statistics": None, "remarks": ()}
    if not energy.chosen:
        dropped |= {"states": (), "uncertainty_parts_j": {}, "work_uncertainty_parts_j": {}}
    return energy.model_copy(update=dropped)


def _compact_checks(checks: Sequence[Check]) -> tuple[Check, ...]:
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
        sentence="Passed; the figures are in each run's record.",
        mandatory=mandatory,
    )


@cache_by_identity
def highest_temperature_k(run: Run) -> float | None:
    """Return the highest temperature of any drive in a run's timed windows."""
    if run.file_checks is not None:  # already computed for a compact run
        return run.highest_temperature_k
    power = run.traces.power
    found = []
    for signal in power.of(Channel.TEMPERATURE_K) if power is not None else ():
        for window in run.record.timed_windows():
            if window.host != signal.host:
                continue
            inside = (signal.time_ns >= window.start_ns) & (signal.time_ns <= window.end_ns)
            values = signal.value[inside & ~np.isnan(signal.value)]
            if values.size:
                found.append(float(values.max()))
    return max(found, default=None)
