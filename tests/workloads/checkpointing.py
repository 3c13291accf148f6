"""Checkpoints of a few megabytes, for the tests of the checkpoint workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.context import Context, ThreadCommunicator, directory_target
from wattload.core.record.results import Check
from wattload.core.workload import Accelerator, Outcome
from wattload.loaders.checkpoint_store import CheckpointLoader
from wattload.loaders.data.data_folder import list_folders
from wattload.loaders.dcp import config as dcp_config
from wattload.loaders.direct import config as direct_config
from wattload.loaders.torch import config as torch_config
from wattload.workloads.checkpoint.config import Config
from wattload.workloads.checkpoint.cycle import RankTotals
from wattload.workloads.checkpoint.workload import Checkpoint

RANK_BYTES = 4_000_004
STEP_S = 0.002
BESIDE_STEPS = 3
BESIDE: dict[str, Any] = {"mode": "async", "interval_s": BESIDE_STEPS * STEP_S}
DIRECT = direct_config.Config(block_bytes=256 << 10, queue_depth=4)
LOADERS: dict[str, CheckpointLoader] = {
    "direct": DIRECT,
    "torch": torch_config.Config(bucket_bytes=1 << 20),
    "dcp": dcp_config.Config(tensor_bytes=1 << 20),
}


def settings(**changed: Any) -> Config:
    """Return settings of three small checkpoints."""
    return Config(**{"checkpoint_count": 3, "shrink_bytes": RANK_BYTES} | changed)


def made(loader: CheckpointLoader = DIRECT, **changed: Any) -> Checkpoint:
    """Return a workload of them."""
    return Checkpoint(settings(**changed), loader, Accelerator(step_s={"checkpoint": STEP_S}))


def run(
    workload: Checkpoint, context: Context, *, verify: bool = True
) -> tuple[Outcome, dict[str, Check]]:
    workload.plan(context)
    workload.prepare(context)
    outcome = workload.run(context)
    found = workload.verify(context) if verify else ()
    return outcome, {check.name: check for check in (*outcome.checks, *found)}


def value(outcome: Outcome, name: str) -> float:
    (metric,) = (metric for metric in outcome.metrics if metric.name == name)
    assert metric.value is not None
    return metric.value


def remains(target: Path) -> list[Path]:
    """Return the files of data that lie on a target; the folders' own begin with a dot."""
    found = sorted((target / "wattload-data").rglob("*"))
    return [path for path in found if path.is_file() and not path.name.startswith(".")]


def data_folder(context: Context, target: int = 0) -> Path:
    path = context.targets[target].path
    assert path is not None
    (folder,) = list_folders(path)
    return folder.path


def rank_totals(host: str, *windows_ns: tuple[int, int]) -> RankTotals:
    """Return the totals of 1000 bytes written in each window."""
    made = RankTotals(host=host)
    for window_ns in windows_ns:
        made.write.windows_ns.append(window_ns)
        made.write.moved_bytes.append(1000)
        made.write.own_ns.append(window_ns[1] - window_ns[0])
        made.write.commit_ns.append(0)
    return made


def ranks(path: Path, count: int, targets: int = 1) -> list[Context]:
    made_targets = []
    for index in range(targets):
        (path / str(index)).mkdir()
        made_targets.append(directory_target(path / str(index), index=index))
    return [
        Context(targets=tuple(made_targets), communicator=communicator)
        for communicator in ThreadCommunicator.world(count)
    ]


def interrupt(context: Context, after_bytes: int) -> None:
    """Have the first count beyond ``after_bytes`` interrupt the run, on the thread that counts."""
    advance = context.progress.advance

    def counted(*, read_bytes: int = 0, written_bytes: int = 0) -> None:
        advance(read_bytes=read_bytes, written_bytes=written_bytes)
        if sum(context.progress.moved_bytes) > after_bytes:
            raise KeyboardInterrupt

    context.progress.advance = counted  # type: ignore[method-assign]  # a spy
