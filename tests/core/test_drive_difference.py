"""What a run did to a drive, from two states of it."""

from __future__ import annotations

from typing import Any

import pytest

from wattload.core.drive_difference import difference
from wattload.core.record.controller import ControllerState, SmartState


def smart(**values: int) -> SmartState:
    names = [name for name in SmartState.model_fields if name != "missing"]
    return SmartState(
        **{name: values.get(name) for name in names},
        missing={name: "not read" for name in names if name not in values},
    )


def state(**values: Any) -> ControllerState:  # noqa: ANN401 - any field's value
    names = [name for name in ControllerState.model_fields if name != "missing"]
    return ControllerState(
        **{name: values.get(name) for name in names},
        missing={name: "not read" for name in names if name not in values},
    )


def test_counters_grow_by_what_the_run_did() -> None:
    before = state(
        smart=smart(
            read_bytes=10, written_bytes=100, media_errors=0, unsafe_shutdowns=4,
            thermal_transitions_1=1, thermal_transitions_2=0,
        ),
        media_written_bytes=1000,
        aer_counts={"correctable_total": 1, "correctable_RxErr": 1, "fatal_total": 0},
    )  # fmt: skip
    after = state(
        smart=smart(
            read_bytes=30, written_bytes=300, media_errors=1, unsafe_shutdowns=4,
            thermal_transitions_1=3, thermal_transitions_2=1,
        ),
        media_written_bytes=1500,
        aer_counts={"correctable_total": 3, "correctable_RxErr": 3, "fatal_total": 1},
    )  # fmt: skip
    found = difference(before, after)
    assert found.model_dump(exclude={"missing"}) == {
        "changed": (),
        "read_bytes": 20,
        "written_bytes": 200,
        "media_written_bytes": 500,
        "write_amplification": 2.5,
        "thermal_transitions": 3,
        "media_errors": 1,
        "unsafe_shutdowns": 0,
        "aer_count": 3,
    }


def test_settings_that_moved_are_named() -> None:
    before = state(power_state=0, firmware="A1", link_width=4, aspm="off")
    after = state(power_state=1, firmware="A2", link_width=4, link_speed_gt_per_s=8.0, aspm="off")
    assert difference(before, after).changed == ("firmware", "power_state")


def test_what_was_not_read_has_no_figure() -> None:
    found = difference(state(), state(smart=smart(read_bytes=5)))
    assert found.read_bytes is None
    assert found.missing["read_bytes"] == "it could not be read before the run"
    assert found.missing["thermal_transitions"] == "it could not be read before the run"
    assert "host and media bytes" in found.missing["write_amplification"]


def test_a_counter_that_fell_has_no_figure() -> None:
    found = difference(state(media_written_bytes=9), state(media_written_bytes=3))
    assert found.missing["media_written_bytes"].startswith("the counter fell from 9 to 3")


@pytest.mark.parametrize("media", [0, 7])
def test_without_writes_there_is_no_amplification(media: int) -> None:
    before = state(smart=smart(written_bytes=5), media_written_bytes=1)
    after = state(smart=smart(written_bytes=5), media_written_bytes=1 + media)
    assert difference(before, after).missing["write_amplification"] == "nothing was written"
