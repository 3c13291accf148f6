from __future__ import annotations

import pytest

from wattload.workloads.dlrm import workload


@pytest.fixture(autouse=True)
def short_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the ceiling be measured with one block."""
    monkeypatch.setattr(workload, "CEILING_NS", 1)
