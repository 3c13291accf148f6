"""The facts of model loading: the model, and when each rank's loads began and ended."""

from __future__ import annotations

from enum import Enum

from wattload.core.base_models import Frozen
from wattload.results.facts import Facts, Settings, fact
from wattload.results.facts import Run as AnyRun

LOAD = "load"
"""The timed phase; each load is a span of it, from its first start to its last end over ranks."""


class Access(Enum):
    """What a rank reads of a tensor of which it needs a part."""

    whole = "whole"
    """All of it, whatever is needed."""
    sliced = "sliced"
    """As little as the loader can."""


class Temperature(Enum):
    """Where the files are before a load."""

    cold = "cold"
    """On the drive: the page cache is evicted before each load, and proved to be empty."""
    warm = "warm"
    """In the page cache, where the load before left them."""


class LoadSettings(Settings):
    """The settings of the workload that are read here."""

    source: str | None
    tp: int
    access: Access
    temperature: Temperature


class Model(Frozen):
    """The model as it is in the files."""

    name: str = fact("model, or the folder of a user's own")
    layers: int = fact("transformer layers", ge=0)
    tensors: int = fact("tensors", ge=1)
    tensor_bytes: int = fact("bytes of all tensors", "B", ge=1)
    file_bytes: int = fact("bytes of all files, headers included", "B", ge=1)
    digest: str = fact("SHA-256 of all headers: names, types, shapes and offsets")


class RankLoad(Frozen):
    """What one rank did in one load; times by CLOCK_MONOTONIC."""

    start_ns: int = fact("before the first file is opened", "ns")
    first_layer_ns: int | None = fact(
        "embedding and layer 0 are at their destination; None: no tensors have such names", "ns"
    )
    end_ns: int = fact("the last tensor is at its destination", "ns")
    delivered_bytes: int = fact("bytes of parts that arrived", "B", ge=0)
    peak_memory_bytes: int | None = fact(
        "most resident memory above that before the load, files not counted", "B", ge=0
    )
    compared_bytes: int = fact("delivered bytes that were compared after the load", "B", ge=0)
    wrong_bytes: int = fact("of these, bytes that are wrong", "B", ge=0)
    first_wrong: str | None = fact("tensor of the first wrong byte; None: all are right")


class Load(Frozen):
    """One load by all ranks."""

    ranks: tuple[RankLoad, ...] = fact("by rank", min_length=1)
    resident_bytes: int | None = fact(
        "of the files, in the page cache afterwards; None: unknown", "B"
    )


class LoadFacts(Facts):
    """The facts of one run."""

    settings: LoadSettings = fact("of the workload", exclude=True)
    model: Model
    needed_bytes: tuple[int, ...] = fact("bytes that a rank needs, by rank", "B", min_length=1)
    distinct_bytes: int = fact("bytes that one rank or several need, each once", "B", ge=1)
    loads: tuple[Load, ...] = fact("in their order", min_length=1)
    device: str | None = fact("GPU that takes the tensors; None: host memory")
    gpus: tuple[tuple[int, str], ...] = fact("rank and PCI address of each GPU")
    bypasses_cache: bool = fact("whether reads bypass the page cache")
    read_whole: tuple[str, ...] = fact(
        "kinds of tensors read whole though a part was needed, as down_proj"
    )
    drive_ceiling_bytes_per_s: float | None = fact(
        "the engine's sequential reads of these files; None: not measured", "B/s"
    )
    copy_ceiling_bytes_per_s: float | None = fact(
        "copies from pinned memory to the GPU; None: to host memory", "B/s"
    )

    @property
    def drive_bytes(self) -> int:
        """The least that drives read in a cold load: ranks share what is in the page cache."""
        return sum(self.needed_bytes) if self.bypasses_cache else self.distinct_bytes


Run = AnyRun[LoadFacts]
