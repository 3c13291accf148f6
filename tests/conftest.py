"""What every test stands on."""

from __future__ import annotations

import signal
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

THOROUGH = (
    "benchmarks", "browser", "cluster", "containers", "docs", "packaging", "tools",
    # Many runs, kills and floods; what they judge has faster tests of its own.
    "core/test_steady_fio.py", "loaders/dlio/test_dlio.py", "power/sampler/test_death.py",
    "power/sampler/test_recording.py", "power/sampler/test_service.py",
    "power/sampler/test_unprivileged.py", "reports/render/test_out_of_range.py",
    "reports/render/test_output.py", "reports/runs/test_parallel.py",
    "reports/test_hostile_records.py", "run/test_faults_midway.py", "run/test_interruption.py",
    "run/test_launchers.py", "run/test_limits.py", "run/test_long_run.py", "run/test_quarch_run.py",
    "run/test_replay_run.py", "run/test_unfinished.py", "run/test_unknown_user.py",
    "session/test_accelerator_search.py", "session/test_early_end.py",
    "session/test_full_runs_folder.py", "session/test_interleaving.py",
    "session/test_interleaving_run.py", "session/test_search_run.py", "session/test_sweep.py",
    "workloads/checkpoint/test_interrupted.py", "workloads/dlrm/test_workload.py",
    "workloads/gnn/test_memory.py", "workloads/kv_cache/test_kills.py",
    "workloads/training/test_harness.py",
)  # fmt: skip
"""Folders and files that only ``make test-all`` runs: they build, install, start a browser, or many
processes."""

SLOW = (
    "lab_unit", "loaders", "native", "power/energy", "power/sampler",
    "reports/render", "reports/runs", "run", "session", "workloads",
)  # fmt: skip
"""Folders that ``make test-fast`` leaves out: they start processes, move data, or simulate."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens", action="store_true", help="write the golden files of pages again"
    )


# Whoever starts the tests in the background of a script leaves Ctrl-C ignored, and so would every
# process that a test starts: programs would then never see the interrupts that tests send them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes is the machine's affair and fails no test.
settings.register_profile("any", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any")


@cache
def marks_of(path: Path) -> list[pytest.MarkDecorator]:
    within = path.relative_to(Path(__file__).parent)
    marked = ((THOROUGH, pytest.mark.thorough), (SLOW, pytest.mark.slow))
    return [mark for names, mark in marked if any(map(within.is_relative_to, names))]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of thorough and slow folders, and begin with modules of these.

    Begun last, the longest would run on after all others.
    """
    for item in items:
        for mark in marks_of(item.path):
            item.add_marker(mark)
    items.sort(key=lambda item: -len(marks_of(item.path)))
