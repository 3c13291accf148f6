"""loader=runai: the Run:ai Model Streamer, which reads all files of a model in one request.

It reads into buffers of host memory that it hands over with the tensors in them. Tensors come in
the order in which their reads end, and are copied to a GPU from there; vLLM 0.33 copies each one on
the host before.

Release 0.17 reads by io_uring with O_DIRECT, else by libaio, 8 MiB at once, and the number of reads
in flight is ``RUNAI_STREAMER_CONCURRENCY``; where that is not set, it is 64. Where the host has
neither, so many threads read 2 MiB at once through the page cache, 16 by default.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from wattload.core.settings import setting
from wattload.core.workload import Requirement
from wattload.loaders.tensor_loads import LoadPlan
from wattload.loaders.torch_tensors import TensorPackage, Tensors

VARIABLE = "RUNAI_STREAMER_CONCURRENCY"
BUFFER_LIMIT_BYTES = 40_000_000_000
"""The streamer's buffers that are not handed over, at most: its default."""


@dataclass(slots=True, kw_only=True)
class Config(TensorPackage):
    """The settings of loader=runai."""

    name: ClassVar[str] = "runai"
    tensor_package = Requirement(
        module="runai_model_streamer", software="the Run:ai Model Streamer", extra="runai"
    )
    requires: ClassVar[tuple[Requirement, ...]] = (tensor_package,)
    tensors_bypass_cache = True

    _target_: str = "wattload.loaders.runai.Config"
    concurrency: int = setting(
        16,
        f"Reads in flight of a rank: {VARIABLE}; the package itself takes 64 by io_uring.",
        least=1,
        most=1024,
    )

    def tensor_load_bytes(self, plan: LoadPlan) -> int:
        """Return the buffers and, on the host, the parts of what came in buffers before them."""
        buffers = min(plan.read_bytes, BUFFER_LIMIT_BYTES)
        if plan.device is not None:
            return buffers
        return buffers + plan.needed_bytes * (plan.read_bytes - buffers) // plan.read_bytes

    def read_tensors(self, plan: LoadPlan) -> Tensors:
        from runai_model_streamer import SafetensorsStreamer

        os.environ[VARIABLE] = str(self.concurrency)
        with SafetensorsStreamer() as streamer:
            streamer.stream_files([str(path) for path in plan.files])
            yield from streamer.get_tensors()
