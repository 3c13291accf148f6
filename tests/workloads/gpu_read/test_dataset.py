"""The files of gpu_read: reused, resumed, and refused where they are not what they were."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import second_user
from tests.allocation import punch
from tests.context import Context, context_at
from tests.workloads.gpu_read.making import FILE_BYTES, files_of, workload_of
from tests.workloads.gpu_read.outcome import made
from wattload.core.errors import DataError, TargetError
from wattload.loaders.data.data_folder import list_folders
from wattload.loaders.data.target_folder import clean
from wattload.workloads.gpu_read.config import Config, Files
from wattload.workloads.gpu_read.dataset import dataset_of

ROOT = Path(__file__).parents[3]


def test_files_are_reused_by_other_reads(context: Context) -> None:
    made(workload_of(), context)
    [before] = [path.stat() for path in files_of(context)]
    workload = workload_of(block_bytes=65536, threads=2, duration_s=0.05)
    plan = workload.plan(context)
    facts = workload.prepare(context)
    assert facts is not None
    assert (plan.prepare_bytes, facts.reused) == (0, True)
    [after] = [path.stat() for path in files_of(context)]
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_other_sizes_are_other_files(context: Context) -> None:
    made(workload_of(), context)
    workload = workload_of(file_bytes=2 * FILE_BYTES)
    assert workload.plan(context).prepare_bytes == 2 * FILE_BYTES


@pytest.mark.parametrize("size_bytes", [4096, FILE_BYTES - 1, 2 * FILE_BYTES])
def test_a_file_of_another_size_is_one_sentence(context: Context, size_bytes: int) -> None:
    made(workload_of(), context)
    [path] = files_of(context)
    os.truncate(path, size_bytes)
    words = f"a file of {size_bytes} bytes, {FILE_BYTES} are planned; delete the data with"
    with pytest.raises(DataError, match=words):
        workload_of().plan(context)


def test_a_file_that_is_cut_after_its_preparation_is_found(context: Context) -> None:
    workload = workload_of()
    workload.plan(context)
    workload.prepare(context)
    os.truncate(files_of(context)[0], 4096)
    with pytest.raises(DataError, match=f"a file of 4096 bytes, {FILE_BYTES} are planned"):
        workload.run(context)


def test_a_changed_file_fails_what_is_delivered(context: Context) -> None:
    made(workload_of(), context)
    [path] = files_of(context)
    with path.open("r+b") as file:
        for offset in range(0, FILE_BYTES, 4096):
            file.seek(offset + 100)
            file.write(b"changed")
    checks = made(workload_of(), context).checks
    assert checks["delivered_bytes"].verdict == "fail"


def test_a_hole_is_found_before_the_reads(context: Context) -> None:
    made(workload_of(), context)
    punch(files_of(context)[0], 0, FILE_BYTES // 2)
    workload = workload_of()
    workload.plan(context)
    with pytest.raises(DataError, match="in holes or unwritten blocks"):
        workload.prepare(context)


def test_a_missing_file_is_written_again(context: Context) -> None:
    made(workload_of(), context)
    files_of(context)[0].unlink()
    checks = made(workload_of(), context).checks
    assert checks["delivered_bytes"].verdict == "pass"


def test_a_full_target_is_one_sentence_and_keeps_no_space(tiny_file_system: Path) -> None:
    workload, context = workload_of(file_bytes=48 << 20), context_at(tiny_file_system)
    workload.plan(context)
    with pytest.raises(TargetError, match=r"writing .*blocks_0.bin failed: .*No space left"):
        workload.prepare(context)
    assert files_of(context) == []
    clean(tiny_file_system)
    assert list_folders(tiny_file_system) == ()


def test_a_target_without_permission_is_one_sentence() -> None:
    second_user.need_second_user()
    with second_user.shared_folder() as folder:
        closed = folder / "closed"
        closed.mkdir(mode=0o755)

        def write() -> None:
            context = context_at(closed)
            with pytest.raises(TargetError, match="can't hold data: Permission denied"):
                dataset_of(Config(file_bytes=FILE_BYTES), context.targets).prepare(context)

        second_user.as_other(write)


KILLED = """
import sys
from pathlib import Path
from tests.context import Context, directory_target
from wattload.workloads.gpu_read.config import Config, Files
from wattload.workloads.gpu_read.dataset import dataset_of
target = directory_target(Path(sys.argv[1]))
config = Config(threads=8, file_bytes=64 << 20, files=Files.per_thread)
dataset_of(config, (target,)).prepare(Context(targets=(target,)))
"""


def test_more_threads_reuse_the_files_of_fewer(context: Context) -> None:
    made(workload_of(threads=2, files=Files.per_thread), context)
    assert workload_of().plan(context).prepare_bytes == 0
    plan = workload_of(threads=3, files=Files.per_thread).plan(context)
    assert (plan.data_bytes, plan.prepare_bytes) == (3 * FILE_BYTES, FILE_BYTES)


def test_a_kill_keeps_what_was_finished(target: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(target)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    deadline = time.monotonic() + 60
    while len(list(target.rglob("*.bin"))) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    context = context_at(target)
    finished = {path.name: path.stat().st_ino for path in files_of(context)}
    [folder] = list_folders(target)
    listed = folder.entries.keys()
    workload = workload_of(threads=8, file_bytes=64 << 20, files=Files.per_thread)
    plan = workload.plan(context)
    assert plan.prepare_bytes == (8 - len(listed)) * (64 << 20)
    workload.prepare(context)
    now = {path.name: path.stat().st_ino for path in files_of(context)}
    assert len(now) == 8
    assert all(now[name] == finished[name] for name in listed)
    assert list(target.rglob("*.tmp")) == []
