from __future__ import annotations

import pytest

from wattload.workloads.unet3d import ceiling


@pytest.fixture
def short_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the ceiling of unet3d in a moment."""
    monkeypatch.setattr(ceiling, "SECONDS", 0.05)
    monkeypatch.setattr(ceiling, "BATCHES_LEAST", 2)
