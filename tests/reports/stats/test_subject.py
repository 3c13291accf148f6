from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.records import Scenario, make_run
from tests.reports.conftest import arm, one, render_page
from tests.reports.sessions import known, run, session, turn
from wattload.core.errors import ConfigError
from wattload.core.record.energy import PowerSettingRecord
from wattload.core.record.run import RunRecord
from wattload.reports.blocks import Block, Fold, Table
from wattload.reports.runs.load import Run
from wattload.reports.sections.energy import energy_blocks
from wattload.reports.stats.subject import ARMS, UNKNOWN_STATE, flat, make_subject
from wattload.reports.stats.summary import first_screen
from wattload.results.quantity import MISSING


@pytest.fixture
def swept(tmp_path: Path) -> tuple[Run, ...]:
    """Return two runs that differ in how many workers they were configured with."""
    return tuple(_configured(tmp_path, index, {"workers": 4 * (index + 1)}) for index in range(2))


def _configured(folder: Path, index: int, work: dict[str, Any]) -> Run:
    run = one(folder, arm("A", index))
    config = {**run.record.config, "workload": {**run.record.config["workload"], **work}}
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
        ("workload.wrokers", "workload.workers"),
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


def powered(settings: tuple[PowerSettingRecord, ...] = (), **changes: Any) -> RunRecord:
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
    assert power_arm(powered()) == "PS1"


def test_state_that_was_found_is_the_arm_of_a_run_that_set_none() -> None:
    assert power_arm(powered(requested=None, verified=None, before=2)) == "PS2"


def test_state_that_a_drive_sleeps_in_is_no_arm() -> None:
    made = powered(requested=None, verified=None, before=2)
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
    assert power_arm(powered(verified=None)) == UNKNOWN_STATE


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
    made = powered((setting(option, name, "W", verified),), requested=None, verified=None)
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


REAL: dict[str, Any] = {"power": "measured", "virtual": False}


def paths(runs: Sequence[Run]) -> list[Run]:
    """Return the runs, each arm on a path of its own."""
    return [on(each, f"/mnt/{each.record.label}") for each in runs]


def on(each: Run, path: str) -> Run:
    """Return the run, configured with another path."""
    config = {**each.record.config, "target": {"path": path}}
    record = each.record.model_copy(update={"config": config})
    return Run(record=record, traces=each.traces)


TWELVE = paths(session({"A": [2e9] * 6, "B": [1e9] * 6}, **REAL))


def stray(**changes: Any) -> Run:
    """Return one more run of A."""
    return run("stray", label="A", **{**REAL, "seed": 77, "order": 30, **changes})


@pytest.mark.parametrize("path", ["/mnt/elsewhere", "/mnt/B"])
@pytest.mark.parametrize("status", ["complete", "failed"])
def test_a_run_on_another_path_is_named_and_the_others_are_compared(path: str, status: str) -> None:
    subject = make_subject([*TWELVE, on(stray(status=status), path)])
    screen = first_screen(subject)
    (row,) = screen.rows
    assert (known(row.speed).winner, row.at) == ("A", "")
    (excluded,) = screen.excluded
    reason = f"stray: target.path is {path}; it is /mnt/A in 6 other runs of A"
    assert excluded.startswith(reason)
    assert ("the run was interrupted" in excluded) == (status == "failed")


def test_a_failed_run_makes_no_third_arm() -> None:
    failed = run("failed", label="C", status="failed", **REAL)
    subject = make_subject([*TWELVE, failed])
    assert subject.arms == ("A", "B")
    screen = first_screen(subject)
    assert known(screen.rows[0].speed).winner == "A"
    (excluded,) = screen.excluded
    assert excluded.startswith("failed: no run of C is valid; ")
    assert "the run was interrupted" in excluded


def test_one_valid_run_of_a_third_arm_is_named_beside_two_full_arms() -> None:
    subject = make_subject([*TWELVE, run("one", label="C", **REAL)])
    assert subject.arms == ("A", "B")
    assert subject.strays == {"one": "it is the only run of C"}


def test_three_arms_of_one_run_each_stay() -> None:
    subject = make_subject([run(name, label=name) for name in "ABC"])
    assert (subject.arms, subject.strays) == (("A", "B", "C"), {})


def test_all_runs_failed_stay_in_their_arms() -> None:
    subject = make_subject([run(name, label=name, status="failed") for name in "AB"])
    assert (subject.arms, subject.strays) == (("A", "B"), {})


def test_points_that_both_arms_ran_are_no_strays() -> None:
    def at(workers: int, count: int) -> list[Run]:
        rates = {"A": [2e9] * count, "B": [1e9] * count}
        settings = {"workload": {"workers": workers}}
        return session(rates, session=f"s{workers}", settings=settings, **REAL)

    subject = make_subject([*at(1, 6), *at(2, 1)])
    assert subject.strays == {}
    assert make_subject([*at(1, 6), *at(2, 1)[:1]]).strays


def test_no_number_of_a_search_for_accelerators_is_a_stray() -> None:
    searched = {"sweep": {"name": "accelerators"}}
    full = [
        run(f"{label}{n}", searched, label=label) for label in ("A-n1", "A-n2") for n in range(5)
    ]
    subject = make_subject([*full, run("one", searched, label="A-n4")])
    assert subject.arms == ("A-n1", "A-n2", "A-n4")


@pytest.mark.parametrize("change", [{"serial": "S9"}, {"host": "elsewhere"}])
def test_a_run_on_another_drive_or_host_is_left_out_and_named(change: dict[str, str]) -> None:
    odd = turn("A", 6, 2e9, **(REAL | {"serial": "SA"} | change))
    arms = [
        *session({"A": [2e9, 2.01e9, 1.99e9] * 2}, serial="SA", **REAL),
        *session({"B": [1e9, 1.01e9, 0.99e9] * 2}, serial="SB", **REAL),
    ]
    subject = make_subject([*arms, odd])
    assert list(subject.strays) == [odd.id]
    assert f"{change.get('serial', '') or change['host']}; it is" in subject.strays[odd.id]


def test_an_arm_of_failed_runs_with_other_settings_leaves_a_page_of_one() -> None:
    valid = run("valid", label="A", **REAL)
    failed = []
    for number, share in enumerate((0.7, 0.86)):
        each = run(f"failed-{number}", label="B", status="failed", **REAL)
        config = {**each.record.config, "load": {"name": "busy", "cpu_share": share}}
        record = each.record.model_copy(update={"config": config})
        failed.append(Run(record=record, traces=each.traces))
    screen = first_screen(make_subject([valid, *failed]))
    assert screen.rows
    assert len(screen.excluded) == len(failed)
