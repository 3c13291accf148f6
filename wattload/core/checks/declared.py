"""The checks that only a workload can make, as each workload declares them.

A workload counts and hashes what a record does not hold, so these verdicts can't be made again from
the record. Their figures can be judged again, though, and a missing check is known to be missing.

Each workload lists its own in ``CHECKS``, in its module ``verdicts`` (or in its only module), which
must be quick to import. Modules are found by the name in the record, as Hydra finds its targets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules

Figures = Mapping[str, float | int | str | None]

_WORKLOADS = "wattload.workloads"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredCheck:
    """One check that only its workload can make.

    ``since`` is the first schema version whose complete records must have it. ``holds`` returns
    whether figures support a verdict other than ``fail``; ``None`` if figures decide nothing. It
    raises ``KeyError`` for a figure that is missing. If the check could not be made, the
    run gets no verdict, unless the check is ``optional``, such as one that a file system can't
    answer, or the run's loader is in ``not_made_by``.
    """

    since: int
    holds: Callable[[Figures], bool] | None = None
    optional: bool = False
    not_made_by: tuple[str, ...] = ()


def declared_checks(workload: str) -> Mapping[str, DeclaredCheck] | None:
    """Return what a workload declares, by name of the check; ``None`` if there is no such workload.

    ``workload`` comes from a record and is not trusted: only modules of wattload are imported.
    """
    package = import_module(_WORKLOADS)
    modules = {module.name: module.ispkg for module in iter_modules(package.__path__)}
    if workload not in modules:
        return None
    name = f"{_WORKLOADS}.{workload}" + (".verdicts" if modules[workload] else "")
    declared: Mapping[str, DeclaredCheck] = import_module(name).CHECKS
    return declared
