"""KvikIO and CuPy in the reader's process: small packages over the stub libraries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.loaders.gpu.conftest import stub_environment, stub_libraries, stubs

__all__ = ["fakes", "stub_environment", "stub_libraries", "stubs"]

FAKES = Path(__file__).parent / "fakes"


@pytest.fixture
def fakes(
    stubs: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., None]:
    """Let child processes import the fakes; call it to set how they and the stubs behave."""
    monkeypatch.setenv("PYTHONPATH", str(FAKES))
    return stubs
