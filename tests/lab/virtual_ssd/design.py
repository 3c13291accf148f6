"""What a virtual drive is: power states, watts, joules per byte, heat; all figures are invented.

Its rates are a thousandth of a real drive's, so that an emulated processor keeps up with them; its
watts are a real drive's.
"""

from __future__ import annotations

from dataclasses import dataclass

MODEL = "wattload virtual drive"
BLOCK_BYTES = 512


@dataclass(frozen=True, kw_only=True)
class PowerState:
    """One power state: its descriptor's figures, and the rates that it really holds to.

    ``idle_w`` is drawn at all times; a rate of 0 makes the state non-operational.
    """

    max_w: float
    idle_w: float
    entry_us: int
    exit_us: int
    read_bytes_per_s: float = 0.0
    write_bytes_per_s: float = 0.0

    @property
    def operational(self) -> bool:
        return self.write_bytes_per_s > 0


STATES = (
    PowerState(
        max_w=25.0,
        idle_w=5.0,
        entry_us=2_000,
        exit_us=2_000,
        read_bytes_per_s=12e6,
        write_bytes_per_s=6e6,
    ),
    PowerState(
        max_w=16.0,
        idle_w=4.0,
        entry_us=5_000,
        exit_us=5_000,
        read_bytes_per_s=8e6,
        write_bytes_per_s=4e6,
    ),
    PowerState(
        max_w=10.0,
        idle_w=3.5,
        entry_us=10_000,
        exit_us=10_000,
        read_bytes_per_s=4e6,
        write_bytes_per_s=2e6,
    ),
    PowerState(max_w=0.4, idle_w=0.3, entry_us=50_000, exit_us=100_000),
)


@dataclass(frozen=True, kw_only=True)
class Design:
    """One drive. Temperatures in kelvin, rates in bytes per second.

    Written bytes wait in a cache that loses nothing when power fails, and go to the media in the
    background at ``destage_share`` of the state's write rate; with a full cache, so do writes. What
    a translation layer adds to them is destaged, too, and takes time and energy by the byte. The
    case warms towards ``ambient_k + kelvin_per_w x watts`` with the time constant ``warming_s``.
    """

    serial: str = "VIRTUAL0001"
    model: str = MODEL
    firmware: str = "VD1.0"
    vendor_id: int = 0xFFFE
    capacity_bytes: int = 2 << 30
    states: tuple[PowerState, ...] = STATES
    read_j_per_byte: float = 1.0e-6
    write_j_per_byte: float = 1.6e-6
    destage_j_per_byte: float = 0.8e-6
    destage_share: float = 0.9
    cache_bytes: int = 12_000_000
    media_bytes_per_byte: float = 1.1
    """Media bytes for each byte that is destaged: metadata of the drive's own."""
    spare_share: float | None = None
    """Spare area / capacity. With one, a translation layer decides what a write costs; without,
    every written byte is destaged once."""
    page_bytes: int = 4096
    """The indirection unit of the translation layer."""
    ambient_k: float = 300.0
    kelvin_per_w: float = 1.6
    warming_s: float = 20.0
    warning_k: int = 343
    critical_k: int = 353
    light_throttle: float = 0.7
    heavy_throttle: float = 0.4
    has_ocp_log: bool = True
    estimates: bool = False
    error_percent: int = 1
    energy_before_wh: float = 1234.3
    """Watt-hours used in the life before this start."""

    @property
    def subsystem(self) -> str:
        """The NVMe qualified name, unlike that of other drives."""
        return f"nqn.2026-11.test.wattload:{self.serial}"

    @property
    def namespace_id(self) -> bytes:
        """The 16 bytes that identify the namespace, unlike those of other drives."""
        return self.serial.encode("ascii").ljust(16, b"v")


GEN5 = Design(
    serial="VIRTUALGEN5",
    model=f"{MODEL} Gen5",
    states=(STATES[0], STATES[-1]),
    kelvin_per_w=0.3,
    has_ocp_log=False,
)
GEN4 = Design(
    serial="VIRTUALGEN4",
    model=f"{MODEL} Gen4",
    states=(
        PowerState(
            max_w=16.0,
            idle_w=3.5,
            entry_us=2_000,
            exit_us=2_000,
            read_bytes_per_s=7e6,
            write_bytes_per_s=4e6,
        ),
        STATES[-1],
    ),
    read_j_per_byte=0.6e-6,
    write_j_per_byte=2.0e-6,
    destage_j_per_byte=1.0e-6,
    kelvin_per_w=0.3,
    has_ocp_log=False,
)
"""Gen5 is faster; Gen4 reads with fewer joules and writes with more. Both are well cooled, so that
no run waits. With one meter, every run's energy has the same evidence."""

AMPLIFYING = Design(
    serial="VIRTUALFTL1",
    model=f"{MODEL} with a translation layer",
    capacity_bytes=32 << 20,
    cache_bytes=1 << 20,
    media_bytes_per_byte=1.0,
    spare_share=0.28,
    page_bytes=16384,
    kelvin_per_w=0.3,
)
"""Small, so that it can be overwritten in seconds."""

SLC = Design(
    serial="VIRTUALSLC01",
    model=f"{MODEL} with an SLC cache",
    cache_bytes=24_000_000,
    destage_share=0.25,
    kelvin_per_w=0.3,
    has_ocp_log=False,
)
"""Writes take four times as long once its cache is full, and it empties the cache for 16 s."""

DESIGNS = {design.serial: design for design in (Design(), GEN5, GEN4, AMPLIFYING, SLC)}
