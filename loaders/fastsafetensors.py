"""loader=fastsafetensors: the package of that name, file by file, as vLLM uses it.

16 threads read a file with O_DIRECT to where its tensors are to be, to a GPU through bounce
buffers; while a file's tensors are copied to memory of their own, the next file is read. GPUDirect
Storage is not used; vLLM 0.33 tries it on one GPU and not on several.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from wattload.core.workload import Requirement
from wattload.loaders.tensor_loads import LoadPlan
from wattload.loaders.torch_tensors import TensorPackage, Tensors

BOUNCE_BYTES = 16 * (16 << 20)


@dataclass(slots=True, kw_only=True)
class Config(TensorPackage):
    """The settings of loader=fastsafetensors: none."""

    name: ClassVar[str] = "fastsafetensors"
    tensor_package = Requirement(
        module="fastsafetensors", software="fastsafetensors", extra="fastsafetensors"
    )
    requires: ClassVar[tuple[Requirement, ...]] = (tensor_package,)
    tensors_bypass_cache = True

    _target_: str = "wattload.loaders.fastsafetensors.Config"

    def tensor_load_bytes(self, plan: LoadPlan) -> int:
        """Return bounce buffers or, on the host, two files, a tensor and the parts of so far."""
        if plan.device is not None:
            return BOUNCE_BYTES
        files, parts = [0] * (len(plan.files) + 1), [0] * len(plan.files)
        for part in plan.parts:
            files[part.file] += part.tensor_bytes
            parts[part.file] += part.needed_bytes
        cut = [each.tensor_bytes for each in plan.parts if each.needed_bytes < each.tensor_bytes]
        held = zip(files, files[1:], accumulate(parts), strict=False)
        return max(map(sum, held)) + max(cut, default=0)

    def read_tensors(self, plan: LoadPlan) -> Tensors:
        from fastsafetensors import ParallelLoader, SingleGroup

        device = "cpu" if plan.device is None else f"cuda:{plan.device}"
        files = [str(path) for path in plan.files]
        loader = ParallelLoader(
            SingleGroup(), files, use_tqdm_on_load=False, device=device, nogds=True
        )
        with closing(loader), closing(loader.iterate_weights()) as tensors:
            yield from tensors
