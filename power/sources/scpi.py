"""A bench instrument that answers an SCPI query with watts: a power meter, or a measuring supply.

PyVISA's backend in Python reads it over VXI-11, a TCP socket or a serial line (9600 baud, 8 data
bits, no parity). SCPI-99, volume 1, 7.2.1: 9.9E+37 is infinity, 9.91E+37 is not a number.
"""

from __future__ import annotations

import logging
import math
import re
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, cast

from wattload.core.errors import ConfigError, MissingExtraError, PowerError
from wattload.core.installation import install_command
from wattload.core.power import Evidence, PowerSource, Scope, SourceFacts
from wattload.power.config import PowerConfig, ScpiConfig
from wattload.power.registry import Meter
from wattload.power.scpi_profiles import PROFILES, Profile
from wattload.power.sources.base import LARGEST_W, PolledSource, PowerDevice, placed_at

if TYPE_CHECKING:
    from pyvisa.resources import MessageBasedResource

METER = Meter(
    scope=Scope.NODE,
    is_companion=True,
    settings="power.scpi.resource=TCPIP::192.0.2.5::INSTR power.scpi.profile=yokogawa_wt300 "
    "power.scpi.scope=node",
    measures="a node or a drive, by a bench instrument",
)

PERIOD_S = 0.05
TIMEOUT_S = 2.0
NO_DATA_S = 5.0
"""How long an instrument may have no data until its first reading."""
NOISE_W = 0.1
"""Readings may be so far below zero where nothing is drawn; beyond it power flows back."""
ANSWER_MAX_BYTES = 512
_NOTHING_LISTENS = (
    "nothing listens there; enable LAN control on the instrument, and check the resource (Rigol: "
    "port 5555, Keysight: port 5025, Yokogawa: TCPIP::HOST::INSTR)"
)
RESOURCES = "TCPIP::HOST::INSTR, TCPIP::HOST::PORT::SOCKET or ASRL/dev/ttyUSB0::INSTR"
_OPENED = (("TCPIP", "INSTR"), ("TCPIP", "SOCKET"), ("ASRL", "INSTR"))
_NOT_A_NUMBER, _INFINITY = 9.91e37, 9.9e37
_READING = re.compile(r"([+-]?(?:\d+\.?\d*(?:E[+-]?\d+)?|NAN|INF))\s*W?", re.IGNORECASE | re.ASCII)
_TIMED_OUT = "-1073807339"
"""``VI_ERROR_TMO`` (VPP-4.3), which some errors have as their text."""


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return the one source of the instrument, which measures what the configuration says.

    Raises:
        ConfigError: the resource is invalid or not supported, or the drive is unknown.
    """
    return (ScpiSource(devices, config.scpi, period_s=config.period_s),)


def host_of(resource: str) -> str:
    """Return the host in a VISA resource, empty for a serial line.

    Raises:
        ConfigError: it is invalid, or needs other drivers.
        MissingExtraError: PyVISA, PyVISA-py or pySerial is not installed.
    """
    try:
        import_module("pyvisa_py.serial")  # imports all three
    except ImportError as error:
        raise MissingExtraError(
            "power=scpi needs PyVISA, PyVISA-py and pySerial, which are not all installed; "
            f"install them with: {install_command(['scpi'])}"
        ) from error
    from pyvisa.rname import InvalidResourceName, ResourceName

    try:
        parsed = ResourceName.from_string(resource)
    except InvalidResourceName as error:
        raise ConfigError(f"power.scpi.resource must be {RESOURCES}: {error}") from error
    if (parsed.interface_type, parsed.resource_class) not in _OPENED:
        raise ConfigError(
            f"power.scpi.resource must be {RESOURCES}, got {resource!r}, which needs other drivers;"
            " power=command can run a program that has them"
        )
    return str(getattr(parsed, "host_address", "")).partition(",")[0]


def parse_watts(answer: str) -> float | None:
    """Return the watts in an answer: ``None`` without data, infinite beyond the range.

    Raises:
        PowerError: it is not one number, with or without the unit W.
    """
    found = _READING.fullmatch(answer)
    if found is None:
        raise PowerError(f"the instrument answers {answer!r}, which is not one number in watts")
    watts = float(found[1])
    if math.isnan(watts) or abs(watts) == _NOT_A_NUMBER:
        return None
    return math.inf if abs(watts) >= _INFINITY else watts


class ScpiSource(PolledSource):
    """The watts of one instrument, each by a query.

    After a failed query it is connected and identified anew: else a late answer would be read as
    that of the next query, and each later one too.
    """

    is_slow: ClassVar[bool] = True

    def __init__(
        self, devices: Sequence[PowerDevice], config: ScpiConfig, *, period_s: float
    ) -> None:
        self._resource, self._host = config.resource, host_of(config.resource)
        custom = Profile(identity=re.escape(config.identity), query=config.query)
        self._profile = PROFILES.get(config.profile, custom)
        self._channel = str(config.channel)
        self._instrument: MessageBasedResource | None = None
        scope = Scope(cast("str", config.scope))
        key, name = placed_at(
            devices, config, setting="power.scpi.device", otherwise=config.resource
        )
        accuracy = config.accuracy.stated
        stated = "no accuracy is stated" if accuracy is None else f"±({accuracy.text})"
        super().__init__(
            SourceFacts(
                name="scpi",
                device=key,
                device_name=name,
                scope=scope,
                evidence=Evidence.MEASURED,
                sensor=config.sensor,
                period_s=max(period_s, PERIOD_S),
                accuracy=accuracy,
                range_w=config.range_w,
                detail=f"power by {self._filled(self._profile.query)}; profile {config.profile} "
                f"not tested on hardware; {stated}",
                meter=config.resource,
            )
        )

    def _prepare(self) -> SourceFacts:
        self._connect()
        deadline_s = time.monotonic() + NO_DATA_S
        try:
            while (watts := self._watts()) is None and time.monotonic() < deadline_s:
                time.sleep(self._facts.period_s)
            time.sleep(self._facts.period_s)
            self._watts()  # It fails if there was more than one line in answer to the first query.
        except PowerError as error:
            complaint = ""
            with suppress(PowerError):
                complaint = self._complaint()
            raise PowerError(f"{error}{complaint}") from error
        if watts is None:
            raise PowerError(f"{self._resource} has no data; start its measurement")
        if (fault := self._fault(watts)) and not -NOISE_W <= watts < 0:
            raise PowerError(f"{self._resource} {fault}")
        return self._facts

    def _query(self) -> float | None:
        try:
            if self._instrument is None:
                self._connect()
            watts = self._watts()
        except PowerError:
            self._release()
            raise
        return None if watts is None or self._fault(watts) else watts

    def _fault(self, watts: float) -> str:
        """Return why a reading is none of what is measured; empty if it is one."""
        scope, most_w = self._facts.scope, LARGEST_W[self._facts.scope]
        if math.isinf(watts):
            return "is beyond its range; choose a larger one on it"
        if watts < 0:
            return f"reads {watts:g} W, but no {scope} supplies power: swap its leads"
        if watts > most_w:
            return f"reads {watts:g} W, but a {scope} draws {most_w:g} W at most"
        return ""

    def _release(self) -> None:
        instrument, self._instrument = self._instrument, None
        if instrument is not None:
            with suppress(Exception):  # see _send; the connection may be gone
                instrument.close()

    def _connect(self) -> None:
        """Open the resource, verify the identity and set up; raises ``PowerError``."""
        import pyvisa

        logging.getLogger("pyvisa").setLevel(logging.CRITICAL)  # it logs what it raises
        limit_ms = round(TIMEOUT_S * 1000)
        try:
            if self._host:
                socket.gethostbyname(self._host)  # PyVISA's own error may be a bad file descriptor
            opened = pyvisa.ResourceManager("@py").open_resource(
                self._resource, open_timeout=limit_ms, timeout=limit_ms, read_termination="\n"
            )
        except Exception as error:  # see _send
            raise PowerError(f"{self._resource} can't be opened: {_reason(error)}") from error
        self._instrument = cast("MessageBasedResource", opened)
        identity = self._send("*IDN?")
        if not re.search(self._profile.identity, identity, re.IGNORECASE):
            raise PowerError(
                f"{self._resource} answers *IDN? with {identity!r}, which does not match "
                f"{self._profile.identity}; set power.scpi.resource or power.scpi.profile"
            )
        for command in ("*CLS", *self._profile.set_up):  # *CLS: of others' errors
            self._send(command)
        if self._profile.set_up and (complaint := self._complaint()):
            raise PowerError(f"{self._resource} refuses {self._filled(command)}{complaint}")

    def _filled(self, text: str) -> str:
        return text.replace("{channel}", self._channel)

    def _watts(self) -> float | None:
        return parse_watts(self._send(self._profile.query))

    def _complaint(self) -> str:
        """Return the oldest entry of the error queue, empty if there is none."""
        answer = self._send(self._profile.error_query)
        found = re.match(r"[+-]?(\d+)\s*,", answer)
        return f"; its error queue has {answer}" if found and int(found[1]) else ""

    def _send(self, text: str) -> str:
        """Return the answer to a query, nothing for a command; raises ``PowerError``."""
        instrument, text = cast("MessageBasedResource", self._instrument), self._filled(text)
        try:
            if "?" not in text:
                instrument.write(text)
                return ""
            self._check_silence(instrument)
            instrument.write(text)
            answer = instrument.read_bytes(ANSWER_MAX_BYTES, break_on_termchar=True)
        except Exception as error:  # each transport raises its own, some only Exception
            raise PowerError(f"{self._resource}: {text} failed: {_reason(error)}") from error
        return answer.decode("ascii", "replace").strip()

    def _check_silence(self, instrument: MessageBasedResource) -> None:
        """Raise ``PowerError`` if there is more to read; each query by VXI-11 clears it."""
        from pyvisa.errors import VisaIOError

        if self._host and not self._resource.upper().endswith("::SOCKET"):
            return
        instrument.timeout = 0
        with suppress(VisaIOError):
            instrument.read_bytes(1)
            raise PowerError("more than one line came in answer to the query before")
        instrument.timeout = round(TIMEOUT_S * 1000)


def _reason(error: Exception) -> str:
    if _TIMED_OUT in str(error):
        return f"no answer within {TIMEOUT_S:g} s"
    if isinstance(error, ConnectionRefusedError):
        return _NOTHING_LISTENS
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
