"""The bench of the sampler's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.power.sampler_bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A host with one model drive; every process started through it ends with the test."""
    bench = Bench(tmp_path)
    bench.set_up()
    yield bench
    bench.clean()
