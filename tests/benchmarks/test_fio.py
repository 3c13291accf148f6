"""fio gets what we get: files, memory, one latency per operation, and its best settings."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import fio
from benchmarks.measure import NotMeasuredError
from wattload.core.io import IOKind, IOOrder

SAID = {
    "jobs": [
        {
            "job_runtime": 2000,
            "usr_cpu": 5.0,
            "sys_cpu": 20.0,
            "read": {"io_bytes": 8192, "total_ios": 2},
            "write": {"io_bytes": 0, "total_ios": 0},
        }
    ]
}


def job(files: list[Path], **changes: Any) -> fio.Job:
    facts: dict[str, Any] = {
        "kind": IOKind.READ,
        "order": IOOrder.SEQUENTIAL,
        "files": files,
        "block_bytes": 1 << 20,
        "depth": 32,
        "seconds": 1.5,
    }
    return fio.Job(**(facts | changes))


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "fio"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin")


def test_fio_gets_registered_memory_our_files_and_preallocates_nothing(tmp_path: Path) -> None:
    files = [tmp_path / "0.bin", tmp_path / "1.bin"]
    for path in files:
        path.write_bytes(bytes(4096))
    command = job(files, kind=IOKind.WRITE).command()
    assert f"--filename={files[0]}:{files[1]}" in command
    asked = {"--rw=write", "--fixedbufs=1", "--registerfiles=1", "--thread=1", "--direct=1"}
    assert asked | {"--size=8192", "--runtime=1500ms", "--fallocate=none"} <= set(command)
    assert {"--overwrite=1", "--scramble_buffers=0"} <= set(command)


def test_random_reads_keep_no_map_and_go_in_batches(tmp_path: Path) -> None:
    command = job([tmp_path], order=IOOrder.RANDOM, batch=16).command()
    assert {"--rw=randread", "--norandommap=1", "--iodepth_batch_submit=16"} <= set(command)


def test_a_hot_page_cache_stays_hot(tmp_path: Path) -> None:
    assert {"--direct=0", "--invalidate=0"} <= set(job([tmp_path], direct=False).command())


@pytest.mark.parametrize(("free", "is_huge"), [(0, False), (16, False), (17, True)])
def test_fio_gets_reserved_huge_pages_where_there_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, is_huge: bool
) -> None:
    monkeypatch.setattr(fio, "huge_pages_free", lambda: free)
    assert ("--iomem=shmhuge" in job([tmp_path]).command()) is is_huge


def test_the_hosts_huge_pages_are_counted() -> None:
    assert fio.huge_pages_free() >= 0


def test_fio_is_given_and_shown_transparent_huge_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "said").write_text(json.dumps(SAID))
    stand_in(tmp_path, monkeypatch, f"echo $GLIBC_TUNABLES > {tmp_path}/got; cat {tmp_path}/said")
    (tmp_path / "0.bin").touch()
    tried = job([tmp_path / "0.bin"])
    tried.take()
    assert (tmp_path / "got").read_text() == "glibc.malloc.hugetlb=1\n"
    shown = tried.shown()
    assert shown.startswith(f"cd {tmp_path}; GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --name=")
    assert " --filename=0.bin " in shown


def test_figures_are_those_of_the_side_that_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "said").write_text("fio: a warning\n" + json.dumps(SAID))
    stand_in(tmp_path, monkeypatch, f"cat {tmp_path}/said")
    taken = job([tmp_path]).take()
    assert (taken.moved_bytes, taken.operation_count, taken.seconds) == (8192, 2, 2.0)
    assert taken.cpu_s == pytest.approx(0.5)
    assert taken.process_cpu_s > 0


def test_a_missing_fio_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(NotMeasuredError, match="apt-get install fio"):
        job([tmp_path]).take()


def test_an_fio_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "echo 'engine not loadable' >&2; exit 1")
    with pytest.raises(NotMeasuredError, match="engine not loadable"):
        job([tmp_path]).take()


def test_new_files_are_preallocated_and_written_once(tmp_path: Path) -> None:
    files = [tmp_path / "0.bin", tmp_path / "1.bin"]
    command = job(files, kind=IOKind.WRITE, new_bytes=4096).command()
    assert {"--size=8192", "--fallocate=native"} <= set(command)
    assert not {"--time_based=1", "--overwrite=1", "--allow_file_create=0"} & set(command)


def test_what_fio_wrote_is_fsynced_inside_the_time_and_new_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = json.loads(json.dumps(SAID))
    said["jobs"][0]["write"] = said["jobs"][0]["read"]
    stand_in(tmp_path, monkeypatch, f"echo '{json.dumps(said)}'")
    synced: list[int] = []

    def slow_fsync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        time.sleep(0.01)

    monkeypatch.setattr(os, "fsync", slow_fsync)
    files = [tmp_path / "0.bin", tmp_path / "1.bin"]
    for path in files:
        path.write_bytes(bytes(4096))
    inodes = [path.stat().st_ino for path in files]
    assert job(files).take().seconds == 2.0
    assert synced == []
    assert job(files, kind=IOKind.WRITE, new_bytes=4096).take().seconds >= 2.02
    assert synced == inodes
    assert not any(path.exists() for path in files)
