"""The configuration of power: the source, the drive's power settings, periods and idle times.

It also holds the settings of the meters that need some, each in the field with the meter's name.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from wattload.core.errors import ConfigError
from wattload.core.power import Accuracy, Boxcar, Instant, Scope, Sensor
from wattload.core.settings import MISSING, check_settings, setting, shown
from wattload.power.registry import AUTO, NONE, companions, meter, meter_names
from wattload.power.scpi_profiles import PROFILES

HTTPS_PORT = 443
SOCKET_VARIABLE = "WATTLOAD_SAMPLER_SOCKET"

_RAIL = re.compile(r"[^/\s]+/(power|energy|curr)\d+:[^/:]+")
_ID = re.compile(r"[A-Za-z0-9._:-]+")
_OUTLET = re.compile(r"[^/\s@]+/(\d+\.)?\d+")
_SECRET = re.compile(
    r"[\w-]*(?:password|passwd|passphrase|secret|token|credentials?|api[-_]?key)"
    r"|(?:[\w-]*[-_])?(?:pass|pwd|community)",
    re.IGNORECASE,
)
"""The name of an option whose value is a secret."""
_SECRET_TEXT = re.compile(
    r"(\w+://[^\s/@:]*:)[^\s/@$][^\s/@]*@|(authorization:)\s*+(?:[\w-]+\s++)?+[^\s$]", re.IGNORECASE
)
"""A password in an address, or a header that is a secret."""

QIS_PORT = 9722
"""QIS's default port for line commands (its ``help.txt``)."""
LAST_PORT = 65535
_MODULE = re.compile(r"[A-Za-z]+::?[A-Za-z0-9._-]+")
"""The form of a module name in ``$list``: ``usb::qtl1847-01-016``. A space would end the name."""
START, MONOTONIC, WALL = "start", "monotonic", "wall"
ALIGNMENTS = (START, MONOTONIC, WALL)
CUSTOM = "custom"
LAST_POWER_STATE = 31
"""NVMe Base: Identify Controller holds descriptors of states 0 to 31."""
POWER_CAPS = ("power.state", "power.dssd_watts", "power.limit_w")
"""The options that cap a drive's power. A run sets at most one."""
LARGEST_DSSD_W = 0xFF
"""OCP Datacenter NVMe SSD, feature C7h: whole watts in one byte."""
LARGEST_W = 1e6
MAX_SECONDS = 1e6
LARGEST_LIMIT_W = 655.35
"""NVMe Base 2.3, feature 23h: 16 bits in steps of 0.01 W."""
IDLE_DEFAULT_S = 60.0
"""Default length of the idle baseline for sources that measure."""


@dataclass(slots=True, kw_only=True)
class AccuracyConfig:
    """The largest error that a meter's data sheet or certificate states; its parts add up."""

    reading_percent: float | None = setting(
        None, "Part that is a share of the reading.", least=0, most=100, unset="not stated"
    )
    range_percent: float | None = setting(
        None,
        "Part that is a share of the range, which range_w gives.",
        least=0,
        most=100,
        unset="not stated",
    )
    watts: float | None = setting(
        None, "Part that is the same at any power.", least=0, most=LARGEST_W, unset="not stated"
    )

    def check(self, prefix: str, range_w: float | None) -> None:
        """Raise ``ConfigError`` for invalid values; ``prefix`` is the meter's configuration."""
        check_settings(self, f"{prefix}.accuracy")
        if self.range_percent is not None and range_w is None:
            raise ConfigError(
                f"{prefix}.accuracy.range_percent={self.range_percent:g} is a share of the range, "
                f"which is not set; add {prefix}.range_w= in watts"
            )

    @property
    def stated(self) -> Accuracy | None:
        """The accuracy, ``None`` if no part of it is stated."""
        parts = dataclasses.asdict(self)
        return Accuracy(**parts) if any(part is not None for part in parts.values()) else None


@dataclass(slots=True, kw_only=True)
class MeterConfig:
    """What the data sheet of a meter states. Without the accuracy there is no total uncertainty."""

    accuracy: AccuracyConfig = field(default_factory=AccuracyConfig)
    range_w: float | None = setting(
        None,
        "Greatest power that the meter can show; readings at it are refused.",
        above=0,
        most=LARGEST_W,
        unset="unknown",
    )

    def _check_meter(self, prefix: str) -> None:
        check_settings(self, prefix)
        self.accuracy.check(prefix, self.range_w)


