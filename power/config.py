"""The configuration of power: the source, the drive's power settings, periods and idle times.

It also holds the settings of the meters that need some: hwmon, Redfish, Quarch, replay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from omegaconf import MISSING

from wattload.core.errors import ConfigError
from wattload.power.registry import AUTO, NONE, companions, meter, meter_names

HTTPS_PORT = 443

_RAIL = re.compile(r"[^/\s]+/(power|energy|curr)\d+:[^/:]+")
_ID = re.compile(r"[A-Za-z0-9._:-]+")

QIS_PORT = 9722
"""QIS's default port for line commands (its ``help.txt``)."""
LAST_PORT = 65535
_MODULE = re.compile(r"[A-Za-z]+::?[A-Za-z0-9._-]+")
"""The form of a module name in ``$list``: ``usb::qtl1847-01-016``. A space would end the name."""
START, MONOTONIC, WALL = "start", "monotonic", "wall"
ALIGNMENTS = (START, MONOTONIC, WALL)
LAST_POWER_STATE = 31
"""NVMe Base: Identify Controller holds descriptors of states 0 to 31."""
POWER_CAPS = ("power.state", "power.dssd_watts", "power.limit_w")
"""The options that cap a drive's power. A run sets at most one."""
LARGEST_DSSD_W = 0xFF
"""OCP Datacenter NVMe SSD, feature C7h: whole watts in one byte."""
LARGEST_LIMIT_W = 655.35
"""NVMe Base 2.3, feature 23h: 16 bits in steps of 0.01 W."""
IDLE_DEFAULT_S = 60.0
"""Default length of the idle baseline for sources that measure."""


@dataclass(slots=True, kw_only=True)
class HwmonConfig:
    """Which sensor measures which drive's rail. The kernel does not have this information.

    Each entry of ``rails`` is ``chip/channel:drive``, with the drive's serial or kernel name:
    ``[ina226@1-0040/power1:nvme0]``. Several rails of one drive are summed. ``wattload devices``
    lists the channels. ``accuracy_percent`` is the largest error of these sensors including their
    shunts. The kernel does not report it, and without it there is no total uncertainty.
    """

    rails: list[str] = field(default_factory=list)
    accuracy_percent: float | None = None

    def check(self) -> None:
        """Raise ``ConfigError`` for invalid values."""
        for rail in self.rails:
            if not _RAIL.fullmatch(rail):
                raise ConfigError(
                    "each entry of power.hwmon.rails must be chip/channel:drive, such as "
                    f"ina226/power1:nvme0 or ina3221/curr2:SERIAL; got {rail!r}; "
                    "`wattload devices` lists the channels"
                )
        if len(self.drives) < len(self.rails):
            raise ConfigError(
                f"power.hwmon.rails must list each channel once, got {', '.join(self.rails)}"
            )
        accuracy = self.accuracy_percent
        if accuracy is not None and not 0 < accuracy < 100:  # noqa: PLR2004 - per cent
            raise ConfigError(
                "power.hwmon.accuracy_percent must be more than 0 and less than 100, "
                f"got {accuracy}"
            )

    @property
    def drives(self) -> dict[str, str]:
        """The drive's serial or kernel name by ``chip/channel``."""
        split = (rail.rpartition(":") for rail in self.rails)
        return {channel: drive for channel, _, drive in split}


@dataclass(slots=True, kw_only=True)
class RedfishConfig:
    """The address of the node's management controller (BMC).

    ``url`` is its https address. ``ca_file`` is a PEM file with the BMC's certificate or that of
    the authority which signed it; the default is the system's certificate authorities. The
    certificate is always verified. ``chassis`` is required if several chassis report power. User
    and password are read from the environment only (``power.sources.redfish``).
    """

    url: str = ""
    ca_file: str | None = None
    chassis: str | None = None

    def check(self) -> None:
        """Raise ``ConfigError`` for invalid values."""
        self.address()
        if self.chassis is not None and not _ID.fullmatch(self.chassis):
            raise ConfigError(f"power.redfish.chassis must be a chassis Id, got {self.chassis!r}")

    def address(self) -> tuple[str, int]:
        """Return host and port. Errors do not repeat an address that contains a password.

        Raises:
            ConfigError: not the https address of a host, or with credentials or a path.
        """
        try:
            parts = urlsplit(self.url)
            port = parts.port or HTTPS_PORT
        except ValueError as error:
            raise ConfigError(f"invalid power.redfish.url: {error}") from error
        if "@" in self.url:
            raise ConfigError(
                "power.redfish.url must not contain a password, as the record would show it; "
                "set WATTLOAD_REDFISH_USER and WATTLOAD_REDFISH_PASSWORD instead"
            )
        if parts.scheme != "https" or not parts.hostname or parts.path not in ("", "/"):
            raise ConfigError(
                "power.redfish.url must be the BMC's https address such as https://bmc.example, "
                f"got {self.url!r}"
            )
        return parts.hostname, port


