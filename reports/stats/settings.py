"""The settings of a run: its configuration as flat keys, and what identifies its work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wattload.core.record.run import RunRecord
from wattload.results.identity_cache import cache_by_identity
from wattload.results.reading import run_of, view_of

NOT_SET = "not set"
LOAD = "load"
NO_LOAD = "none"
"""The load that kept a run's host busy, and its name where there was none."""

_NOT_CONDITIONS = frozenset({"_target_", "label", "runs", "seed", "repeat", "scales"})
"""Settings that name a run or a class and not its work, and tables for all scales."""

_NOT_AXES = (
    "sweep",
    "interleave",
    "interleave_by",
    "start_wait_max_s",
    "target.max_write_bytes",
    "target.overwrite",
    "target.serial",
    "target.shared",
    "power.allow_system_drive",
)
"""Settings for the order of runs or for guards: they do not define a point."""

_BELOW_NOT_AXES = tuple(f"{name}." for name in _NOT_AXES)


def flat(
    value: Any,  # noqa: ANN401 - JSON
    key: str = "",
    *,
    without: frozenset[str] = frozenset(),
) -> Iterator[tuple[str, Any]]:
    """Yield every leaf of nested mappings with its dotted key; a list is a leaf.

    Names in ``without`` are skipped at any level.
    """
    if isinstance(value, Mapping):
        for name, part in value.items():
            if name not in without:
                yield from flat(part, f"{key}.{name}" if key else str(name), without=without)
    else:
        yield key, value


def load_name(record: RunRecord) -> str:
    """Return the name of the load of a run, ``none`` where nothing kept its host busy."""
    return next((load.name for load in record.loads), NO_LOAD)


@cache_by_identity
def settings(record: RunRecord) -> Mapping[str, str]:
    """Return a run's settings as dotted keys and texts, without keys that only name the run.

    A run without a load has ``none``. Settings that follow from others if they are not set have the
    value in effect.
    """
    found = {key: str(value) for key, value in flat(record.config, without=_NOT_CONDITIONS)}
    found.pop(f"{LOAD}.name", None)
    found[LOAD] = load_name(record)
    run = run_of(record)
    return found if run is None else {**found, **view_of(record).settings(run)}


@cache_by_identity
def facts_of(record: RunRecord) -> Mapping[str, str]:
    """Return what identifies the work of a run: settings, loader, scale and process count."""
    workload = record.workload
    found = {
        key: value
        for key, value in settings(record).items()
        if key not in _NOT_AXES and not key.startswith(_BELOW_NOT_AXES)
    }
    return found | {
        "loader": workload.loader,
        "scale": workload.scale,
        "processes": str(workload.rank_count),
    }
