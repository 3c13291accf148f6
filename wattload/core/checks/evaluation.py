"""All checks of a finished run, and of a stored record when it is read.

A check compares two sides that were counted by different means, and says which fault makes them
differ. ``evaluate`` is a pure function of the record, so a run and a later ``wattload check`` give
the same result. Checks that only the workload can make (delivered bytes, cold cache) come with its
outcome and are stored. Each workload declares its own in ``CHECKS``, in its module ``checks`` (or
in its only module).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from wattload.core.checks.clocks import clocks_agree
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
from wattload.core.checks.energy import (
    power_coverage,
    power_data_lost,
    power_of_this_run,
    power_statistics,
    wall_clock,
)
from wattload.core.checks.io import (
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
from wattload.core.record.file import StoredRecord, read_stored
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord
from wattload.core.workload import DeclaredCheck

ALL: tuple[Callable[[RunRecord], Sequence[Check]], ...] = (
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
    power_statistics,
    energy_cross_check,
    energy_lifetime,
    power_state_held,
    power_setting_held,
    saved_settings_kept,
    throttled,
    written_bytes,
    start_temperature,
    pair_together,
    load_level,
)


_WORKLOADS = "wattload.workloads"


def evaluate(record: RunRecord) -> tuple[Check, ...]:
    """Return every check that needs nothing but the record."""
    return tuple(check for rule in ALL for check in rule(record))


def read_judged(path: Path) -> StoredRecord:
    """Return the record in ``path``, with its checks evaluated by this version's rules.

    Raises:
        RecordError: as ``read_stored``.
    """
    stored = read_stored(path)
    return replace(stored, record=rechecked(stored.record))


def rechecked(record: RunRecord) -> RunRecord:
    """Return a record with the checks that follow from it evaluated again.

    The others are kept. One that a complete run of the workload must have, and that is missing or
    was not made, bars the verdict.
    """
    made = evaluate(record)
    names = {check.name for check in made}
    kept = [check for check in record.checks if check.name not in names]
    checks = (*_with_declared(record, kept, names), *made)
    return record.model_copy(update={"checks": checks})


def declared_checks(workload: str) -> Mapping[str, DeclaredCheck] | None:
    """Return what a workload declares, by name of the check; ``None`` if there is no such workload.

    ``workload`` comes from a record: only modules of wattload are imported.
    """
    modules = _workload_modules()
    if workload not in modules:
        return None
    module = f"{_WORKLOADS}.{workload}" + (".checks" if modules[workload] else "")
    declared: Mapping[str, DeclaredCheck] | None = getattr(import_module(module), "CHECKS", None)
    return declared


@cache
def _workload_modules() -> Mapping[str, bool]:
    """Return the names of the workloads' modules, and whether each is a package."""
    package = import_module(_WORKLOADS)
    return {module.name: module.ispkg for module in iter_modules(package.__path__)}


def _with_declared(
    record: RunRecord, kept: Sequence[Check], made: Collection[str]
) -> Iterator[Check]:
    """Yield the workload's own checks, mandatory where it declares so, and those it lacks."""
    declared = declared_checks(record.workload.name)
    loader, settings = record.workload.loader, record.config.get("workload")
    for check in kept:
        own = (declared or {}).get(check.name)
        is_due = own is not None and own.is_due(loader) and check.verdict == "not_checked"
        yield check.model_copy(update={"mandatory": True}) if is_due else check
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
    names = {*made, *(check.name for check in kept)}
    for name, lacking in declared.items():
        if name not in names and lacking.is_of(loader, settings):
            yield Check(
                name=name,
                verdict="not_checked",
                sentence="The record lacks this check, which every complete run of its kind makes.",
                mandatory=True,
            )
