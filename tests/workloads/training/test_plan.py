from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.context import Context, ThreadCommunicator, context_at, directory_target, run_ranks
from tests.unet3d import FILES, direct, torch, workload
from wattload.core.errors import ConfigError, MissingExtraError
from wattload.core.storage.file_system import DirectIo
from wattload.core.workload import Accelerator
from wattload.loaders.direct.config import Config as DirectConfig
from wattload.loaders.samples import SampleLoaderConfig
from wattload.loaders.torch.config import Config as TorchConfig
from wattload.workloads.training.config import Config, Sizes
from wattload.workloads.training.workload import Unet3d

pytestmark = pytest.mark.usefixtures("short_ceiling")


def test_the_plan_knows_what_is_written_and_makes_nothing(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    subject = workload()
    plan = subject.plan(context)
    assert not any(tmp_path.iterdir())
    assert plan.prepare_bytes == plan.data_bytes == plan.peak_bytes
    assert plan.run_bytes == 0
    assert plan.needs_direct_io
    facts = subject.prepare(context)
    assert facts.data_bytes == plan.data_bytes
    again = workload().plan(context)
    assert again.prepare_bytes == 0
    assert again.memory_bytes_per_rank < plan.memory_bytes_per_rank
    assert not workload(torch()).plan(context).needs_direct_io


def test_steps_out_of_order_are_a_bug_of_the_caller(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    with pytest.raises(RuntimeError, match="plan"):
        workload().prepare(context)
    subject = workload()
    subject.plan(context)
    with pytest.raises(RuntimeError, match="prepare"):
        subject.run(context)


@pytest.mark.parametrize("step_s", [{}, {"unet3d": -1.0}])
def test_an_accelerator_needs_a_step_time(tmp_path: Path, step_s: dict[str, float]) -> None:
    accelerator = Accelerator(name="other", step_s=step_s)
    subject = Unet3d(Config(record_divisor=640, file_count=FILES), direct(), accelerator)
    with pytest.raises(ConfigError, match=r"accelerator\.step_s\.unet3d .* for 'other'"):
        subject.plan(context_at(tmp_path))


@pytest.mark.parametrize(
    ("loader", "changes", "message"),
    [
        (DirectConfig(queue_depth=0), {}, "loader.queue_depth must be 1 to 1024, got 0"),
        (TorchConfig(start_method="foo"), {}, "loader.start_method must be one of .* got 'foo'"),
        (direct(), {"step_s": float("nan")}, "step_s.unet3d must be 0 or more seconds, got nan"),
        (direct(), {"step_s": float("inf")}, "step_s.unet3d must be 0 or more seconds, got inf"),
        (direct(), {"step_s": -0.1}, "step_s.unet3d must be 0 or more seconds, got -0.1"),
        (direct(), {"data_seed": -1}, "workload.data_seed must be 0 or more, got -1"),
    ],
)
def test_settings_that_would_fail_later_are_refused_before_a_byte_is_written(
    tmp_path: Path, loader: SampleLoaderConfig, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        workload(loader, **changes).plan(context_at(tmp_path))
    assert not any(tmp_path.iterdir())


def test_a_negative_seed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="seed must be 0 or more, got -1"):
        workload().plan(context_at(tmp_path, seed=-1))


def test_a_host_or_target_that_the_loader_cant_use_is_refused_by_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = DirectIo(memory_align_bytes=4, offset_align_bytes=131072, found_by="test")
    target = replace(directory_target(tmp_path), direct_io=large)
    with pytest.raises(ConfigError, match="multiples of 131072 bytes"):
        workload().plan(Context(targets=(target,)))
    workload(torch()).plan(Context(targets=(target,)))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match="needs PyTorch"):
        workload(torch()).plan(context_at(tmp_path))


def test_fewer_files_than_ranks_are_refused(tmp_path: Path) -> None:
    targets = (directory_target(tmp_path),)
    contexts = [Context(targets=targets, communicator=c) for c in ThreadCommunicator.world(3)]
    with pytest.raises(ConfigError, match=r"at least the number of ranks \(3\), got 2"):
        run_ranks(contexts, workload(file_count=2, sizes=Sizes.dlio).plan)


def test_memory_that_holds_no_file_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    loader = direct()
    loader.prefetch_bytes = 4096
    with pytest.raises(ConfigError, match="prefetch_bytes"):
        workload(loader).plan(context_at(tmp_path))


def test_a_bound_of_no_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="steps_per_epoch must be 1 or more, got 0"):
        workload(steps_per_epoch=0).plan(context_at(tmp_path))
