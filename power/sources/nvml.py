"""GPU energy and power through NVML: the energy counter if there is one, and the power.

Their scope is ``gpu``, and they are never added to a drive's figure. The counter is exact over
minutes but too coarse over seconds, where the power is used instead.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import pairwise
from statistics import median
from typing import Any, ClassVar, Protocol, TypeAlias, cast

from wattload.core.errors import MissingExtraError, PowerError
from wattload.core.installation import install_command
from wattload.core.power import (
    Boxcar,
    Counter,
    Evidence,
    Instant,
    PowerSource,
    Scope,
    Sensor,
    SourceFacts,
)
from wattload.core.units import NS_PER_S
from wattload.power.config import PowerConfig
from wattload.power.registry import Meter
from wattload.power.sources.base import PolledSource, PowerDevice

METER = Meter(scope=Scope.GPU, auto_rank=1, is_companion=True)

MILLI = 1e-3
"""NVML counts in millijoules and milliwatts."""

WATCH_S = 1.0
WATCHED_MOVES = 4
"""The energy counter's update period is measured over this many updates, or that time at most."""
ENERGY_PERIOD_S = 0.5
"""Shortest period for the energy counter; short windows use the power, which is cheap to read."""
AVERAGE_S = 1.0
"""``nvmlDeviceGetPowerUsage``: mean over 1 s on Ampere and later, except GA100 (NVML reference)."""
GA100 = (8, 0)
"""Compute capability of GA100 (A100, A30), whose power is instantaneous though it is Ampere."""

Handle: TypeAlias = Any
"""NVML's own pointer to a GPU, which nothing here looks into."""


class PciInfo(Protocol):
    """The numbers of a PCI address."""

    domain: int
    bus: int
    device: int


class Nvml(Protocol):
    """The part of the module ``pynvml`` (distribution nvidia-ml-py) that is used here."""

    NVMLError: type[Exception]
    NVML_DEVICE_ARCH_AMPERE: int

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle: ...
    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Handle: ...
    def nvmlDeviceGetUUID(self, handle: Handle) -> str: ...
    def nvmlDeviceGetName(self, handle: Handle) -> str: ...
    def nvmlDeviceGetPciInfo(self, handle: Handle) -> PciInfo: ...
    def nvmlDeviceGetArchitecture(self, device: Handle) -> int: ...
    def nvmlDeviceGetCudaComputeCapability(self, handle: Handle) -> tuple[int, int]: ...
    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Handle) -> int: ...
    def nvmlDeviceGetPowerUsage(self, handle: Handle) -> int: ...


def load_nvml() -> Nvml:
    """Return the module ``pynvml``.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return cast("Nvml", import_module("pynvml"))
    except ImportError as error:
        raise MissingExtraError(
            "GPU power needs the module pynvml, which is not installed; install it with: "
            + install_command(["gpu"])
        ) from error


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return one source per GPU of this host, whatever the drives are."""
    return find_gpus(load_nvml(), period_s=config.period_s)


def find_gpus(nvml: Nvml, *, period_s: float) -> Sequence[PowerSource]:
    """Return the sources of each GPU that ``nvml`` lists: energy if it is counted, and power.

    Raises:
        PowerError: no driver is loaded, or NVML fails.
    """
    sources: list[PowerSource] = []
    moves_s: dict[str, float] = {}
    with _session(nvml):
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = nvml.nvmlDeviceGetUUID(handle)
            if _counts_energy(nvml, handle):
                sources.append(NvmlEnergy(uuid, nvml, period_s=period_s, moves_s=moves_s))
            sources.append(NvmlPower(uuid, nvml, period_s=period_s))
    return sources


class _GpuSource(PolledSource):
    """One quantity of one GPU."""

    quantity: ClassVar[str]

    def __init__(self, uuid: str, nvml: Nvml, facts: SourceFacts) -> None:
        super().__init__(facts)
        self._uuid = uuid
        self._nvml = nvml
        self._handle: Any = None
        self._has_session = False

    @abstractmethod
    def _value(self) -> float:
        """Return the quantity in its unit; raises ``NVMLError``."""

    @abstractmethod
    def _describe(self) -> dict[str, Any]:
        """Return the sensor and the detail of the facts; raises ``NVMLError``."""

    def _prepare(self) -> SourceFacts:
        _start(self._nvml)
        self._has_session = True
        try:
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(self._uuid)
            name = self._nvml.nvmlDeviceGetName(self._handle)
            address = _pci_address(self._nvml, self._handle)
            self._facts = self._facts.model_copy(
                update={"device_name": name, "pci_address": address}
            )
            self._value()
            return self._facts.model_copy(update=self._describe())
        except self._nvml.NVMLError as error:
            raise PowerError(f"GPU {self._uuid} reports no {self.quantity}: {error}") from error

    def _query(self) -> float:
        try:
            return self._value()
        except self._nvml.NVMLError as error:
            raise PowerError(f"GPU {self._uuid} reports no {self.quantity}: {error}") from error

    def _release(self) -> None:
        if self._has_session:
            self._has_session = False
            _stop(self._nvml)


