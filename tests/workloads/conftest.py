from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tinyfs
from wattload.workloads.checkpoint import ceilings
from wattload.workloads.training import loop as unet3d_ceiling


@pytest.fixture
def short_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the checkpoint workload measure its ceilings in no time."""
    monkeypatch.setattr(ceilings, "LEAST_S", 0.001)


@pytest.fixture
def short_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the unet3d workload measure its ceiling in a moment."""
    monkeypatch.setattr(unet3d_ceiling, "CEILING_S", 0.05)
    monkeypatch.setattr(unet3d_ceiling, "CEILING_BATCHES_MIN", 2)


@pytest.fixture
def tiny_file_system(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 32 MiB."""
    with tinyfs.tiny_file_system(tmp_path) as mount_point:
        yield mount_point