@dataclass(slots=True, kw_only=True)
class HwmonConfig(MeterConfig):
    """Which sensor measures which drive's rail. The kernel does not have this information.

    Several rails of one drive are summed; accuracy and range are those of the sum.
    """

    rails: list[str] = setting(
        list,
        "chip/channel:drive, with the drive's serial or kernel name, such as "
        "[ina226@1-0040/power1:nvme0]; wattload devices lists the channels.",
    )

    def check(self) -> None:
        """Raise ``ConfigError`` for invalid values."""
        self._check_meter("power.hwmon")
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

    @property
    def drives(self) -> dict[str, str]:
        """The drive's serial or kernel name by ``chip/channel``."""
        split = (rail.rpartition(":") for rail in self.rails)
        return {channel: drive for channel, _, drive in split}


@dataclass(slots=True, kw_only=True)
class RedfishConfig:
    """The address of the node's management controller (BMC).

    The certificate is always verified. User and password are read from the environment only
    (``power.sources.redfish``).
    """

    url: str = setting("", "https address of the BMC.")
    ca_file: str | None = setting(
        None,
        "PEM file with the BMC's certificate, or that of the authority which signed it.",
        unset="the system's certificate authorities",
    )
    chassis: str | None = setting(None, "Chassis Id.", unset="the only chassis that reports power")

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
class QuarchConfig(MeterConfig):
    """A power module, by its QIS name, and the drive that it feeds."""

    module: str = setting("", "Module name in QIS, such as tcp::qtl1999-02-020.")
    host: str = setting("127.0.0.1", "Host that runs QIS.")
    port: int = setting(QIS_PORT, "QIS's port for line commands.", least=1, most=LAST_PORT)
    rails: list[str] = setting(
        list, "Rails that feed the drive, by their names in the stream's header; empty: all."
    )
    device: str = setting(
        "", "Serial or kernel name of the drive; may be empty if the target has one drive."
    )

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
        self._check_meter("power.quarch")


@dataclass(slots=True, kw_only=True)
class PlacedMeterConfig(MeterConfig):
    """A meter of which only its user knows what it measures, and how late its readings are."""

    scope: str | None = setting(
        None, "What the meter measures.", choices=tuple(Scope), unset="not stated"
    )
    device: str = setting(
        "",
        "With scope=drive the serial or kernel name of the drive, which may be empty if the target "
        "has one drive; else a name for what is measured.",
    )
    window_s: float | None = setting(
        None,
        "Each reading is the mean of so many seconds.",
        above=0,
        most=MAX_SECONDS,
        unset="each is the power at its time",
    )
    lag_s: float | None = setting(
        None,
        "How long after it was taken a reading arrives.",
        least=0,
        most=MAX_SECONDS,
        unset="not stated",
    )

    @property
    def sensor(self) -> Sensor:
        """The sensor by what is stated of it; a delay that is not stated counts as none."""
        lag_s = self.lag_s or 0.0
        return (
            Boxcar(window_s=self.window_s, lag_s=lag_s) if self.window_s else Instant(lag_s=lag_s)
        )


@dataclass(slots=True, kw_only=True)
class CommandConfig(PlacedMeterConfig):
    """A program that prints a reading per line: its time as UTC in seconds, and watts; or watts.

    No shell interprets the command. ``$NAME`` stands for a variable of the environment, whose value
    is neither recorded nor shown.
    """

    run: str = setting("", "The program and its arguments.")

    @property
    def arguments(self) -> Sequence[str]:
        """The program and its arguments as they were written, with ``$NAME`` in them.

        Raises:
            ConfigError: a quotation is not closed.
        """
        try:
            return shlex.split(self.run)
        except ValueError as error:
            raise ConfigError(
                f"power.command.run must be a program and its arguments, with balanced quotes: "
                f"{error}"
            ) from error

    def check(self) -> None:
        """Raise ``ConfigError`` for invalid values. No error repeats a secret."""
        words = self.arguments
        if not words:
            raise ConfigError(
                "power=command needs a program that prints `unix_seconds watts` or `watts`: set "
                "power.command.run='PROGRAM ARGUMENT...'"
            )
        parts = " ".join(words).split()  # a word may be a command of a shell
        given = [found[1] or found[2] for found in _SECRET_TEXT.finditer(self.run)]
        for word, after in zip(parts, [*parts[1:], ""], strict=True):
            name, equals, value = word.partition("=")
            value = value if equals else after * name.startswith("-")
            if _SECRET.fullmatch(name) and value and value[0] not in "$-":
                given.append(f"{name}{equals or ' '}")
        if given:
            raise ConfigError(
                f"power.command.run has the secret after {given[0].strip()}, which the record "
                f"would show; put it into a variable of the environment and write {given[0]}$NAME"
            )
        self._check_meter("power.command")