class NvmlEnergy(_GpuSource):
    """Joules counted since the driver was loaded (Volta and later).

    It is read in the background, at most twice a second: the driver takes 2.7 ms in the median and
    up to 17 ms to answer (H200, driver 580), by this call as well as by field 83. ``moves_s`` maps
    a GPU's name to its counter's update period; the GPUs of a host share it.
    """

    is_slow: ClassVar[bool] = True
    quantity = "energy"

    def __init__(
        self, uuid: str, nvml: Nvml, *, period_s: float, moves_s: dict[str, float] | None = None
    ) -> None:
        counter = Counter(quantum_j=MILLI)
        facts = _facts("nvml_energy", uuid, counter, period_s=max(period_s, ENERGY_PERIOD_S))
        super().__init__(uuid, nvml, facts)
        self._moves_s = {} if moves_s is None else moves_s

    def _value(self) -> float:
        return self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle) * MILLI

    def _describe(self) -> dict[str, Any]:
        name = self._facts.device_name
        if name not in self._moves_s:
            self._moves_s[name] = self._watch()
        moves_s = self._moves_s[name]
        moving = f" updated every {moves_s:g} s" if moves_s else ""
        return {
            "sensor": Counter(quantum_j=MILLI, update_period_s=moves_s),
            "detail": f"energy counter{moving}",
        }

    def _watch(self) -> float:
        """Return the counter's update period in seconds, measured.

        Its unit does not show this: an H200 counts in millijoules but updates ten times a second,
        in steps of 8 J when idle.
        """
        end_ns = time.monotonic_ns() + round(WATCH_S * NS_PER_S)
        moved_ns: list[int] = []
        last = self._value()
        while len(moved_ns) <= WATCHED_MOVES and (now_ns := time.monotonic_ns()) < end_ns:
            if (count := self._value()) != last:
                last = count
                moved_ns.append(now_ns)
        between_ns = [after - before for before, after in pairwise(moved_ns)]
        return round(median(between_ns) / NS_PER_S if between_ns else WATCH_S, 2)


class NvmlPower(_GpuSource):
    """Watts: the mean of the last second since Ampere, except on GA100 (NVML reference).

    The call returns the same as field 185 (average), not field 186 (instant), as compared on an
    H200. It takes a microsecond; the value changes about ten times a second.
    """

    quantity = "power"

    def __init__(self, uuid: str, nvml: Nvml, *, period_s: float) -> None:
        super().__init__(uuid, nvml, _facts("nvml_power", uuid, Instant(), period_s=period_s))

    def _value(self) -> float:
        return self._nvml.nvmlDeviceGetPowerUsage(self._handle) * MILLI

    def _describe(self) -> dict[str, Any]:
        architecture = self._nvml.nvmlDeviceGetArchitecture(self._handle)
        capability = self._nvml.nvmlDeviceGetCudaComputeCapability(self._handle)
        # An architecture newer than this NVML has the largest number of all.
        if architecture < self._nvml.NVML_DEVICE_ARCH_AMPERE or tuple(capability) == GA100:
            return {"sensor": Instant(), "detail": "power, instantaneous"}
        return {"sensor": Boxcar(window_s=AVERAGE_S), "detail": "power, mean of 1 s"}


def _facts(name: str, uuid: str, sensor: Sensor, *, period_s: float) -> SourceFacts:
    """Return what is known of a GPU's source before it is opened; NVIDIA states no accuracy."""
    return SourceFacts(
        name=name,
        device=uuid,
        device_name="",
        scope=Scope.GPU,
        evidence=Evidence.SELF_REPORTED,
        sensor=sensor,
        period_s=period_s,
        resolution_w=None if isinstance(sensor, Counter) else MILLI,
    )


def _pci_address(nvml: Nvml, handle: Handle) -> str:
    """Return the address of a GPU as Linux writes it, empty if NVML does not report it."""
    try:
        info = nvml.nvmlDeviceGetPciInfo(handle)
    except nvml.NVMLError:
        return ""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


def _counts_energy(nvml: Nvml, handle: Handle) -> bool:
    try:
        nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except nvml.NVMLError:
        return False
    return True


@contextmanager
def _session(nvml: Nvml) -> Iterator[None]:
    """Keep NVML open; its errors become a ``PowerError``."""
    _start(nvml)
    try:
        yield
    except nvml.NVMLError as error:
        raise PowerError(f"NVML can't list the GPUs: {error}") from error
    finally:
        _stop(nvml)


def _start(nvml: Nvml) -> None:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise PowerError(
            f"no GPU power: NVML can't be started ({error}); it comes with NVIDIA's driver"
        ) from error


def _stop(nvml: Nvml) -> None:
    """Shut NVML down, even if the driver has been unloaded meanwhile."""
    with suppress(nvml.NVMLError):
        nvml.nvmlShutdown()
