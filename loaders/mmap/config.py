"""The settings of loader=mmap: random reads of mapped files, whose blocks page faults fetch.

This is how programs read that map a data set and index it. Blocks come through the page cache, with
the kernel's read-ahead around each fault (``advice=normal``) or without (``advice=random``).
Tensors are those of ``safetensors.safe_open``, one after the other, as vLLM's load format ``auto``
takes them from a local drive (release 0.33, ``safetensors_weights_iterator`` in
model_loader/weight_utils.py). Of several ranks each one of vLLM's narrows a tensor before it copies
it, so it reads the pages of its part and their read-ahead: that is ``workload.access=sliced``.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from wattload.core.errors import ConfigError
from wattload.core.host.cgroups import usable_cpus
from wattload.core.io import KEPT_PAGES
from wattload.core.settings import check_settings, setting
from wattload.core.storage.targets import Target
from wattload.core.workload import Requirement
from wattload.loaders.block_reads import Ability, BlockReader, ReadPlan
from wattload.loaders.engine import library
from wattload.loaders.engine.library import TARGET_LIMIT
from wattload.loaders.feature_rows import FeatureMemory, FeaturePlan, RowGatherer
from wattload.loaders.mmap.reader import (
    ADVICE,
    THREAD_LIMIT,
    MappedReader,
    mapped_path,
    storage_read_bytes,
)
from wattload.loaders.tensor_loads import LoadPlan
from wattload.loaders.torch_tensors import TensorPackage, Tensors
from wattload.loaders.vectors.layout import NodeLayout
from wattload.loaders.vectors.native_search import BY_MAPPING, EngineSearcher
from wattload.loaders.vectors.search import Searcher, SearchIndex, SearchPlan


@dataclass(slots=True, kw_only=True)
class MappedRows:
    """Who touches the pages, and what the kernel is advised, of any loader that maps features."""

    fills_gpu: ClassVar[bool] = False
    window_batches: ClassVar[int] = 0

    threads: int | None = setting(
        None,
        "Threads that read, with one page fault in flight each.",
        least=1,
        most=THREAD_LIMIT,
        unset="one per CPU",
    )
    advice: str = setting(
        "normal",
        "What madvise says of the mapped files: random forbids read-ahead.",
        choices=tuple(ADVICE),
    )

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        check_settings(self, "loader")

    def check_feature_rows(self, plan: FeaturePlan, targets: Sequence[Target]) -> None:
        """Raise where the kernel does not count what storage read."""
        self.check()
        _require_storage_count()

    def feature_bytes(self, plan: FeaturePlan) -> FeatureMemory:
        """Return nothing: the page cache is no memory of a gatherer."""
        return FeatureMemory()

    def row_gatherer(self, plan: FeaturePlan) -> RowGatherer:
        """Return the gatherer of rows by PyTorch over mapped files."""
        from wattload.loaders.mmap.feature_rows import MappedGatherer

        return MappedGatherer(plan, threads=self.thread_count, advice=self.advice)

    @property
    def thread_count(self) -> int:
        return self.threads or usable_cpus()


@dataclass(slots=True, kw_only=True)
class Config(MappedRows, TensorPackage):
    """The settings of loader=mmap."""

    name: ClassVar[str] = "mmap"
    requires: ClassVar[tuple[Requirement, ...]] = ()

    _target_: str = "wattload.loaders.mmap.config.Config"

    @property
    def abilities(self) -> Ability:
        return Ability.FILES

    def check_block_reads(self, plan: ReadPlan, targets: Sequence[Target]) -> None:
        """Raise without the engine, or where the kernel does not count what storage read."""
        self.check()
        library.load()
        if len(plan.files) > TARGET_LIMIT:
            raise ConfigError(
                f"loader=mmap reads from at most {TARGET_LIMIT} targets per process, got "
                f"{len(plan.files)}; use more processes with mpirun"
            )
        _require_storage_count()

    def block_read_bytes(self, plan: ReadPlan) -> int:
        """Return the size of a block for each thread; the page cache is no memory of a reader."""
        return self.thread_count * plan.block_bytes

    def block_reader(self, plan: ReadPlan, folder: Path) -> BlockReader:
        """Return the reader of mapped files; nothing is kept in ``folder``."""
        return MappedReader(plan, threads=self.thread_count, advice=self.advice)

    @property
    def searches_directly(self) -> bool:
        return False

    @property
    def most_inflight_per_thread(self) -> int:
        return 1

    def check_search(self, layout: NodeLayout, plan: SearchPlan, targets: Sequence[Target]) -> None:
        """Raise without the engine, for threads of its own, and as ``check_feature_rows``."""
        self.check()
        library.load()
        if self.threads is not None:
            raise ConfigError(
                f"loader.threads={self.threads} has no meaning in a search, whose threads are "
                "workload.threads"
            )
        _require_storage_count()

    def search_bytes(self, layout: NodeLayout, plan: SearchPlan) -> int:
        """Return nothing: the page cache is no memory of a searcher."""
        return 0

    def searcher(self, index: SearchIndex, plan: SearchPlan) -> Searcher:
        path = mapped_path([index.path], plan.threads, self.advice)
        # What one query has read, the next one finds in memory.
        path = path.model_copy(update={"path_requested": KEPT_PAGES})
        advice = mmap.MADV_RANDOM if self.advice == "random" else mmap.MADV_NORMAL
        return EngineSearcher(index, plan, path, access=BY_MAPPING, advice=advice)

    def check_tensor_load(self, plan: LoadPlan, targets: Sequence[Target]) -> None:
        """Raise without PyTorch or safetensors, or for settings that safetensors does not have."""
        TensorPackage.check_tensor_load(self, plan, targets)
        if self.threads is not None or self.advice != "normal":
            raise ConfigError(
                "loader.threads and loader.advice have no meaning in a load of tensors: "
                "safetensors maps the files, and one thread reads them; leave both out"
            )

    def read_tensors(self, plan: LoadPlan) -> Tensors:
        from safetensors import safe_open

        for path in plan.files:
            with safe_open(path, framework="pt") as opened:
                for name in opened.keys():  # noqa: SIM118 - it is no mapping
                    yield name, opened.get_tensor(name)


def _require_storage_count() -> None:
    """Raise ``ConfigError`` where the kernel does not count what storage read."""
    try:
        storage_read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError(
            "loader=mmap reads through the page cache and needs the kernel's count of what "
            f"came from storage, read_bytes in /proc/self/io: {error}; use loader=direct"
        ) from error
