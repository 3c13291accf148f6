"""The settings of the model_load workload."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from wattload.core.errors import ConfigError
from wattload.core.settings import check_settings, setting
from wattload.results.model_load.facts import Access, Temperature
from wattload.workloads.model_load.models import MODELS

MIN_SHARD_BYTES = 1 << 20
MAX_RANKS = 1024


class Destination(Enum):
    """Where tensors end."""

    auto = "auto"
    """On a GPU if PyTorch sees one, else in host memory."""
    host = "host"
    gpu = "gpu"


class DType(Enum):
    """Element types of weights, as safetensors names them in capitals."""

    bf16 = "bf16"
    f16 = "f16"
    f32 = "f32"
    f8_e4m3 = "f8_e4m3"


@dataclass(slots=True, kw_only=True)
class Scale:
    """The model of one scale."""

    model: str = "llama3.1-8b"
    layers: int | None = None
    vocabulary_divisor: int = 1


@dataclass(slots=True, kw_only=True)
class Config:
    """Loads of a model from safetensors files."""

    _target_: str = "wattload.workloads.model_load.workload.ModelLoad"
    model: str = setting("llama3.1-8b", "Model whose tensors are generated.", choices=tuple(MODELS))
    source: str | None = setting(
        None,
        "Folder with a user's own safetensors files; they are only read.",
        unset="files with the tensors of workload.model",
    )
    layers: int | None = setting(
        None, "Layers that are generated.", least=1, most=1000, unset="all of the model"
    )
    vocabulary_divisor: int = setting(1, "The vocabulary is divided by this.", least=1, most=64)
    dtype: DType = setting(DType.bf16, "Type of the weights that are generated.")
    shard_bytes: int = setting(
        5_000_000_000, "Most bytes of tensors in a generated file.", least=MIN_SHARD_BYTES
    )
    tp: int = setting(
        1,
        "Ranks that tensors are divided among, as by tensor parallelism.",
        least=1,
        most=MAX_RANKS,
    )
    access: Access = setting(
        Access.whole, "Read whole tensors, or only the slices that a rank needs; tp > 1."
    )
    destination: Destination = setting(Destination.auto, "Where tensors end.")
    temperature: Temperature = setting(
        Temperature.cold,
        "Evict the files from the page cache before each load, or leave them.",
    )
    loads: int = setting(3, "Loads of a run.", least=1, most=1000)
    scales: dict[str, Scale] = setting(dict, "Model by scale.")

    @property
    def only_reads(self) -> bool:
        """Whether nothing is written to the target."""
        return self.source is not None

    def check(self, scale: str) -> None:
        """Raise ``ConfigError`` for a setting outside its range, or settings that do not fit."""
        check_settings(self, "workload")
        if self.access is Access.sliced and self.tp == 1:
            raise ConfigError(
                "workload.access=sliced needs workload.tp of 2 or more: one rank needs all of "
                "every tensor"
            )
