"""What is asked of a Quarch module: which one, where its server is, which rails feed the drive."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from wattload.core.errors import ConfigError

QIS_PORT = 9722
"""Where QIS listens for line commands unless told otherwise (its ``help.txt``)."""
LAST_PORT = 65535

_MODULE = re.compile(r"[A-Za-z]+::?[A-Za-z0-9._-]+")
"""As ``$list`` names modules: ``usb::qtl1847-01-016``. No space: a name ends at the first."""


@dataclass(slots=True, kw_only=True)
class QuarchConfig:
    """A module as QIS names it, and the drive that it feeds.

    ``rails`` are the rails that feed the drive, by their names in the stream's header; none named
    takes all of them. ``device`` is the drive, by serial or kernel name; it may stay empty where
    one drive lies under the target. ``accuracy_percent`` is the module's for power, from its
    calibration certificate: QIS does not tell it, and without it no uncertainty can be stated.
    """

    module: str = ""
    host: str = "127.0.0.1"
    port: int = QIS_PORT
    rails: list[str] = field(default_factory=list)
    device: str = ""
    accuracy_percent: float | None = None

    def check(self) -> None:
        """Raise ``ConfigError`` for what no type can say."""
        if not _MODULE.fullmatch(self.module):
            raise ConfigError(
                "power.quarch.module must be a module as QIS names it, such as "
                f"tcp::qtl1999-02-020 ($list there has them all), got {self.module!r}"
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
