"""All checks of a finished run, and of a stored record before it is judged.

``evaluate`` is a pure function of the record, so a run and a later ``wattload check`` give the
same result. Checks that only the workload can make (delivered bytes, cold cache) come with its
outcome and are stored with these in the record. Each workload declares its own in ``CHECKS``, in
its module ``checks`` (or in its only module).

A record can be edited and sealed again, so whoever judges stored records reads them with
``read_judged``: no verdict that follows from the record is taken from the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from math import isclose
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from wattload.core.checks.conditions import (
    bottleneck,
    halves_agree,
    link_at_maximum,
    long_enough,
    pair_together,
    start_temperature,
    utilisations_agree,
    write_granularity,
)
from wattload.core.checks.consistency import clocks_agree, finished, phases_known, settings_agree
from wattload.core.checks.energy import (
    energy_closure,
    power_coverage,
    power_data_lost,
    power_of_this_run,
    power_state_shares,
    power_statistics,
    wall_clock,
)
from wattload.core.checks.io import (
    bytes_add_up,
    data_path,
    device_bytes,
    queue_depth,
    rate_closure,
    written_bytes,
)
from wattload.core.checks.load import load_level
from wattload.core.checks.power_settings import (
    power_setting_held,
    power_state_held,
    saved_settings_kept,
)
from wattload.core.checks.sensors import (
    energy_cross_check,
    energy_lifetime,
    power_updates,
    power_within_bounds,
    sensor_model,
)
from wattload.core.checks.throttling import throttled
from wattload.core.record.file import SCHEMA_VERSION, StoredRecord, read_stored
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord
from wattload.core.workload import Contradictions, DeclaredCheck, DerivedMetrics

ALL: tuple[Callable[[RunRecord], Sequence[Check]], ...] = (
    finished,
    phases_known,
    settings_agree,
    bytes_add_up,
    rate_closure,
    device_bytes,
    data_path,
    queue_depth,
    clocks_agree,
    long_enough,
    halves_agree,
    utilisations_agree,
    bottleneck,
    link_at_maximum,
    write_granularity,
    power_coverage,
    power_data_lost,
    power_of_this_run,
    wall_clock,
    power_updates,
    sensor_model,
    power_within_bounds,
    energy_closure,
    power_statistics,
    energy_cross_check,
    energy_lifetime,
    power_state_shares,
    power_state_held,
    power_setting_held,
    saved_settings_kept,
    throttled,
    written_bytes,
    start_temperature,
    pair_together,
    load_level,
)


FIGURES_SINCE = 3
"""The first schema version in which a workload's check must have the figures that decide it."""

METRIC_TOLERANCE = 1e-6

_WORKLOADS = "wattload.workloads"

_CLOCKS_SINCE = 3
"""The first schema version with a host's ``clocks`` and what a check ``verified``."""


def evaluate(record: RunRecord, schema_version: int = SCHEMA_VERSION) -> tuple[Check, ...]:
    """Return every check that needs nothing but the record, of a file of ``schema_version``."""
    made = [check for rule in ALL for check in rule(record)]
    return (*made, *metrics_close(record, schema_version), *details_close(record))


def metrics_close(record: RunRecord, schema_version: int) -> Sequence[Check]:
    """Compute the metrics again that, as the workload declares, follow from other figures.

    Those whose figures are missing contradict a record of a ``schema_version`` that must have them.
    """
    derived = derived_metrics(record.workload.name)
    apart, known = [], 0
    for metric in record.metrics:
        if metric.name not in derived or metric.value is None:
            continue
        try:
            found = float(derived[metric.name](record))
        except KeyError as error:
            if schema_version < FIGURES_SINCE:
                continue
            apart.append(f"{metric.name} has no {error.args[0]} to follow from")
        except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
            apart.append(f"what {metric.name} follows from is no number ({error})")
        else:
            if not isclose(metric.value, found, rel_tol=METRIC_TOLERANCE):
                apart.append(
                    f"{metric.name} is {metric.value:.6g} where other figures give {found:.6g}"
                )
        known += 1
    if not known:
        return []
    return [
        Check(
            name="metrics_close",
            verdict="fail" if apart else "pass",
            sentence=f"Metrics contradict the record: {', '.join(apart)}."
            if apart
            else f"{known} metrics follow from other figures of the record.",
            figures={"metric_count": known, "apart_count": len(apart)},
        )
    ]


def details_close(record: RunRecord) -> Sequence[Check]:
    """Compare a workload's details with the other parts of the record, as the workload declares."""
    contradictions: Contradictions | None = _of_workload(record.workload.name, "CONTRADICTIONS")
    if contradictions is None or record.status != "complete":
        return []
    apart: list[str] = []
    try:
        apart += contradictions(record)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        apart.append(f"a figure is missing or of another kind ({error!r})")
    return [
        Check(
            name="details_close",
            verdict="fail" if apart else "pass",
            sentence=f"Details contradict the record: {', '.join(apart)}."
            if apart
            else "The details agree with the other parts of the record.",
            figures={"apart_count": len(apart)},
            mandatory=True,
        )
    ]