@dataclass(slots=True, kw_only=True)
class SnmpConfig(MeterConfig):
    """The outlets of power distribution units (PDU) that feed this node; their powers are summed.

    The community, and the user and passphrases of version 3, are read from the environment only
    (``power.sources.snmp``).
    """

    outlets: list[str] = setting(
        list,
        "Address of the PDU and number of the outlet, such as [pdu-a.example/7,10.0.0.2/7]; a "
        "whole unit of APC rPDU2 is outlet 0.",
    )
    version: str = setting("2c", "Version of the protocol.", choices=("1", "2c", "3"))
    authentication: str = setting(
        "sha", "Of version 3.", choices=("md5", "sha", "sha224", "sha256", "sha384", "sha512")
    )
    privacy: str = setting("aes", "Encryption of version 3.", choices=("des", "aes", "aes256"))

    def check(self) -> None:
        """Raise ``ConfigError`` for invalid values."""
        if not self.outlets:
            raise ConfigError(
                "power=snmp needs the outlets that feed this node: set "
                "power.snmp.outlets=[pdu.example/7]"
            )
        for outlet in self.outlets:
            if not _OUTLET.fullmatch(outlet):
                raise ConfigError(
                    "each entry of power.snmp.outlets must be ADDRESS/OUTLET, such as "
                    f"pdu.example/7 or pdu.example:1161/7, got {shown(outlet)}"
                )
        self._check_meter("power.snmp")


@dataclass(slots=True, kw_only=True)
class ScpiConfig(PlacedMeterConfig):
    """A bench instrument that answers SCPI queries, by its VISA resource string."""

    resource: str = setting(
        "",
        "VISA resource: TCPIP::HOST::INSTR (VXI-11), TCPIP::HOST::PORT::SOCKET or "
        "ASRL/dev/ttyUSB0::INSTR.",
    )
    profile: str = setting(
        CUSTOM,
        "Model of the instrument, yokogawa_wt300 for WT310(E) to WT333(E); custom takes query and "
        "identity.",
        choices=(CUSTOM, *PROFILES),
    )
    query: str = setting("", "With profile=custom: the query that answers with watts.")
    identity: str = setting(
        "", "With profile=custom: a part of the answer to *IDN?, such as its model."
    )
    channel: int = setting(1, "Input or output of the instrument.", least=1, most=99)

    def check(self) -> None:
        """Raise ``ConfigError`` for invalid values."""
        self._check_meter("power.scpi")
        if not self.resource:
            raise ConfigError(
                "power=scpi needs an instrument: set power.scpi.resource= to its VISA resource, "
                "such as TCPIP::192.0.2.5::INSTR"
            )
        if "::" not in self.resource and not self.resource.upper().startswith("ASRL"):
            kind = "ASRL" if self.resource.startswith("/") else "TCPIP::"
            raise ConfigError(
                f"power.scpi.resource must be a VISA resource, got {shown(self.resource)}; write "
                f"{kind}{self.resource}::INSTR"
            )
        if self.profile != CUSTOM and (self.query or self.identity):
            raise ConfigError(
                "power.scpi.query and power.scpi.identity need power.scpi.profile=custom, got "
                f"{self.profile}, which has its own; leave out one or the other"
            )
        if self.profile == CUSTOM and not (self.query and self.identity):
            raise ConfigError(
                "power.scpi.profile=custom needs power.scpi.query= and power.scpi.identity=; or "
                f"set power.scpi.profile= to one of {', '.join(PROFILES)}"
            )
        if self.scope is None:
            raise ConfigError(
                "power=scpi needs power.scpi.scope= (drive, gpu or node): what the instrument "
                "measures"
            )


