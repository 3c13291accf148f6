"""Which device a rank's batches are copied to, if to any."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from wattload.core.accelerator import Device
from wattload.core.errors import WattloadError
from wattload.core.workload import Communicator
from wattload.loaders.cudacopy import cuda_copier, require_cuda
from wattload.loaders.devicecopy import DeviceCopier
from wattload.loaders.samples import SampleSet

NOT_ASKED = "accelerator.device is none, so batches stay in host memory"


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """Whether this rank copies its batches, and if not, why: a half sentence for the record."""

    copies: bool
    reason: str = ""


def choose_device(device: Device) -> DeviceChoice:
    """Return whether batches are copied on this host.

    Raises ``ConfigError`` or ``MissingExtraError`` where ``device=cuda`` can't be done.
    """
    if device is Device.none:
        return DeviceChoice(copies=False, reason=NOT_ASKED)
    try:
        require_cuda()
    except WattloadError as error:
        if device is Device.cuda:
            raise
        return DeviceChoice(copies=False, reason=str(error).partition(";")[0])
    return DeviceChoice(copies=True)


@contextmanager
def copying(
    choice: DeviceChoice, samples: SampleSet, world: Communicator
) -> Iterator[DeviceCopier | None]:
    """Yield this rank's copier, ``None`` where none was chosen; every rank must call it.

    Raises ``ConfigError`` where the device can't be used.
    """
    hosts = world.gather(os.uname().nodename)
    if not choice.copies:
        yield None
        return
    local_rank = hosts[: world.rank].count(os.uname().nodename)
    shape = (samples.batch_samples, samples.resize_bytes)
    copier = cuda_copier(shape, accelerators=samples.accelerators, local_rank=local_rank)
    with closing(copier):
        yield copier


def device_memory_bytes(choice: DeviceChoice, samples: SampleSet) -> int:
    """Return the pinned memory of one rank's copier: two buffers an accelerator, there and back."""
    return 2 * 2 * samples.accelerators * samples.batch_bytes if choice.copies else 0
