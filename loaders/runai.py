"""loader=runai: the Run:ai Model Streamer, which reads all files of a model in one request.

It reads into buffers of host memory that it hands over with the tensors in them, by io_uring with
O_DIRECT where the host has it, in reads of 8 MiB (release 0.17). Tensors come in the order in which
their reads end. vLLM copies them to a GPU from there, as is done here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from wattload.core.settings import setting
from wattload.core.workload import Requirement
from wattload.loaders.tensor_loads import LoadPlan, TensorLoad
from wattload.loaders.torch_tensors import TensorPackage, TorchTensors

if TYPE_CHECKING:
    from wattload.loaders.torch_tensors import Tensors

VARIABLE = "RUNAI_STREAMER_CONCURRENCY"
BUFFER_LIMIT_BYTES = 40_000_000_000
"""The streamer's buffers that are not handed over, at most: its default."""


@dataclass(slots=True, kw_only=True)
class Config(TensorPackage):
    """The settings of loader=runai."""

    name: ClassVar[str] = "runai"
    requires: ClassVar[tuple[Requirement, ...]] = (
        Requirement(
            module="runai_model_streamer", software="the Run:ai Model Streamer", extra="runai"
        ),
    )

    _target_: str = "wattload.loaders.runai.Config"
    concurrency: int = setting(
        16, f"Reads in flight of a rank: {VARIABLE}, as vLLM sets it.", least=1, most=1024
    )

    def tensor_load_bytes(self, plan: LoadPlan) -> int:
        """Return the model with the gaps in its buffers, or the buffers and the parts copied."""
        buffers = min(plan.read_bytes, BUFFER_LIMIT_BYTES)
        if plan.device is not None:
            return buffers
        is_whole = plan.needed_bytes == plan.read_bytes
        return plan.needed_bytes + (plan.read_bytes // 4 if is_whole else buffers)

    def tensor_load(self, plan: LoadPlan) -> TensorLoad:
        read = partial(_tensors, concurrency=self.concurrency)
        return TorchTensors(plan, read, package="runai-model-streamer")


def _tensors(files: Sequence[Path], *, concurrency: int) -> Tensors:
    from runai_model_streamer import SafetensorsStreamer

    with _variable(str(concurrency)), SafetensorsStreamer() as streamer:
        streamer.stream_files([str(path) for path in files])
        yield from streamer.get_tensors()


@contextmanager
def _variable(value: str) -> Iterator[None]:
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = value
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before
