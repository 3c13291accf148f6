"""Energy in the record: one figure per phase, device and source, with its evidence."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from wattload.core.power import Evidence, Scope, SourceFacts
from wattload.core.record.base import Frozen, Observed


class PowerStateShare(Observed):
    """What of a window was spent in one observed power state.

    ``state`` is ``"0"`` to ``"31"``, ``"transition"`` (both ends of a segment differ) or
    ``"unknown"`` (not observed). Over a window, shares sum to its seconds, bytes and joules.
    """

    state: str
    seconds: float
    moved_bytes: int | None
    energy_j: float | None
    lower_j: float | None
    upper_j: float | None


class EnergyRecord(Observed):
    """Energy of one device in one phase, by one source, over the phase's active intervals.

    ``start_ns`` and ``end_ns`` are the first interval's start and the last one's end; ``seconds``
    is the intervals' length, so that joules, seconds and bytes are of the same time.

    ``energy_j`` is gross. For bounds it is ``None`` and ``lower_j`` to ``upper_j`` holds it; a lone
    maximum gives ``upper_j`` only. ``coverage`` is the share of the window that the trace covers.
    ``net_j`` is gross minus ``idle_w`` times seconds, never clamped. ``uncertainty_j`` is at k = 2,
    its parts in ``uncertainty_parts_j``. ``chosen`` marks the device's best source for this window.
    """

    host: str
    device: str
    source: str
    scope: Scope
    evidence: Evidence
    phase: str
    start_ns: int
    end_ns: int
    seconds: float = Field(ge=0)
    coverage: float | None
    energy_j: float | None
    lower_j: float | None
    upper_j: float | None
    mean_w: float | None
    idle_w: float | None
    net_j: float | None
    uncertainty_j: float | None
    uncertainty_parts_j: Mapping[str, float] = Field(default_factory=dict)
    sample_count: int
    states: tuple[PowerStateShare, ...] = ()
    chosen: bool = False


class PowerSourceRecord(Frozen):
    """A source that the run used, or why it could not."""

    host: str
    facts: SourceFacts | None
    name: str
    device: str
    used: bool
    sentence: str


class PowerStateRecord(Observed):
    """What became of a controller's power state during the run."""

    host: str
    serial: str
    requested: int | None
    before: int | None
    verified: int | None
    after: int | None
    restored: int | None
    sentence: str


class PowerSection(Frozen):
    """All that a run knows of power; ``choice`` says which source was taken and why."""

    requested: str
    choice: str
    idle_s: float
    tail_s: float | None
    sources: tuple[PowerSourceRecord, ...] = ()
    states: tuple[PowerStateRecord, ...] = ()
    energy: tuple[EnergyRecord, ...] = ()
