from __future__ import annotations

import pytest

from tests.contracts.loader import LoaderContract
from wattload.loaders.dali import Access, Config

pytest.importorskip("nvidia.dali", reason="DALI is not installed", exc_type=ImportError)


def config(io: Access = Access.auto) -> Config:
    return Config(io=io, threads=2)


class TestDaliLoader(LoaderContract):
    def config(self) -> Config:
        return config()


class TestDaliLoaderThroughMappings(LoaderContract):
    def config(self) -> Config:
        return config(Access.mmap)


class TestDaliLoaderByPlainReads(LoaderContract):
    def config(self) -> Config:
        return config(Access.plain)
