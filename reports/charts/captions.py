"""Wording that charts share: the evidence of figures, and why one is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wattload.core.power import Evidence
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.runs.energy import (
    EVIDENCE_TEXT,
    Energy,
    every_energy,
)
from wattload.reports.stats.comparison import Row
from wattload.reports.stats.figures import Quantity
from wattload.results.quantity import listed, out_of_range

NOT_RECORDED = "not recorded in any run"

_INTERVAL_SOURCES = {
    Evidence.BOUNDS: "from the drive's power states",
    Evidence.DECLARED: "from declared watts, which were not measured and may be wrong",
}


def evidence(*entries: Row) -> str:
    """Return how the energies of rows are known, arm by arm where that differs."""
    known: dict[str, dict[str, None]] = {}
    for entry in entries:
        for arm, figures in entry.figures.items():
            own = known.setdefault(arm, {})
            own.update(dict.fromkeys(figure.evidence for figure in figures if figure.evidence))
    found = {arm: listed(list(words)) for arm, words in known.items()}
    words = dict.fromkeys(word for word in found.values() if word)
    if len(words) < 2:  # noqa: PLR2004 - the same for all arms
        return next(iter(words), "")
    return "; ".join(f"{arm}: {word}" for arm, word in found.items() if word)


def interval_evidence(entries: Sequence[Row]) -> list[str]:
    """Return how the figures that are drawn as intervals are known, without repetition."""
    figures = [f for entry in entries for of_arm in entry.figures.values() for f in of_arm]
    return list(dict.fromkeys(f.evidence for f in figures if f.upper is not None))


def intervals_caption(known: Iterable[str]) -> str:
    """Return what a chart's outlined bars mean; empty where it has none.

    Args:
        known: how each interval of the chart is known, in words.
    """
    words = list(known)
    if not words:
        return ""
    sources = [
        text
        for kind, text in _INTERVAL_SOURCES.items()
        if any(each.startswith(EVIDENCE_TEXT[kind]) for each in words)
    ]
    origin = f" {' or '.join(sources)}" if sources else ""
    return f"An outlined bar is an interval{origin}; a dashed one with ≤ is an upper bound only."


def is_declared(known: str) -> bool:
    """Return whether a figure is declared, given how it is known in words."""
    return known.startswith(EVIDENCE_TEXT[Evidence.DECLARED])


def forced_clause(rows: Iterable[Row]) -> str:
    """Return what ``--force`` let through in these rows; empty where nothing was forced."""
    reasons = dict.fromkeys(entry.forced for entry in rows if entry.forced)
    return f"forced despite: {'; '.join(reasons)}" if reasons else ""


def forced_caption(caption: str, clause: str) -> str:
    """Return a chart's caption with the text of ``forced_clause``."""
    return f"{caption} This comparison was {clause}." if clause else caption


def missing_reason(quantity: Quantity, records: Sequence[RunRecord]) -> str:
    """Return the first reason that the records give for having no figure of a quantity."""
    if not records:
        return "no run"
    reasons = (_record_reason(quantity, record) for record in records)
    return next((reason for reason in reasons if reason), NOT_RECORDED)


def _record_reason(quantity: Quantity, record: RunRecord) -> str:
    if quantity.is_energy:
        own = (each for each in every_energy(record) if each.phase == quantity.phase)
        return next((_energy_reason(energy, quantity) for energy in own), "")
    found = (metric for metric in record.metrics if metric.name == quantity.key)
    return next((each.missing.get("value", "") or out_of_range(each.value) for each in found), "")


def _energy_reason(energy: Energy, quantity: Quantity) -> str:
    if quantity.unit is Unit.BYTES_PER_JOULE and energy.upper_j is not None:
        return "only bounds of energy are known"
    ends = (energy.energy_j, energy.upper_j)
    return energy.reason or next(filter(None, map(out_of_range, ends)), "")
