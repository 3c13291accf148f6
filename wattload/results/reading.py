"""Facts, figures, checks and view of a record, by the name of its workload.

A record whose workload is unknown here has none of them; its figures stay in its summary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from wattload.core.base_models import first_fault
from wattload.core.checks.evaluation import evaluate
from wattload.core.errors import RecordError
from wattload.core.record.file import StoredRecord, read_stored
from wattload.core.record.host import KEPT_METRIC, mean_kept_fraction
from wattload.core.record.results import Check, Metric
from wattload.core.record.run import RunRecord
from wattload.core.record.summary import with_remark
from wattload.core.units import Unit
from wattload.results.facts import Facts, Run
from wattload.results.figures import evaluated
from wattload.results.identity_cache import cache_by_identity
from wattload.results.registry import results_of
from wattload.results.view import View

Value = TypeVar("Value")


@cache_by_identity
def run_of(record: RunRecord) -> Run[Any] | None:
    """Return a run with its facts; ``None`` if it has none, or if its workload is unknown here.

    Raises:
        RecordError: the facts are not those of the workload.
    """
    results = results_of(record.workload.name)
    if results is None or not record.workload.facts:
        return None
    try:
        facts = results.facts.model_validate(
            {**record.workload.facts, "settings": record.config.get("workload")}
        )
    except ValidationError as error:
        place, message, _ = first_fault(error)
        raise RecordError(
            f"the facts of run {record.run_id} are not those of {results.name}: {place}: {message}"
        ) from error
    return Run(record, facts)


def asked(record: RunRecord, question: Callable[[Run[Any]], Value], default: Value) -> Value:
    """Return what a function of a view answers of a run; the default for one without facts."""
    run = run_of(record)
    return default if run is None else question(run)


def view_of(record: RunRecord) -> View[Any]:
    return view_named(record.workload.name)


def view_named(workload: str) -> View[Any]:
    """Return how a workload is shown; the default for one that is unknown here."""
    results = results_of(workload)
    return View() if results is None else results.view


def metrics_of(record: RunRecord) -> tuple[Metric, ...]:
    """Return the figures of a run, computed from its facts; without facts, none of its workload."""
    results, run = results_of(record.workload.name), run_of(record)
    if results is None or run is None:
        return tuple(_load_metrics(record))
    return (*evaluated(results.figures, run), *_load_metrics(record))


def _load_metrics(record: RunRecord) -> Iterator[Metric]:
    """Yield the figure of what the workload left to the load, if there was one."""
    if record.loads:
        reasons = (load.missing.get("kept_fraction", "") for load in record.loads)
        yield Metric.of(
            KEPT_METRIC,
            mean_kept_fraction(record.loads),
            Unit.FRACTION,
            "higher",
            "work of the load per second during the workload over that before it",
            reason=next(filter(None, reasons), ""),
        )


def checks_of(record: RunRecord) -> tuple[Check, ...]:
    """Return the checks that follow from a run's facts."""
    results, run = results_of(record.workload.name), run_of(record)
    if results is None or run is None:
        return ()
    return tuple(check for source in results.checks for check in source(run))


def judged(record: RunRecord) -> RunRecord:
    """Return a record with the figures and checks that this version computes from it.

    Checks that only the run could make are kept. One that a complete run must have, and that is
    missing or was not made, bars the verdict; so do missing facts. A stored check that this version
    neither makes nor declares can fail a run, but its pass counts for nothing.
    """
    results = results_of(record.workload.name)
    observed = results.observed if results is not None else ()
    made = checks_of(record)
    record = record.model_copy(update={"metrics": metrics_of(record)})
    made = (*made, *evaluate(record))
    names = {check.name for check in made}
    own = {each.name for each in observed}
    kept = [
        check
        for check in record.checks
        if check.name not in names
        and (results is None or check.name in own or check.verdict != "pass")
    ]
    run = run_of(record)
    due = [each for each in observed if run is not None and each.applies(run)]
    must_be_made = {each.name for each in due if not each.optional}
    checks = [
        check.model_copy(update={"mandatory": True})
        if check.name in must_be_made and check.verdict == "not_checked"
        else check
        for check in kept
    ]
    if record.status == "complete":
        names.update(check.name for check in kept)
        checks += _missing(record, [each.name for each in due if each.name not in names])
    return record.model_copy(update={"checks": (*checks, *made)})


def _missing(record: RunRecord, observed: Iterable[str]) -> Iterator[Check]:
    """Yield what a complete run must have, and this record lacks; without it, it has no verdict."""
    results = results_of(record.workload.name)
    found = dict.fromkeys(
        observed, "The record lacks this check, which every complete run of its kind makes."
    )
    if results is None:
        found["workload_checks"] = (
            "This wattload does not have the run's workload, so the checks that its runs must have "
            "are unknown."
        )
    elif results.facts is not Facts and not record.workload.facts:
        found["workload_facts"] = (
            "The record lacks the facts of its workload, so its figures and checks can't be "
            "computed."
        )
    for name, sentence in found.items():
        yield Check(name=name, verdict="not_checked", sentence=sentence, mandatory=True)


def read_judged(path: Path) -> StoredRecord:
    """Return the record in ``path`` with its figures and checks as this version computes them.

    It has a remark if the version that wrote it computed other figures of a known workload.

    Raises:
        RecordError: as ``read_stored``; or the facts are not those of the workload.
    """
    stored = read_stored(path)
    record = judged(stored.record)
    if results_of(record.workload.name) is not None:
        record = with_remark(record, stored.summary)
    return replace(stored, record=record)
