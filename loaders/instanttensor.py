"""loader=instanttensor: InstantTensor, which reads past the page cache and copies to a GPU.

It reads by io_uring with O_DIRECT, else by libaio, 512 reads of 8 MiB at once (release 0.2), and
copies them to the GPU as they arrive. Each tensor is then copied within the GPU, to memory of its
own (``copy=True``, the default), as in vLLM 0.33.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from wattload.core.errors import ConfigError
from wattload.core.storage.targets import Target
from wattload.core.workload import Requirement
from wattload.loaders.tensor_loads import LoadPlan
from wattload.loaders.torch_tensors import TensorPackage, Tensors

STAGING_BYTES = 512 * (8 << 20)
"""Reads in flight, at most."""


@dataclass(slots=True, kw_only=True)
class Config(TensorPackage):
    """The settings of loader=instanttensor: none."""

    name: ClassVar[str] = "instanttensor"
    tensor_package = Requirement(
        module="instanttensor", software="InstantTensor", extra="instanttensor"
    )
    requires: ClassVar[tuple[Requirement, ...]] = (tensor_package,)
    tensors_bypass_cache = True

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

    def read_tensors(self, plan: LoadPlan) -> Tensors:
        from instanttensor import safe_open

        files = [str(path) for path in plan.files]
        with safe_open(files, framework="pt", device=plan.device) as opened:
            yield from opened.tensors()
