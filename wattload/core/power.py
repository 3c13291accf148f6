"""The parts of a power figure: samples, the sensor behind them, and their evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal, Protocol

from pydantic import Field

from wattload.core.base_models import Frozen


class Evidence(StrEnum):
    """How a figure is known, strongest first. A window takes the weakest of its samples'."""

    MEASURED = "measured"
    """An external meter or a rail sensor."""
    SELF_REPORTED = "self_reported"
    """The drive's or GPU's own measurement."""
    ESTIMATED = "estimated"
    """The drive states that it estimates."""
    BOUNDS = "bounds"
    """Limits from power state descriptors: an interval, not a measurement."""
    DECLARED = "declared"
    """A data sheet, typed into YAML."""
    NONE = "none"
    """Nothing is known."""


MEASURING = (Evidence.MEASURED, Evidence.SELF_REPORTED, Evidence.ESTIMATED)
"""Evidence from a sensor; the others only limit what the power may be."""

_BY_THE_DRIVE = (Evidence.SELF_REPORTED, Evidence.ESTIMATED, Evidence.BOUNDS)

EVIDENCE_RANK = {evidence: rank for rank, evidence in enumerate(Evidence)}
"""Each evidence to its rank, from 0 for the strongest."""


def weakest(evidence: Iterable[Evidence]) -> Evidence:
    """Return the weakest of the given evidence; ``NONE`` for an empty iterable."""
    return max(evidence, key=EVIDENCE_RANK.__getitem__, default=Evidence.NONE)


class Scope(StrEnum):
    """What a figure covers; figures of different scopes are never added."""

    DRIVE = "drive"
    GPU = "gpu"
    NODE = "node"


OTHER_SCOPES = {Scope.GPU: "GPU", Scope.NODE: "node"}
"""The scopes other than drives, with their names."""


class Instant(Frozen):
    """A sensor whose reading is the power at its last update, ``lag_s`` before it appears.

    ``update_period_s`` is the time between updates (0: at every read). Between two updates the
    reading is held, and changes of power are not seen.
    """

    kind: Literal["instant"] = "instant"
    update_period_s: float = Field(default=0.0, ge=0)
    lag_s: float = Field(default=0.0, ge=0)


class Boxcar(Frozen):
    """A sensor whose reading is the mean of the last ``window_s`` seconds before its last update.

    ``update_period_s`` is the time between updates (0: sliding, at every read; ``None``: not
    declared, so it is inferred from when values change). The reading appears ``lag_s`` after the
    end of its window.
    """

    kind: Literal["boxcar"] = "boxcar"
    window_s: float = Field(gt=0)
    update_period_s: float | None = Field(default=None, ge=0)
    lag_s: float = Field(default=0.0, ge=0)


class Counter(Frozen):
    """A sensor that counts energy in steps of ``quantum_j`` and wraps at ``wrap_j`` if given.

    ``update_period_s`` is the time between changes of the count (0: at every read). A reading is up
    to that late, so it hides the energy used in that time, however fine the unit. The count appears
    ``lag_s`` late.
    """

    kind: Literal["counter"] = "counter"
    quantum_j: float = Field(gt=0)
    wrap_j: float | None = Field(default=None, gt=0)
    update_period_s: float = Field(default=0.0, ge=0)
    lag_s: float = Field(default=0.0, ge=0)


class Bounds(Frozen):
    """No sensor: lower and upper watts that hold as long as the power state does.

    A reading holds until the next one if that is equal. After a change, both bounds hold for
    ``settle_s`` more (worst exit plus entry latency, EXLAT + ENLAT). ``lowest_w`` and ``highest_w``
    are the minimum and maximum over all states of the device. They bound any time in which no state
    was read, and are ``None`` if the device does not report them.
    """

    kind: Literal["bounds"] = "bounds"
    settle_s: float = Field(default=0.0, ge=0)
    lowest_w: float | None = None
    highest_w: float | None = None


class Integral(Frozen):
    """No samples: the device itself integrates from ``start`` to ``stop`` (``WindowEnergy``)."""

    kind: Literal["integral"] = "integral"


Sensor = Annotated[Instant | Boxcar | Counter | Bounds | Integral, Field(discriminator="kind")]


class Channel(StrEnum):
    """What a sample's value means.

    ``LOWER_W`` and ``UPPER_W`` are bounds. ``MIN_W`` and ``MAX_W`` are the extreme readings of a
    meter that samples more often than it is read.
    """

    POWER_W = "power_w"
    ENERGY_J = "energy_j"
    LOWER_W = "lower_w"
    UPPER_W = "upper_w"
    MIN_W = "min_w"
    MAX_W = "max_w"
    POWER_STATE = "power_state"
    POWER_STATE_CHANGES = "power_state_changes"
    """Count of all power state changes, whether a read saw them or not (OCP C0h byte 200)."""
    TEMPERATURE_K = "temperature_k"
    THERMAL_TRANSITIONS = "thermal_transitions"
    """Count of the drive's entries into thermal throttling (TMT1 and TMT2)."""
    THROTTLED_S = "throttled_s"
    """Total time of thermal throttling, in seconds."""
    READ_BYTES = "read_bytes"
    WRITTEN_BYTES = "written_bytes"
    HOST_WRITTEN_BYTES = "host_written_bytes"
    """The drive's own count of bytes that hosts wrote to it in its lifetime."""
    MEDIA_WRITTEN_BYTES = "media_written_bytes"
    """The drive's own count of bytes that it wrote to its media in its lifetime."""