@dataclass(slots=True, kw_only=True)
class ReplayConfig:
    """A trace file (CSV or Parquet) and how its times map to the run.

    With ``monotonic`` and ``wall`` the file may grow until the run ends.
    """

    path: str = setting("", "Trace file, CSV or Parquet.")
    align: str = setting(
        START,
        "start replays it from the start of sampling; monotonic and wall attach a recording made "
        "during the run, by this host's monotonic clock or by UTC.",
        choices=ALIGNMENTS,
    )
    device: str = setting(
        "", "Serial or kernel name of the drive; may be empty if the target has one drive."
    )

    def check(self) -> None:
        """Raise ``ConfigError`` for invalid values."""
        if not self.path:
            raise ConfigError(
                "power=replay needs a trace file: set power.replay.path=trace.csv (or .parquet)"
            )
        if not self.path.endswith((".csv", ".parquet")):
            raise ConfigError(
                f"power.replay.path must end in .csv or .parquet, got {shown(self.path)}"
            )
        check_settings(self, "power.replay")


@dataclass(slots=True, kw_only=True)
class DeclaredProfile:
    """Power of one drive model in watts, as stated by its vendor or a publication.

    At least one of ``max_w`` and ``typical_w`` is required.
    """

    name: str = setting(MISSING, "Drive model.")
    citation: str = setting(MISSING, "Where these figures are published.")
    max_w: float | None = setting(
        None, "Maximum power in power state `state`.", above=0, most=LARGEST_W, unset="not stated"
    )
    idle_w: float | None = setting(None, "Idle power.", above=0, most=LARGEST_W, unset="not stated")
    typical_w: float | None = setting(
        None, "Mean power under load.", above=0, most=LARGEST_W, unset="not stated"
    )
    state: int | None = setting(
        None,
        "Power state of max_w.",
        least=0,
        most=LAST_POWER_STATE,
        unset="not stated",
    )

    def check(self) -> None:
        """Raise ``ConfigError`` for missing or contradictory watts."""
        check_settings(self, "power.profile")
        watts = {"idle_w": self.idle_w, "typical_w": self.typical_w, "max_w": self.max_w}
        given = {key: value for key, value in watts.items() if value is not None}
        if self.max_w is None and self.typical_w is None:
            raise ConfigError(
                f"power.profile {self.name} has neither max_w nor typical_w; set at least one"
            )
        if list(given.values()) != sorted(given.values()):
            raise ConfigError(
                "power.profile must have idle_w <= typical_w <= max_w, got "
                + ", ".join(f"{key}={value}" for key, value in given.items())
            )


