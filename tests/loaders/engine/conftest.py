from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contracts.engine import BLOCK, DEPTH
from wattload.loaders.engine.engine import IOEngine
from wattload.loaders.engine.library import backend_unavailable


@pytest.fixture(params=["io_uring", "pread"])
def engine(request: pytest.FixtureRequest) -> Iterator[IOEngine]:
    """An engine over files, by each backend that runs here."""
    reason = backend_unavailable(request.param)
    if reason is not None:
        pytest.skip(f"{request.param} can't run here: {reason}")
    engine = IOEngine(backend=request.param, block_bytes=BLOCK, depth=DEPTH)
    yield engine
    engine.close()
