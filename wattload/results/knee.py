"""The knee of a workload: the largest value of a setting at which a figure is within its limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

from wattload.results.facts import F, Run


@dataclass(frozen=True, kw_only=True)
class Knee(Generic[F]):
    """What a search for the knee varies, and what has to hold.

    ``setting`` is the name of what is varied, below ``workload.``, and ``unit`` the words after its
    value. ``goal`` returns what has to hold in words, from the settings of the workload; ``None``
    if ``goal_setting`` is not set. ``holds`` is whether it did in a run, ``None`` if that is
    unknown. ``figure`` is what decides, and ``shown`` returns a value of it in words.
    """

    setting: str
    unit: str
    goal: Callable[[Any], str | None]
    goal_setting: str
    holds: Callable[[Run[F]], bool | None]
    figure: str
    shown: Callable[[float], str]