def read_judged(path: Path) -> StoredRecord:
    """Return the record in ``path``, to be judged: with its checks made again.

    Raises:
        RecordError: as ``read_stored``.
    """
    stored = read_stored(path)
    version = max(stored.schema_version, _version_shown(stored.record))
    seal = "broken" if version > stored.schema_version else stored.seal
    return replace(stored, seal=seal, record=rechecked(stored.record, version))


def rechecked(record: RunRecord, schema_version: int = SCHEMA_VERSION) -> RunRecord:
    """Return a record with its checks made again, as far as it allows.

    Checks that follow from the record replace the stored ones. Those that only the workload can
    make are kept if their own figures support them. One that a complete record of
    ``schema_version``, that of its file, must have and lacks fails; one that is stored as not made
    bars the verdict if the workload declares that it must be made. Any other stored check, of an
    older rule, is kept: it can fail a run but not clear it.
    """
    made = evaluate(record, schema_version)
    names = {check.name for check in made}
    declared = declared_checks(record.workload.name)
    stored = [check for check in record.checks if check.name not in names]
    loader = record.workload.loader
    kept = (
        _supported(check, (declared or {}).get(check.name), schema_version, loader)
        for check in stored
    )
    missing = _missing(record, declared, schema_version)
    return record.model_copy(update={"checks": (*kept, *missing, *made)})


def declared_checks(workload: str) -> Mapping[str, DeclaredCheck] | None:
    """Return what a workload declares, by name of the check; ``None`` if there is no such workload.

    ``workload`` comes from a record and is not trusted: only modules of wattload are imported,
    found by name as Hydra finds its targets.
    """
    declared: Mapping[str, DeclaredCheck] | None = _of_workload(workload, "CHECKS")
    return declared


def derived_metrics(workload: str) -> DerivedMetrics:
    """Return how metrics of a workload follow from other figures of a record, by name."""
    derived: DerivedMetrics = _of_workload(workload, "DERIVED") or {}
    return derived


def _of_workload(workload: str, name: str) -> Any:  # noqa: ANN401 - by name
    """Return what a workload's module of checks has under a name, ``None`` if it has nothing."""
    modules = _workload_modules()
    if workload not in modules:
        return None
    module = f"{_WORKLOADS}.{workload}" + (".checks" if modules[workload] else "")
    return getattr(import_module(module), name, None)


@cache
def _workload_modules() -> Mapping[str, bool]:
    """Return the names of the workloads' modules, and whether each is a package."""
    package = import_module(_WORKLOADS)
    return {module.name: module.ispkg for module in iter_modules(package.__path__)}


def _version_shown(record: RunRecord) -> int:
    """Return the oldest schema version that can hold the record, by the fields that it uses."""
    shown = [*(host.clocks for host in record.hosts), *(check.verified for check in record.checks)]
    return _CLOCKS_SINCE if any(shown) else 1


def _supported(
    check: Check, declared: DeclaredCheck | None, schema_version: int, loader: str
) -> Check:
    """Return a workload's check, failed if its own figures contradict its verdict.

    Before ``FIGURES_SINCE``, figures had other names: without them, the verdict is kept.
    """
    if declared is None:
        return check
    if check.verdict == "not_checked" and schema_version >= FIGURES_SINCE:
        is_due = declared.is_due(loader)
        return check.model_copy(update={"mandatory": check.mandatory or is_due})
    try:
        holds = declared.supports(check.verdict, check.figures)
    except KeyError:
        holds = schema_version < FIGURES_SINCE
    if holds:
        return check
    sentence = f"It is stored as {check.verdict}, which its own figures do not support."
    return check.model_copy(update={"verdict": "fail", "sentence": sentence})


def _missing(
    record: RunRecord, declared: Mapping[str, DeclaredCheck] | None, schema_version: int
) -> Iterator[Check]:
    """Yield a check for each one that a complete run must have made and the record lacks."""
    if record.status != "complete":
        return
    if declared is None:
        yield Check(
            name="workload_checks",
            verdict="not_checked",
            sentence="This wattload does not have the run's workload, so the checks that its runs "
            "must have are unknown.",
            mandatory=True,
        )
        return
    stored = {check.name for check in record.checks}
    settings = record.config.get("workload")
    for name, check in declared.items():
        if name in stored or not check.is_of(record.workload.loader, settings):
            continue
        is_due = check.since <= schema_version
        yield Check(
            name=name,
            verdict="fail" if is_due else "not_checked",
            sentence="The record lacks this check, which every complete run of its kind makes."
            if is_due
            else f"Records of schema version {schema_version} did not have this check yet.",
            mandatory=is_due,
        )
