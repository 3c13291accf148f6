"""Tensors loaded from safetensors files into memory: plan, result, and the loaders' protocol.

A model is a few files of many tensors. A load delivers every part of every tensor that a rank
needs to its destination: pageable or pinned memory of the host, or the memory of a GPU. Where a
library maps files lazily, the loader touches each page in the order of the tensors, so that a load
ends when all bytes are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import ByteCounter, DataPath
from wattload.core.storage.targets import Target
from wattload.core.workload import LoaderConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPart:
    """The part of a tensor that a rank needs: some rows of it, and some columns of each.

    The tensor is ``dtype`` (as safetensors names it, such as ``BF16``) of ``shape`` and starts at
    ``offset_bytes`` of file number ``file``. As bytes it is a matrix of ``shape[0]`` rows (1 for a
    scalar), each ``row_bytes`` long; the part is rows ``rows[0]`` up to ``rows[1]``, and bytes
    ``columns[0]`` up to ``columns[1]`` of each.
    """

    name: str
    file: int
    offset_bytes: int
    dtype: str
    shape: tuple[int, ...]
    row_bytes: int
    rows: tuple[int, int]
    columns: tuple[int, int]

    @property
    def tensor_bytes(self) -> int:
        """The bytes of the whole tensor."""
        return (self.shape[0] if self.shape else 1) * self.row_bytes

    @property
    def needed_bytes(self) -> int:
        return (self.rows[1] - self.rows[0]) * (self.columns[1] - self.columns[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """The parts of all tensors of some files, in the order of files and offsets.

    ``first_layer`` are the indices of those parts that the first token needs first: the embedding
    and all of layer 0. With ``sliced`` the loader reads no more than it must for the parts, else
    every tensor is read whole. Parts go to CUDA device number ``device``, ``None``: to host memory.
    """

    files: tuple[Path, ...]
    parts: tuple[TensorPart, ...]
    first_layer: frozenset[int]
    sliced: bool = False
    device: int | None = None

    @property
    def needed_bytes(self) -> int:
        return sum(part.needed_bytes for part in self.parts)

    @property
    def read_bytes(self) -> int:
        """The bytes of all tensors: what a load reads that is not sliced."""
        return sum(part.tensor_bytes for part in self.parts)

    def kinds_read_whole(self, *, reads_columns: bool) -> tuple[str, ...]:
        """Return kinds of tensors read whole though a part is needed, such as ``down_proj``.

        With ``reads_columns`` the loader can read columns without the rest of their rows.
        """
        return tuple(
            sorted(
                {
                    part.name.removesuffix(".weight").rpartition(".")[2]
                    for part in self.parts
                    if part.needed_bytes < part.tensor_bytes
                    and not (self.sliced and (reads_columns or part.columns == (0, part.row_bytes)))
                }
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """When a load began and what it did; times are CLOCK_MONOTONIC.

    ``start_ns`` is before the first file is opened or memory allocated, ``first_layer_ns`` when the
    last byte of the first layer was at its destination, ``end_ns`` when every byte was; on a GPU,
    its streams are synchronised then. ``delivered_bytes`` were counted part by part as they
    arrived.
    """

    start_ns: int
    first_layer_ns: int
    end_ns: int
    delivered_bytes: int


class TensorLoad(Protocol):
    """Loads one plan, again and again; nothing of the model is held between two loads."""

    def load(self, moved: ByteCounter) -> Loaded:
        """Deliver all parts; ``moved`` is called with bytes as they arrive from the files.

        Raises:
            DataError: a file is shorter than planned, or the library can't read it.
            OSError: a file can't be opened or read.
            RunError: the memory of the host or of the GPU does not suffice.
        """
        ...

    def content(self, index: int) -> NDArray[np.uint8]:
        """Return part ``index`` as it is at its destination, copied back from a GPU.

        Of shape ``(rows, columns)``; valid until the next call or ``release``.
        """
        ...

    def release(self) -> None:
        """Free what the last load delivered; safe to call twice."""
        ...

    def path(self) -> DataPath:
        """Return the requested path of the bytes; ``engine`` has the library and its version."""
        ...

    def close(self) -> None:
        """End threads and release all memory; safe to call twice."""
        ...


@runtime_checkable
class TensorLoadConfig(LoaderConfig, Protocol):
    """The configuration of a loader that loads tensors."""

    @property
    def tensors_bypass_cache(self) -> bool:
        """Whether reads bypass the page cache."""
        ...

    @property
    def reads_columns(self) -> bool:
        """Whether a sliced load reads columns of a tensor without the rest of their rows."""
        ...

    def check_tensor_load(self, plan: LoadPlan, targets: Sequence[Target]) -> None:
        """Raise for anything that will not work, before there is a file; reads and creates nothing.

        Raises:
            ConfigError: the settings do not fit the plan or this host, or the loader has no such
                destination or no slices.
            MissingExtraError: the library behind the loader is not installed.
            TargetError: the loader can't read from one of the targets.
        """
        ...

    def tensor_load_bytes(self, plan: LoadPlan) -> int:
        """Return the host memory that a load takes at most, the page cache apart."""
        ...

    def tensor_load(self, plan: LoadPlan) -> TensorLoad:
        """Return the loader of files that exist; nothing is read or allocated for tensors yet."""
        ...
