"""Power of a node at the outlets of rack power distribution units (PDU), by SNMP.

All outlets are asked at once, and summed: servers have two power supplies. If one fails, the whole
reading is missing, as a partial sum is too low. Recorded walks of such PDUs (``tests/snmpsim`` of
LibreNMS) prove each profile.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

from wattload.core.errors import MissingExtraError, PowerError
from wattload.core.installation import install_command
from wattload.core.power import Evidence, Instant, PowerSource, Scope, SourceFacts
from wattload.power.config import PowerConfig
from wattload.power.registry import Meter
from wattload.power.sources.base import PolledSource, PowerDevice

METER = Meter(
    scope=Scope.NODE,
    is_companion=True,
    settings="power.snmp.outlets=[pdu.example/7]",
    measures="a node, at the outlets of PDUs that feed it",
)

COMMUNITY_VARIABLE = "WATTLOAD_SNMP_COMMUNITY"
USER_VARIABLE = "WATTLOAD_SNMP_USER"
AUTHENTICATION_VARIABLE = "WATTLOAD_SNMP_AUTHENTICATION"
PRIVACY_VARIABLE = "WATTLOAD_SNMP_PRIVACY"
"""The community (``public`` if not set), and the user and passphrases of version 3, come from the
environment of the reading process. Version 3 does without a passphrase that is not set."""
PASSPHRASE_MIN_CHARACTERS = 8
"""RFC 3414, 11.2."""

PORT = 161
PERIOD_S = 1.0
TIMEOUT_S, RETRIES = 1.0, 1
_PROTOCOLS = {
    "md5": "AUTH_HMAC96_MD5", "sha": "AUTH_HMAC96_SHA", "sha224": "AUTH_HMAC128_SHA224",
    "sha256": "AUTH_HMAC192_SHA256", "sha384": "AUTH_HMAC256_SHA384",
    "sha512": "AUTH_HMAC384_SHA512",
    "des": "PRIV_CBC56_DES", "aes": "PRIV_CFB128_AES", "aes256": "PRIV_CFB256_AES_BLUMENTHAL",
}  # fmt: skip
_PROBLEMS = {
    "RequestTimedOut": "no answer from {address} within {limit_s:g} s: check address, UDP port, "
    "power.snmp.version and {secret}, as a PDU may leave a wrong one without answer",
    "UnknownUserName": f"the user is unknown to the PDU ({USER_VARIABLE})",
    "WrongDigest": "the authentication passphrase or protocol is wrong "
    f"({AUTHENTICATION_VARIABLE}, power.snmp.authentication)",
    "authorizationError": "the user may not read it, or only with a passphrase that is not set "
    f"({USER_VARIABLE}, {AUTHENTICATION_VARIABLE}, {PRIVACY_VARIABLE})",
}
"""The sentences on errors: classes of pysnmp, and an error-status (RFC 3416)."""
_SYS_OBJECT_ID = "1.3.6.1.2.1.1.2.0"
RARITAN = "1.3.6.1.4.1.13742.6"
APC = "1.3.6.1.4.1.318.1.3.4.6"
PROFILES: Mapping[str, Mapping[str, str]] = {
    # PDU2-MIB, by pduId, outletId and sensorType: activePower(5), onOff(14). Walks: PX3-5493U-K2,
    # PX4-5730-E8V2 (raritan-pdu_px3, raritan-pdu_px4); outletCount is from the MIB alone.
    RARITAN: {
        "power": RARITAN + ".5.4.3.1.4.{unit}.{outlet}.5",  # measurementsOutletSensorValue
        "state": RARITAN + ".5.4.3.1.3.{unit}.{outlet}.5",  # measurementsOutletSensorState
        "switch": RARITAN + ".5.4.3.1.3.{unit}.{outlet}.14",  # measurementsOutletSensorState
        "units": RARITAN + ".3.5.4.1.6.{unit}.{outlet}.5",  # outletSensorUnits
        "digits": RARITAN + ".3.5.4.1.7.{unit}.{outlet}.5",  # outletSensorDecimalDigits
        "outlets": RARITAN + ".3.2.2.1.4.{unit}",  # outletCount
    },
    # PowerNet-MIB, masterSwitchrPDU2: rPDU2DeviceStatusPower. Walks: AP8853, AP8959EU3, APDU9959EU3
    # (apc_ap8853, ...). None has rPDU2OutletMeteredStatusPower, whose unit the MIB does not state.
    APC: {"power": "1.3.6.1.4.1.318.1.1.26.4.3.1.5.{unit}"},
}
"""The objects of each PDU by sysObjectID; an outlet may lack its switch."""

_WATT, _DIGITS, _DIGITS_MAX = 3, -1, 9  # -1 as rPDU2's power is in 0.01 kW
_VOID = {"state": (-1, "is not measured now"), "switch": (8, "is off")}
"""PDU2-MIB: SensorUnitsEnumeration, watt(3); SensorStateEnumeration, unavailable(-1), off(8)."""


class Outlet(NamedTuple):
    """An outlet that was found: whom a reading asks, for what, and the step of its power."""

    text: str
    target: Any
    oids: Mapping[str, str]
    step_w: float


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return the one source of this node; raises ``ConfigError`` or ``MissingExtraError``."""
    config.snmp.check()
    return (SnmpSource(config),)


