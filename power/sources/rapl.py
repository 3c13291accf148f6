"""The processors' energy counters (RAPL) by powercap: packages, memory, and the whole platform.

Their scope is ``node``, not a drive. The parts of a zone (``core``, ``uncore``) are included in its
package and not read, so that nothing counts twice. ``psys`` includes the packages too, and is a
separate device.

Layout: Documentation/power/powercap/powercap.rst of the Linux kernel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wattload.core.errors import PowerError, PowerPermissionError
from wattload.core.power import Counter, Evidence, PowerSource, Scope, SourceFacts
from wattload.core.sysfs import LIVE, Roots, explain, read_int, text_or_empty
from wattload.core.units import MICRO
from wattload.power.config import PowerConfig
from wattload.power.registry import Meter
from wattload.power.sources.base import (
    PolledSource,
    PowerDevice,
    open_attribute,
    read_attribute,
)

METER = Meter(scope=Scope.NODE, auto_rank=3, is_companion=True)

NAME = "rapl"
RAW_STEPS = 2**32
"""A zone's register has 32 bits (Intel SDM volume 3, 15.10), so its step is range / 2^32."""
UPDATE_PERIOD_S = 0.001
"""The registers are updated about every millisecond (Intel SDM volume 3, 15.10)."""

_ZONE = re.compile(r"intel-rapl:\d+(:\d+)?")
"""Not ``intel-rapl-mmio``, which shows the same packages again. AMD's zones have this name too."""
_WHOLE = re.compile(r"package-\d+(-die-\d+)?|psys|dram")


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """A zone that is part of no other zone except ``psys``; ``key`` names it on this host."""

    key: str
    name: str
    folder: Path

    @property
    def counter(self) -> Path:
        return self.folder / "energy_uj"


def list_zones(roots: Roots = LIVE) -> tuple[Zone, ...]:
    """Return the packages, their memories, and the platform, as far as the kernel shows them."""
    zones = []
    for folder in sorted(roots.sys.glob("class/powercap/intel-rapl:*")):
        name = text_or_empty(folder / "name")
        if _ZONE.fullmatch(folder.name) and _WHOLE.fullmatch(name):
            parent = text_or_empty(folder.parent / folder.name.rpartition(":")[0] / "name")
            zones.append(Zone(key=f"{parent} {name}".strip(), name=name, folder=folder))
    return tuple(zones)


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return one source per zone of this host, whatever the drives are.

    Raises:
        PowerError: the kernel shows no zone.
    """
    return find_zones(LIVE, period_s=config.period_s)


def find_zones(roots: Roots, *, period_s: float) -> Sequence[PowerSource]:
    """Return one source per zone in ``roots``; see ``find``."""
    vendor = processor_vendor(roots)
    sources = [RaplSource(zone, vendor=vendor, period_s=period_s) for zone in list_zones(roots)]
    if not sources:
        raise PowerError(
            "the kernel shows no RAPL zone, as in most virtual machines; on real "
            "hardware `sudo modprobe intel_rapl_msr` loads the driver"
        )
    return sources


def processor_vendor(roots: Roots) -> str:
    """Return the processor's ``vendor_id``; empty if the kernel does not report it."""
    text = text_or_empty(roots.proc / "cpuinfo")
    found = re.search(r"^vendor_id\s*:\s*(\S+)", text, re.MULTILINE)
    return found.group(1) if found else ""


class RaplSource(PolledSource):
    """Joules of one zone, read with one ``pread`` of a descriptor that stays open.

    Intel's server processors measure since Haswell. AMD's counters come from a model of the core's
    activity (Schöne et al., Energy Efficiency Aspects of the AMD Zen 2 Architecture, 2021), so they
    are ``estimated``.
    """

    def __init__(self, zone: Zone, *, vendor: str, period_s: float) -> None:
        is_model = vendor == "AuthenticAMD"
        super().__init__(
            SourceFacts(
                name=NAME,
                device=zone.key,
                device_name=zone.key,
                scope=Scope.NODE,
                evidence=Evidence.ESTIMATED if is_model else Evidence.SELF_REPORTED,
                sensor=Counter(quantum_j=MICRO, update_period_s=UPDATE_PERIOD_S),
                period_s=period_s,
                detail=_detail(zone, is_model=is_model),
            )
        )
        self._zone = zone
        self._descriptor = -1

    def _prepare(self) -> SourceFacts:
        path = self._zone.counter
        try:
            self._descriptor = open_attribute(path)
            self._query()
            range_uj = read_int(self._zone.folder / "max_energy_range_uj")
        except PermissionError as error:
            raise PowerPermissionError(
                f"only root may read {path} since CVE-2020-8694: start the sampler as root, "
                f"or `sudo chmod a+r {path}`"
            ) from error
        except (OSError, ValueError) as error:
            raise PowerError(
                f"the energy of {self._zone.key} can't be read: {explain(error)}"
            ) from error
        if range_uj <= 0:
            raise PowerError(f"{self._zone.key} states an energy range of {range_uj} uJ")
        sensor = Counter(
            quantum_j=max(range_uj * MICRO / RAW_STEPS, MICRO),
            wrap_j=range_uj * MICRO,
            update_period_s=UPDATE_PERIOD_S,
        )
        return self._facts.model_copy(update={"sensor": sensor})

    def _query(self) -> float:
        return read_attribute(self._descriptor) * MICRO

    def _release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _detail(zone: Zone, *, is_model: bool) -> str:
    kind = "energy counter" + (" of a model, not a sensor," if is_model else "")
    if zone.name == "psys":
        return f"{kind} of the whole platform including the packages: never added to theirs"
    if zone.name == "dram":
        return f"{kind} of the memory, which its package does not include"
    return f"{kind} of the package including cores and graphics"
