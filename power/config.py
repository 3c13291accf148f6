"""The typed configuration of power: which source, which power state, how often, how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omegaconf import MISSING

from wattload.core.errors import ConfigError
from wattload.power.meterconfig import HwmonConfig, RedfishConfig
from wattload.power.quarch.config import QuarchConfig
from wattload.power.replay.config import ReplayConfig

AUTO = "auto"
NONE = "none"
LAST_POWER_STATE = 31
"""NVMe Base: Identify Controller has room for descriptors of states 0 to 31."""

KNOBS = ("power.state", "power.dssd_watts", "power.limit_w")
"""The options that cap a drive's power; a run turns one of them."""

LARGEST_DSSD_W = 0xFF
"""OCP Datacenter NVMe SSD, feature C7h: whole watts in one byte."""

LARGEST_LIMIT_W = 655.35
"""NVMe Base 2.3, feature 23h: 16 bits in steps of 0.01 W."""

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

    ``source`` is ``auto``, ``none`` or one name of ``wattload.power.sources.SOURCES``. One of three
    knobs is set on every drive before the run, read back and undone after it, ``None`` leaves it
    alone: ``state``, the NVMe power state; ``dssd_watts``, the whole watts of OCP's feature C7h;
    ``limit_w``, the power limit of feature 23h. With any of them or none, ``apst`` switches the
    drive's own transitions to sleeping states, and ``set_timestamp`` sets its clock to the host's,
    which alone is not undone. ``period_s`` is the time between two reads. ``idle_s`` is the length
    of the idle baseline; ``None`` takes 60 s where the source measures and 0 s elsewhere.
    ``idle_after_s`` is that of the baseline after the run, ``quiet_s`` that of the same without any
    command to the drive, before and after; ``None`` takes as long as ``idle_s`` for both, and no
    quiet where the drive is not asked anyway.
    ``tail_max_s`` ends the wait for the drive to calm down. ``allow_system_drive`` permits a change
    of the drive that holds root or swap. ``profile`` belongs to ``source=declared``, ``quarch`` and
    ``replay`` to the sources of their names. ``sampler_socket`` is where a sampler service listens;
    ``None`` takes the socket that WATTLOAD_SAMPLER_SOCKET names, or starts a sampler for the run.
    ``beside`` names sources that are read beside ``source`` (a node's meter beside a drive's);
    ``hwmon`` says which rails feed which drive, ``redfish`` where the BMC is.
    """

    source: str = AUTO
    state: int | None = None
    period_s: float = 0.1
    idle_s: float | None = None
    tail_max_s: float = 60.0
    allow_system_drive: bool = False
    profile: DeclaredProfile | None = None
    quarch: QuarchConfig | None = None
    replay: ReplayConfig | None = None
    sampler_socket: str | None = None
    beside: list[str] = field(default_factory=list)
    hwmon: HwmonConfig = field(default_factory=HwmonConfig)
    redfish: RedfishConfig = field(default_factory=RedfishConfig)
    dssd_watts: int | None = None
    limit_w: float | None = None
    apst: bool | None = None
    set_timestamp: bool = False
    idle_after_s: float | None = None
    quiet_s: float | None = None

    @property
    def asked(self) -> Mapping[str, object]:
        """What is to be changed on a drive, by the option that asks for it, the knob first."""
        options = {
            "power.state": self.state,
            "power.dssd_watts": self.dssd_watts,
            "power.limit_w": self.limit_w,
            "power.apst": self.apst,
            "power.set_timestamp": self.set_timestamp or None,
        }
        return {name: value for name, value in options.items() if value is not None}

    @property
    def knob(self) -> str | None:
        """The option that is changed, the one that caps power first; ``None`` if nothing is."""
        return next(iter(self.asked), None)

    @property
    def changes(self) -> str:
        """What is to be changed on a drive, as it was asked for; empty if nothing is."""
        return " ".join(f"{name}={str(value).lower()}" for name, value in self.asked.items())

    def check(self) -> None:
        """Raise ``ConfigError`` for what no type can say."""
        from wattload.power.sources import SOURCES

        if self.source not in (AUTO, *SOURCES):
            raise ConfigError(
                f"power.source must be one of {', '.join((AUTO, *SOURCES))}; got {self.source!r}"
            )
        self._check_knobs()
        self._check_times()
        if self.source == "declared" and self.profile is None:
            raise ConfigError("power=declared needs a profile; e.g. power/profile=micron_6550_ion")
        if self.profile is not None:
            self.profile.check()
        self._check_meters()

    def _check_meters(self) -> None:
        """Check the settings of the source that is asked for; the others are not looked at."""
        if self.source == "quarch":
            (self.quarch or QuarchConfig()).check()
        if self.source == "replay":
            (self.replay or ReplayConfig()).check()
        self.hwmon.check()
        if self.redfish.url or "redfish" in (self.source, *self.beside):
            self.redfish.check()
        self._check_beside()

    def _check_beside(self) -> None:
        """Check that what is read beside the first source is known, and named once."""
        from wattload.power.sources import BESIDE

        for name in self.beside:
            if name not in BESIDE or self.source == NONE:
                allowed = "nothing" if self.source == NONE else f"any of {', '.join(BESIDE)}"
                raise ConfigError(
                    f"power.beside takes {allowed} with power={self.source}; got {name!r}"
                )
        named = [self.source, *self.beside]
        twice = [name for name in dict.fromkeys(named) if named.count(name) > 1]
        if twice:
            raise ConfigError(f"power.beside names {twice[0]}, which is read already; name it once")

    def _check_knobs(self) -> None:
        if self.state is not None and not 0 <= self.state <= LAST_POWER_STATE:
            raise ConfigError(
                f"power.state must be 0 to {LAST_POWER_STATE}, got {self.state}; "
                "`wattload power states` lists what a drive has"
            )
        if self.dssd_watts is not None and not 0 < self.dssd_watts <= LARGEST_DSSD_W:
            raise ConfigError(
                f"power.dssd_watts must be 1 to {LARGEST_DSSD_W} whole watts, got {self.dssd_watts}"
            )
        if self.limit_w is not None and not 0 < self.limit_w <= LARGEST_LIMIT_W:
            raise ConfigError(
                f"power.limit_w must be more than 0 and at most {LARGEST_LIMIT_W:g} W, got "
                f"{self.limit_w}"
            )
        turned = [f"{name}={value}" for name, value in self.asked.items() if name in KNOBS]
        if len(turned) > 1:
            raise ConfigError(
                f"only one of {', '.join(KNOBS)} can be set in a run, or nobody could tell which "
                f"of them did it; got {' and '.join(turned)}"
            )

    def _check_times(self) -> None:
        if not 0 < self.period_s < float("inf"):
            raise ConfigError(f"power.period_s must be more than 0 s, got {self.period_s}")
        for key in ("idle_s", "idle_after_s", "quiet_s", "tail_max_s"):
            value = getattr(self, key)
            if value is not None and not 0 <= value < float("inf"):
                raise ConfigError(f"power.{key} must be 0 s or more, got {value}")
