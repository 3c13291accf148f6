"""The checks of runs that take turns, each made to warn by one changed figure."""

from __future__ import annotations

from typing import Any

import pytest

from tests.records import Scenario, make_run
from wattload.core.checks.conditions import (
    LONGEST_GAP_S,
    pair_together,
    start_temperature,
    write_granularity,
)
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord, RunStart, StartTemperature


def drive(temperature_k: int | None, reference_k: int | None = 310) -> StartTemperature:
    gaps = {"temperature_k": temperature_k, "reference_k": reference_k}
    return StartTemperature(
        host="box",
        serial="S1",
        temperature_k=temperature_k,
        reference_k=reference_k,
        missing={name: "no thermometer" for name, value in gaps.items() if value is None},
    )


def run(*drives: StartTemperature, waited_s: float = 0.0, gap_s: float | None = None) -> RunRecord:
    record, _ = make_run(Scenario())
    update: dict[str, Any] = {
        "interleave": "abba",
        "pair_gap_s": gap_s,
        "start": RunStart(waited_s=waited_s, limit_s=900, allowed_k=3, drives=drives),
    }
    comparison = record.comparison.model_copy(update=update)
    return record.model_copy(update={"comparison": comparison})


def only(checks: object) -> Check:
    assert isinstance(checks, list)
    (check,) = checks
    assert isinstance(check, Check)
    return check


@pytest.mark.parametrize(
    ("temperature_k", "verdict", "words"),
    [
        (310, "pass", "as warm as"),
        (313, "pass", "3 °C warmer than"),
        (314, "warn", "4 °C warmer than"),
        (307, "pass", "3 °C colder than"),
        (306, "warn", "4 °C colder than"),
        (None, "not_checked", "no thermometer"),
    ],
)
def test_a_drive_begins_as_warm_as_at_first(
    temperature_k: int | None, verdict: str, words: str
) -> None:
    reference_k = None if temperature_k is None else 310
    check = only(start_temperature(run(drive(temperature_k, reference_k))))
    assert (check.name, check.verdict) == ("start_temperature_S1", verdict)
    assert words in check.sentence


def test_a_wait_in_vain_is_reported() -> None:
    check = only(start_temperature(run(drive(330), waited_s=900.0)))
    assert check.sentence == (
        "Drive S1 started 20 °C warmer than at the session's first run on it, after 900 s of "
        "cooling; the limit is 3 °C."
    )


def test_each_drive_of_a_run_has_its_own_check() -> None:
    other = drive(340).model_copy(update={"serial": "S2"})
    names = {check.name: check.verdict for check in start_temperature(run(drive(310), other))}
    assert names == {"start_temperature_S1": "pass", "start_temperature_S2": "warn"}


def test_no_drive_under_the_target_is_no_pass() -> None:
    assert only(start_temperature(run())).verdict == "not_checked"


def test_a_run_that_takes_no_turns_has_no_such_check() -> None:
    record, _ = make_run(Scenario())
    assert start_temperature(record) == []
    assert pair_together(record) == []


@pytest.mark.parametrize(
    ("gap_s", "waited_s", "verdict"),
    [
        (1.0, 0.0, "pass"),
        (LONGEST_GAP_S, 0.0, "pass"),
        (LONGEST_GAP_S + 1, 0.0, "warn"),
        (LONGEST_GAP_S + 800, 900.0, "pass"),
        (86400.0, 900.0, "warn"),
        (-5.0, 0.0, "not_checked"),
    ],
)
def test_a_pair_that_an_interruption_parted_is_warned_of(
    gap_s: float, waited_s: float, verdict: str
) -> None:
    assert only(pair_together(run(gap_s=gap_s, waited_s=waited_s))).verdict == verdict


def test_the_first_of_a_pair_waits_for_nobody() -> None:
    assert pair_together(run()) == []


@pytest.mark.parametrize(
    ("preferred_bytes", "verdict"), [(16384, "pass"), (65536, "warn"), (None, None)]
)
def test_writes_smaller_than_a_drive_prefers_warn(
    preferred_bytes: int | None, verdict: str | None
) -> None:
    record, _ = make_run(Scenario(workload="checkpoint", power="measured", virtual=False))
    workload = record.workload.model_copy(update={"block_bytes_asked": 16384})
    (controller,) = record.controllers
    assert controller.before is not None
    before = controller.before.model_copy(update={"preferred_write_bytes": preferred_bytes})
    changed = record.model_copy(
        update={
            "workload": workload,
            "controllers": (controller.model_copy(update={"before": before}),),
        }
    )
    assert [each.verdict for each in write_granularity(changed)] == ([verdict] if verdict else [])
