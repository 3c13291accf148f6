"""Made-up searches: utilisation as a function of accelerators, and the records that show it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from tests.records import Scenario, make_run, training_record
from tests.training import epoch, facts_of
from wattload.core.record.results import Check, Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.session.accelerator_search import Trial, Trials
from wattload.session.schedule import Step

Found = TypeVar("Found")

Curve = Callable[[int, int], float]
"""Count and repetition to utilisation."""

RECORD_BYTES, BATCH, STEP_S = 146_600_628, 7, 0.323
DEMAND = BATCH * RECORD_BYTES / STEP_S
"""What one accelerator reads that never waits, in B/s."""


def drive(limit: float) -> Curve:
    """Return the curve of a drive that feeds so many accelerators in full."""
    return lambda count, _: min(1.0, limit / count)


def trials(curve: Curve, threshold: float = 0.9) -> Trials:
    """Return trials that take what the curve shows for the outcome of a run, and make none."""

    def measure(count: int, repetition: int) -> Trial:
        yield from ()
        return curve(count, repetition) >= threshold

    return Trials(measure)


def result_of(trial: Generator[Step, None, Found]) -> Found:
    """Return what a search finds whose trials make no runs."""
    try:
        next(trial)
    except StopIteration as end:
        found: Found = end.value
        return found
    raise AssertionError("a run was made")


def figure(name: str, value: float | None, unit: Unit, phase: str = "read") -> Metric:
    missing = {} if value is not None else {"value": "an epoch of one step has no window"}
    return Metric(
        name=name,
        value=value,
        unit=unit,
        better="higher",
        meaning="Made up.",
        phase=phase,
        missing=missing,
    )


def record_of(
    accelerators: int,
    au: float | None,
    *,
    run_id: str = "made-up",
    ceiling: float = 100e9,
    nominal: float | None = None,
    checks: tuple[Check, ...] = (),
    power: Any = "none",
    step_s: float = STEP_S,
    **changes: Any,
) -> RunRecord:
    """Return the record of a run; throughput follows from the utilisation."""
    rate = (au or 0.5) * accelerators * DEMAND
    scenario = Scenario(run_id=run_id, power=power, rate_bytes_per_s=rate)
    (window,) = make_run(scenario)[0].timed_windows()
    one = epoch(
        [window.seconds / 16 - STEP_S] * 16,
        [STEP_S] * 16,
        duration_s=window.seconds,
        read_bytes=window.read_bytes,
    )
    facts = facts_of([one], accelerators=accelerators, step_s=step_s)
    record = training_record(facts, scenario)
    metrics = (
        figure("au_dlio", au, Unit.FRACTION, window.name),
        figure("au_nominal", au if nominal is None else nominal, Unit.FRACTION, window.name),
        figure("samples_per_s", rate / RECORD_BYTES, Unit.SAMPLES_PER_SECOND, window.name),
        figure("read_bytes_per_s", rate, Unit.BYTES_PER_SECOND, window.name),
        figure("harness_ceiling_bytes_per_s", ceiling, Unit.BYTES_PER_SECOND, ""),
    )
    replaced = {check.name for check in checks}
    return record.model_copy(
        update={
            "metrics": metrics,
            "checks": (*(c for c in record.checks if c.name not in replaced), *checks),
            **changes,
        }
    )
