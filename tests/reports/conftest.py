"""Runs that many report tests read; written once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.records import Scenario, WorkloadName, write_run
from wattload.reports.render.page import page_of
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.stats.subject import make_subject

LIMITS = ("The drive's SMART log can't be read: no NVMe controller lies under the target.",)


def arm(
    name: str, index: int, /, *, rate: float = 1.5e9, power: str = "measured", **changes: Any
) -> Scenario:
    """Return one run of an arm; all arms move the same bytes, whatever their rate."""
    own = rate * (1 + 0.002 * (index % 3))
    values: dict[str, Any] = {
        "run_id": f"run-{name}-{index}",
        "label": name,
        "order": 2 * index + (name != "A"),
        "seed": index + (0 if name == "A" else 100),
        "rate_bytes_per_s": own,
        "seconds": 6e9 / own,
        "power": power,
        "virtual": False,
        "state": 1 if name == "A" else 0,
        "serial": f"SERIAL{name}01",
    }
    return Scenario(**(values | changes))


def render_page(runs: Sequence[Run], *, by: str = "label", forced: bool = False) -> str:
    """Return the page of these runs as HTML; ``by`` and ``forced`` as in ``make_subject``."""
    return page_of(make_subject(runs, by, forced=forced))


@pytest.fixture(scope="session")
def virtual_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, ...]:
    """One run of each workload on a virtual disk without a power source."""
    folder = tmp_path_factory.mktemp("virtual")
    kinds: tuple[WorkloadName, ...] = ("unet3d", "checkpoint", "dlrm")
    for kind in kinds:
        write_run(folder, Scenario(run_id=f"run-{kind}", workload=kind, seconds=4.0, limits=LIMITS))
    return load_runs([folder])


@pytest.fixture(scope="session")
def arms_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five measured runs of arm A and five of arm B, which takes 2.5 times as long."""
    folder = tmp_path_factory.mktemp("arms")
    for index in range(5):
        for name, rate in (("A", 1.5e9), ("B", 0.6e9)):
            write_run(folder, arm(name, index, rate=rate))
    return folder


@pytest.fixture(scope="session")
def arms(arms_folder: Path) -> tuple[Run, ...]:
    """Return the runs of the two arms."""
    return load_runs([arms_folder])


def one(folder: Path, scenario: Scenario) -> Run:
    """Return a scenario's run, written and read back."""
    (run,) = load_runs([write_run(folder, scenario)])
    return run
