"""fio gets what we get: files, memory, one latency per operation, and fsync inside the time."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import fio
from benchmarks.measure import NotMeasuredError
from wattload.core.io import IOKind, IOOrder

SIDE = {"io_bytes": 8192, "total_ios": 2}
PRINTED = {
    "jobs": [{"job_runtime": 2000, "usr_cpu": 5.0, "sys_cpu": 20.0, "read": SIDE, "write": SIDE}]
}


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    files = [tmp_path / "0.bin", tmp_path / "1.bin"]
    for path in files:
        path.write_bytes(bytes(4096))
    return files


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


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        (
            {"kind": IOKind.WRITE},
            {"--rw=write", "--fixedbufs=1", "--registerfiles=1", "--thread=1", "--direct=1"}
            | {"--size=8192", "--runtime=1500ms", "--fallocate=none", "--overwrite=1"},
        ),
        (
            {"order": IOOrder.RANDOM, "batch": 16},
            {"--rw=randread", "--norandommap=1", "--iodepth_batch_submit=16"},
        ),
        ({"direct": False}, {"--direct=0", "--invalidate=0"}),
        ({"is_verified": True}, {"--verify=crc32c", "--verify_fatal=1"}),
        (
            {"kind": IOKind.WRITE, "new_bytes": 4096},
            {"--size=8192", "--fallocate=native", "--scramble_buffers=0"},
        ),
    ],
)
def test_fio_does_what_we_do(files: list[Path], changes: dict[str, Any], options: set[str]) -> None:
    command = job(files, **changes).command()
    assert f"--filename={files[0]}:{files[1]}" in command
    assert options <= set(command)
    assert ("--time_based=1" in command) == ("new_bytes" not in changes)


@pytest.mark.parametrize(("free", "is_huge"), [(16, False), (17, True)])
def test_fio_gets_reserved_huge_pages_where_there_are_enough(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, free: int, is_huge: bool
) -> None:
    monkeypatch.setattr(fio, "huge_pages_free", lambda: free)
    assert ("--iomem=shmhuge" in job(files).command()) is is_huge


def test_figures_and_environment_are_those_of_the_run(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "printed").write_text("fio: a warning\n" + json.dumps(PRINTED))
    stand_in(
        tmp_path, monkeypatch, f"echo $GLIBC_TUNABLES > {tmp_path}/got; cat {tmp_path}/printed"
    )
    figures = job(files)()
    assert figures["bytes_per_s"] == 4096
    assert figures["operations_per_s"] == 1
    assert figures["cpu_s_per_operation"] == pytest.approx(0.25)
    assert (tmp_path / "got").read_text() == "glibc.malloc.hugetlb=1\n"
    shown = job(files).shown()
    assert shown.startswith(f"`cd {tmp_path}; GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --name=")
    assert " --filename=0.bin:1.bin " in shown


def test_an_fio_that_is_missing_or_fails_is_quoted(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, "echo 'engine not loadable' >&2; exit 1")
    with pytest.raises(NotMeasuredError, match="engine not loadable"):
        job(files)()
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(NotMeasuredError, match="fio is not installed"):
        job(files)()


def test_writes_are_fsynced_inside_the_time_and_new_files_removed(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, f"echo '{json.dumps(PRINTED)}'")
    synced: list[int] = []

    def slow_fsync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        time.sleep(0.01)

    monkeypatch.setattr(os, "fsync", slow_fsync)
    inodes = [path.stat().st_ino for path in files]
    assert job(files)()["bytes_per_s"] == 4096
    assert synced == []
    assert job(files, kind=IOKind.WRITE, new_bytes=4096)()["bytes_per_s"] <= 8192 / 2.02
    assert synced == inodes
    assert not any(path.exists() for path in files)


def test_a_changed_byte_in_a_sealed_file_fails_a_verified_read(tmp_path: Path) -> None:
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed")
    path = tmp_path / "sealed.bin"
    fio.seal(path, 8 << 20, 4096)  # fio reads it once, which has to take milliseconds
    verified = job([path], order=IOOrder.RANDOM, block_bytes=4096, is_verified=True, seconds=1.0)
    assert verified()["operations_per_s"] > 0
    content = bytearray(path.read_bytes())
    for start in range(0, len(content), 4096):
        content[start + 3000] ^= 1
    path.write_bytes(content)
    with pytest.raises(NotMeasuredError, match="Received CRC"):
        verified()
