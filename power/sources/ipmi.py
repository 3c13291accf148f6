"""The power of the whole node as its management controller (BMC) tells it, by IPMI DCMI.

Says nothing of a drive: the scope is ``node``, in steps of 1 W, and refreshed about once a second.
The kernel's own device is asked (``/dev/ipmi0``) and no program started: each question has a time
limit, an answer is bytes and a completion code, and nothing has to be installed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from wattload.core.errors import PowerError
from wattload.core.power import Evidence, Instant, PowerSource, Scope, SourceFacts
from wattload.power.config import PowerConfig
from wattload.power.sources import PowerDevice
from wattload.power.sources.ipmi_device import DEVICE, IpmiDevice
from wattload.power.sources.polled import PolledSource

NAME = "ipmi"

PERIOD_S = 1.0
"""It is asked no oftener: a question takes some milliseconds of the BMC and of the host's bus."""
RESOLUTION_W = 1.0
"""DCMI states whole watts."""

_GROUP_NETFN, _GET_POWER_READING = 0x2C, 0x02
_DCMI = 0xDC
"""The group extension's identification, which question and answer begin with (DCMI 1.5, 6.2)."""
_SYSTEM_POWER = bytes((_DCMI, 0x01, 0x00, 0x00))
"""Mode 01h: system power statistics; the other bytes are reserved."""
_ANSWER = struct.Struct("<BHHHHIIB")
"""DCMI 1.5 table 6-16: DCh, current, minimum, maximum, average, timestamp, period, state."""
_IS_ACTIVE = 1 << 6

_REFUSALS = {
    0xC1: "its BMC offers no DCMI power reading",
    0xD4: "its BMC denies the privilege",
}
"""Completion codes of IPMI 2.0 table 5-2 that say more than a number."""


class IpmiLink(Protocol):
    """A way to the BMC."""

    def command(self, netfn: int, command: int, data: bytes) -> bytes:
        """Return the answer, its completion code first; raises ``PowerError``."""
        ...

    def close(self) -> None:
        """Give the device back; safe to call twice."""
        ...


OpenLink = Callable[[], IpmiLink]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerReading:
    """DCMI's power statistics; ``is_active`` is false where the BMC has stopped to measure."""

    current_w: int
    is_active: bool


def decode_power_reading(answer: bytes) -> PowerReading:
    """Return what an answer to Get Power Reading says, its completion code included.

    Raises:
        PowerError: the BMC refuses, or answers something else.
    """
    if not answer or answer[0]:
        code = answer[0] if answer else None
        told = "no completion code" if code is None else f"completion code {code:#04x}"
        why = _REFUSALS.get(code or 0, f"its BMC answers with {told}")
        raise PowerError(f"the node's power can't be read by IPMI: {why}")
    if len(answer) - 1 < _ANSWER.size or answer[1] != _DCMI:
        raise PowerError(
            "the node's power can't be read by IPMI: its BMC answers "
            f"{answer[1:].hex(' ') or 'nothing'}, which is no DCMI power reading"
        )
    _, current_w, _, _, _, _, _, state = _ANSWER.unpack_from(answer, 1)
    return PowerReading(current_w=current_w, is_active=bool(state & _IS_ACTIVE))


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return the one source of this host; the drives do not matter.

    Raises:
        PowerError: the kernel shows no BMC.
    """
    if not DEVICE.exists():
        raise PowerError(missing_device(DEVICE))
    return (IpmiSource(period_s=config.period_s),)


def missing_device(path: Path) -> str:
    """Return the sentence for a host without IPMI device."""
    return (
        f"{path} is not here: no BMC, or its driver is not loaded; "
        "`sudo modprobe -a ipmi_si ipmi_devintf` loads it"
    )


class IpmiSource(PolledSource):
    """Watts of the whole node at the moment; a BMC that is busy makes a hole in the trace."""

    is_slow: ClassVar[bool] = True

    def __init__(self, *, period_s: float, open_link: OpenLink = IpmiDevice) -> None:
        super().__init__(
            SourceFacts(
                name=NAME,
                device="bmc",
                device_name="the node",
                scope=Scope.NODE,
                evidence=Evidence.SELF_REPORTED,
                sensor=Instant(),
                period_s=max(period_s, PERIOD_S),
                resolution_w=RESOLUTION_W,
                detail="power of the whole node by DCMI, in steps of 1 W; no accuracy is stated",
            )
        )
        self._open_link = open_link
        self._link: IpmiLink | None = None

    def _prepare(self) -> SourceFacts:
        self._link = self._open_link()
        if self._ask() is None:
            raise PowerError(
                "the node's power can't be read by IPMI: its BMC says that it does not measure now"
            )
        return self._facts

    def _ask(self) -> float | None:
        if self._link is None:
            return None
        answer = self._link.command(_GROUP_NETFN, _GET_POWER_READING, _SYSTEM_POWER)
        reading = decode_power_reading(answer)
        return float(reading.current_w) if reading.is_active and reading.current_w else None

    def _release(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