@dataclass(slots=True, kw_only=True)
class PowerConfig:
    """The settings of power: what measures it, and what is set on the drives.

    ``profile`` belongs to ``source=declared``; the other fields that are configurations to the
    sources of their names. At most one power cap (``state``, ``dssd_watts``, ``limit_w``) is
    set on every drive before the run, read back, and restored after it.
    """

    source: str = setting(
        AUTO,
        "What measures power; selected by power=NAME. auto takes the drive's best source, and a "
        "GPU's in addition; never a data sheet.",
        choices=(AUTO, *meter_names()),
    )
    state: int | None = setting(
        None, "NVMe power state to set.", least=0, most=LAST_POWER_STATE, unset="unchanged"
    )
    period_s: float = setting(0.1, "Time between two reads.", least=0.01, most=60)
    idle_s: float | None = setting(
        None,
        "Length of the idle baseline before the run.",
        least=0,
        most=MAX_SECONDS,
        unset="60 if the source measures, else 0",
    )
    rest_max_s: float = setting(
        30.0,
        "Length of the rest after the job, in which the drive's tail is measured: always so long, "
        "and the same in all runs that are compared.",
        least=0,
        most=MAX_SECONDS,
    )
    allow_system_drive: bool = setting(
        False, "Permit changes to the drive that holds root or swap."
    )
    profile: DeclaredProfile | None = None
    quarch: QuarchConfig = field(default_factory=QuarchConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    sampler_socket: str | None = setting(
        None,
        "Socket of a sampler service.",
        unset="the one in WATTLOAD_SAMPLER_SOCKET, else a sampler of the run's own",
    )
    beside: list[str] = setting(list, "Further sources to read, such as a node's meter: [ipmi].")
    hwmon: HwmonConfig = field(default_factory=HwmonConfig)
    redfish: RedfishConfig = field(default_factory=RedfishConfig)
    command: CommandConfig = field(default_factory=CommandConfig)
    snmp: SnmpConfig = field(default_factory=SnmpConfig)
    scpi: ScpiConfig = field(default_factory=ScpiConfig)
    dssd_watts: int | None = setting(
        None,
        "DSSD power state of OCP's feature C7h to set, in whole watts.",
        least=1,
        most=LARGEST_DSSD_W,
        unset="unchanged",
    )
    limit_w: float | None = setting(
        None,
        "Power limit of NVMe feature 23h to set.",
        above=0,
        most=LARGEST_LIMIT_W,
        unset="unchanged",
    )
    apst: bool | None = setting(
        None, "Enable or disable autonomous power state transitions.", unset="unchanged"
    )
    set_timestamp: bool = setting(
        False, "Set the drive's clock to the host's; this alone is not restored."
    )
    idle_after_s: float | None = setting(
        None,
        "Idle time after the job: the rest, then the idle baseline; 0 for none.",
        least=0,
        most=MAX_SECONDS,
        unset="as idle_s",
    )
    quiet_s: float | None = setting(
        None,
        "Length of two more idle times without any command to the drive: before the idle baseline, "
        "and at the end of the run.",
        least=0,
        most=MAX_SECONDS,
        unset="as idle_s; 0 if no source sends commands to the drive",
    )

    @property
    def service(self) -> str | None:
        """The socket of the sampler service that reads the meters, ``None`` without one."""
        return self.sampler_socket or os.environ.get(SOCKET_VARIABLE)

    @property
    def named_meters(self) -> Sequence[str]:
        """The meters that the settings name."""
        return [name for name in (self.source, *self.beside) if name != AUTO]

    @property
    def node_meters(self) -> Sequence[str]:
        """The external meters to read that measure a whole node."""
        external = {n: getattr(self, n) for n in self.named_meters if meter(n).settings}
        return [
            name
            for name, own in external.items()
            if (getattr(own, "scope", None) or meter(name).scope) == Scope.NODE
        ]

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

    def check(self, *, is_client: bool = False) -> None:
        """Raise ``ConfigError`` for invalid values.

        The settings of external meters are those of the service for its client (``is_client``).
        """
        check_settings(self, "power")
        self._check_caps()
        self._check_idle_after()
        if self.source == "declared" and self.profile is None:
            raise ConfigError("power=declared needs a profile, e.g. power/profile=micron_6550_ion")
        if self.profile is not None:
            self.profile.check()
        self._check_meters(is_client=is_client)

    def check_unread(self) -> None:
        """Raise ``ConfigError`` for a meter with settings that a run would not read.

        power=none reads none on purpose, and power=auto may read hwmon.
        """
        read = (*self.named_meters, "hwmon")
        for name in meter_names():
            own = getattr(self, name, None)
            if own is None or name in read or self.source == NONE or own == type(own)():
                continue
            beside = f" or power.beside=[{name}]" if meter(name).is_companion else ""
            raise ConfigError(
                f"power.{name} has settings, but power={self.source} does not read it; add "
                f"power={name}{beside}"
            )

    def _check_idle_after(self) -> None:
        """Refuse an idle time that the rest takes up, as it leaves no idle baseline."""
        if self.source == NONE or not self.idle_after_s or self.idle_after_s > self.rest_max_s:
            return
        raise ConfigError(
            f"power.idle_after_s={self.idle_after_s:g} includes the rest of {self.rest_max_s:g} s, "
            f"so no idle baseline remains; set at least {2 * self.rest_max_s:g}, or 0 for none"
        )

    def _check_meters(self, *, is_client: bool) -> None:
        """Check the settings of the meters that are read; power=auto may read hwmon."""
        self._check_beside()
        for name in dict.fromkeys((self.source, *self.beside, "hwmon")):
            own = getattr(self, name, None)
            if own is not None and not (is_client and meter(name).settings):
                own.check()

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

    def _check_caps(self) -> None:
        caps = [f"{name}={value}" for name, value in self.settings.items() if name in POWER_CAPS]
        if len(caps) > 1:
            raise ConfigError(
                f"only one of {', '.join(POWER_CAPS)} can be set in a run, as their effects could "
                f"not be told apart; got {' and '.join(caps)}"
            )
