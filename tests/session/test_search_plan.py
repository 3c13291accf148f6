"""The plan of a search: its counts, its data set, and what it refuses before the first run."""

from __future__ import annotations

from typing import TypeVar

import pytest

from tests.context import LocalCommunicator
from wattload.core.errors import ConfigError
from wattload.core.mlperf import DataSetRule
from wattload.run.compose import compose
from wattload.session.accelerator_search import SearchPlan, plan_search
from wattload.workloads.unet3d.config import Config, search_settings

T = TypeVar("T")

BASE = ("workload=unet3d", "target.path=/tmp", "power=none", "sweep=accelerators")
GIB = 1 << 30


def plan(*overrides: str) -> SearchPlan:
    return plan_search([*BASE, *overrides], LocalCommunicator())


def refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(*overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_run_is_an_ordinary_one_with_its_count_in_its_label() -> None:
    found = plan("sweep.maximum=6", "label=B", "seed=7")
    config, _ = compose(found.point(3, 2))
    assert (config.accelerator.count, config.label, config.seed) == (3, "B-n3", 9)
    assert config.sweep.name == "none"
    assert config.workload.steps_per_epoch == 4


def test_all_counts_read_one_data_set_that_fits_the_most() -> None:
    found = plan("sweep.maximum=6")
    files = {of["file_count"] for of in found.settings.values()}
    assert files == {6 * 7 * 4}
    assert {of["steps_per_epoch"] for of in found.settings.values()} == {4}


def test_requested_files_are_divided_into_steps() -> None:
    found = plan("sweep.maximum=4", "workload.file_count=300")
    assert found.settings[1] == {"file_count": 300, "steps_per_epoch": 10}


def test_too_few_files_for_the_maximum_name_both_ways_out() -> None:
    text = refusal("sweep.maximum=4", "workload.file_count=100")
    assert "need 112 files; use 112 or more" in text
    assert "sweep.maximum=3" in text
    assert "sweep.maximum=" not in refusal("sweep.maximum=4", "workload.file_count=20")


def test_requested_steps_are_kept() -> None:
    found = plan("sweep.maximum=2", "workload.steps_per_epoch=9")
    assert found.settings[2] == {"file_count": 2 * 7 * 9, "steps_per_epoch": 9}


@pytest.mark.parametrize("memory_gib", [8, 377])
def test_at_full_each_count_has_the_steps_of_mlperfs_rule(memory_gib: int) -> None:
    config = Config()
    found = search_settings(
        config,
        scale="full",
        accelerators=range(1, 5),
        memory_bytes=memory_gib * GIB,
        file_count=None,
    )
    for count, of in found.items():
        rule = DataSetRule(
            accelerators=count,
            batch_samples=7,
            record_bytes=config.record_mean_bytes,
            memory_bytes=memory_gib * GIB,
        )
        assert of["steps_per_epoch"] * count * 7 >= rule.files
        assert of["steps_per_epoch"] * count * 7 <= of["file_count"]


def test_the_threshold_is_the_workloads_own_until_another_is_named() -> None:
    assert plan().question.threshold == 0.9
    assert plan("sweep.au_threshold=0.75").question.threshold == 0.75


class TwoRanks(LocalCommunicator):
    """What one of two ranks on a host sees of the other: the same."""

    world_size = 2

    def all_gather(self, value: T) -> list[T]:
        return [value, value]


def test_ranks_search_their_multiples() -> None:
    found = plan_search([*BASE, "sweep.maximum=7"], TwoRanks())
    assert list(found.settings) == [2, 4, 6]
    assert (found.question.start, found.question.maximum, found.question.unit) == (2, 6, 2)
    with pytest.raises(ConfigError, match="2 ranks emulate a multiple of 2 accelerators"):
        plan_search([*BASE, "sweep.start=3"], TwoRanks())


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("accelerator.count=4",), "limit it with sweep.start and sweep.maximum"),
        (("repeat=3",), "sweep.confirmations=2"),
        (("accelerator=unpaced",), "use accelerator=a100, h100 or b200"),
        (("workload=null",), "use workload=unet3d, or sweep=none"),
        (
            ("sweep.start=9", "sweep.maximum=3"),
            "sweep.start must be at most sweep.maximum (3), got 9",
        ),
        (("sweep.maximum=2000",), "1 to 1024, got 2000"),
        (("sweep.name=power",), "one of none, accelerators"),
        (("sweep.au_threshold=90",), "more than 0 and at most 1, got 90"),
        (("sweep.confirmations=-1",), "0 to 10000, got -1"),
        ((f"label={'a' * 199}",), "1 to 200"),
    ],
)
def test_what_cant_be_searched_is_refused_in_one_sentence(
    overrides: tuple[str, ...], words: str
) -> None:
    given = [
        text for text in BASE if text.split("=")[0] not in {o.split("=")[0] for o in overrides}
    ]
    with pytest.raises(ConfigError) as caught:
        plan_search([*given, *overrides], LocalCommunicator())
    assert words in str(caught.value)


def test_the_data_of_a_search_is_that_of_its_widest_run() -> None:
    config, _ = compose(plan("sweep.maximum=5").widest())
    assert (config.accelerator.count, config.workload.file_count) == (5, 140)
