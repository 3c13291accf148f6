"""Power and energy as a management controller (BMC) tells them by Redfish.

The EnvironmentMetrics of a chassis are of the whole node; those of a drive are the drive's own, and
the serial number says which one it is. A chassis' figure never stands for a drive.

Schemas: DMTF DSP8010, EnvironmentMetrics and Sensor.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from wattload.core.errors import PowerError
from wattload.core.power import Counter, Evidence, Instant, PowerSource, Scope, Sensor, SourceFacts
from wattload.power.config import PowerConfig
from wattload.power.sources import PowerDevice
from wattload.power.sources.polled import PolledSource
from wattload.power.sources.redfish_client import Bmc, RedfishClient
from wattload.power.sources.redfish_values import (
    age_s,
    number,
    percent,
    reference,
    references,
    seconds,
    step,
)

PERIOD_S = 2.0
"""It is asked no oftener: a BMC refreshes in seconds and takes tens of milliseconds to answer."""
REFRESH_S = 10.0
"""How often a reading is taken to change where the BMC states no SensingInterval."""
STALE_S = 30.0
"""A reading that is older by the BMC's own clock, or than three of its intervals, is none."""

_CHASSIS = "/redfish/v1/Chassis"
_DRIVES_MAX = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A property of EnvironmentMetrics; ``unit`` of it are watts or joules."""

    name: str
    field: str
    unit: float
    is_counter: bool


POWER = Quantity(name="redfish_power", field="PowerWatts", unit=1.0, is_counter=False)
ENERGY_J = Quantity(name="redfish_energy", field="EnergyJoules", unit=1.0, is_counter=True)
ENERGY_KWH = Quantity(name="redfish_energy", field="EnergykWh", unit=3.6e6, is_counter=True)


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return the sources of the chassis and of each drive under the target that the BMC knows.

    Raises:
        ConfigError: no BMC is named.
        PowerError: it does not answer, or it has several chassis that tell power and none is named.
    """
    client = RedfishClient(Bmc.of(config.redfish, os.environ))
    try:
        return list(find_metrics(client, devices, config))
    finally:
        client.close()


def find_metrics(
    client: RedfishClient, devices: Sequence[PowerDevice], config: PowerConfig
) -> Iterator[PowerSource]:
    """Yield the sources that the BMC behind ``client`` offers; see ``find``."""
    all_chassis = [
        (path, client.get(path).document)
        for path in references(client.get(_CHASSIS).document, "Members")
    ]
    path, chassis = _chosen(client, all_chassis, config.redfish.chassis)
    name = path.rpartition("/")[2]
    yield from _sources(
        client,
        chassis,
        key=path,
        shown=f"chassis {name}",
        scope=Scope.NODE,
        period_s=config.period_s,
    )
    documents = [document for _, document in all_chassis]
    yield from _of_drives(client, documents, devices, period_s=config.period_s)


def _of_drives(
    client: RedfishClient,
    all_chassis: Sequence[Mapping[str, Any]],
    devices: Sequence[PowerDevice],
    *,
    period_s: float,
) -> Iterator[PowerSource]:
    """Yield the sources of the run's drives that the BMC knows by their serial numbers."""
    wanted = {device.key: device for device in devices if device.is_nvme}
    for drive in _drives(client, all_chassis) if wanted else ():
        device = wanted.get(str(drive.get("SerialNumber") or "").strip())
        if device is not None:
            yield from _sources(
                client,
                drive,
                key=device.key,
                shown=device.name,
                scope=Scope.DRIVE,
                period_s=period_s,
            )


def _chosen(
    client: RedfishClient, all_chassis: Sequence[tuple[str, Mapping[str, Any]]], wanted: str | None
) -> tuple[str, Mapping[str, Any]]:
    """Return the chassis that is named, else the only one that tells power or energy."""
    known = {path.rpartition("/")[2]: (path, document) for path, document in all_chassis}
    if wanted is not None:
        if wanted not in known:
            raise PowerError(
                f"power.redfish.chassis={wanted} is not there; the BMC has {', '.join(known)}"
            )
        return known[wanted]
    telling = {key: each for key, each in known.items() if _quantities(_metrics(client, each[1]))}
    if len(telling) != 1:
        told = f"several tell power: {', '.join(telling)}" if telling else "none tells power"
        raise PowerError(
            f"of the BMC's chassis {told}; power.redfish.chassis= takes one of {', '.join(known)}"
        )
    return next(iter(telling.values()))


def _drives(
    client: RedfishClient, all_chassis: Sequence[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Yield the drives of all chassis, each once, by their collection or by links."""
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
    """Return what the metrics give: power, and energy by the finer of its two properties."""
    found = [each for each in (POWER, ENERGY_J, ENERGY_KWH) if _reading(metrics, each) is not None]
    return [each for each in found if each is not ENERGY_KWH or ENERGY_J not in found]


def _reading(metrics: Mapping[str, Any], quantity: Quantity) -> float | None:
    """Return an excerpt's reading; 0 W or 0 J of a node that runs is no reading."""
    excerpt = metrics.get(quantity.field)
    value = number(excerpt.get("Reading")) if isinstance(excerpt, dict) else None
    return value * quantity.unit if value is not None and value > 0 else None


def _sources(
    client: RedfishClient,
    resource: Mapping[str, Any],
    *,
    key: str,
    shown: str,
    scope: Scope,
    period_s: float,
) -> Iterator[PowerSource]:
    path = reference(resource, "EnvironmentMetrics")
    if path is None:
        return
    for quantity in _quantities(client.get(path).document):
        facts = SourceFacts(
            name=quantity.name,
            device=key,
            device_name=shown,
            scope=scope,
            evidence=Evidence.SELF_REPORTED,
            sensor=_sensor(quantity, None, REFRESH_S),
            period_s=max(period_s, PERIOD_S),
            detail=f"{quantity.field} of {path}",
        )
        yield RedfishSource(client, path, quantity, facts)


class RedfishSource(PolledSource):
    """One quantity of one EnvironmentMetrics, read at the Sensor behind it where that has a time.

    The Sensor (DataSourceUri) also states its accuracy and how often it senses. A reading that has
    grown old on the BMC is a hole in the trace.
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
                "accuracy_percent": percent(sensor, value),
                "detail": self._detail(source, interval_s),
            }
        )

    def _sensor_document(self, path: str | None) -> Mapping[str, Any]:
        """Return the Sensor behind an excerpt; a BMC that refuses to show it loses nothing else."""
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
            else f"no SensingInterval is stated, {REFRESH_S:g} s are taken"
        )
        origin = f" from {source}" if source else ""
        return f"{self._quantity.field} of {self._metrics_path}{origin}; {sensed}"

    def _ask(self) -> float | None:
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
