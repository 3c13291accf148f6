"""What a power figure is made of: samples, the sensor behind them, and the evidence they carry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal, Protocol

from pydantic import Field

from wattload.core.record.base import Frozen


class Evidence(StrEnum):
    """How a figure is known, strongest first. A window takes its weakest; it never grows."""

    MEASURED = "measured"
    """An external meter or a rail sensor."""
    SELF_REPORTED = "self_reported"
    """The drive's or GPU's own measurement."""
    ESTIMATED = "estimated"
    """The drive says that it estimates."""
    BOUNDS = "bounds"
    """Limits from power state descriptors: an interval, no measurement."""
    DECLARED = "declared"
    """A data sheet, typed into YAML."""
    NONE = "none"
    """Nothing is known."""


MEASURING = (Evidence.MEASURED, Evidence.SELF_REPORTED, Evidence.ESTIMATED)
"""Evidence of a sensor; the others know no power, only what it may be."""

_BY_THE_DRIVE = (Evidence.SELF_REPORTED, Evidence.ESTIMATED, Evidence.BOUNDS)

_STRENGTH = {evidence: rank for rank, evidence in enumerate(Evidence)}


def weakest(evidence: Iterable[Evidence]) -> Evidence:
    """Return the weakest of the given evidence; ``NONE`` for an empty iterable."""
    return max(evidence, key=_STRENGTH.__getitem__, default=Evidence.NONE)


class Scope(StrEnum):
    """What a figure covers; figures of different scope are never added."""

    DRIVE = "drive"
    GPU = "gpu"
    NODE = "node"


class Instant(Frozen):
    """A sensor whose reading is the power at the moment of reading.

    ``update_period_s`` is how often the reading is taken anew (0: at every read): between two of
    them it is held, and what power does meanwhile is not seen.
    """

    kind: Literal["instant"] = "instant"
    update_period_s: float = Field(default=0.0, ge=0)


class Boxcar(Frozen):
    """A sensor whose reading is the mean of the last ``window_s`` seconds before its last update.

    ``update_period_s`` is how often the reading changes (0: sliding, at every read) and
    ``phase_s`` the offset of the updates within that period; both inferred from when values change,
    ``None`` until they are. ``unseen_s`` is how far the updates may lie from there: reads place
    them no better, and if all see a change they can't tell sliding from updates as frequent.
    """

    kind: Literal["boxcar"] = "boxcar"
    window_s: float = Field(gt=0)
    update_period_s: float | None = Field(default=None, ge=0)
    phase_s: float | None = None
    unseen_s: float = Field(default=0.0, ge=0)


class Counter(Frozen):
    """A sensor that counts energy up in steps of ``quantum_j``; wraps at ``wrap_j`` if given.

    ``update_period_s`` is how often the count moves (0: at every read): a reading is up to that
    late, and the step it hides is what the device uses in that time, however fine the unit.
    """

    kind: Literal["counter"] = "counter"
    quantum_j: float = Field(gt=0)
    wrap_j: float | None = Field(default=None, gt=0)
    update_period_s: float = Field(default=0.0, ge=0)


class Bounds(Frozen):
    """No sensor: lower and upper watts that hold while the power state does.

    A reading holds until the next one if that says the same. After a change both bounds hold for
    ``settle_s`` more (worst exit plus entry latency, EXLAT + ENLAT). ``lowest_w`` and ``highest_w``
    are the least and the most that any state of the device allows: all that is known of a time in
    which no state was read. ``None`` where the device does not report them.
    """

    kind: Literal["bounds"] = "bounds"
    settle_s: float = Field(default=0.0, ge=0)
    lowest_w: float | None = None
    highest_w: float | None = None


class Integral(Frozen):
    """No samples: the device integrates by itself from ``start`` to ``stop`` (``WindowEnergy``)."""

    kind: Literal["integral"] = "integral"


Sensor = Annotated[Instant | Boxcar | Counter | Bounds | Integral, Field(discriminator="kind")]


class Channel(StrEnum):
    """What a sample's value means.

    ``LOWER_W`` and ``UPPER_W`` are bounds that hold; ``MIN_W`` and ``MAX_W`` are the least and the
    greatest reading of a meter that reads oftener than it is asked.
    """

    POWER_W = "power_w"
    ENERGY_J = "energy_j"
    LOWER_W = "lower_w"
    UPPER_W = "upper_w"
    MIN_W = "min_w"
    MAX_W = "max_w"
    POWER_STATE = "power_state"
    POWER_STATE_CHANGES = "power_state_changes"
    """How often the power state has changed so far, seen by a read or not (OCP C0h byte 200)."""
    TEMPERATURE_K = "temperature_k"
    THERMAL_TRANSITIONS = "thermal_transitions"
    """How often the drive has begun to throttle for its temperature so far (TMT1 and TMT2)."""
    THROTTLED_S = "throttled_s"
    """How long it has throttled so far, in seconds."""
    READ_BYTES = "read_bytes"
    WRITTEN_BYTES = "written_bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One reading: ``time_ns`` is CLOCK_MONOTONIC amid the read, ``spread_ns`` its length.

    ``value`` is ``None`` for a failed read, which makes a hole in the trace, never 0 W.
    ``device`` is a stable key: the controller's serial, the GPU's UUID, or the block device's name.
    """

    time_ns: int
    spread_ns: int
    source: str
    device: str
    channel: Channel
    value: float | None
    evidence: Evidence


