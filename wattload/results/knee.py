"""The knee of a workload: the largest value of a setting at which a figure is within its limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Knee:
    """What a search for the knee varies, and what has to hold.

    ``setting`` is the name of what is varied, below ``workload.``, and ``unit`` the words after its
    value. ``figure`` is the figure that has to be at most its limit, ``short`` that in a word, and
    ``shown`` returns a value of it with its unit. ``limit`` returns the limit from the settings of
    the workload, ``None`` without one, and ``limit_setting`` is what sets it. A run without the
    figure, such as one that is overloaded, does not hold.
    """

    setting: str
    unit: str
    figure: str
    short: str
    shown: Callable[[float], str]
    limit: Callable[[Any], float | None]
    limit_setting: str
