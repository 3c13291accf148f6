"""A run that ends early leaves no checkpoint that looks complete."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.allocation import punch, unwrite
from tests.context import context_at, run_ranks
from tests.workloads.checkpointing import (
    LOADERS,
    RANK_BYTES,
    data_folder,
    interrupt,
    made,
    ranks,
    remains,
    run,
    value,
)
from wattload.core.errors import DataError, TargetError
from wattload.loaders.checkpoint_store import CheckpointLoader
from wattload.loaders.data.cold_cache import evict
from wattload.loaders.data.data_folder import list_folders
from wattload.workloads.checkpoint import cycle
from wattload.workloads.checkpoint.storage import complete_checkpoints

pytestmark = pytest.mark.usefixtures("short_ceilings")


@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
def test_a_target_that_fills_up_is_one_sentence_and_no_checkpoint(
    tiny_file_system: Path, loader: CheckpointLoader
) -> None:
    context = context_at(tiny_file_system)
    workload = made(loader, shrink_bytes=20_000_000)
    workload.plan(context)
    workload.prepare(context)
    with pytest.raises(TargetError, match=r"writing checkpoint 1 failed: .*No space left"):
        workload.run(context)
    assert list_folders(tiny_file_system) == ()
    assert remains(tiny_file_system) == []


@pytest.mark.parametrize("hollow_out", [punch, unwrite])
def test_a_checkpoint_that_was_hollowed_out_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hollow_out: Callable[[Path], None]
) -> None:
    def hollow_out_first(paths: Sequence[Path]) -> None:
        hollow_out(paths[0])
        evict(paths)

    monkeypatch.setattr(cycle, "evict", hollow_out_first)
    workload, context = made(), context_at(tmp_path)
    workload.plan(context)
    workload.prepare(context)
    with pytest.raises(DataError, match=r"has 16\.38 kB in holes or unwritten blocks"):
        workload.run(context)
    assert context.timed("read") == []
    assert remains(tmp_path) == []


@pytest.mark.parametrize("after_bytes", [1, RANK_BYTES + 1, 5 * RANK_BYTES])
def test_an_interrupted_run_leaves_nothing_on_the_target(tmp_path: Path, after_bytes: int) -> None:
    workload, context = made(keep=2), context_at(tmp_path)
    interrupt(context, after_bytes)
    workload.plan(context)
    workload.prepare(context)
    with pytest.raises(KeyboardInterrupt):
        workload.run(context)
    assert list_folders(tmp_path) == ()
    assert remains(tmp_path) == []


def test_a_rank_that_fails_empties_the_target_and_leaves_the_lists(tmp_path: Path) -> None:
    """Another rank may still make a file that it has announced, so it must stay listed."""
    contexts = ranks(tmp_path, 2)
    interrupt(contexts[1], 2 * RANK_BYTES + 1)
    with pytest.raises((KeyboardInterrupt, threading.BrokenBarrierError)):
        run_ranks(contexts, lambda context: run(made(), context, contexts))
    folder = data_folder(contexts[0])
    assert [path for path in folder.rglob("*") if path.suffix in (".bin", ".json")] == [
        folder / ".wattload-marker.json"
    ]
    list_folders(tmp_path / "0")[0].remove()
    assert remains(tmp_path / "0") == []


@pytest.mark.parametrize("error", [DataError("a file is torn"), KeyboardInterrupt()])
def test_what_could_not_be_removed_is_said_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    def refuse(_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    workload, context = made(), context_at(tmp_path)
    workload.plan(context)
    workload.prepare(context)
    monkeypatch.setattr("wattload.workloads.checkpoint.cycle.Cycle.run", fail)
    monkeypatch.setattr("wattload.workloads.checkpoint.storage.Storage.abandon", refuse)
    with pytest.raises(type(error)) as caught:
        workload.run(context)
    assert caught.value is error
    (note,) = error.__notes__
    assert note.endswith("; `wattload clean` deletes them")


KILLED = """
import sys, time
from pathlib import Path
from tests.context import context_at
from wattload.core.workload import Accelerator
from wattload.loaders.dcp import config as dcp
from wattload.loaders.direct import config as direct
from wattload.loaders.torch import config as torch
from wattload.workloads.checkpoint.config import Config
from wattload.workloads.checkpoint.workload import Checkpoint

loader = {
    "direct": direct.Config(),
    "torch": torch.Config(bucket_bytes=8 << 20),
    "dcp": dcp.Config(tensor_bytes=8 << 20),
}[sys.argv[2]]
context = context_at(Path(sys.argv[1]))
config = Config(
    checkpoint_count=1000, shrink_bytes=200_000_000, mode=sys.argv[3], interval_s=0.02, step_s=0.01
)
workload = Checkpoint(config, loader, Accelerator())
workload.plan(context)
workload.prepare(context)
advance = context.progress.advance
moved = 0

def counted(read_bytes=0, written_bytes=0):
    global moved
    moved += written_bytes
    advance(read_bytes=read_bytes, written_bytes=written_bytes)
    if moved > 40_000_000:  # amid the first 200 MB: stand still until killed
        print(moved, flush=True)
        time.sleep(300)

context.progress.advance = counted
workload.run(context)
"""


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("loader", LOADERS)
def test_a_write_killed_midway_is_never_taken_for_a_checkpoint(
    tmp_path: Path, loader: str, mode: str
) -> None:
    root = Path(__file__).parents[3]
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path), loader, mode],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert child.stdout is not None
    with child.stdout:
        assert int(child.stdout.readline()) > 40_000_000
        child.send_signal(signal.SIGKILL)
        child.wait()
    (folder,) = list_folders(tmp_path)
    assert complete_checkpoints(folder.path) == []
    partial = folder.path / "checkpoint-000000.partial"
    assert partial.is_dir()
    assert folder.foreign() == ()
    record, checks = run(made(), context_at(tmp_path))
    assert checks["checkpoint_read_back"].verdict == "pass"
    assert value(record, "written_bytes") == 3 * RANK_BYTES
    assert remains(tmp_path) == []
