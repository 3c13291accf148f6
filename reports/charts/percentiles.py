"""Percentiles of single operations per arm: medians over its runs, and why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from wattload.core.record.latency import Latency
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.quantity import out_of_range, quantity

NAMES = {
    "p50_s": "p50",
    "p90_s": "p90",
    "p95_s": "p95",
    "p99_s": "p99",
    "p999_s": "p99.9",
    "p9999_s": "p99.99",
}
Kind = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """One kind of operation in one phase: per arm, the row of each run that has one.

    ``letters`` are those of the arms, in their order.
    """

    kind: Kind
    arms: Mapping[str, Sequence[Latency]]
    letters: Sequence[str]

    def percentile(self, arm: str, name: str) -> float | None:
        """Return the median over an arm's runs, in seconds."""
        values = self.values(arm, name)
        return median(values) if values else None

    def values(self, arm: str, name: str) -> list[float]:
        """Return what each run had, in seconds; what is out of range is left out."""
        found = (getattr(run, name) for run in self.arms[arm])
        return [v for v in found if v is not None and v > 0 and not out_of_range(v)]

    def all_values(self) -> list[float]:
        """Return every value that is drawn."""
        return [v for arm in self.arms for name in NAMES for v in self.values(arm, name)]

    def question(self) -> str:
        """Return what the panel answers."""
        phase, kind, operation_bytes = self.kind
        size = quantity(operation_bytes, Unit.BYTES, 3)
        where = "" if phase == kind else f" in {phase}"
        return f"How long do {kind}s of {size} take{where}?"

    def gaps(self, arm: str) -> dict[str, str]:
        """Return the percentiles that no run of an arm has, with the reason."""
        runs = self.arms[arm]
        return {
            name: next(filter(None, (_gap(run, name) for run in runs)), "not recorded")
            for name in NAMES
            if runs and not self.values(arm, name)
        }


def percentiles(
    arms: Mapping[str, Sequence[RunRecord]], letters: Sequence[str]
) -> list[Percentiles]:
    """Return the panels in order of their phases; a run's row is that of all its ranks."""
    rows: dict[Kind, dict[str, list[Latency]]] = {}
    for arm, records in arms.items():
        for record in records:
            for found in _of_all_ranks(record):
                kind = (found.phase, found.kind, found.operation_bytes)
                rows.setdefault(kind, {own: [] for own in arms})[arm].append(found)
    return [Percentiles(kind, of_arm, letters) for kind, of_arm in rows.items()]


def _of_all_ranks(record: RunRecord) -> list[Latency]:
    most: dict[Kind, Latency] = {}
    for found in record.latencies:
        kind = (found.phase, found.kind, found.operation_bytes)
        if kind not in most or len(found.ranks) > len(most[kind].ranks):
            most[kind] = found
    return list(most.values())


def _gap(found: Latency, name: str) -> str:
    return found.missing.get(name, "") or out_of_range(getattr(found, name))