class SourceFacts(Frozen):
    """What is known of a power source before it is read.

    ``is_recorded`` marks what comes from a file: whatever its evidence, no drive is asked for it.
    ``is_attached`` marks a recording whose own times lie in this run; any other is of another run.
    """

    name: str
    device: str
    device_name: str
    scope: Scope
    evidence: Evidence
    sensor: Sensor
    period_s: float
    resolution_w: float | None = None
    accuracy_percent: float | None = None
    detail: str = ""
    is_recorded: bool = False
    is_attached: bool = False

    @property
    def is_of_another_run(self) -> bool:
        """Whether the readings are a recording that is not known to be of this run."""
        return self.is_recorded and not self.is_attached

    @property
    def asks_drive(self) -> bool:
        """Whether each read is a command to the drive, which may keep it from sleeping."""
        is_of_drive = self.scope is Scope.DRIVE and self.evidence in _BY_THE_DRIVE
        return is_of_drive and not self.is_recorded


class PowerSource(Protocol):
    """Reads the power of one device. Every implementation passes ``tests/contracts``."""

    def facts(self) -> SourceFacts:
        """Return what the source is; valid after ``open``."""
        ...

    def open(self) -> None:
        """Find the device; raises ``PowerError`` with one sentence when it can't be read."""
        ...

    def start(self) -> None:
        """Begin; for sources that record by themselves."""
        ...

    def read(self) -> Sequence[Sample]:
        """Return the samples since the last read; a failed read is a sample without value.

        Raises:
            PowerDataLostError: the meter says that it dropped readings (an overrun). What was read
                before has been returned by then; the sampler reads this source no more, goes on
                with the others, and the run's record fails for the sentence.
        """
        ...

    def stop(self) -> Sequence[WindowEnergy]:
        """End; returns whole-run energies of sources that integrate by themselves, else nothing.

        Raises:
            PowerDataLostError: as ``read``, for what the meter tells only at the end.
        """
        ...

    def restore(self) -> None:
        """Undo whatever the source changed on the device; safe to call twice."""
        ...

    def close(self) -> None:
        """Give the device back."""
        ...


class PowerBin(Frozen):
    """How many of a device's own measurements lay from ``lower_w`` up to the next bin's."""

    lower_w: float = Field(ge=0)
    count: int = Field(ge=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowEnergy:
    """Energy that a device integrated by itself over one window, in joules; never split.

    ``energy_j`` is ``None`` for the ``reason`` given where the device's answer can't be used.
    ``accuracy_percent`` is the greatest error that the device states, ``resolution_w`` the step of
    its mean power, ``uncovered_s`` the seconds of the window that its mean leaves out and
    ``max_w`` the greatest power it saw; each ``None`` where the device does not tell. ``histogram``
    is its measurements by power, ascending, empty where it keeps none.
    """

    source: str
    device: str
    start_ns: int
    end_ns: int
    energy_j: float | None
    evidence: Evidence
    accuracy_percent: float | None = None
    resolution_w: float | None = None
    uncovered_s: float | None = None
    max_w: float | None = None
    reason: str = ""
    histogram: tuple[PowerBin, ...] = ()
