"""Altair's charts of several parts, without its copies of them.

Altair copies every part in full as charts are set together and as they are written out; each copy
of a chart of charts makes those again. Here a chart is made once, written out once, and nobody
changes a part that was set into it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import altair as alt


class _Once:
    def copy(self, deep: bool | Iterable[Any] = True, ignore: list[str] | None = None) -> Self:
        """Return the chart itself, whatever is asked for."""
        del deep, ignore
        return self


class Layers(_Once, alt.LayerChart):
    """Charts over each other."""


class Grid(_Once, alt.ConcatChart):
    """Panels in rows of some columns."""


class Beside(_Once, alt.HConcatChart):
    """Panels from left to right."""


class Below(_Once, alt.VConcatChart):
    """Panels from top to bottom."""
