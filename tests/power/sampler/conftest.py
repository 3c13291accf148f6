"""The bench of the sampler's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.model_host.drive import Model
from tests.power.sampler_bench import Bench


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """A host with these model drives; every process started through it ends with the test."""
    made = Bench(tmp_path)

    def make(**drives: Model) -> Bench:
        made.set_up(**drives)
        return made

    yield make
    made.clean()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()
