"""The temperature of drives under load, arm beside arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from wattload.core.power import Channel
from wattload.reports.blocks import Table
from wattload.reports.load import Run
from wattload.reports.sections.heat import temperature_table
from wattload.reports.subject import Group
from wattload.reports.traces import PowerTrace, Signal


def warm(run: Run, kelvin: float) -> Run:
    """Return a run whose drive tells ``kelvin`` amid a timed window, and 400 K before it."""
    window = run.record.timed_windows()[0]
    middle_ns = (window.start_ns + window.end_ns) // 2
    signal = Signal(
        source="nvme",
        device="SERIAL",
        channel=Channel.TEMPERATURE_K,
        time_ns=np.array([window.start_ns - 1, middle_ns, middle_ns + 1], dtype=np.int64),
        value=np.array([400.0, kelvin, np.nan]),
    )
    return replace(run, traces=replace(run.traces, power=PowerTrace(signals=(signal,))))


def table_of(arms: Mapping[str, Sequence[Run]]) -> Table | None:
    return temperature_table(
        Group(workload="unet3d", arms={arm: tuple(runs) for arm, runs in arms.items()})
    )


def by_arm(arms: tuple[Run, ...]) -> dict[str, list[Run]]:
    return {name: [run for run in arms if run.record.label == name][:3] for name in ("A", "B")}


def test_the_cooler_arm_is_told_by_how_much(arms: tuple[Run, ...]) -> None:
    found = by_arm(arms)
    table = table_of(
        {
            "PS0": [
                warm(run, kelvin) for run, kelvin in zip(found["A"], (330, 329, 350), strict=True)
            ],
            "PS1": [
                warm(run, kelvin) for run, kelvin in zip(found["B"], (320, 321, 319), strict=True)
            ],
        }
    )
    assert table is not None
    assert [cell.text for cell in table.rows[0]] == [
        "highest temperature",
        "57 °C",
        "47 °C",
        "-10 K",
    ]
    assert [column.title for column in table.columns][1:] == ["A (PS0)", "B (PS1)", "B - A"]


def test_an_arm_without_temperatures_leaves_the_difference_out(arms: tuple[Run, ...]) -> None:
    found = by_arm(arms)
    cold = [replace(run, traces=replace(run.traces, power=None)) for run in found["B"]]
    table = table_of({"A": [warm(run, 330) for run in found["A"]], "B": cold})
    assert table is not None
    assert [cell.text for cell in table.rows[0]][1] == "57 °C"
    assert "K" not in table.rows[0][-1].text


def test_no_temperature_at_all_draws_no_table(arms: tuple[Run, ...]) -> None:
    cold = [replace(run, traces=replace(run.traces, power=None)) for run in arms]
    assert table_of({"A": cold}) is None
