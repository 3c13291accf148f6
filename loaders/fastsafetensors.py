"""loader=fastsafetensors: the package of that name, file by file, as vLLM uses it.

16 threads read a file with O_DIRECT through bounce buffers to where its tensors are to be; while a
file's tensors are copied to memory of their own, the next file is read. GPUDirect Storage is not
used.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from wattload.core.workload import Requirement
from wattload.loaders.tensor_loads import LoadPlan, TensorLoad
from wattload.loaders.torch_tensors import TensorPackage, TorchTensors

if TYPE_CHECKING:
    from wattload.loaders.torch_tensors import Tensors

BOUNCE_BYTES = 16 * (16 << 20)


@dataclass(slots=True, kw_only=True)
class Config(TensorPackage):
    """The settings of loader=fastsafetensors: none."""

    name: ClassVar[str] = "fastsafetensors"
    requires: ClassVar[tuple[Requirement, ...]] = (
        Requirement(module="fastsafetensors", software="fastsafetensors", extra="fastsafetensors"),
    )

    _target_: str = "wattload.loaders.fastsafetensors.Config"

    def tensor_load_bytes(self, plan: LoadPlan) -> int:
        """Return bounce buffers and, on the host, the parts and the two largest files."""
        if plan.device is not None:
            return BOUNCE_BYTES
        files = [0] * len(plan.files)
        for part in plan.parts:
            files[part.file] += part.tensor_bytes
        return BOUNCE_BYTES + plan.needed_bytes + sum(sorted(files)[-2:])

    def tensor_load(self, plan: LoadPlan) -> TensorLoad:
        device = "cpu" if plan.device is None else f"cuda:{plan.device}"
        read = partial(_tensors, device=device)
        return TorchTensors(plan, read, package="fastsafetensors")


def _tensors(files: Sequence[Path], *, device: str) -> Tensors:
    from fastsafetensors import ParallelLoader, SingleGroup

    loader = ParallelLoader(
        SingleGroup(),
        [str(path) for path in files],
        use_tqdm_on_load=False,
        device=device,
        nogds=True,
    )
    with closing(loader), closing(loader.iterate_weights()) as tensors:
        yield from tensors
