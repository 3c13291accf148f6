"""The engine's searches by a ring, by pread and by page faults."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.context import directory_target
from tests.contracts.vector_search import VectorSearchContract
from tests.loaders.faults import NO_URING
from tests.loaders.vectors.plain_search import make_index
from wattload.core.errors import ConfigError, TargetError
from wattload.core.storage.file_system import DirectIo
from wattload.loaders.direct.config import Config as Direct
from wattload.loaders.mmap.config import Config as Mmap
from wattload.loaders.mmap.reader import storage_read_bytes
from wattload.loaders.vectors.search import Queries, SearchPlan

ROOT = Path(__file__).parents[3]


class TestRing(VectorSearchContract):
    inflight = 7

    def config(self) -> Direct:
        return Direct(engine="io_uring")


class TestPread(VectorSearchContract):
    def config(self) -> Direct:
        return Direct(engine="pread")


class TestMapping(VectorSearchContract):
    def config(self) -> Mmap:
        return Mmap(advice="random")


@pytest.mark.parametrize("engine", ["io_uring", "pread"])
def test_direct_reads_are_what_the_kernel_counts(tmp_path: Path, engine: str) -> None:
    index = make_index(tmp_path, dim=500, count=160, degree=64, chunks=10).search
    plan = SearchPlan(search_list=100, beam=4, k=10, threads=2, inflight_per_thread=1)
    queries = Queries(vectors=index.medoid_vectors, most=300)
    with closing(Direct(engine=engine).searcher(index, plan)) as searcher:
        searcher.search(queries)
        before = storage_read_bytes()
        found = searcher.search(queries)
        counted = storage_read_bytes() - before
    assert found.read_bytes == found.reads * 4096 > 1 << 20
    assert found.read_bytes <= counted < 1.02 * found.read_bytes  # a page of code may come in


def test_without_io_uring_pread_is_used_and_told(tmp_path: Path) -> None:
    code = f"""
from contextlib import closing
from pathlib import Path
from tests.loaders.vectors.plain_search import make_index
from wattload.loaders.direct.config import Config
from wattload.loaders.vectors.search import Queries, SearchPlan
index = make_index(Path({str(tmp_path)!r}))
plan = SearchPlan(search_list=20, beam=4, k=10, threads=2, inflight_per_thread=1)
assert Config().most_inflight_per_thread == 1
with closing(Config().searcher(index.search, plan)) as searcher:
    print(searcher.search(Queries(vectors=index.queries, most=40)).queries)
    print(searcher.path().engine, *searcher.path().remarks, sep="; ")
"""
    done = subprocess.run(
        [sys.executable, "-c", NO_URING + code],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    queries, said = done.stdout.splitlines()
    assert queries == "40"
    assert said.startswith("pread, 2 threads, one read at a time; into host memory; io_uring can't")


def test_a_file_system_without_direct_io_is_refused(tmp_path: Path) -> None:
    plan = SearchPlan(search_list=20, beam=4, k=10, threads=1, inflight_per_thread=1)
    index, target = make_index(tmp_path, count=50), directory_target(tmp_path)
    with pytest.raises(TargetError, match="has no O_DIRECT"):
        Direct().check_search(index.search.layout, plan, [replace(target, direct_io=None)])
    coarse = DirectIo(memory_align_bytes=4096, offset_align_bytes=8192, found_by="test")
    with pytest.raises(ConfigError, match="a sector of the index must be one of them, got 4096"):
        Direct().check_search(index.search.layout, plan, [replace(target, direct_io=coarse)])


def test_threads_of_a_mapping_are_the_workloads(tmp_path: Path) -> None:
    plan = SearchPlan(search_list=20, beam=4, k=10, threads=1, inflight_per_thread=1)
    layout = make_index(tmp_path, count=50).search.layout
    with pytest.raises(ConfigError, match=r"loader\.threads=3 has no meaning in a search"):
        Mmap(threads=3).check_search(layout, plan, [directory_target(tmp_path)])
