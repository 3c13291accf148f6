"""Power and energy from a management controller (BMC) by Redfish.

Requests use HTTPS: the certificate is verified, time and size are limited, and redirects to other
hosts are refused. The EnvironmentMetrics of a chassis describe the whole node. Those of a drive are
the drive's own, matched by serial number. A chassis' figure is never used for a drive. All values
in documents are type-checked, and a wrong type counts as missing. Schemas: DMTF DSP8010,
EnvironmentMetrics and Sensor.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import os
import re
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, Self
from urllib.parse import urljoin, urlsplit

from wattload.core.errors import PowerError, PowerPermissionError
from wattload.core.power import (
    Accuracy,
    Counter,
    Evidence,
    Instant,
    PowerSource,
    Scope,
    Sensor,
    SourceFacts,
)
from wattload.power.config import HTTPS_PORT, PowerConfig, RedfishConfig
from wattload.power.registry import Meter
from wattload.power.sources.base import PolledSource, PowerDevice

METER = Meter(
    scope=Scope.NODE,
    is_companion=True,
    settings="power.redfish.url=https://bmc.example",
    measures="the power of the node, and of drives that the BMC reports",
)
"""Not in ``auto``: a BMC is slow, and its address has to be configured."""

USER_VARIABLE = "WATTLOAD_REDFISH_USER"
PASSWORD_VARIABLE = "WATTLOAD_REDFISH_PASSWORD"
"""Credentials come from the environment of the reading process, and are sent only to the BMC."""

PERIOD_S = 2.0
"""Shortest period: a BMC refreshes in seconds and takes tens of milliseconds to answer."""

REFRESH_S = 10.0
"""The assumed update period of a reading if the BMC states no SensingInterval."""

STALE_S = 30.0
"""Readings are discarded above this age by the BMC's own clock, or three of its intervals if
longer."""

TIMEOUT_S = 5.0
"""Timeout for each read from the BMC, and for a whole answer."""

ANSWER_MAX_BYTES = 4 * 1024 * 1024
REDIRECTS_MAX = 3
_PIECE_BYTES = 64 * 1024
_REFUSED = (401, 403)
_REDIRECTS = (301, 302, 303, 307, 308)

_DROPPED = (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Errors on a connection that the other side closed while it was idle."""

_CHASSIS = "/redfish/v1/Chassis"
_DRIVES_MAX = 512

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
"""ISO 8601 durations in the form of DSP0266."""

