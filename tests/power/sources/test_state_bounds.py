"""What the descriptors of power states say of the power in each of them."""

from __future__ import annotations

from typing import Any

from wattload.core.power import Bounds
from wattload.core.record.target import PowerStateFacts
from wattload.power.sources.nvme import state_bounds


def descriptor(
    index: int,
    max_w: float | None,
    idle_w: float | None,
    *,
    operational: bool = True,
    entry_s: float | None = None,
    exit_s: float | None = None,
) -> PowerStateFacts:
    values: dict[str, Any] = {
        "index": index,
        "max_w": max_w,
        "operational": operational,
        "entry_latency_s": entry_s,
        "exit_latency_s": exit_s,
        "read_throughput_rank": index,
        "read_latency_rank": index,
        "write_throughput_rank": index,
        "write_latency_rank": index,
        "idle_w": idle_w,
        "active_w": None,
        "active_workload": 0,
        "power_fail_recovery_s": None,
        "quiescence_vault_s": None,
        "power_fail_vault_s": None,
        "idle_exit_latency_limit_s": None,
    }
    missing = {name: "not reported" for name, value in values.items() if value is None}
    return PowerStateFacts(**values, missing=missing)


STATES = (
    descriptor(0, 25.0, 5.0, entry_s=0.1, exit_s=0.2),
    descriptor(1, 15.0, 4.0, entry_s=0.3, exit_s=0.1),
    descriptor(2, 0.05, 0.005, operational=False, entry_s=0.5, exit_s=1.0),
)


def test_an_operational_state_keeps_its_own_maximum() -> None:
    found = state_bounds(STATES, is_autonomous=True)
    assert (found.upper_w[0], found.upper_w[1]) == (25.0, 15.0)


def test_a_state_without_io_may_have_been_left_for_it() -> None:
    assert state_bounds(STATES, is_autonomous=False).upper_w[2] == 25.0


def test_a_drive_that_sleeps_by_itself_may_have_slept_between_two_reads() -> None:
    asleep = state_bounds(STATES, is_autonomous=True)
    awake = state_bounds(STATES, is_autonomous=False)
    assert (asleep.lower_w[0], awake.lower_w[0]) == (0.005, 5.0)


def test_idle_power_that_is_not_reported_is_at_least_nothing() -> None:
    states = (descriptor(0, 25.0, 5.0), descriptor(1, 15.0, None))
    assert state_bounds(states, is_autonomous=False).lower_w == {0: 5.0, 1: 0.0}
    assert state_bounds((descriptor(0, 25.0, None),), is_autonomous=True).lower_w == {}


def test_a_maximum_that_is_not_reported_leaves_no_ceiling() -> None:
    states = (descriptor(0, None, 5.0), descriptor(1, 15.0, 4.0))
    found = state_bounds(states, is_autonomous=False)
    assert found.upper_w == {0: None, 1: 15.0}
    assert found.sensor.highest_w is None
    assert state_bounds((descriptor(0, None, None),), is_autonomous=False).upper_w == {}


def test_the_sensor_knows_the_worst_transition_and_the_extremes() -> None:
    found = state_bounds(STATES, is_autonomous=False).sensor
    assert found == Bounds(settle_s=1.0 + 0.5, lowest_w=0.005, highest_w=25.0)
