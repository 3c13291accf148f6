from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.context import Context, context_at
from tests.gpu_machine import machine
from tests.loaders.gpu_queue.emulated_gpu import emulated
from wattload.core.host.gpus import Connection, connect
from wattload.core.sysfs import Roots
from wattload.workloads.gpu_read import workload as module

__all__ = ["emulated"]


@pytest.fixture(autouse=True)
def dgx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Roots:
    """Let the workload find the GPUs of a made-up machine."""
    roots = machine(tmp_path / "machine")

    def found(targets: Any, named: Any) -> tuple[Connection, ...]:
        return connect(targets, named, roots)

    monkeypatch.setattr(module, "connect", found)
    return roots


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    folder.mkdir()
    return folder


@pytest.fixture
def context(target: Path) -> Context:
    return context_at(target)
