"""What a model drive measures of its own power, and how it packs that: log 25h and OCP's C0h.

Packed from the specification's tables (``packing``), not by the decoders that it tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.model_host import packing


def centiwatts(watts: float) -> int:
    """Return a power as value and scale 2, in steps of 0.01 W."""
    return round(watts * 100) | 2 << 16


@dataclass(kw_only=True)
class Meter:
    """The drive's own figures; raw where a name of the specification stands."""

    ipm: int = 0
    olec: int = 0
    throttled: tuple[int, int] = (0, 0)
    """Transitions to light and seconds of heavy throttling."""
    interval_ms: int = 0

    measures: bool = False
    """Whether there is a feature and a log 25h at all."""
    setting: int = 0
    hides_setting: bool = False
    """Get Features 25h is refused, though Set Features is obeyed."""
    generation: int = 0
    estimated: bool = False
    holes: bool = False
    kind: int = 0
    aipwr: int = 0
    mipwr: int = 0
    error_percent: int = 255
    count: int = 0
    bins: tuple[tuple[int, int], ...] = ()
    """Count and raw threshold each."""
    deaf: bool = False
    """Start succeeds, and nothing is measured."""

    data_units_written: int = 0
    media_written_bytes: int = 123_456_789
    """In log C0h; log 09h has a count of its own."""

    ocp_version: int = 5
    ocp_watts: int = 0
    state_changes: int = 0
    pages: dict[str, str] = field(default_factory=dict)
    """A vendor's logs: the identifier in decimal, the bytes in hex."""

    def set(self, value: int) -> None:
        """Obey Set Features 25h."""
        if value & 0xF == 1:
            self.generation = self.generation + 1 & 0xFF
        self.setting = value


def measurement_bytes(meter: Meter) -> bytes:
    active = meter.setting & 0xF == 1 and not meter.deaf
    attributes = active | meter.holes << 1 | meter.estimated << 2 | 1 << 3 | meter.kind << 12
    return packing.measurement(
        meter.bins,
        pmgn=meter.generation,
        pma=attributes,
        pmc=meter.count,
        nphds=256,
        aipwr=meter.aipwr,
        mipwr=meter.mipwr,
        ipwrpe=meter.error_percent,
    )


def ocp_bytes(meter: Meter) -> bytes:
    values: dict[str, int | bytes] = {
        "written": packing.wide(meter.media_written_bytes),
        "state_changes": meter.state_changes,
        "peak": 30,
        "average": meter.ocp_watts,
        "version": meter.ocp_version,
        "guid": packing.OCP_SMART_GUID,
    }
    return packing.pack(packing.OCP_SMART, 512, values)