class SnmpSource(PolledSource):
    """The sum of all outlets in watts; one that is late, void or off leaves a gap in the trace."""

    is_slow: ClassVar[bool] = True

    def __init__(self, config: PowerConfig) -> None:
        self._config = config.snmp
        key = "+".join(self._config.outlets)
        super().__init__(
            SourceFacts(
                name="snmp",
                device=key,
                device_name="the node",
                scope=Scope.NODE,
                evidence=Evidence.MEASURED,
                sensor=Instant(),
                period_s=max(config.period_s, PERIOD_S),
                accuracy=self._config.accuracy.stated,
                range_w=self._config.range_w,
                detail=f"power at {key} by SNMP version {self._config.version}",
                meter=key,
            )
        )
        try:
            self._api: Any = import_module("pysnmp.hlapi.v3arch.asyncio")
        except ImportError as error:
            raise MissingExtraError(
                "power=snmp needs the module pysnmp, which is not installed; install it with: "
                + install_command(["snmp"])
            ) from error
        self._asn1 = import_module("pyasn1.type.univ")
        self._errors = import_module("pysnmp.error").PySnmpError, self._asn1.error.PyAsn1Error
        self._runner: Any = None
        self._outlets: Sequence[Outlet] = ()

    def _prepare(self) -> SourceFacts:
        import asyncio  # It takes 50 ms, and all meters are imported to list them.

        self._runner, self._engine = asyncio.Runner(), self._api.SnmpEngine()
        self._outlets = self._run(self._find, self._config.outlets)
        seen: dict[object, Outlet] = {}
        for outlet in self._outlets:
            place = outlet.target.transport_address, outlet.oids["power"]
            if (other := seen.setdefault(place, outlet)) is not outlet:
                raise PowerError(
                    f"power.snmp.outlets has {other.text} and {outlet.text}, which are the same "
                    "outlet; list it once"
                )
        if self._query() is None:
            raise PowerError(f"{self._facts.device} gives 0 W; check power.snmp.outlets")
        step_w = sum(outlet.step_w for outlet in self._outlets)
        return self._facts.model_copy(update={"resolution_w": step_w})

    def _query(self) -> float | None:
        return sum(self._run(self._watts, self._outlets)) or None  # A node that runs draws power.

    def _release(self) -> None:
        if self._runner is not None:
            self._engine.close_dispatcher()
            self._runner.close()
            self._runner = None

    def _run(self, ask: Callable[[Any], Awaitable[Any]], items: Iterable[Any]) -> list[Any]:
        import asyncio

        async def ask_all() -> list[Any]:
            return await asyncio.gather(*map(ask, items))

        return list(self._runner.run(ask_all()))

    async def _find(self, text: str) -> Outlet:
        """Select the profile of an outlet's PDU, and find which objects the outlet has."""
        unit, _, number = text.rpartition("/")[2].rpartition(".")
        place = urlsplit(f"//{text}")
        try:
            target = await self._api.UdpTransportTarget.create(
                (place.hostname or "", place.port or PORT), timeout=TIMEOUT_S, retries=RETRIES
            )
        except ValueError as error:
            raise PowerError(f"{text}: the UDP port must be 1 to 65535") from error
        except self._errors as error:
            raise PowerError(
                f"{text}: {place.hostname or 'no name'} can't be resolved to an IPv4 address"
            ) from error
        (kind,) = await self._get(text, target, _SYS_OBJECT_ID)
        profile = PROFILES.get(str(kind), {})
        if not profile or (profile is PROFILES[APC] and int(number)):
            raise PowerError(
                f"{text}: of sysObjectID {kind} this can't be read, only outlets of Raritan PX "
                f"({RARITAN}) and whole units of APC rPDU2 ({APC}), as outlet 0; use power=command "
                "with snmpget"
            )
        at = {"unit": int(unit or 1), "outlet": int(number)}
        oids = {each: oid.format(**at) for each, oid in profile.items()}
        # One by one: version 1 gives no value at all if one object is missing.
        found = {each: (await self._get(text, target, oid))[0] for each, oid in oids.items()}
        if found["power"] is None:
            raise PowerError(
                f"{text}: unit {unit or 1} has no such outlet, or does not measure its outlets; it "
                f"has {found.get('outlets') or 'an unknown number of'} outlets"
            )
        digits, units = found.get("digits", _DIGITS), found.get("units", _WATT)
        if units != _WATT or not isinstance(digits, int) or digits > _DIGITS_MAX:
            raise PowerError(f"{text}: must be in watt(3), got {units} with {digits} decimals")
        read = [each for each in ("power", *_VOID) if found.get(each) is not None]
        return Outlet(text, target, {each: oids[each] for each in read}, 10.0**-digits)

    async def _watts(self, outlet: Outlet) -> float:
        answers = await self._get(outlet.text, outlet.target, *outlet.oids.values())
        found = dict(zip(outlet.oids, answers, strict=True))
        for each, (void, meaning) in _VOID.items():
            if found.get(each) == void:
                raise PowerError(f"{outlet.text} {meaning}")
        count = found["power"]
        if not isinstance(count, int) or count < 0:
            raise PowerError(f"{outlet.text} is not measured: its power is {count!r}")
        return count * outlet.step_w

    async def _get(self, text: str, target: object, *oids: str) -> list[int | str | None]:
        """Return the values of objects, ``None`` for those that the agent does not have."""
        api, login = self._api, self._login()
        asked = [api.ObjectType(api.ObjectIdentity(oid)) for oid in oids]
        try:
            failure, status, _, answers = await api.get_cmd(
                self._engine, login, target, api.ContextData(), *asked, lookupMib=False
            )
        except self._errors as error:
            failure, status, answers = error, 0, ()
        problem = type(failure).__name__ if failure else status and status.prettyPrint()
        if problem and problem != "noSuchName":
            version = self._config.version
            sentence = _PROBLEMS.get(problem, "SNMP version {version} fails with {problem}").format(
                address=text.partition("/")[0],
                limit_s=TIMEOUT_S * (1 + RETRIES),
                secret=PRIVACY_VARIABLE if version == "3" else COMMUNITY_VARIABLE,
                version=version,
                problem=problem,
            )
            raise PowerError(f"{text}: {sentence}") from None
        number = self._asn1.Integer  # The text of Null is empty.
        return [int(each) if isinstance(each, number) else str(each) or None for _, each in answers]

    def _login(self) -> object:
        get = os.environ.get
        if self._config.version != "3":
            community = get(COMMUNITY_VARIABLE) or "public"
            return self._api.CommunityData(community, mpModel=int(self._config.version == "2c"))
        names = USER_VARIABLE, AUTHENTICATION_VARIABLE, PRIVACY_VARIABLE
        user, authentication, privacy = (get(name) or None for name in names)
        if user is None:
            raise PowerError(f"power.snmp.version=3 needs a user: set {USER_VARIABLE}")
        if privacy and not authentication:
            raise PowerError(
                f"{PRIVACY_VARIABLE} is set without {AUTHENTICATION_VARIABLE}, but SNMP encrypts "
                "only with authentication; set both"
            )
        for name in names[1:]:
            if 0 < len(get(name, "")) < PASSPHRASE_MIN_CHARACTERS:
                raise PowerError(
                    f"{name} must have {PASSPHRASE_MIN_CHARACTERS} characters or more, as SNMP "
                    "requires of a passphrase"
                )
        return self._api.UsmUserData(
            user,
            authentication,
            privacy,
            authProtocol=getattr(self._api, f"USM_{_PROTOCOLS[self._config.authentication]}"),
            privProtocol=getattr(self._api, f"USM_{_PROTOCOLS[self._config.privacy]}"),
        )