SMART, OCP, ENDURANCE_GROUP = "smart", "ocp", "endurance_group"
WRITTEN_STEP_BYTES = {SMART: 512_000, OCP: 1, ENDURANCE_GROUP: 1_000_000_000}
"""The logs that count written bytes, as sources of samples, and the step of each count in bytes:
SMART (02h), OCP's extended SMART (C0h), Endurance Group Information (09h)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One reading: ``time_ns`` is CLOCK_MONOTONIC in the middle of it, ``spread_ns`` its length.

    ``value`` is ``None`` for a failed read, which makes a gap in the trace, never 0 W.
    ``device`` is a stable key: the controller's serial, the GPU's UUID, or the block device's name.
    """

    time_ns: int
    spread_ns: int
    source: str
    device: str
    channel: Channel
    value: float | None
    evidence: Evidence


class Accuracy(Frozen):
    """The largest error that a meter states, taken at k = 2; the parts that are stated add up.

    Each is ``None`` if it is not stated: percent of the reading, percent of the range, watts. The
    first is a gain: it is common to all readings. The others are an offset.
    """

    reading_percent: float | None = Field(default=None, ge=0, le=100)
    range_percent: float | None = Field(default=None, ge=0, le=100)
    watts: float | None = Field(default=None, ge=0)

    @property
    def text(self) -> str:
        """The stated parts as in a data sheet: ``0.1 % of reading + 0.05 % of range + 0.01 W``."""
        units = {
            "% of reading": self.reading_percent,
            "% of range": self.range_percent,
            "W": self.watts,
        }
        return " + ".join(f"{value:g} {unit}" for unit, value in units.items() if value is not None)


class SourceFacts(Frozen):
    """What is known about a power source before it is read.

    ``is_recorded`` marks readings from a file: whatever their evidence, no drive is read.
    ``is_attached`` marks a recording whose own times are in this run; any other recording was made
    in another run.
    ``meter`` identifies a meter outside the device, such as a power module: all devices that it
    reads have its gain in common. ``may_be_negative`` declares that readings below zero are valid,
    as of a sensor with an offset; otherwise they are refused. ``range_w`` is the greatest power
    that the meter can show, ``None`` if it is not stated: readings at it are pinned, and refused.
    ``pci_address`` is that of a GPU, such as ``0000:65:00.0``, empty where it is unknown.
    """

    name: str
    device: str
    device_name: str
    scope: Scope
    evidence: Evidence
    sensor: Sensor
    period_s: float
    resolution_w: float | None = None
    accuracy: Accuracy | None = None
    range_w: float | None = None
    detail: str = ""
    is_recorded: bool = False
    is_attached: bool = False
    meter: str = ""
    may_be_negative: bool = False
    pci_address: str = ""

    @property
    def is_of_another_run(self) -> bool:
        """Whether the readings are a recording that is not known to be from this run."""
        return self.is_recorded and not self.is_attached

    @property
    def measures(self) -> bool:
        """Whether the source has a sensor whose readings are sampled."""
        return self.evidence in MEASURING and not isinstance(self.sensor, Integral)

    @property
    def has_declared_readings(self) -> bool:
        """Whether a meter is read of which the user states no accuracy.

        A data sheet is not read, and a recording states its own evidence.
        """
        is_sheet = isinstance(self.sensor, Bounds)
        return self.evidence is Evidence.DECLARED and not is_sheet and not self.is_recorded

    @property
    def figure_channel(self) -> Channel:
        """The channel that an energy of the source comes from: a counter's joules, else watts."""
        return Channel.ENERGY_J if isinstance(self.sensor, Counter) else Channel.POWER_W

    @property
    def asks_drive(self) -> bool:
        """Whether each read sends the drive a command, which may keep it awake."""
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
        """Start; for sources that record by themselves."""
        ...

    def read(self) -> Sequence[Sample]:
        """Return the samples since the last read; a failed read is a sample without a value.

        Raises:
            PowerDataLostError: the meter reports dropped readings (an overrun), or is gone. Earlier
                readings have been returned. The sampler stops reading this source and continues
                with the others. The run fails with this message if the meter is of a drive.
        """
        ...

    def stop(self) -> Sequence[WindowEnergy]:
        """Stop; return whole-run energies of sources that integrate by themselves, else nothing.

        Raises:
            PowerDataLostError: as in ``read``, for loss that the meter reports only at the end.
        """
        ...

    def restore(self) -> None:
        """Undo what the source changed on the device; safe to call twice."""
        ...

    def close(self) -> None:
        """Release the device."""
        ...


class PowerBin(Frozen):
    """The number of measurements from ``lower_w`` up to the next bin's."""

    lower_w: float
    count: int = Field(ge=0)


class WindowEnergy(Frozen):
    """Energy that a device integrated by itself over one window, in joules; never split.

    ``energy_j`` is ``None``, with a ``reason``, if the device's answer can't be used.
    ``accuracy_percent`` is the device's stated maximum error, ``resolution_w`` the step of its mean
    power, ``uncovered_s`` the seconds of the window that its mean leaves out, and ``max_w`` the
    maximum power it saw; each is ``None`` if the device does not report it. ``histogram`` has its
    measurements by power, ascending, and is empty if the device keeps none.
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
