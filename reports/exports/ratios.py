"""What is compared, as plain data: arms, ratios with all that they stand on, and noise floors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from wattload.reports.admission import counted_group
from wattload.reports.barring import barring
from wattload.reports.compare import Row, compare, noise_floors, unused_sessions
from wattload.reports.conditions import differences
from wattload.reports.figures import Figure
from wattload.reports.intervals import Interval, sign_flip_p_value
from wattload.reports.sections.sayings import by_quantity
from wattload.reports.sections.sureness import method
from wattload.reports.statistics import Effect, Spread
from wattload.reports.subject import Group, Subject


def comparison_data(subject: Subject, group: Group) -> dict[str, Any]:
    """Return a workload's arms, in what they differ, and a row per quantity and point."""
    rows, barred = compare(subject, group), barring(subject, group)
    return {
        "workload": group.workload,
        "arms": {arm: [run.id for run in runs] for arm, runs in group.arms.items()},
        "unsealed": [run.id for run in group.runs if run.is_unsealed],
        "differences": [
            {
                "condition": each.name,
                "values": dict(each.values),
                "sets_the_work": each.name in barred,
            }
            for each in differences(counted_group(subject, group), subject.by)
        ],
        "rows": [_row(row) for row in rows],
        "sweeps": list(_sweeps(rows)),
    }


def noise_data(subject: Subject) -> dict[str, Any]:
    """Return what one setting showed against itself, and the sessions that set no floor."""
    return {
        "floors": [
            {
                "workload": noise.workload,
                "session": noise.session_id,
                "quantity": noise.quantity.key,
                "share": finite(noise.share),
                "effect": _effect(noise.effect, flips=False),
            }
            for noise in noise_floors(subject)
        ],
        "unused": [
            {"workload": session.workload, "session": session.session_id, "reason": reason}
            for session, reason in unused_sessions(subject)
        ],
    }


def _row(row: Row) -> dict[str, Any]:
    headline = row.quantity.headline
    return {
        "quantity": row.quantity.key,
        "axis": row.axis,
        "at": row.at,
        "arms": {arm: _arm(row.figures[arm], row.spreads.get(arm)) for arm in row.figures},
        "effect": _effect(row.effect, flips=headline) if row.effect else None,
        "call": row.call,
        "words": row.words,
        "reason": row.reason,
        "forced": row.forced,
    }


def _sweeps(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield what a page says of a quantity over the points of a sweep: never one point alone."""
    for of_quantity in by_quantity(rows):
        ratios = [row.effect.ratio for row in of_quantity if row.effect]
        if len(ratios) > 1:
            yield {
                "quantity": of_quantity[0].quantity.key,
                "axis": of_quantity[0].axis,
                "points": len(ratios),
                "median": finite(median(ratios)),
                "minimum": finite(min(ratios)),
                "maximum": finite(max(ratios)),
            }


def _arm(figures: tuple[Figure, ...], spread: Spread | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "values": [finite(figure.value) for figure in figures],
        "valid": [figure.valid for figure in figures],
    }
    if any(figure.upper is not None for figure in figures):
        found["lower"] = [finite(figure.lower) for figure in figures]
        found["upper"] = [finite(figure.upper) for figure in figures]
    if spread is None:
        return found | {"n": 0, "median": None}
    return found | {
        "n": spread.count,
        "median": finite(spread.median),
        "minimum": finite(spread.minimum),
        "maximum": finite(spread.maximum),
        "cv": finite(spread.cv),
        "gate": spread.gate,
    }


def _effect(effect: Effect, *, flips: bool) -> dict[str, Any]:
    """Return B against A: ratio, the 95 % interval that is shown, and all that they stand on.

    ``flips`` is whether sign flips are counted out, which only the page's headlines are worth.
    """
    counted = sign_flip_p_value(effect.estimate) if flips and effect.estimate else None
    return {
        "ratio": finite(effect.ratio),
        "inverse": finite(1 / effect.ratio),
        "lower": finite(effect.lower),
        "upper": finite(effect.upper),
        "ratio_of_medians": finite(effect.medians),
        "n_a": effect.count_a,
        "n_b": effect.count_b,
        "pairs": effect.pairs,
        "pairs_parted": effect.parted,
        "pairs_undated": effect.undated,
        "method": method(effect),
        "t": _ends(effect.t),
        "bootstrap": _ends(effect.bootstrap),
        "p_value": finite(effect.p_value),
        "p_value_sign_flips": finite(counted),
        "p_value_without_spread": finite(effect.least_p_value),
        "holm": _holm(effect),
        "floor": finite(effect.floor),
        "drift": finite(effect.drift),
        "drift_between_arms": finite(effect.between.share),
        "between_arms": effect.between.words,
        "noise": finite(effect.noise),
        "accuracy": finite(effect.accuracy),
    }


def _holm(effect: Effect) -> dict[str, Any] | None:
    """Return what one of a workload's calls has to reach; ``None`` where nothing is called."""
    if effect.demand is None:
        return None
    return {
        "family": effect.demand.family,
        "confidence": effect.demand.confidence,
        "p_value": finite(effect.demand.p_value),
        "intervals": [_ends(each) for each in effect.demanded],
    }


def _ends(interval: Interval | None) -> list[float | None] | None:
    return None if interval is None else [finite(interval.lower), finite(interval.upper)]


def finite(value: float | None) -> float | None:
    """Return a number that JSON has; what overflowed is missing and not a number."""
    return value if value is not None and math.isfinite(value) else None
