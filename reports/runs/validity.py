"""Why a run, or its energy, is not compared as valid."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.record.results import Check
from wattload.reports.runs.closure import SEAL_CHECK
from wattload.reports.runs.load import Run

WARM_UP = "it is a warm-up run"


def faults(run: Run, closures: Sequence[Check]) -> tuple[str, ...]:
    """Return why a run is not compared as valid; empty for a valid one."""
    record, found = run.record, []
    if record.comparison.warm_up:
        found.append(WARM_UP)
    if record.status != "complete":
        found.append(f"it is {record.status}: {record.status_reason or 'no reason recorded'}")
    found += [
        f"the check {check.name} failed: {check.sentence}"
        for check in record.checks
        if check.verdict == "fail"
    ]
    found += [_broken(check) for check in closures if check.verdict == "fail"]
    found += [
        f"the mandatory check {check.name} is missing: {check.sentence}"
        for check in (*record.checks, *closures)
        if check.bars_verdict and not check.is_of_power
    ]
    return tuple(found)


def energy_faults(run: Run, closures: Sequence[Check]) -> tuple[str, ...]:
    """Return why a run's energy is not compared, in addition to the faults of the run."""
    return tuple(
        f"{check.name} was not checked: {check.sentence}"
        for check in (*run.record.checks, *closures)
        if check.bars_verdict and check.is_of_power
    )


def _broken(check: Check) -> str:
    if check.name == SEAL_CHECK:
        return f"it was edited: {check.sentence}"
    return f"its figures are inconsistent, {check.name}: {check.sentence}"
