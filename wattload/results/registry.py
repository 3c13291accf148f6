"""What each workload declares of its results, by name: modules here, or entry points of others.

A workload's module has one object, ``RESULTS``; if it is a package, that is in its module
``results``.

A record names a workload and nothing more: no module is imported because a record says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Any, Generic

from wattload.results.checks import CheckSource, Observed
from wattload.results.facts import F
from wattload.results.figures import FigureSource
from wattload.results.knee import Knee
from wattload.results.submission import Submission
from wattload.results.tables import TraceTable
from wattload.results.view import View

ENTRY_POINTS = "wattload.results"
_PACKAGE = "wattload.results"


@dataclass(frozen=True, kw_only=True)
class Results(Generic[F]):
    """The results of a workload: facts, figures, checks, tables, and how they are shown.

    ``checks`` follow from the facts, ``observed`` are stored by the run. ``knee`` is what
    ``sweep=knee`` searches for, ``None`` if there is none. ``submission`` is how MLPerf Storage's
    rules are applied, ``None`` to a workload that it does not have.
    """

    name: str
    facts: type[F]
    figures: tuple[FigureSource[F], ...] = ()
    checks: tuple[CheckSource[F], ...] = ()
    observed: tuple[Observed[F], ...] = ()
    tables: tuple[TraceTable, ...] = ()
    knee: Knee[F] | None = None
    submission: Submission[F] | None = None
    view: View[F] = field(default_factory=View)


@cache
def results_of(workload: str) -> Results[Any] | None:
    """Return what is declared of a workload's results; ``None`` for one that is unknown here."""
    modules = _modules()
    if workload in modules:
        inner = ".results" if modules[workload] else ""
        return _declared(import_module(f"{_PACKAGE}.{workload}{inner}"))
    found = next(iter(entry_points(group=ENTRY_POINTS, name=workload)), None)
    return _declared(found.load()) if found is not None else None


def every_results() -> Iterator[Results[Any]]:
    """Yield the results of all workloads that are known here."""
    names = {*_modules(), *(each.name for each in entry_points(group=ENTRY_POINTS))}
    for name in sorted(names):
        if (found := results_of(name)) is not None:
            yield found


@cache
def _modules() -> dict[str, bool]:
    """Return the modules of this package, and whether each is a package itself."""
    package = import_module(_PACKAGE)
    return {module.name: module.ispkg for module in iter_modules(package.__path__)}


def _declared(module: object) -> Results[Any] | None:
    found = getattr(module, "RESULTS", None)
    return found if isinstance(found, Results) else None