@dataclass(slots=True, kw_only=True)
class QuarchConfig:
    """A power module, by its QIS name, and the drive that it feeds.

    ``rails`` are the rails that feed the drive, by their names in the stream's header. An empty
    list takes all of them. ``device`` is the drive's serial or kernel name; it may be empty if the
    target has one drive. ``accuracy_percent`` is the module's accuracy of power, from its
    calibration certificate. QIS does not report it, and without it there is no total uncertainty.
    """

    module: str = ""
    host: str = "127.0.0.1"
    port: int = QIS_PORT
    rails: list[str] = field(default_factory=list)
    device: str = ""
    accuracy_percent: float | None = None

    def check(self) -> None:
        """Raise ``ConfigError`` for invalid values."""
        if not _MODULE.fullmatch(self.module):
            raise ConfigError(
                "power.quarch.module must be a QIS module name such as tcp::qtl1999-02-020 "
                f"(the QIS command $list shows them all), got {self.module!r}"
            )
        if not self.host or not self.host.isprintable() or " " in self.host:
            raise ConfigError(
                f"power.quarch.host must be a host name or address, got {self.host!r}"
            )
        if not 0 < self.port <= LAST_PORT:
            raise ConfigError(f"power.quarch.port must be 1 to {LAST_PORT}, got {self.port}")
        accuracy = self.accuracy_percent
        if accuracy is not None and not 0 < accuracy < 100:  # noqa: PLR2004 - per cent
            raise ConfigError(
                f"power.quarch.accuracy_percent must be more than 0 and less than 100, "
                f"got {accuracy}"
            )


@dataclass(slots=True, kw_only=True)
class ReplayConfig:
    """A trace file (CSV or Parquet) and how its times map to the run.

    ``align=start`` replays it in real time from the start of sampling. ``monotonic`` and ``wall``
    attach a recording that a meter made during the run, by this host's monotonic clock or by UTC;
    the file may grow until the run ends. ``device`` is the drive's serial or kernel name; it may
    be empty if the target has one drive.
    """

    path: str = ""
    align: str = START
    device: str = ""

    def check(self) -> None:
        """Raise ``ConfigError`` for invalid values."""
        if not self.path:
            raise ConfigError(
                "power=replay needs a trace file: set power.replay.path=trace.csv (or .parquet)"
            )
        if self.align not in ALIGNMENTS:
            raise ConfigError(
                f"power.replay.align must be one of {', '.join(ALIGNMENTS)}; got {self.align!r}"
            )


