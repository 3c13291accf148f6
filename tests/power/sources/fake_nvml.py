"""A fake of the module ``pynvml``: no machine that runs the tests has an NVIDIA GPU.

``test_fake_has_the_calls_of_the_real_module`` compares its names and parameters with the real ones.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

ARCH_VOLTA, ARCH_AMPERE, ARCH_HOPPER = 5, 7, 9


class FakeNvmlError(Exception):
    """Raised by every call that the device does not support."""


@dataclass
class FakeGpu:
    uuid: str = "GPU-1"
    name: str = "NVIDIA Test"
    architecture: int = ARCH_HOPPER
    capability: tuple[int, int] = (9, 0)
    watts: float = 70.0
    counts_energy: bool = True
    moves_every_s: float = 1e-6
    tells_power: bool = True
    domain: int = 0
    bus: int = 0x65
    device: int = 0


@dataclass
class FakeNvml:
    """Holds GPUs; ``is_lost`` makes every call fail, as when one falls off the bus."""

    gpus: list[FakeGpu] = field(default_factory=lambda: [FakeGpu()])
    has_driver: bool = True
    is_lost: bool = False
    open_count: int = 0
    NVMLError: type[Exception] = FakeNvmlError
    NVML_DEVICE_ARCH_AMPERE: int = ARCH_AMPERE

    def nvmlInit(self) -> None:
        if not self.has_driver:
            raise FakeNvmlError("NVML Shared Library Not Found")
        self.open_count += 1

    def nvmlShutdown(self) -> None:
        if not self.open_count:
            raise FakeNvmlError("Uninitialized")
        self.open_count -= 1

    def nvmlDeviceGetCount(self) -> int:
        self._check()
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        self._check()
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:
        self._check()
        for gpu in self.gpus:
            if gpu.uuid == uuid:
                return gpu
        raise FakeNvmlError("Not Found")

    def nvmlDeviceGetUUID(self, handle: FakeGpu) -> str:
        self._check()
        return handle.uuid

    def nvmlDeviceGetName(self, handle: FakeGpu) -> str:
        self._check()
        return handle.name

    def nvmlDeviceGetPciInfo(self, handle: FakeGpu) -> FakeGpu:
        self._check()
        return handle

    def nvmlDeviceGetArchitecture(self, device: FakeGpu) -> int:
        self._check()
        return device.architecture

    def nvmlDeviceGetCudaComputeCapability(self, handle: FakeGpu) -> tuple[int, int]:
        self._check()
        return handle.capability

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: FakeGpu) -> int:
        self._check()
        if not handle.counts_energy:
            raise FakeNvmlError("Not Supported")
        moves = time.monotonic() // handle.moves_every_s
        return int(handle.watts * moves * handle.moves_every_s * 1e3)

    def nvmlDeviceGetPowerUsage(self, handle: FakeGpu) -> int:
        self._check()
        if not handle.tells_power:
            raise FakeNvmlError("Not Supported")
        return round(handle.watts * 1000)

    def _check(self) -> None:
        if not self.open_count:
            raise FakeNvmlError("Uninitialized")
        if self.is_lost:
            raise FakeNvmlError("GPU is lost")
