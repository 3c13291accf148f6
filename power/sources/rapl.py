"""The processors' energy counters (RAPL) by powercap: packages, memory, and the whole platform.

They say nothing of a drive: their scope is ``node``. A zone's parts (``core``, ``uncore``) lie
within its package and are not read, so that nothing can be counted twice; ``psys`` holds the
packages too, and stands as a device of its own beside them.

Layout: Documentation/power/powercap/powercap.rst of the Linux kernel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattload.core.errors import PowerError, PowerPermissionError
from wattload.core.power import Counter, Evidence, PowerSource, Scope, SourceFacts
from wattload.core.sysfs import LIVE, Roots, explain, read_int, read_text
from wattload.power.config import PowerConfig
from wattload.power.sources import PowerDevice
from wattload.power.sources.polled import PolledSource

NAME = "rapl"

MICRO = 1e-6
"""powercap counts in microjoules."""
RAW_STEPS = 2**32
"""The register behind a zone has 32 bits (Intel SDM volume 3, 15.10): range / 2^32 is its step."""
UPDATE_PERIOD_S = 0.001
"""The registers are updated about every millisecond (Intel SDM volume 3, 15.10)."""

_ZONE = re.compile(r"intel-rapl:\d+(:\d+)?")
"""Not ``intel-rapl-mmio``: the same packages by another way. AMD's zones have this name too."""
_WHOLE = re.compile(r"package-\d+(-die-\d+)?|psys|dram")
_ATTRIBUTE_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """A zone that is no part of another one but ``psys``; ``key`` names it on this host."""

    key: str
    name: str
    folder: Path

    @property
    def counter(self) -> Path:
        """The file of the energy counter."""
        return self.folder / "energy_uj"


def list_zones(roots: Roots = LIVE) -> tuple[Zone, ...]:
    """Return the packages, their memories, and the platform, as far as the kernel shows them."""
    return tuple(_zones(roots))


def _zones(roots: Roots) -> Iterator[Zone]:
    for folder in sorted(roots.sys.glob("class/powercap/intel-rapl:*")):
        name = _name(folder)
        if _ZONE.fullmatch(folder.name) and _WHOLE.fullmatch(name):
            parent = _name(folder.parent / folder.name.rpartition(":")[0])
            yield Zone(key=f"{parent} {name}".strip(), name=name, folder=folder)


def _name(folder: Path) -> str:
    """Return a zone's name; empty for what is no zone, as the folder above all zones."""
    try:
        return read_text(folder / "name")
    except OSError:
        return ""


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return one source per zone of this host; the drives do not matter.

    Raises:
        PowerError: the kernel shows no zone.
    """
    return find_zones(LIVE, period_s=config.period_s)


def find_zones(roots: Roots, *, period_s: float) -> Sequence[PowerSource]:
    """Return one source per zone that ``roots`` shows; see ``find``."""
    vendor = processor_vendor(roots)
    sources = [RaplSource(zone, vendor=vendor, period_s=period_s) for zone in list_zones(roots)]
    if not sources:
        raise PowerError(
            "the kernel shows no RAPL zone, as in most virtual machines; on a real one "
            "`sudo modprobe intel_rapl_msr` loads the driver"
        )
    return sources


def processor_vendor(roots: Roots) -> str:
    """Return the processor's ``vendor_id``, empty where the kernel does not tell."""
    try:
        text = read_text(roots.proc / "cpuinfo")
    except OSError:
        return ""
    found = re.search(r"^vendor_id\s*:\s*(\S+)", text, re.MULTILINE)
    return found.group(1) if found else ""


class RaplSource(PolledSource):
    """Joules of one zone. The counter is read by one ``pread`` of a descriptor that stays open.

    Intel's servers measure since Haswell; AMD's counters are a model of the core's activity
    (Schöne et al., Energy Efficiency Aspects of the AMD Zen 2 Architecture, 2021): ``estimated``.
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
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._ask()
            range_uj = read_int(self._zone.folder / "max_energy_range_uj")
        except PermissionError as error:
            raise PowerPermissionError(
                f"{path} is for root alone since CVE-2020-8694: start the sampler as root, or "
                f"`sudo chmod a+r {path}`"
            ) from error
        except (OSError, ValueError) as error:
            raise PowerError(f"{self._zone.key} gives no energy: {explain(error)}") from error
        if range_uj <= 0:
            raise PowerError(f"{self._zone.key} states an energy range of {range_uj} uJ")
        sensor = Counter(
            quantum_j=max(range_uj * MICRO / RAW_STEPS, MICRO),
            wrap_j=range_uj * MICRO,
            update_period_s=UPDATE_PERIOD_S,
        )
        return self._facts.model_copy(update={"sensor": sensor})

    def _ask(self) -> float:
        return int(os.pread(self._descriptor, _ATTRIBUTE_BYTES, 0)) * MICRO

    def _release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _detail(zone: Zone, *, is_model: bool) -> str:
    kind = "energy counter" + (" of a model, no sensor," if is_model else "")
    if zone.name == "psys":
        return f"{kind} of the whole platform, the packages within it: never added to theirs"
    if zone.name == "dram":
        return f"{kind} of the memory, which is not in its package's"
    return f"{kind} of the package, cores and graphics within it"