@dataclass(slots=True, kw_only=True)
class DeclaredProfile:
    """Power of one drive model in watts, as stated by its vendor or a publication.

    ``max_w`` is the maximum in power state ``state`` (``None``: not stated), ``idle_w`` the idle
    power, ``typical_w`` the mean power under load. ``citation`` is the source of these values.
    """

    name: str = MISSING
    citation: str = MISSING
    max_w: float | None = None
    idle_w: float | None = None
    typical_w: float | None = None
    state: int | None = None

    def check(self) -> None:
        """Raise ``ConfigError`` for missing or contradictory watts."""
        watts = {"idle_w": self.idle_w, "typical_w": self.typical_w, "max_w": self.max_w}
        given = {key: value for key, value in watts.items() if value is not None}
        if self.max_w is None and self.typical_w is None:
            raise ConfigError(
                f"power.profile {self.name} has neither max_w nor typical_w; set at least one"
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
    """The settings of power: what measures it, and what is set on the drives.

    ``source`` is ``auto`` or a name of ``power.registry.meter_names``. ``beside`` lists further
    sources to read (a node's meter in addition to a drive's). ``profile`` belongs to
    ``source=declared``; ``quarch``, ``replay``, ``hwmon`` and ``redfish`` to the sources of these
    names. ``period_s`` is the time between two reads.

    At most one power cap is set on every drive before the run, read back, and restored after it:
    ``state``, the NVMe power state; ``dssd_watts``, the whole watts of OCP's feature C7h; or
    ``limit_w``, the power limit of feature 23h. ``None`` leaves a setting as it is. ``apst``
    enables or disables the drive's autonomous power state transitions. ``set_timestamp`` sets the
    drive's clock to the host's; this alone is not restored. ``allow_system_drive`` permits changes
    to the drive that holds root or swap.

    ``idle_s`` is the length of the idle baseline before the run; ``None`` takes 60 s if the source
    measures, else 0 s. ``idle_after_s`` is the length of the baseline after the run. ``quiet_s`` is
    the length of two more idle times, before and after, in which no command is sent to the drive.
    ``None`` takes ``idle_s`` for both, and no quiet time if no source sends commands to the drive.
    ``tail_max_s`` limits the wait until the drive is back at idle power.

    ``sampler_socket`` is the socket of a sampler service; ``None`` takes the one that
    WATTLOAD_SAMPLER_SOCKET names, or starts a sampler for the run.
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
    def settings(self) -> Mapping[str, object]:
        """The drive settings to change, by option; a power cap comes first."""
        options = {
            "power.state": self.state,
            "power.dssd_watts": self.dssd_watts,
            "power.limit_w": self.limit_w,
            "power.apst": self.apst,
            "power.set_timestamp": self.set_timestamp or None,
        }
        return {name: value for name, value in options.items() if value is not None}

    @property
    def first_setting(self) -> str | None:
        """The option of the first of ``settings``, ``None`` if there are none."""
        return next(iter(self.settings), None)

    @property
    def settings_text(self) -> str:
        """The drive settings to change, as on the command line; empty if there are none."""
        return " ".join(f"{name}={str(value).lower()}" for name, value in self.settings.items())

    def check(self) -> None:
        """Raise ``ConfigError`` for invalid values."""
        sources = (AUTO, *meter_names())
        if self.source not in sources:
            raise ConfigError(
                f"power.source must be one of {', '.join(sources)}; got {self.source!r}"
            )
        self._check_settings()
        self._check_times()
        if self.source == "declared" and self.profile is None:
            raise ConfigError("power=declared needs a profile, e.g. power/profile=micron_6550_ion")
        if self.profile is not None:
            self.profile.check()
        self._check_meters()

    def _check_meters(self) -> None:
        """Check the settings of the selected sources only."""
        if self.source == "quarch":
            (self.quarch or QuarchConfig()).check()
        if self.source == "replay":
            (self.replay or ReplayConfig()).check()
        self.hwmon.check()
        if self.redfish.url or "redfish" in (self.source, *self.beside):
            self.redfish.check()
        self._check_beside()

    def _check_beside(self) -> None:
        """Check that the additional sources are known, and that each is listed once."""
        for name in self.beside:
            if self.source == NONE or name not in meter_names() or not meter(name).is_companion:
                allowed = "empty" if self.source == NONE else f"any of {', '.join(companions())}"
                raise ConfigError(
                    f"power.beside must be {allowed} with power={self.source}; got {name!r}"
                )
        named = [self.source, *self.beside]
        twice = [name for name in dict.fromkeys(named) if named.count(name) > 1]
        if twice:
            raise ConfigError(f"power.beside lists {twice[0]}, which is read already; remove it")

    def _check_settings(self) -> None:
        if self.state is not None and not 0 <= self.state <= LAST_POWER_STATE:
            raise ConfigError(
                f"power.state must be 0 to {LAST_POWER_STATE}, got {self.state}; "
                "`wattload power states` lists the states of a drive"
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
        caps = [f"{name}={value}" for name, value in self.settings.items() if name in POWER_CAPS]
        if len(caps) > 1:
            raise ConfigError(
                f"only one of {', '.join(POWER_CAPS)} can be set in a run, as their effects could "
                f"not be told apart; got {' and '.join(caps)}"
            )

    def _check_times(self) -> None:
        if not 0 < self.period_s < float("inf"):
            raise ConfigError(f"power.period_s must be more than 0 s, got {self.period_s}")
        for key in ("idle_s", "idle_after_s", "quiet_s", "tail_max_s"):
            value = getattr(self, key)
            if value is not None and not 0 <= value < float("inf"):
                raise ConfigError(f"power.{key} must be 0 s or more, got {value}")
