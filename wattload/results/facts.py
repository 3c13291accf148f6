"""The facts of a workload: what a run counted, timed and read, each once.

Everything else that is said of a run is a function of its facts, its settings and the other parts
of its record. A fact is a field of a model, with its meaning and its unit in the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from wattload.core.base_models import Frozen
from wattload.core.record.phase import PhaseWindow
from wattload.core.record.results import Latency
from wattload.core.record.run import RunRecord


class Settings(BaseModel):
    """The settings of a workload that its formulas and its view need, as the run had them.

    They stand in the record's configuration, which has others too. They are read from there, or
    from the workload's own configuration.
    """

    model_config = ConfigDict(
        frozen=True, extra="ignore", from_attributes=True, allow_inf_nan=False, defer_build=True
    )


class Facts(Frozen):
    """The facts of one run of a workload; a model of its own for each workload.

    ``settings`` are not stored with the facts: the record has them as its configuration.
    """

    settings: Settings = Field(exclude=True)


def fact(meaning: str, unit: str = "1", **constraints: Any) -> Any:  # noqa: ANN401 - as Field
    """Return a field with its meaning and unit, for the model and its JSON Schema."""
    return Field(description=meaning, json_schema_extra={"unit": unit}, **constraints)


F = TypeVar("F", bound=Facts)
F_co = TypeVar("F_co", bound=Facts, covariant=True)


@dataclass(frozen=True)
class Run(Generic[F_co]):
    """A run as formulas see it: its record, and the workload's facts in it, typed."""

    record: RunRecord
    facts: F_co

    def windows(self, phase: str) -> Sequence[PhaseWindow]:
        """Return the windows of a phase, one for each host."""
        return [window for window in self.record.windows if window.name == phase]

    def joined(self, phase: str) -> PhaseWindow | None:
        """Return the window of a phase over all hosts, on their common clock."""
        return next((each for each in self.record.joined_windows if each.name == phase), None)

    def seconds(self, phase: str) -> float:
        """Return the seconds of a phase from its first start to its last end; 0 without it."""
        window = self.joined(phase)
        return window.seconds if window is not None else 0.0

    def latency(self, phase: str, kind: str) -> Latency | None:
        """Return the latencies of one kind of operation in a phase, over all ranks."""
        rows = self.record.merged_latencies
        return next((row for row in rows if (row.phase, row.kind) == (phase, kind)), None)


def sum_if_known(values: Iterable[float | None]) -> float | None:
    """Return the sum of values; ``None`` if one of them is unknown."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if len(known) == len(found) else None


def divided(part: float | None, of: float | None) -> float | None:
    """Return a quotient; ``None`` if a part of it is unknown, or the divisor is 0."""
    return part / of if part is not None and of else None


def drive_read_bytes(run: Run[F], phase: str) -> float | None:
    """Return the bytes that all drives read in a phase; ``None`` if one of them does not count."""
    counters = [each for each in run.record.counters if each.phase == phase]
    return sum_if_known(each.read_bytes for each in counters) if counters else None


def cached_share(run: Run[F], phase: str) -> float | None:
    """Return the least share of a phase's reads that never reached the drives.

    It is the share itself if nothing else read from them.
    """
    share = divided(drive_read_bytes(run, phase), run.record.moved_bytes(phase, "read"))
    return None if share is None else max(1 - share, 0.0)
