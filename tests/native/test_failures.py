"""What goes wrong is one error with its file and offset; nothing partial passes for whole."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.native.driver import Driver
from tests.native.plans import (
    CHECK,
    DEVICE,
    DIRECT,
    EXTENDING,
    FSYNC,
    NO_CHANGE,
    STAMP,
    WRITE,
    Plan,
)
from tests.native.test_devices import numbers
from tests.tinyfs import SIZE_BYTES, tiny_file_system

BLOCK = 65536
ENOENT, EIO, ENOMEM, EINVAL, ENXIO, ENOSPC, ELOOP = 2, 5, 12, 22, 6, 28, 40
UNAVAILABLE, SHORT_READ, CHANGED, NOT_DIRECT = -3, -4, -5, -6

through_files = pytest.mark.parametrize("backend", ["io_uring", "pread"])


@through_files
@pytest.mark.parametrize("size", [5 * BLOCK + 100, 5 * BLOCK, 0])
@pytest.mark.parametrize("flags", [DIRECT, 0])
def test_a_file_that_ends_too_early_is_an_error_where_it_ends(
    driver: Driver, tmp_path: Path, backend: str, size: int, flags: int
) -> None:
    file = tmp_path / "short"
    file.write_bytes(b"x" * size)
    plan = Plan(paths=[file], extents=[(0, 0, 5 * BLOCK + 4096)], flags=flags, depth=1)
    job = driver.run(plan, backend=backend).job
    assert (job["code"], job["path"], job["offset"]) == (SHORT_READ, str(file), size)
    assert job["bytes"] == size // BLOCK * BLOCK
    assert job["text"] == "read: the file ends before the extent"


def test_links_and_pipes_are_refused(driver: Driver, tmp_path: Path) -> None:
    link, pipe, file = tmp_path / "link", tmp_path / "pipe", tmp_path / "file"
    file.write_bytes(bytes(BLOCK))
    link.symlink_to(file)
    os.mkfifo(pipe)
    for path, kind, code in [(link, 0, ELOOP), (pipe, 0, EINVAL), (pipe, WRITE, ENXIO)]:
        plan = Plan(paths=[path], extents=[(0, 0, BLOCK)], kind=kind, flags=0)
        assert driver.run(plan).job["code"] == code


@through_files
def test_an_error_of_the_kernel_has_its_place(driver: Driver, backend: str) -> None:
    # nothing is mapped at the first page, and reading nothing fails with EIO
    plan = Plan(paths=[Path("/proc/self/mem")], extents=[(0, 0, 4 * BLOCK)], flags=0, depth=1)
    job = driver.run(plan, backend=backend).job
    assert (job["code"], job["offset"], job["bytes"]) == (EIO, 0, 0)
    assert job["text"] == "read: Input/output error"


@through_files
def test_a_full_target_is_found_before_the_first_write(
    driver: Driver, tmp_path: Path, backend: str
) -> None:
    with tiny_file_system(tmp_path) as target:
        file = target / "large"
        plan = Plan(paths=[file], extents=[(0, 0, 2 * SIZE_BYTES)], kind=WRITE)
        job = driver.run(plan, backend=backend).job
    assert (job["code"], job["operations"]) == (ENOSPC, 0)
    assert job["text"] == "preallocation: No space left on device"


@through_files
def test_a_target_that_fills_up_is_an_error_midway(
    driver: Driver, tmp_path: Path, backend: str
) -> None:
    with tiny_file_system(tmp_path) as target:
        file = target / "large"
        plan = Plan(
            paths=[file], extents=[(0, 0, 2 * SIZE_BYTES)], kind=WRITE, allocation=EXTENDING,
            flags=DIRECT | STAMP | FSYNC,
        )  # fmt: skip
        job = driver.run(plan, backend=backend, register=3).job
    assert (job["code"], job["path"], job["synced_files"]) == (ENOSPC, str(file), 0)
    assert 0 < job["bytes"] < SIZE_BYTES
    assert job["offset"] % 4096 == 0
    assert job["operations"] == job["counted"]


@contextmanager
def failing_device(folder: Path) -> Iterator[Path]:
    """A block device that takes some bytes and then fails: a loop over a file on a full target."""
    with tiny_file_system(folder) as target:
        image = target / "image"
        with image.open("wb") as file:
            file.truncate(4 * SIZE_BYTES)
        command = ["losetup", "--find", "--show", str(image)]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip("this machine sets up no loop device")
        try:
            yield Path(made.stdout.strip())
        finally:
            subprocess.run(["losetup", "--detach", made.stdout.strip()], check=True)


@through_files
def test_a_device_that_fails_midway_is_an_error_with_its_offset(
    driver: Driver, tmp_path: Path, backend: str
) -> None:
    with failing_device(tmp_path) as device:
        plan = Plan(
            paths=[device], extents=[(0, 0, 4 * SIZE_BYTES)], kind=WRITE, depth=4,
            flags=DIRECT | DEVICE, device=numbers(device),
        )  # fmt: skip
        job = driver.run(plan, backend=backend).job
    assert job["code"] in {EIO, ENOSPC}
    assert 0 < job["bytes"] < 4 * SIZE_BYTES
    assert job["offset"] >= BLOCK
    assert job["path"] == str(device)


def test_a_device_is_not_written_behind_the_plans_end(driver: Driver, tmp_path: Path) -> None:
    with failing_device(tmp_path) as device:
        plan = Plan(
            paths=[device], extents=[(0, 0, BLOCK + 100)], kind=WRITE, flags=DIRECT | DEVICE,
            device=numbers(device),
        )  # fmt: skip
        job = driver.run(plan).job
    assert (job["code"], job["offset"], job["operations"]) == (EINVAL, BLOCK + 100, 0)
    assert "continues after the plan's end, which is not a multiple of 4096" in job["text"]


@through_files
def test_a_file_that_changes_while_it_is_read_is_an_error(
    driver: Driver, tmp_path: Path, backend: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(40 * BLOCK))
    rate = 40 * BLOCK * 4  # a quarter of a second
    plan = Plan(paths=[file], extents=[(0, 0, 40 * BLOCK)], flags=DIRECT | NO_CHANGE, rate=rate)

    stop = threading.Event()

    def touch() -> None:
        while not stop.wait(0.01):
            os.utime(file)

    thread = threading.Thread(target=touch)
    thread.start()
    try:
        changed = driver.run(plan, backend=backend).job
    finally:
        stop.set()
        thread.join()
    assert (changed["code"], changed["path"]) == (CHANGED, str(file))
    assert driver.run(plan, backend=backend).job["code"] == 0


@through_files
def test_an_error_leaves_the_jobs_behind_it_alone(
    driver: Driver, tmp_path: Path, backend: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(8 * BLOCK))
    good = Plan(paths=[file], extents=[(0, 0, 8 * BLOCK)], flags=DIRECT | CHECK)
    bad = Plan(paths=[file], extents=[(0, 0, 9 * BLOCK)])
    codes = [job["code"] for job in driver.run(good, bad, good, backend=backend).jobs]
    assert codes == [0, SHORT_READ, 0]


def test_too_little_lockable_memory_refuses_registration_only(
    driver: Driver, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(4 * BLOCK))
    plan = Plan(paths=[file], extents=[(0, 0, 4 * BLOCK)])
    outcome = driver.run(plan, register=3, memlock=4 * BLOCK)
    assert outcome.facts["buffers_refused"] == ENOMEM
    assert outcome.facts["files_refused"] == 0
    assert (outcome.job["code"], outcome.job["bytes"]) == (0, 4 * BLOCK)


def test_no_lockable_memory_is_the_reason_where_it_refuses_the_ring(
    driver: Driver, tmp_path: Path
) -> None:
    # rings count as locked memory before Linux 5.12, and again since 6.14
    (line, *_) = driver.lines(register=3, memlock=0)
    if "open" in line:
        assert "RLIMIT_MEMLOCK" in line["open"]["text"]
    else:
        assert line["buffers_refused"] == ENOMEM


def test_where_io_uring_is_forbidden_pread_goes_on(driver: Driver, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(4 * BLOCK))
    plan = Plan(paths=[file], extents=[(0, 0, 4 * BLOCK)])
    (probed,) = driver.lines(seccomp=1, probe=1)
    (opened,) = driver.lines(plan, seccomp=1)
    for refused in (probed["probe"], opened["open"]):
        assert refused["code"] == UNAVAILABLE
        assert refused["text"].startswith("io_uring")
    assert driver.run(plan, seccomp=1, backend="pread").job["bytes"] == 4 * BLOCK


@pytest.mark.parametrize("name", ["io_uring", "pread", "memory", "null"])
def test_every_backend_can_be_asked_whether_it_runs(driver: Driver, name: str) -> None:
    (line,) = driver.lines(backend=name, probe=1)
    assert line["probe"]["code"] == 0


def test_a_setup_out_of_range_is_refused(driver: Driver) -> None:
    for options in ({"depth": 0}, {"depth": 4097, "block": 512}, {"pollers": 65}, {"block": 256}):
        (line,) = driver.lines(**options)
        assert line["open"]["code"] == -2
    (line,) = driver.lines(backend="abacus")
    assert line["open"]["text"] == "unknown backend abacus"


@through_files
def test_a_stop_midway_is_prompt_and_leaves_a_partial_job(
    driver: Driver, tmp_path: Path, backend: str
) -> None:
    file = tmp_path / "file"
    plan = Plan(
        paths=[file], extents=[(0, 0, 100 * BLOCK)], kind=WRITE, flags=DIRECT | FSYNC,
        rate=10 * BLOCK,
    )  # fmt: skip
    jobs = driver.run(plan, plan, plan, backend=backend, stop_ms=150).jobs
    assert [job["stopped"] for job in jobs] == [1, 1, 1]
    assert [job["synced_files"] for job in jobs] == [0, 0, 0]
    assert 0 < jobs[0]["bytes"] < 100 * BLOCK
    assert jobs[1]["bytes"] == jobs[2]["bytes"] == 0


@through_files
def test_closing_ends_the_jobs_in_flight(driver: Driver, tmp_path: Path, backend: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(100 * BLOCK))
    plan = Plan(paths=[file], extents=[(0, 0, 100 * BLOCK)], duration_ns=60_000_000_000)
    jobs = driver.run(*[plan] * 5, backend=backend, close_ms=30, pollers=2, register=3).jobs
    assert [job["stopped"] for job in jobs] == [1] * 5
    assert [job["code"] for job in jobs] == [0] * 5
    assert jobs[0]["operations"] == jobs[0]["counted"] > 0
