"""The hosts of the tests of changes and their recovery."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.power.control.recovery_host import Bench, Host
from wattload.power.control import power_settings


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(power_settings, "GRACE_S", 0.02)
    return Bench(tmp_path)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)
