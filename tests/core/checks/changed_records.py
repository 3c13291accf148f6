"""Records that pass every check, and records with changed figures."""

from __future__ import annotations

from typing import Any

from tests.records import Scenario, make_run
from wattload.core.checks.evaluation import evaluate
from wattload.core.record.results import Check, Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit


def record_of(**scenario: Any) -> RunRecord:
    record, _ = make_run(Scenario(**{"power": "measured", "virtual": False, **scenario}))
    return record


def checks(record: RunRecord, name: str) -> list[Check]:
    return [check for check in evaluate(record) if check.name.startswith(name)]


def check(record: RunRecord, name: str) -> Check:
    (found,) = checks(record, name)
    return found


def changed(record: RunRecord, **changes: Any) -> RunRecord:
    return record.model_copy(update=changes)


def with_power(record: RunRecord, **changes: Any) -> RunRecord:
    return record.model_copy(update={"power": record.power.model_copy(update=changes)})


def with_energy(record: RunRecord, **changes: Any) -> RunRecord:
    energy = tuple(each.model_copy(update=changes) for each in record.power.energy)
    return with_power(record, energy=energy)


def utilisations(
    record: RunRecord, dlio: float | None, nominal: float | None
) -> tuple[Metric, ...]:
    (window,) = record.timed_windows()
    return tuple(
        Metric.of(
            name, value, Unit.FRACTION, "higher", "Made up.", phase=window.name, reason="unpaced"
        )
        for name, value in (("au_dlio", dlio), ("au_nominal", nominal))
    )


def with_source(record: RunRecord, **facts: Any) -> RunRecord:
    sources = tuple(
        source.model_copy(update={"facts": source.facts.model_copy(update=facts)})
        for source in record.power.sources
        if source.facts is not None
    )
    return with_power(record, sources=sources)
