"""What every test stands on."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

THOROUGH = ("browser", "containers", "docs", "packaging", "tools")
"""Folders that only ``make test-all`` runs: they build, install, or start a browser."""

SLOW = (
    "benchmarks", "lab_unit", "loaders", "native", "power/energy", "power/sampler",
    "reports/render", "reports/runs", "run", "session", "workloads",
)  # fmt: skip
"""Folders that ``make test-fast`` leaves out: they start processes, move data, or simulate."""

# Whoever starts the tests in the background of a script leaves Ctrl-C ignored, and so would every
# process that a test starts: programs would then never see the interrupts that tests send them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes is the machine's affair and fails no test.
settings.register_profile("any", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of thorough and slow folders."""
    here = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(here)
        if folder.parts[0] in THOROUGH:
            item.add_marker(pytest.mark.thorough)
        if any(folder.is_relative_to(name) for name in SLOW):
            item.add_marker(pytest.mark.slow)