_PLACES_MAX = 9
_PERCENT_MAX = 100
_SECONDS_IN = {"days": 86400.0, "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A property of EnvironmentMetrics; ``unit`` is its unit in watts or joules."""

    name: str
    field: str
    unit: float
    is_counter: bool


POWER = Quantity(name="redfish_power", field="PowerWatts", unit=1.0, is_counter=False)
ENERGY_J = Quantity(name="redfish_energy", field="EnergyJoules", unit=1.0, is_counter=True)
ENERGY_KWH = Quantity(name="redfish_energy", field="EnergykWh", unit=3.6e6, is_counter=True)


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return the sources of the chassis, and of each drive under the target that the BMC knows.

    Raises:
        ConfigError: no BMC is configured.
        PowerError: it does not answer, or several of its chassis report power and none is
            configured.
    """
    client = RedfishClient(Bmc.of(config.redfish, os.environ))
    try:
        members = references(client.get(_CHASSIS).document, "Members")
        all_chassis = {path: client.get(path).document for path in members}
        path = _select_chassis(client, all_chassis, config.redfish.chassis)
        found = _sources(
            client,
            all_chassis[path],
            key=path,
            name=f"chassis {_last_part(path)}",
            scope=Scope.NODE,
            period_s=config.period_s,
        )
        wanted = {device.key: device for device in devices if device.is_nvme}
        for drive in _drives(client, list(all_chassis.values())) if wanted else ():
            device = wanted.get(str(drive.get("SerialNumber") or "").strip())
            if device is not None:
                found += _sources(
                    client,
                    drive,
                    key=device.key,
                    name=device.name,
                    scope=Scope.DRIVE,
                    period_s=config.period_s,
                )
        return found
    finally:
        client.close()


def _last_part(path: str) -> str:
    return path.rpartition("/")[2]


def _select_chassis(
    client: RedfishClient, all_chassis: Mapping[str, Mapping[str, Any]], wanted: str | None
) -> str:
    """Return the path of the configured chassis, else the only one with power or energy."""
    names = ", ".join(map(_last_part, all_chassis))
    if wanted is not None:
        path = next((path for path in all_chassis if _last_part(path) == wanted), None)
        if path is None:
            raise PowerError(f"power.redfish.chassis={wanted} does not exist; the BMC has {names}")
        return path
    reporting = [
        path for path, chassis in all_chassis.items() if _quantities(_metrics(client, chassis))
    ]
    if len(reporting) != 1:
        problem = (
            f"several chassis of the BMC report power: {', '.join(map(_last_part, reporting))}"
            if reporting
            else "no chassis of the BMC reports power"
        )
        raise PowerError(f"{problem}; set power.redfish.chassis to one of {names}")
    return reporting[0]


def _drives(
    client: RedfishClient, all_chassis: Sequence[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Yield the drives of all chassis, each once, from their collections and links."""
    paths: dict[str, None] = {}
    for chassis in all_chassis:
        links = chassis.get("Links")
        collection = reference(chassis, "Drives")
        members = client.get(collection).document if collection else {}
        paths.update(dict.fromkeys(references(members, "Members")))
        paths.update(dict.fromkeys(references(links if isinstance(links, dict) else {}, "Drives")))
    for path in list(paths)[:_DRIVES_MAX]:
        yield client.get(path).document


def _metrics(client: RedfishClient, resource: Mapping[str, Any]) -> Mapping[str, Any]:
    path = reference(resource, "EnvironmentMetrics")
    return client.get(path).document if path else {}


def _quantities(metrics: Mapping[str, Any]) -> Sequence[Quantity]:
    """Return the available quantities: power, and energy by the finer of its two properties."""
    found = [each for each in (POWER, ENERGY_J, ENERGY_KWH) if _reading(metrics, each) is not None]
    return [each for each in found if each is not ENERGY_KWH or ENERGY_J not in found]


def _reading(metrics: Mapping[str, Any], quantity: Quantity) -> float | None:
    """Return an excerpt's reading; 0 W or 0 J counts as missing, because the node is running."""
    excerpt = metrics.get(quantity.field)
    value = number(excerpt.get("Reading")) if isinstance(excerpt, dict) else None
    return value * quantity.unit if value is not None and value > 0 else None


def _sources(
    client: RedfishClient,
    resource: Mapping[str, Any],
    *,
    key: str,
    name: str,
    scope: Scope,
    period_s: float,
) -> list[PowerSource]:
    """Return the sources of a chassis or drive, by its ``key`` and ``name`` in the record."""
    path = reference(resource, "EnvironmentMetrics") or ""
    found: list[PowerSource] = []
    for quantity in _quantities(_metrics(client, resource)):
        facts = SourceFacts(
            name=quantity.name,
            device=key,
            device_name=name,
            scope=scope,
            evidence=Evidence.SELF_REPORTED,
            sensor=_sensor(quantity, None, REFRESH_S),
            period_s=max(period_s, PERIOD_S),
            detail=f"{quantity.field} of {path}",
        )
        found.append(RedfishSource(client, path, quantity, facts))
    return found


class RedfishSource(PolledSource):
    """One quantity of one EnvironmentMetrics, read from its Sensor if that states a time.

    The Sensor (DataSourceUri) also states its accuracy and how often it senses. A reading that is
    too old leaves a gap in the trace.
    """

    is_slow: ClassVar[bool] = True

    def __init__(
        self, client: RedfishClient, path: str, quantity: Quantity, facts: SourceFacts
    ) -> None:
        super().__init__(facts)
        self._client = client
        self._metrics_path = path
        self._quantity = quantity
        self._sensor_path: str | None = None
        self._stale_s = STALE_S

    def _prepare(self) -> SourceFacts:
        self._sensor_path = None
        excerpt = self._client.get(self._metrics_path).document.get(self._quantity.field)
        written = excerpt.get("Reading") if isinstance(excerpt, dict) else None
        value = number(written)
        if not isinstance(excerpt, dict) or not value or value < 0:
            raise PowerError(f"the BMC gives no {self._quantity.field} at {self._metrics_path}")
        source = reference(excerpt, "DataSourceUri")
        sensor = self._sensor_document(source)
        if source is not None and sensor.get("ReadingTime") and number(sensor.get("Reading")):
            self._sensor_path = source
        interval_s = seconds(sensor.get("SensingInterval"))
        self._stale_s = max(STALE_S, 3 * (interval_s or 0.0))
        smallest = step(written) * self._quantity.unit
        return self._facts.model_copy(
            update={
                "sensor": _sensor(self._quantity, smallest, interval_s or REFRESH_S),
                "resolution_w": None if self._quantity.is_counter else smallest,
                "accuracy": accuracy(sensor, self._quantity),
                "range_w": range_w(sensor, self._quantity, value),
                "detail": self._detail(source, interval_s),
            }
        )

    def _sensor_document(self, path: str | None) -> Mapping[str, Any]:
        """Return the Sensor of an excerpt; empty if the BMC refuses it, which is not fatal."""
        if path is None:
            return {}
        try:
            return self._client.get(path).document
        except PowerError:
            return {}

    def _detail(self, source: str | None, interval_s: float | None) -> str:
        sensed = (
            f"sensed every {interval_s:g} s"
            if interval_s
            else f"no SensingInterval is stated, {REFRESH_S:g} s is assumed"
        )
        origin = f" from {source}" if source else ""
        return f"{self._quantity.field} of {self._metrics_path}{origin}; {sensed}"

    def _query(self) -> float | None:
        answer = self._client.get(self._sensor_path or self._metrics_path)
        document = answer.document
        excerpt = document if self._sensor_path else document.get(self._quantity.field)
        if not isinstance(excerpt, dict):
            return None
        age = age_s(excerpt.get("ReadingTime"), answer.date)
        if age is not None and age > self._stale_s:
            return None
        value = number(excerpt.get("Reading"))
        return value * self._quantity.unit if value is not None and value > 0 else None

    def _release(self) -> None:
        self._client.close()


def _sensor(quantity: Quantity, smallest: float | None, interval_s: float) -> Sensor:
    if not quantity.is_counter:
        return Instant(update_period_s=interval_s)
    return Counter(quantum_j=smallest or quantity.unit, update_period_s=interval_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bmc:
    """Address and credentials of the BMC; ``authorization`` is never printed."""

    host: str
    port: int
    ca_file: str | None
    authorization: str | None = field(repr=False)

    @classmethod
    def of(cls, config: RedfishConfig, environment: Mapping[str, str]) -> Self:
        """Return the configured BMC with the environment's credentials.

        Raises:
            ConfigError: the address is invalid.
            PowerError: either user or password is missing.
        """
        config.check()
        host, port = config.address()
        user, password = environment.get(USER_VARIABLE), environment.get(PASSWORD_VARIABLE)
        if (user is None) != (password is None):
            missing = USER_VARIABLE if user is None else PASSWORD_VARIABLE
            raise PowerError(f"{missing} is not set; a BMC needs both user and password")
        authorization = None
        if user is not None:
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            authorization = f"Basic {token}"
        return cls(host=host, port=port, ca_file=config.ca_file, authorization=authorization)


@dataclass(frozen=True, slots=True)
class Answer:
    """A JSON object with fractions as ``Decimal``, and the time of the answer if it is known."""

    document: Mapping[str, Any]
    date: datetime | None


class RedfishClient:
    """GETs JSON objects, one at a time, on a connection that stays open.

    Raises:
        PowerError: the CA file can't be read.
    """

    def __init__(self, bmc: Bmc, *, timeout_s: float = TIMEOUT_S) -> None:
        self._bmc = bmc
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._connection: http.client.HTTPSConnection | None = None
        try:
            # The default context verifies certificate and name; no option turns this off.
            self._context = ssl.create_default_context(cafile=bmc.ca_file)
        except OSError as error:
            raise PowerError(
                f"power.redfish.ca_file={bmc.ca_file} can't be used: {error.strerror or error}"
            ) from error

    def get(self, path: str) -> Answer:
        """Return the document at ``path``.

        Raises:
            PowerPermissionError: the BMC refuses the credentials.
            PowerError: the answer is late or too long, its status is not 200, it is not a JSON
                object, the certificate is refused, or a redirect leads to another host.
        """
        with self._lock:
            for _ in range(REDIRECTS_MAX + 1):
                response, body = self._exchange(path)
                if response.status not in _REDIRECTS:
                    return self._parse(path, response, body)
                path = self._redirect_path(path, response.headers.get("Location", ""))
        raise PowerError(f"{self._name} redirects more than {REDIRECTS_MAX} times")

    def close(self) -> None:
        """Close the connection; the next request opens another. Safe to call twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @property
    def _name(self) -> str:
        return f"the BMC {self._bmc.host}:{self._bmc.port}"

    def _exchange(self, path: str) -> tuple[http.client.HTTPResponse, bytes]:
        """Send a request; repeat it once if the BMC had closed the idle connection."""
        was_kept = self._connection is not None
        try:
            return self._send(path)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not (was_kept and isinstance(error, _DROPPED)):
                raise self._error(error) from error
        return self._exchange(path)

    def _send(self, path: str) -> tuple[http.client.HTTPResponse, bytes]:
        if self._connection is None:
            self._connection = http.client.HTTPSConnection(
                self._bmc.host, self._bmc.port, timeout=self._timeout_s, context=self._context
            )
        headers = {"Accept": "application/json", "OData-Version": "4.0"}
        if self._bmc.authorization is not None:
            headers["Authorization"] = self._bmc.authorization
        deadline_s = time.monotonic() + self._timeout_s
        self._connection.request("GET", path, headers=headers)
        response = self._connection.getresponse()
        return response, self._body(response, deadline_s)

    def _body(self, response: http.client.HTTPResponse, deadline_s: float) -> bytes:
        body = bytearray()
        while piece := response.read1(_PIECE_BYTES):
            body += piece
            if len(body) > ANSWER_MAX_BYTES:
                self.close()
                raise PowerError(f"{self._name} answers with more than {ANSWER_MAX_BYTES} bytes")
            if time.monotonic() > deadline_s:
                raise TimeoutError
        response.close()  # else the connection would refuse the next request
        return bytes(body)

    def _error(self, error: Exception) -> PowerError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return PowerError(
                f"the certificate of {self._name} is refused ({error.verify_message}); set "
                "power.redfish.ca_file to the certificate of the authority that signed it"
            )
        if isinstance(error, TimeoutError):
            return PowerError(f"{self._name} did not answer within {self._timeout_s:g} s")
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return PowerError(f"{self._name} can't be reached: {reason or type(error).__name__}")

    def _parse(self, path: str, response: http.client.HTTPResponse, body: bytes) -> Answer:
        if response.status in _REFUSED:
            raise PowerPermissionError(
                f"{self._name} refuses access ({response.status}); {USER_VARIABLE} and "
                f"{PASSWORD_VARIABLE} must name a user who may read {path}"
            )
        if response.status != http.client.OK:
            raise PowerError(f"{self._name} answers {response.status} to {path}")
        try:
            document = json.loads(body, parse_float=Decimal)
        except (ValueError, RecursionError) as error:
            raise PowerError(f"{self._name} sent invalid JSON for {path}: {error}") from error
        if not isinstance(document, dict):
            raise PowerError(f"{self._name} sent JSON that is not an object for {path}")
        return Answer(document, _date(response.headers.get("Date", "")))

    def _redirect_path(self, path: str, location: str) -> str:
        """Return the target of a redirect if it is on this BMC."""
        base = f"https://{self._bmc.host}:{self._bmc.port}"
        try:
            target = urlsplit(urljoin(base + path, location))
            found = (target.scheme, target.hostname, target.port or HTTPS_PORT)
            is_own = found == ("https", self._bmc.host, self._bmc.port)
            is_followed = bool(location) and is_own and is_path(target.path)
        except ValueError:
            is_followed = False
        if not is_followed:
            raise PowerError(
                f"{self._name} redirects {path} to another address, which is refused: "
                "credentials go only to the configured host"
            )
        return target.path


def _date(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text)
    except ValueError:
        return None


def number(value: object) -> float | None:
    """Return a finite number, ``None`` for any other value of a BMC."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def step(value: object) -> float:
    """Return the smallest step of a number as written: 0.1 for ``12.5``, 1 for ``12``."""
    exponent = value.as_tuple().exponent if isinstance(value, Decimal) else 0
    places = -exponent if isinstance(exponent, int) else 0
    return float(10.0 ** -min(max(places, 0), _PLACES_MAX))


def accuracy(sensor: Mapping[str, Any], quantity: Quantity) -> Accuracy | None:
    """Return a Sensor's largest error, ``None`` if it states none.

    ``ReadingAccuracy`` is in the reading's unit, so that of a count of energy is no error of power;
    ``Accuracy``, deprecated since Sensor 1.8, is in percent.
    """
    absolute, relative = number(sensor.get("ReadingAccuracy")), number(sensor.get("Accuracy"))
    if absolute is not None and absolute > 0 and not quantity.is_counter:
        return Accuracy(watts=absolute * quantity.unit)
    if relative is not None and 0 < relative <= _PERCENT_MAX:
        return Accuracy(reading_percent=relative)
    return None


def range_w(sensor: Mapping[str, Any], quantity: Quantity, reading: float) -> float | None:
    """Return the greatest power that a Sensor can show, ``None`` if it states none.

    ``ReadingRangeMax`` is the maximum possible reading (Sensor 1.0); one that the present reading
    reaches is not that.
    """
    most = number(sensor.get("ReadingRangeMax"))
    if quantity.is_counter or most is None or most <= reading:
        return None
    return most * quantity.unit


def seconds(value: object) -> float | None:
    """Return the seconds of a duration like ``PT1M30S``, ``None`` if it is invalid or zero."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    parts = found.groupdict(default="0")
    return sum(float(parts[name]) * length_s for name, length_s in _SECONDS_IN.items()) or None


def age_s(reading_time: object, now: datetime | None) -> float | None:
    """Return the age of a reading by the BMC's own clock, ``None`` if it is unknown."""
    if not isinstance(reading_time, str) or now is None:
        return None
    try:
        taken = datetime.fromisoformat(reading_time)
        return (now - taken).total_seconds()
    except (ValueError, TypeError):  # times with and without time zone can't be compared
        return None


def reference(document: Mapping[str, Any], name: str) -> str | None:
    """Return the path in a property; ``None`` if it is invalid or leads to another host."""
    value = document.get(name)
    path = value.get("@odata.id") if isinstance(value, dict) else value
    return path if isinstance(path, str) and is_path(path) else None


def references(document: Mapping[str, Any], name: str) -> Sequence[str]:
    """Return the paths in a list of references, in order."""
    members = document.get(name)
    found = [
        reference({name: member}, name) for member in (members if isinstance(members, list) else [])
    ]
    return [path.rstrip("/") for path in found if path is not None]


def is_path(text: str) -> bool:
    """Return whether a text is a path on this host that fits a request line."""
    is_plain = text.isascii() and text.isprintable() and " " not in text
    return is_plain and text.startswith("/") and not text.startswith("//")
