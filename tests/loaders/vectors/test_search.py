"""The engine's searches by a ring, by pread and by page faults."""

from __future__ import annotations

from tests.contracts.vector_search import VectorSearchContract
from wattload.loaders.direct.config import Config as Direct
from wattload.loaders.mmap.config import Config as Mmap


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
