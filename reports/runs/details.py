"""Values of a record's details, which are free JSON: of the expected kind, or none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_MOST = 2.0**63


def rows_of(value: Any) -> list[Mapping[str, Any]]:  # noqa: ANN401 - JSON
    """Return the mappings of a list; empty if it is none."""
    if not isinstance(value, (list, tuple)):
        return []
    return [each for each in value if isinstance(each, Mapping)]


def count_of(value: Any) -> int:  # noqa: ANN401 - JSON
    """Return a count above 0; 0 if it is none."""
    known = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST
    return value if known else 0


def figure_of(value: Any) -> float | None:  # noqa: ANN401 - JSON
    """Return a number, 0 or more; ``None`` if it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < _MOST and math.isfinite(value) else None


def share_of(value: Any) -> float | None:  # noqa: ANN401 - JSON
    """Return a share, 0 to 1; ``None`` if it is none."""
    found = figure_of(value)
    return found if found is not None and found <= 1 else None
