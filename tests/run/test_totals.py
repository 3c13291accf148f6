"""The total of drive energy: of timed phases only, and of none that share time."""

from __future__ import annotations

from typing import Any

from tests.records import Scenario, make_run
from wattload.core.record.phase import PhaseWindow
from wattload.core.record.run import RunRecord
from wattload.core.record.summary import drive_energy


def _record() -> RunRecord:
    record, _ = make_run(Scenario(workload="checkpoint", power="measured", virtual=False))
    return record


def _window(windows: tuple[PhaseWindow, ...], index: int, **changes: Any) -> PhaseWindow:
    return [window for window in windows if window.timed][index].model_copy(update=changes)


def test_total_is_the_sum_of_the_timed_phases() -> None:
    record = _record()
    total_j = drive_energy(record.power, record.windows)
    assert total_j is not None
    assert total_j == sum(energy.energy_j or 0.0 for energy in record.power.energy)


def test_the_tail_is_no_part_of_the_total() -> None:
    record = _record()
    (first, *_) = record.power.energy
    tail = first.model_copy(update={"phase": "tail"})
    power = record.power.model_copy(update={"energy": (*record.power.energy, tail)})
    assert drive_energy(power, record.windows) == drive_energy(record.power, record.windows)


def test_phases_that_share_time_have_no_sum() -> None:
    record = _record()
    one, two = _window(record.windows, 0), _window(record.windows, 1)
    shared = two.model_copy(
        update={"start_ns": one.start_ns, "intervals": ((one.start_ns, two.end_ns),)}
    )
    assert drive_energy(record.power, (one, shared)) is None


def test_a_part_without_a_figure_leaves_no_sum() -> None:
    record = _record()
    first, *others = record.power.energy
    gone = first.model_copy(update={"energy_j": None})
    power = record.power.model_copy(update={"energy": (gone, *others)})
    assert drive_energy(power, record.windows) is None
