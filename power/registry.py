"""The registry of power meters: their names, and how each may be used.

A meter is one module under ``power/sources`` with a ``METER`` and a ``find``
(``power.sources.base.Find``), one file of the same name under ``configs/power``, and one test that
subclasses ``tests.contracts.power_source.PowerSourceContract``. That is enough for a run to use it.
Its own settings, if any, are in ``power.config``. ``wattload doctor`` and ``wattload devices``
check the meters of the host that they name, and doctor every external meter.

Names come from the configuration files, so that no module is imported before its meter is needed.
For ``power=auto`` all of them are: a module that needs a large library imports it where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from types import ModuleType
from typing import cast

from wattload.core.power import Scope

AUTO = "auto"
"""Selects every meter with an ``auto_rank``; not a meter itself."""
NONE = "none"
"""The meter that reads nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """How a meter may be used: the constant ``METER`` of its module.

    ``scope`` is what it measures on most hosts. ``power=auto`` tries the meters that have an
    ``auto_rank``, the lowest rank first; the others are read only where they are named.
    ``is_companion`` allows the meter in ``power.beside``: it finds its devices by itself.
    ``settings`` are an example of the settings that an external meter needs, as on the command
    line, and ``measures`` is what it is for: with both, ``wattload doctor`` reports the meter.
    """

    scope: Scope
    auto_rank: int | None = None
    is_companion: bool = False
    settings: str = ""
    measures: str = ""


@cache
def meter_names() -> tuple[str, ...]:
    """Return the names of all meters, sorted: the options of ``power`` without ``auto``."""
    options = (entry.name for entry in files("wattload.configs").joinpath("power").iterdir())
    names = (name.removesuffix(".yaml") for name in options if name.endswith(".yaml"))
    return tuple(sorted(name for name in names if name != AUTO))


def meter_module(name: str) -> ModuleType:
    """Import and return the module of a meter that ``meter_names`` lists."""
    return import_module(f"wattload.power.sources.{name}")


def meter(name: str) -> Meter:
    return cast("Meter", meter_module(name).METER)


def auto_meters() -> tuple[str, ...]:
    """Return the names of the meters that ``power=auto`` tries, in this order."""
    ranks = {name: meter(name).auto_rank for name in meter_names()}
    ranked = sorted((rank, name) for name, rank in ranks.items() if rank is not None)
    return tuple(name for _, name in ranked)


def companions() -> tuple[str, ...]:
    """Return the names of the meters that ``power.beside`` may hold."""
    return tuple(name for name in meter_names() if meter(name).is_companion)
