from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.reports.conftest import arm, one
from wattload.core.errors import ConfigError
from wattload.reports.keys import flat
from wattload.reports.load import Run
from wattload.reports.page import render_page
from wattload.reports.subject import make_subject


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
    assert "workers=4 against workers=8" in render_page(swept, by="workload.workers")


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
    with pytest.raises(ConfigError, match=f"got '{key}'; the nearest are .*{nearest}"):
        make_subject(swept, key)


def test_a_key_unlike_all_others_says_so(swept: Sequence[Run]) -> None:
    with pytest.raises(ConfigError, match="none is spelt like it"):
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
