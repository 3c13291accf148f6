"""The typed configuration of meters that are found on the host or beside it: hwmon, Redfish."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from wattload.core.errors import ConfigError

HTTPS_PORT = 443

_RAIL = re.compile(r"[^/\s]+/(power|energy|curr)\d+:[^/:]+")
_ID = re.compile(r"[A-Za-z0-9._:-]+")


@dataclass(slots=True, kw_only=True)
class HwmonConfig:
    """Which sensor sits on which drive's rail: nothing in the kernel says so.

    ``rails`` are ``chip/channel:drive``, the drive by serial or kernel name, several rails of one
    drive are summed: ``[ina226@1-0040/power1:nvme0]``; ``wattload devices`` lists what there is.
    ``accuracy_percent`` is the greatest error of these sensors with their shunts: the kernel does
    not know it, and without it no uncertainty can be stated.
    """

    rails: list[str] = field(default_factory=list)
    accuracy_percent: float | None = None

    def check(self) -> None:
        """Raise ``ConfigError`` for what no type can say."""
        for rail in self.rails:
            if not _RAIL.fullmatch(rail):
                raise ConfigError(
                    "power.hwmon.rails takes chip/channel:drive such as ina226/power1:nvme0 or "
                    f"ina3221/curr2:SERIAL, got {rail!r}; `wattload devices` lists the channels"
                )
        if len(self.drives) < len(self.rails):
            raise ConfigError(
                f"power.hwmon.rails must name each channel once, got {', '.join(self.rails)}"
            )
        accuracy = self.accuracy_percent
        if accuracy is not None and not 0 < accuracy < 100:  # noqa: PLR2004 - per cent
            raise ConfigError(
                "power.hwmon.accuracy_percent must be more than 0 and less than 100, "
                f"got {accuracy}"
            )

    @property
    def drives(self) -> dict[str, str]:
        """Return ``chip/channel`` to the drive's serial or name."""
        split = (rail.rpartition(":") for rail in self.rails)
        return {channel: drive for channel, _, drive in split}


@dataclass(slots=True, kw_only=True)
class RedfishConfig:
    """Where the node's management controller (BMC) is.

    ``url`` is its https address. ``ca_file`` holds the certificate of the authority that signed the
    BMC's (PEM), or that certificate itself; without it the system's authorities count. There is no
    way to leave the certificate unverified. ``chassis`` is needed where several tell their power.
    User and password come from the environment alone (``power.sources.redfish_client``).
    """

    url: str = ""
    ca_file: str | None = None
    chassis: str | None = None

    def check(self) -> None:
        """Raise ``ConfigError`` for what no type can say."""
        self.address()
        if self.chassis is not None and not _ID.fullmatch(self.chassis):
            raise ConfigError(
                f"power.redfish.chassis must be the Id of a chassis, got {self.chassis!r}"
            )

    def address(self) -> tuple[str, int]:
        """Return host and port; the message never repeats an address that may hold a password.

        Raises:
            ConfigError: it is no https address of a host, or holds credentials or a path.
        """
        try:
            parts = urlsplit(self.url)
            port = parts.port or HTTPS_PORT
        except ValueError as error:
            raise ConfigError(f"power.redfish.url is no address: {error}") from error
        if "@" in self.url:
            raise ConfigError(
                "power.redfish.url must hold no user or password: they would stand in the record; "
                "WATTLOAD_REDFISH_USER and WATTLOAD_REDFISH_PASSWORD are for them"
            )
        if parts.scheme != "https" or not parts.hostname or parts.path not in ("", "/"):
            raise ConfigError(
                "power.redfish.url must be the BMC's https address such as https://bmc.example, "
                f"got {self.url!r}"
            )
        return parts.hostname, port
