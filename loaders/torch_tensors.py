"""Loads of tensors by the Python packages that yield PyTorch tensors, one after the other.

What a package yields is a tensor of its own, or a view of a mapped file (``mapped``). safetensors
maps lazily: pages are read when they are first touched. So one thread touches each page here, in
the order of the tensors: those of whole tensors, or of a sliced plan those of its parts. Where all
that is to be touched goes to a GPU, the copy touches it.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, DataError, content_fault
from wattload.core.io import ByteCounter, DataPath
from wattload.core.settings import check_settings
from wattload.core.storage.targets import Target
from wattload.core.workload import PYTORCH, Requirement, require_installed
from wattload.loaders.aligned_io import PAGE_BYTES, round_down, round_up
from wattload.loaders.data.cold_cache import read_ahead_remarks
from wattload.loaders.engine.faults import guarded
from wattload.loaders.gpu_tensors import ReadBack, gpu_memory_shortage
from wattload.loaders.tensor_loads import Loaded, LoadPlan, TensorLoad, TensorPart

if TYPE_CHECKING:
    import torch

Tensors: TypeAlias = "Generator[tuple[str, torch.Tensor]]"
"""All tensors of some files with their names, whole and in host or GPU memory."""

SAFETENSORS = Requirement(module="safetensors", software="safetensors", extra="torch")


class TorchTensors:
    """Takes the tensors of one package; see ``loaders.tensor_loads.TensorLoad``."""

    def __init__(
        self,
        plan: LoadPlan,
        read: Callable[[LoadPlan], Tensors],
        *,
        module: str,
        mapped: bool,
    ) -> None:
        """Import PyTorch and the package, and create the context of the GPU.

        Args:
            plan: what is needed.
            read: opens the files of a plan and yields their tensors.
            module: the package that reads, by its import name.
            mapped: whether tensors are views of mapped files; else each has memory of its own.
        """
        import torch

        import_module("safetensors.torch" if mapped else module)
        self._torch, self._plan, self._read, self._mapped = torch, plan, read, mapped
        self._held: dict[int, torch.Tensor] = {}
        self._read_back = ReadBack()
        package = module.replace("_", "-")
        self._path = DataPath(
            data_path=package,
            path_requested="page_cache" if mapped else "o_direct",
            engine=f"{package} {version(package)}, PyTorch {torch.__version__}",
            remarks=read_ahead_remarks(plan.files) if mapped else (),
        )
        self._synchronize()

    def load(self, moved: ByteCounter) -> Loaded:
        """Take each tensor as it comes; see ``TensorLoad.load``."""
        plan, cuda = self._plan, self._torch.cuda
        awaited = {part.name: index for index, part in enumerate(plan.parts)}
        first_layer, first_layer_ns, delivered_bytes = set(plan.first_layer), None, 0
        start_ns = time.monotonic_ns()
        try:
            with (
                gpu_memory_shortage(plan.device),
                nullcontext() if plan.device is None else cuda.device(plan.device),
                closing(self._read(plan)) as tensors,
            ):
                for name, tensor in tensors:
                    if not tensor.nbytes:
                        continue  # the plan has no part of it
                    index = awaited.pop(name)
                    part = plan.parts[index]
                    with self._guarded(tensor, part):
                        self._held[index] = self._deliver(part, tensor)
                    delivered_bytes += self._held[index].nbytes
                    moved(part.needed_bytes if plan.sliced else part.tensor_bytes)
                    first_layer.discard(index)
                    if index in plan.first_layer and not first_layer:
                        self._synchronize()
                        first_layer_ns = time.monotonic_ns()
        except KeyError as error:
            raise DataError(f"{self._folder}: tensor {error} is new, or there twice") from error
        except Exception as error:
            found = content_fault(error)
            if found is None:
                raise
            raise DataError(f"{self._path.data_path} can't load {self._folder}: {found}") from error
        if awaited:
            raise DataError(f"{self._folder}: tensor {next(iter(awaited))!r} is missing")
        self._synchronize()
        end_ns = time.monotonic_ns()
        return Loaded(
            start_ns=start_ns,
            first_layer_ns=first_layer_ns or end_ns,
            end_ns=end_ns,
            delivered_bytes=delivered_bytes,
        )

    def content(self, index: int) -> NDArray[np.uint8]:
        tensor = self._held[index]
        return self._read_back.content(tensor) if tensor.is_cuda else tensor.numpy()

    def release(self) -> None:
        """Drop all tensors, and PyTorch's cache of GPU memory."""
        self._held.clear()
        self._read_back.free()
        if self._plan.device is not None:
            self._torch.cuda.empty_cache()

    def path(self) -> DataPath:
        return self._path

    def close(self) -> None:
        self.release()

    def _deliver(self, part: TensorPart, tensor: torch.Tensor) -> torch.Tensor:
        """Return the part at its destination, as bytes of shape ``(rows, columns)``."""
        plan = self._plan
        rows = part.shape[0] if part.shape else 1
        matrix = tensor.reshape(-1).view(self._torch.uint8).view(rows, part.row_bytes)
        found = matrix[slice(*part.rows), slice(*part.columns)]
        is_whole = found.nbytes == matrix.nbytes
        if self._mapped and (plan.device is None or not (is_whole or plan.sliced)):
            _touch((found if plan.sliced else matrix).numpy())
        if plan.device is not None and tensor.device.type == "cpu":
            return found.to(f"cuda:{plan.device}")
        return found if self._mapped or is_whole else found.clone()

    @contextmanager
    def _guarded(self, tensor: torch.Tensor, part: TensorPart) -> Iterator[None]:
        """Raise after the block if a page of a mapped tensor could not be read.

        Raises:
            DataError: the file has become shorter.
            OSError: the drive or the file system failed.
        """
        if not self._mapped:
            yield
            return
        start = round_down(tensor.data_ptr(), PAGE_BYTES)
        size_bytes = round_up(tensor.data_ptr() + tensor.nbytes, PAGE_BYTES) - start
        with guarded([(start, size_bytes)]) as guard:
            yield
        if guard.fault is not None:
            path = self._plan.files[part.file]
            if path.stat().st_size < part.offset_bytes + part.tensor_bytes:
                raise DataError(
                    f"{path} became shorter while it was read; leave the files alone while they "
                    "are measured, and start again with whole ones"
                )
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    def _synchronize(self) -> None:
        if self._plan.device is not None:
            self._torch.cuda.synchronize(self._plan.device)

    @property
    def _folder(self) -> Path:
        return self._plan.files[0].parent


