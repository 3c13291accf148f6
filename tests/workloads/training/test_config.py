from __future__ import annotations

from pathlib import Path

import pytest

from tests.context import context_at
from tests.unet3d import BATCH, facts_of, live, workload
from wattload.core.errors import ConfigError
from wattload.core.units import GIB
from wattload.run.compose import build_workload, compose
from wattload.workloads.training.config import Config, data_set_rule
from wattload.workloads.training.workload import Unet3d

pytestmark = pytest.mark.usefixtures("short_ceiling")


@pytest.mark.parametrize(
    ("scale", "files", "divisor"), [("demo", 28, 64), ("quick", 28, 1), ("full", None, 1)]
)
def test_scales_change_counts_and_demo_alone_shrinks(
    scale: str, files: int | None, divisor: int
) -> None:
    config, _ = compose([f"scale={scale}", "target.path=/tmp", "power=none", "loader=torch"])
    assert isinstance(config.workload, Config)
    assert config.workload.file_count == files
    assert config.workload.record_divisor == divisor
    assert config.workload.batch_samples == 7
    assert isinstance(build_workload(config), Unet3d)
    config.workload.check(scale)


def test_a_count_on_the_command_line_wins_over_the_scales() -> None:
    config, _ = compose(["workload.file_count=99", "target.path=/tmp", "power=none"])
    assert config.workload.file_count == 99


def full_scale(path: Path, *overrides: str) -> Unet3d:
    config, _ = compose(["scale=full", f"target.path={path}", "power=none", *overrides])
    subject = build_workload(config)
    assert isinstance(subject, Unet3d)
    return subject


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("workload.file_count=28", ["got 28;", "workload.file_count=", "500 steps", "scale=quick"]),
        ("workload.steps_per_epoch=7", ["got 49;", "workload.steps_per_epoch=", "of host memory"]),
    ],
)
def test_a_small_data_set_at_full_scale_is_refused(
    tmp_path: Path, override: str, words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        full_scale(tmp_path, override).plan(context_at(tmp_path, scale="full"))
    for word in words:
        assert word in str(caught.value)
    assert not any(tmp_path.iterdir())


def test_the_rules_steps_of_a_larger_data_set_are_enough_at_full_scale(tmp_path: Path) -> None:
    context = context_at(tmp_path, scale="full")
    config = compose(["scale=full", f"target.path={tmp_path}", "power=none"])[0].workload
    rule = data_set_rule(config, 1, context.hosts_memory_bytes)
    larger = (f"workload.file_count={rule.files + 999}", f"workload.steps_per_epoch={rule.steps}")
    assert full_scale(tmp_path, *larger).plan(context).data_bytes


def test_an_epoch_of_limited_steps_reads_their_files_alone(tmp_path: Path) -> None:
    outcome, _ = live(workload(steps_per_epoch=3), context_at(tmp_path))
    facts = facts_of(outcome)
    assert (facts.epoch_files, facts.steps_per_epoch) == (3 * BATCH, 3)


def test_pages_that_a_kernel_keeps_for_itself_change_no_data_set() -> None:
    memories = (252 * GIB - 5_000_000, 252 * GIB - 1, 252 * GIB)
    assert len({data_set_rule(Config(), 1, memory).files for memory in memories}) == 1


def test_full_scale_follows_mlperfs_rule(tmp_path: Path) -> None:
    config, _ = compose(["scale=full", f"target.path={tmp_path}", "power=none"])
    plan = build_workload(config).plan(context_at(tmp_path, scale="full"))
    assert plan.data_bytes >= 3500 * 146_000_000
    assert plan.maximum_ranks is not None
    assert plan.maximum_ranks >= 500
