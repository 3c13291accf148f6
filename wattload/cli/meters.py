"""The host's meters beside its drives, and what each says now: part of ``wattload devices``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wattload.core.errors import PowerError
from wattload.core.power import Counter, PowerSource
from wattload.core.sysfs import LIVE, Roots
from wattload.power.meterconfig import HwmonConfig
from wattload.power.sources.hwmon import find_channels
from wattload.power.sources.ipmi import IpmiSource, OpenLink
from wattload.power.sources.ipmi_device import DEVICE, IpmiDevice
from wattload.power.sources.rapl import find_zones

_PERIOD_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterView:
    """A channel that a run could read.

    ``says`` is its reading now, or why there is none; ``detail`` what stands behind it.
    """

    source: str
    name: str
    scope: str
    evidence: str
    says: str
    detail: str

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def view_meters(
    roots: Roots = LIVE, *, ipmi: Path = DEVICE, open_link: OpenLink = IpmiDevice
) -> tuple[MeterView, ...]:
    """Return the meters of this host beside drives and GPUs, each asked once."""
    return tuple(_view(source) for source in _sources(roots, ipmi, open_link))


def _sources(roots: Roots, ipmi: Path, open_link: OpenLink) -> Iterator[PowerSource]:
    with suppress(PowerError):
        yield from find_channels(roots, (), HwmonConfig(), period_s=_PERIOD_S)
    with suppress(PowerError):
        yield from find_zones(roots, period_s=_PERIOD_S)
    if ipmi.exists():
        yield IpmiSource(period_s=_PERIOD_S, open_link=open_link)


def _view(source: PowerSource) -> MeterView:
    says = _reading(source)
    facts = source.facts()
    return MeterView(
        source=facts.name,
        name=facts.device,
        scope=str(facts.scope),
        evidence=str(facts.evidence),
        says=says,
        detail=facts.detail,
    )


def _reading(source: PowerSource) -> str:
    try:
        source.open()
        (sample,) = source.read()
    except PowerError as error:
        return str(error)
    finally:
        source.close()
    if sample.value is None:
        return "no reading just now"
    unit = "J counted" if isinstance(source.facts().sensor, Counter) else "W"
    return f"{sample.value:.2f} {unit}"
