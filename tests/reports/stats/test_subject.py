from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.records import Scenario, make_run
from tests.reports.conftest import arm, one, render_page
from wattload.core.errors import ConfigError
from wattload.core.record.energy import PowerSettingRecord
from wattload.core.record.run import RunRecord
from wattload.reports.blocks import Block, Fold, Table
from wattload.reports.runs.load import Run
from wattload.reports.sections.energy import energy_blocks
from wattload.reports.stats.settings import flat
from wattload.reports.stats.subject import ARMS, UNKNOWN_STATE, make_subject
from wattload.results.quantity import MISSING


@pytest.fixture
def swept(tmp_path: Path) -> tuple[Run, ...]:
    """Return two runs that differ in how many workers they were configured with."""
    return tuple(_configured(tmp_path, index, {"workers": 4 * (index + 1)}) for index in range(2))


def _configured(folder: Path, index: int, work: dict[str, Any]) -> Run:
    run = one(folder, arm("A", index))
    config = {**run.record.config, "workload": work}
    return Run(record=run.record.model_copy(update={"config": config}), traces=run.traces)


def test_runs_are_told_apart_by_any_configuration_key(swept: Sequence[Run]) -> None:
    subject = make_subject(swept, "workload.workers")
    assert subject.arms == ("workers=4", "workers=8")
    assert subject.arm(swept[1]) == "workers=8"
    assert "workers=4 vs workers=8" in render_page(swept, by="workload.workers")


def test_a_run_without_the_key_is_an_arm_of_its_own(tmp_path: Path, swept: Sequence[Run]) -> None:
    bare = _configured(tmp_path, 2, {})
    assert make_subject([*swept[:1], bare], "workload.workers").arms == (
        "workers=4",
        "workers=not set",
    )


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("workload.worker", "workload.workers"),
        ("workers", "workload.workers"),
        ("workload", "workload.workers"),
        ("loader.dept", "loader.depth"),
    ],
)
def test_an_unknown_key_names_the_nearest(swept: Sequence[Run], key: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"got '{key}'; did you mean .*{nearest}"):
        make_subject(swept, key)


def test_a_key_unlike_all_others_says_so(swept: Sequence[Run]) -> None:
    with pytest.raises(ConfigError, match="has a similar name"):
        make_subject(swept, "zzzzzz")


def test_runs_are_told_apart_by_firmware(tmp_path: Path) -> None:
    runs = [one(tmp_path, arm("A", index)) for index in range(2)]
    controller = runs[1].record.controllers[0]
    assert controller.before is not None
    newer = controller.model_copy(
        update={"before": controller.before.model_copy(update={"firmware": "E3MU9"})}
    )
    record = runs[1].record.model_copy(update={"controllers": (newer,)})
    subject = make_subject([runs[0], Run(record=record, traces=runs[1].traces)], "firmware")
    assert subject.arms == (controller.before.firmware, "E3MU9")


def test_only_the_user_forces_a_comparison(swept: Sequence[Run]) -> None:
    assert not make_subject(swept).forced
    assert make_subject(swept, forced=True).forced


def test_a_list_is_one_value_and_a_mapping_is_not() -> None:
    assert dict(flat({"a": {"b": [1, 2], "c": None}})) == {"a.b": [1, 2], "a.c": None}


def record(settings: tuple[PowerSettingRecord, ...] = (), **changes: Any) -> RunRecord:
    made, _ = make_run(Scenario(power="bounds", virtual=False, state=1))
    (state,) = made.power.states
    reported = state.model_copy(update={"settings": settings, **changes})
    return made.model_copy(update={"power": made.power.model_copy(update={"states": (reported,)})})


def setting(option: str, name: str, unit: str, verified: float | None) -> PowerSettingRecord:
    gaps = ("before", "after", "restored", "saved", "saved_after")
    missing = dict.fromkeys(gaps, "not read")
    if verified is None:
        missing["verified"] = "it was not set"
    return PowerSettingRecord(
        option=option, feature=0x23, name=name, unit=unit, requested=9.5, before=None,
        verified=verified, after=None, restored=None, saved=None, saved_after=None, missing=missing,
    )  # fmt: skip


def power_arm(made: RunRecord) -> str:
    return ARMS["power_state"](made)


def test_state_that_was_set_is_the_arm() -> None:
    assert power_arm(record()) == "PS1"


def test_state_that_was_found_is_the_arm_of_a_run_that_set_none() -> None:
    assert power_arm(record(requested=None, verified=None, before=2)) == "PS2"


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
    assert power_arm(asleep) == UNKNOWN_STATE


def test_state_that_was_refused_is_no_arm() -> None:
    assert power_arm(record(verified=None)) == UNKNOWN_STATE


@pytest.mark.parametrize(
    ("option", "name", "verified", "reported"),
    [
        ("power.limit_w", "power limit", 9.5, "PS0, power limit 9.5 W"),
        ("power.dssd_watts", "OCP power state", 16.0, "PS0, OCP power state 16 W"),
        ("power.limit_w", "power limit", None, "PS0"),
        ("power.apst", "APST", 0.0, "PS0"),
    ],
)
def test_other_caps_tell_arms_apart(
    option: str, name: str, verified: float | None, reported: str
) -> None:
    made = record((setting(option, name, "W", verified),), requested=None, verified=None)
    assert power_arm(made) == reported


def test_settings_and_what_the_drive_has_saved_stand_on_the_page(tmp_path: Path) -> None:
    made = one(tmp_path, Scenario(power="bounds", virtual=False, state=1))
    limit = setting("power.limit_w", "power limit", "W", 9.5)
    (state,) = made.record.power.states
    reported = state.model_copy(update={"settings": (limit,), "saved": 0, "saved_after": 0})
    power = made.record.power.model_copy(update={"states": (reported,)})
    run = replace(made, record=made.record.model_copy(update={"power": power}))
    tables = list(_tables(energy_blocks(run)))
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
