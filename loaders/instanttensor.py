"""loader=instanttensor: InstantTensor, which reads past the page cache and copies to a GPU.

It reads by io_uring with O_DIRECT, else by libaio, 512 reads of 8 MiB at once (release 0.2), and
copies them to the GPU as they arrive. Each tensor is then copied within the GPU, to memory of its
own (``copy=True``), as in vLLM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from wattload.core.errors import ConfigError
from wattload.core.storage.targets import Target
from wattload.core.workload import Requirement
from wattload.loaders.tensor_loads import LoadPlan, TensorLoad
from wattload.loaders.torch_tensors import TensorPackage, TorchTensors

if TYPE_CHECKING:
    from wattload.loaders.torch_tensors import Tensors

STAGING_BYTES = 512 * (8 << 20)
"""Reads in flight, at most."""


@dataclass(slots=True, kw_only=True)
class Config(TensorPackage):
    """The settings of loader=instanttensor: none."""

    name: ClassVar[str] = "instanttensor"
    requires: ClassVar[tuple[Requirement, ...]] = (
        Requirement(module="instanttensor", software="InstantTensor", extra="instanttensor"),
    )

    _target_: str = "wattload.loaders.instanttensor.Config"

    def check_tensor_load(self, plan: LoadPlan, targets: Sequence[Target]) -> None:
        """Raise as every package, and without a GPU."""
        TensorPackage.check_tensor_load(self, plan, targets)
        if plan.device is None:
            raise ConfigError(
                "loader=instanttensor loads to a GPU alone; use workload.destination=gpu on a host "
                "with one, or loader=direct"
            )

    def tensor_load_bytes(self, plan: LoadPlan) -> int:
        return min(plan.read_bytes, STAGING_BYTES)

    def tensor_load(self, plan: LoadPlan) -> TensorLoad:
        read = partial(_tensors, device=plan.device)
        return TorchTensors(plan, read, package="instanttensor")


def _tensors(files: Sequence[Path], *, device: int | None) -> Tensors:
    from instanttensor import safe_open

    with safe_open([str(path) for path in files], framework="pt", device=device) as opened:
        yield from opened.tensors()
