"""The view of a workload: what pages, exports, terminals and claims say about its runs.

A view has texts and functions that return texts or plain data. No text has markup.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic

from wattload.results.facts import F


@dataclass(frozen=True, kw_only=True)
class View(Generic[F]):
    """How a workload is shown.

    ``title`` is its name in a heading, by default the one in its record. ``labels`` are the names
    of its figures, phases and settings in words, where these are not the words of the name.
    """

    title: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
