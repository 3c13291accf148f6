"""The typed configuration of power: which source, which power state, how often, how long."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from wattload.core.errors import ConfigError

AUTO = "auto"
NONE = "none"
LAST_POWER_STATE = 31
"""NVMe Base: Identify Controller has room for descriptors of states 0 to 31."""

IDLE_DEFAULT_S = 60.0
"""Length of the idle baseline for sources that measure; the others have nothing to measure."""


@dataclass(slots=True, kw_only=True)
class DeclaredProfile:
    """Watts of one drive model as its maker or a publication states them, and where they stand.

    ``max_w`` is the maximum in the power state ``state`` (``None``: not stated), ``idle_w`` the
    idle power, ``typical_w`` the mean power under load; ``citation`` says where they were read.
    """

    name: str = MISSING
    citation: str = MISSING
    max_w: float | None = None
    idle_w: float | None = None
    typical_w: float | None = None
    state: int | None = None

    def check(self) -> None:
        """Raise ``ConfigError`` for watts that no drive can have, or none at all."""
        watts = {"idle_w": self.idle_w, "typical_w": self.typical_w, "max_w": self.max_w}
        given = {key: value for key, value in watts.items() if value is not None}
        if self.max_w is None and self.typical_w is None:
            raise ConfigError(
                f"power.profile {self.name} gives neither max_w nor typical_w; an energy needs one"
            )
        for key, value in given.items():
            if not 0 < value < float("inf"):
                raise ConfigError(f"power.profile.{key} must be more than 0 W, got {value}")
        if list(given.values()) != sorted(given.values()):
            raise ConfigError(
                "power.profile must have idle_w <= typical_w <= max_w, got "
                + ", ".join(f"{key}={value}" for key, value in given.items())
            )


@dataclass(slots=True, kw_only=True)
class PowerConfig:
    """What is asked of power.

    ``source`` is ``auto``, ``none`` or one name of ``wattload.power.sources.SOURCES``. ``state`` is
    the NVMe power state to set before the run and undo after it; ``None`` leaves it alone.
    ``period_s`` is the time between two reads. ``idle_s`` is the length of the idle baseline;
    ``None`` takes 60 s where the source measures and 0 s elsewhere. ``tail_max_s`` ends the wait
    for the drive to calm down. ``allow_system_drive`` permits ``state`` on the drive that holds
    root or swap. ``profile`` belongs to ``source=declared``.
    """

    source: str = AUTO
    state: int | None = None
    period_s: float = 0.1
    idle_s: float | None = None
    tail_max_s: float = 60.0
    allow_system_drive: bool = False
    profile: DeclaredProfile | None = None

    def check(self) -> None:
        """Raise ``ConfigError`` for what no type can say."""
        from wattload.power.sources import SOURCES

        if self.source not in (AUTO, *SOURCES):
            raise ConfigError(
                f"power.source must be one of {', '.join((AUTO, *SOURCES))}; got {self.source!r}"
            )
        if self.state is not None and not 0 <= self.state <= LAST_POWER_STATE:
            raise ConfigError(
                f"power.state must be 0 to {LAST_POWER_STATE}, got {self.state}; "
                "`wattload power states` lists what a drive has"
            )
        self._check_times()
        if self.source == "declared" and self.profile is None:
            raise ConfigError("power=declared needs a profile; e.g. power/profile=micron_6550_ion")
        if self.profile is not None:
            self.profile.check()

    def _check_times(self) -> None:
        if not 0 < self.period_s < float("inf"):
            raise ConfigError(f"power.period_s must be more than 0 s, got {self.period_s}")
        for key, value in (("idle_s", self.idle_s), ("tail_max_s", self.tail_max_s)):
            if value is not None and not 0 <= value < float("inf"):
                raise ConfigError(f"power.{key} must be 0 s or more, got {value}")