def _touch(rows: NDArray[np.uint8]) -> None:
    """Read a byte of each page under ``rows``, and the last byte of each row."""
    rows = rows.reshape(1, -1) if rows.flags.c_contiguous else rows
    if rows.size:
        rows[:, ::PAGE_BYTES].max()
        rows[:, -1].max()


class TensorPackage:
    """What the settings of loaders have in common whose tensors a Python package reads.

    As it is, that is safetensors, which maps files.
    """

    __slots__ = ()

    name: ClassVar[str]
    tensor_package: ClassVar[Requirement] = SAFETENSORS
    tensors_bypass_cache: ClassVar[bool] = False

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        check_settings(self, "loader")

    @property
    def reads_columns(self) -> bool:
        """Whether files are mapped: packages that read them read whole tensors."""
        return not self.tensors_bypass_cache

    def check_tensor_load(self, plan: LoadPlan, targets: Sequence[Target]) -> None:
        """Raise if PyTorch or the package is not installed, or for slices that it can't read."""
        self.check()
        packages = [PYTORCH, self.tensor_package]
        require_installed(packages, user=f"model_load with loader={self.name}")
        if plan.sliced and not self.reads_columns:
            raise ConfigError(f"loader={self.name} reads whole tensors; use workload.access=whole")

    def tensor_load_bytes(self, plan: LoadPlan) -> int:
        """Return nothing: all pages of mapped files are the page cache's."""
        return 0

    def tensor_load(self, plan: LoadPlan) -> TensorLoad:
        module, is_mapped = self.tensor_package.module, not self.tensors_bypass_cache
        return TorchTensors(plan, self.read_tensors, module=module, mapped=is_mapped)

    def read_tensors(self, plan: LoadPlan) -> Tensors:
        """Open the files of a plan by the package, and yield their tensors as it has them."""
        raise NotImplementedError
