"""Runs told apart by what capped their drive's power."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.records import Scenario, make_run
from tests.reports.conftest import one
from wattload.core.record.energy import PowerSettingRecord
from wattload.core.record.run import RunRecord
from wattload.reports.blocks import Block, Fold, Table
from wattload.reports.quantity import MISSING
from wattload.reports.sections.energy import energy_section
from wattload.reports.subject import ARMS, UNKNOWN_STATE, make_subject


def record(settings: tuple[PowerSettingRecord, ...] = (), **changes: Any) -> RunRecord:  # noqa: ANN401
    made, _ = make_run(Scenario(power="bounds", virtual=False, state=1))
    (state,) = made.power.states
    told = state.model_copy(update={"settings": settings, **changes})
    return made.model_copy(update={"power": made.power.model_copy(update={"states": (told,)})})


def setting(option: str, name: str, unit: str, verified: float | None) -> PowerSettingRecord:
    gaps = ("before", "after", "restored", "saved", "saved_after")
    missing = dict.fromkeys(gaps, "not read")
    if verified is None:
        missing["verified"] = "it was not set"
    return PowerSettingRecord(
        option=option, feature=0x23, name=name, unit=unit, requested=9.5, before=None,
        verified=verified, after=None, restored=None, saved=None, saved_after=None, missing=missing,
    )  # fmt: skip


def arm(made: RunRecord) -> str:
    return ARMS["power_state"](made)


def test_state_that_was_set_is_the_arm() -> None:
    assert arm(record()) == "PS1"


def test_state_that_was_found_is_the_arm_of_a_run_that_set_none() -> None:
    assert arm(record(requested=None, verified=None, before=2)) == "PS2"


def test_state_that_a_drive_sleeps_in_is_no_arm() -> None:
    made = record(requested=None, verified=None, before=2)
    (controller,) = made.controllers
    assert controller.facts.power_states is not None
    table = tuple(
        each.model_copy(update={"operational": each.index != 2})
        for each in controller.facts.power_states
    )
    facts = controller.facts.model_copy(update={"power_states": table})
    asleep = made.model_copy(
        update={"controllers": (controller.model_copy(update={"facts": facts}),)}
    )
    assert arm(asleep) == UNKNOWN_STATE


def test_state_that_was_refused_is_no_arm() -> None:
    assert arm(record(verified=None)) == UNKNOWN_STATE


@pytest.mark.parametrize(
    ("option", "name", "verified", "told"),
    [
        ("power.limit_w", "power limit", 9.5, "PS0, power limit 9.5 W"),
        ("power.dssd_watts", "OCP power state", 16.0, "PS0, OCP power state 16 W"),
        ("power.limit_w", "power limit", None, "PS0"),
        ("power.apst", "APST", 0.0, "PS0"),
    ],
)
def test_other_caps_tell_arms_apart(
    option: str, name: str, verified: float | None, told: str
) -> None:
    made = record((setting(option, name, "W", verified),), requested=None, verified=None)
    assert arm(made) == told


def test_settings_and_what_the_drive_has_saved_stand_on_the_page(tmp_path: Path) -> None:
    made = one(tmp_path, Scenario(power="bounds", virtual=False, state=1))
    limit = setting("power.limit_w", "power limit", "W", 9.5)
    (state,) = made.record.power.states
    told = state.model_copy(update={"settings": (limit,), "saved": 0, "saved_after": 0})
    power = made.record.power.model_copy(update={"states": (told,)})
    run = replace(made, record=made.record.model_copy(update={"power": power}))
    section = energy_section(make_subject([run]), run)
    assert section is not None
    tables = list(_tables(section.blocks))
    shown = {table.caption: [[cell.text for cell in row] for row in table.rows] for table in tables}
    (row,) = shown["Other settings of the drives"]
    assert row[1:6] == ["power limit", "power.limit_w", "9.5 W", MISSING, "9.5 W"]
    (row,) = shown["Power states"]
    assert row[1:8] == ["PS1", "PS0", "PS1", "PS1", "PS0", "PS0", "PS0"]


def _tables(blocks: Sequence[Block]) -> Iterator[Table]:
    for block in blocks:
        if isinstance(block, Table):
            yield block
        elif isinstance(block, Fold):
            yield from _tables(block.blocks)
