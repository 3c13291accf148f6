"""GPU energy and power through NVML: the energy counter where there is one, and the power.

They say nothing of a drive: their scope is ``gpu``, and they are never added to a drive's figure.
The counter is exact over minutes and too coarse for seconds, where the power takes its place.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import pairwise
from statistics import median
from typing import Any, ClassVar, Protocol, cast

from wattload.core.errors import MissingExtraError, PowerError
from wattload.core.power import (
    Boxcar,
    Channel,
    Counter,
    Evidence,
    Instant,
    PowerSource,
    Sample,
    Scope,
    Sensor,
    SourceFacts,
    WindowEnergy,
)
from wattload.core.units import NS_PER_S
from wattload.power.config import PowerConfig
from wattload.power.sources import PowerDevice

MILLI = 1e-3
"""NVML counts in millijoules and milliwatts."""

WATCH_S = 1.0
WATCHED_MOVES = 4
"""The energy counter is watched until it moved so often, or that long, to see how often it does."""
AVERAGE_S = 1.0
"""``nvmlDeviceGetPowerUsage``: mean over 1 s on Ampere and later, except GA100 (NVML reference)."""
GA100 = (8, 0)
"""Compute capability of GA100 (A100, A30), whose power is instantaneous though it is Ampere."""


class Nvml(Protocol):
    """The part of the module ``pynvml`` (distribution nvidia-ml-py) that is used here."""

    NVMLError: type[Exception]
    NVML_DEVICE_ARCH_AMPERE: int

    def nvmlInit(self) -> None: ...  # noqa: D102, N802 - NVML's own names
    def nvmlShutdown(self) -> None: ...  # noqa: D102, N802
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: D102, N802
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...  # noqa: ANN401, D102, N802
    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any: ...  # noqa: ANN401, D102, N802
    def nvmlDeviceGetUUID(self, handle: Any) -> str: ...  # noqa: ANN401, D102, N802
    def nvmlDeviceGetName(self, handle: Any) -> str: ...  # noqa: ANN401, D102, N802
    def nvmlDeviceGetArchitecture(self, device: Any) -> int: ...  # noqa: ANN401, D102, N802
    def nvmlDeviceGetCudaComputeCapability(  # noqa: D102, N802
        self,
        handle: Any,  # noqa: ANN401
    ) -> tuple[int, int]: ...
    def nvmlDeviceGetTotalEnergyConsumption(  # noqa: D102, N802
        self,
        handle: Any,  # noqa: ANN401
    ) -> int: ...
    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int: ...  # noqa: ANN401, D102, N802


def load_nvml() -> Nvml:
    """Return the module ``pynvml``.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return cast("Nvml", import_module("pynvml"))
    except ImportError as error:
        raise MissingExtraError(
            "GPU power needs the module pynvml, which is not installed: pip install 'wattload[gpu]'"
        ) from error


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return one source per GPU of this host; the drives do not matter."""
    return find_gpus(load_nvml(), period_s=config.period_s)


def find_gpus(nvml: Nvml, *, period_s: float) -> Sequence[PowerSource]:
    """Return the sources of each GPU that ``nvml`` lists: energy where it is counted, and power.

    Raises:
        PowerError: no driver is loaded, or NVML can't be asked.
    """
    sources: list[PowerSource] = []
    with _session(nvml):
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = nvml.nvmlDeviceGetUUID(handle)
            if _counts_energy(nvml, handle):
                sources.append(NvmlEnergy(uuid, nvml, period_s=period_s))
            sources.append(NvmlPower(uuid, nvml, period_s=period_s))
    return sources


class _GpuSource(ABC):
    """One quantity of one GPU."""

    name: ClassVar[str]
    channel: ClassVar[Channel]
    quantity: ClassVar[str]

    def __init__(self, uuid: str, nvml: Nvml, *, period_s: float) -> None:
        self._uuid = uuid
        self._nvml = nvml
        self._period_s = period_s
        self._handle: Any = None
        self._device_name = ""
        self._sensor: Sensor = Instant()
        self._is_open = False

    @abstractmethod
    def _ask(self) -> float:
        """Return the quantity in its unit; raises ``NVMLError``."""

    @abstractmethod
    def _find_sensor(self) -> Sensor:
        """Return the sensor behind it; raises ``NVMLError``."""

    @abstractmethod
    def _detail(self) -> str:
        """Return what a reader should know of the sensor."""

    def facts(self) -> SourceFacts:
        """Return what the source is; valid after ``open``."""
        return SourceFacts(
            name=self.name,
            device=self._uuid,
            device_name=self._device_name,
            scope=Scope.GPU,
            evidence=Evidence.SELF_REPORTED,
            sensor=self._sensor,
            period_s=self._period_s,
            resolution_w=MILLI if self.channel is Channel.POWER_W else None,
            detail=self._detail(),
        )

    def open(self) -> None:
        """Find the GPU and see how it tells; the energy counter is watched for up to a second.

        Raises:
            PowerError: no driver is loaded, the GPU is gone, or it does not tell.
        """
        _start(self._nvml)
        self._is_open = True
        try:
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(self._uuid)
            self._device_name = self._nvml.nvmlDeviceGetName(self._handle)
            self._ask()
            self._sensor = self._find_sensor()
        except self._nvml.NVMLError as error:
            self.close()
            raise PowerError(f"GPU {self._uuid} tells no {self.quantity}: {error}") from error

    def start(self) -> None:  # noqa: B027 - no GPU source has anything to do here
        """Nothing to begin: the GPU always measures."""

    def read(self) -> Sequence[Sample]:
        """Return one sample."""
        if not self._is_open:
            raise PowerError(f"GPU {self._uuid} is read before it was opened")
        start_ns = time.monotonic_ns()
        value: float | None
        try:
            value = self._ask()
        except self._nvml.NVMLError:
            value = None
        end_ns = time.monotonic_ns()
        sample = Sample(
            time_ns=(start_ns + end_ns) // 2,
            spread_ns=end_ns - start_ns,
            source=self.name,
            device=self._uuid,
            channel=self.channel,
            value=value,
            evidence=Evidence.SELF_REPORTED,
        )
        return (sample,)

    def stop(self) -> Sequence[WindowEnergy]:
        """Return nothing: what it says is integrated from its samples."""
        return ()

    def restore(self) -> None:  # noqa: B027 - no GPU source has anything to do here
        """Nothing to undo: this source only reads."""

    def close(self) -> None:
        """Leave NVML; safe to call twice."""
        if self._is_open:
            self._is_open = False
            _stop(self._nvml)


class NvmlEnergy(_GpuSource):
    """Joules counted since the driver was loaded (Volta and later)."""

    name = "nvml_energy"
    channel = Channel.ENERGY_J
    quantity = "energy"

    def _ask(self) -> float:
        return self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle) * MILLI

    def _find_sensor(self) -> Sensor:
        """Return the counter with how often it moves, from watching it.

        The unit says nothing of that: an H100 counts millijoules and moves ten times a second, by
        12 J when idle.
        """
        end_ns = time.monotonic_ns() + round(WATCH_S * NS_PER_S)
        moved_ns: list[int] = []
        last = self._ask()
        while len(moved_ns) <= WATCHED_MOVES and (now_ns := time.monotonic_ns()) < end_ns:
            if (count := self._ask()) != last:
                last = count
                moved_ns.append(now_ns)
        between_ns = [after - before for before, after in pairwise(moved_ns)]
        period_s = median(between_ns) / NS_PER_S if between_ns else WATCH_S
        return Counter(quantum_j=MILLI, update_period_s=round(period_s, 2))

    def _detail(self) -> str:
        moves = self._sensor.update_period_s if isinstance(self._sensor, Counter) else 0.0
        return f"energy counter that moves every {moves:g} s" if moves else "energy counter"


class NvmlPower(_GpuSource):
    """Watts: since Ampere, except on GA100, the mean of the last second (NVML reference)."""

    name = "nvml_power"
    channel = Channel.POWER_W
    quantity = "power"

    def _ask(self) -> float:
        return self._nvml.nvmlDeviceGetPowerUsage(self._handle) * MILLI

    def _find_sensor(self) -> Sensor:
        architecture = self._nvml.nvmlDeviceGetArchitecture(self._handle)
        capability = self._nvml.nvmlDeviceGetCudaComputeCapability(self._handle)
        if architecture < self._nvml.NVML_DEVICE_ARCH_AMPERE or tuple(capability) == GA100:
            return Instant()
        return Boxcar(window_s=AVERAGE_S)

    def _detail(self) -> str:
        return "power, mean of 1 s" if isinstance(self._sensor, Boxcar) else "power, instantaneous"


def _counts_energy(nvml: Nvml, handle: Any) -> bool:  # noqa: ANN401 - NVML's own handle
    try:
        nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except nvml.NVMLError:
        return False
    return True


@contextmanager
def _session(nvml: Nvml) -> Iterator[None]:
    """Hold NVML open; what it says against that is one sentence."""
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
            f"no GPU power here, as NVML can't be started ({error}); it comes with NVIDIA's driver"
        ) from error


def _stop(nvml: Nvml) -> None:
    """Leave NVML, even where the driver has gone meanwhile."""
    with suppress(nvml.NVMLError):
        nvml.nvmlShutdown()
