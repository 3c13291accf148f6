"""Many jobs at once, many pollers, many files: with the thread sanitizer too."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.native.driver import Driver
from tests.native.plans import CHECK, DESTINATION, DIRECT, FSYNC, RANDOM, STAMP, WRITE, Plan

BLOCK = 65536
BACKENDS = [("io_uring", 0), ("io_uring", 3), ("pread", 0)]

everywhere = pytest.mark.parametrize(("backend", "register"), BACKENDS)


def check_thirty_queued_jobs(driver: Driver, folder: Path, backend: str, register: int) -> None:
    sizes = [random.Random(i).randrange(1, 20 * BLOCK) for i in range(30)]
    room = 20 * BLOCK
    plans, expected = [], b""
    for i, size in enumerate(sizes):
        file = folder / f"{i}"
        data = random.Random(i).randbytes(size)
        file.write_bytes(data)
        plans.append(
            Plan(
                paths=[file],
                extents=[(0, 0, size)],
                flags=DIRECT | DESTINATION | CHECK,
                region=1,
                destination=i * room,
            )
        )
        expected += data.ljust(room, b"\0")
    dump = folder / "dump"
    outcome = driver.run(
        *plans, backend=backend, register=register, pollers=3, regions=30 * room, dump=dump
    )
    memory = dump.read_bytes()[3 * 8 * BLOCK :]
    for i, (job, size) in enumerate(zip(outcome.jobs, sizes, strict=True)):
        assert (job["code"], job["bytes"], job["counted"]) == (0, size, job["operations"])
        assert memory[i * room : i * room + size] == expected[i * room : i * room + size]
    starts = [job["start_ns"] for job in outcome.jobs]
    assert starts == sorted(starts)


@everywhere
def test_thirty_queued_jobs_fill_their_own_memory(
    driver: Driver, tmp_path: Path, backend: str, register: int
) -> None:
    check_thirty_queued_jobs(driver, tmp_path, backend, register)


@everywhere
def test_queued_jobs_share_nothing_without_a_lock(
    threads_driver: Driver, tmp_path: Path, backend: str, register: int
) -> None:
    check_thirty_queued_jobs(threads_driver, tmp_path, backend, register)


def check_pollers_share_files(driver: Driver, folder: Path, backend: str, register: int) -> None:
    files = [folder / f"{i}" for i in range(20)]
    extents = [(i, 0, 7 * BLOCK + 4096) for i in range(20)]
    write = Plan(
        paths=files, extents=extents, kind=WRITE, order=RANDOM, flags=DIRECT | STAMP | FSYNC,
        nonce=3, trace_every=3,
    )  # fmt: skip
    read = Plan(
        paths=files, extents=extents, order=RANDOM, operations=1000, nonce=3, trace_every=2,
        flags=DIRECT | CHECK,
    )  # fmt: skip
    options = {"backend": backend, "register": register, "pollers": 4}
    written = driver.run(write, **options).job
    seen = driver.run(read, read, **options).jobs
    assert (written["code"], written["bytes"]) == (0, 20 * (7 * BLOCK + 4096))
    assert [(job["code"], job["bad_blocks"], job["counted"]) for job in seen] == [(0, 0, 1000)] * 2


@everywhere
def test_pollers_share_files(
    threads_driver: Driver, tmp_path: Path, backend: str, register: int
) -> None:
    check_pollers_share_files(threads_driver, tmp_path, backend, register)


@pytest.mark.parametrize("backend", ["io_uring", "pread", "memory", "null"])
def test_stops_and_closes_race_with_nothing(
    threads_driver: Driver, tmp_path: Path, backend: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(50 * BLOCK))
    plan = Plan(paths=[file], extents=[(0, 0, 50 * BLOCK)], duration_ns=60_000_000_000)
    for ending in ({"stop_ms": 20}, {"close_ms": 20}):
        jobs = threads_driver.run(*[plan] * 4, backend=backend, pollers=2, **ending).jobs
        assert [job["stopped"] for job in jobs] == [1] * 4


@pytest.mark.parametrize("backend", ["io_uring", "pread", "null"])
def test_jobs_can_be_freed_while_they_run(
    threads_driver: Driver, tmp_path: Path, backend: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(50 * BLOCK))
    plan = Plan(
        paths=[file], extents=[(0, 0, 50 * BLOCK)], flags=DIRECT | CHECK, duration_ns=60 * 10**9
    )
    outcome = threads_driver.run(*[plan] * 6, backend=backend, pollers=2, abandon=1)
    assert outcome.jobs == []


@pytest.mark.parametrize("backend", ["io_uring", "pread", "null"])
def test_readings_of_a_job_under_way_only_grow(
    threads_driver: Driver, tmp_path: Path, backend: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(50 * BLOCK))
    plan = Plan(paths=[file], extents=[(0, 0, 50 * BLOCK)], duration_ns=300_000_000)
    for job in threads_driver.run(plan, plan, backend=backend, pollers=3, read_ms=2).jobs:
        assert job["counted"] == job["operations"] > 0


def test_a_job_shallower_than_the_engine_keeps_its_depth(driver: Driver, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(50 * BLOCK))
    for backend in ("io_uring", "pread"):
        plan = Plan(paths=[file], extents=[(0, 0, 50 * BLOCK)], depth=1)
        job = driver.run(plan, backend=backend, depth=8, pollers=2).job
        busy_ns = job["last_io_ns"] - job["start_ns"]
        assert job["latency_sum_ns"] <= 2 * busy_ns


def test_a_sync_does_not_wait_for_a_paced_job_behind_it(driver: Driver, tmp_path: Path) -> None:
    """Each thread of pread holds one operation: the next job's second one is due in half a second.

    It is the last thread to leave a job that syncs its files; the other one begins the next job.
    """
    file = tmp_path / "file"
    write = Plan(
        paths=[file], extents=[(0, 0, 4 * BLOCK)], kind=WRITE, operations=8, depth=2,
        flags=DIRECT | FSYNC,
    )  # fmt: skip
    paced = Plan(paths=[file], extents=[(0, 0, 4 * BLOCK)], operations=2, depth=2, rate=2 * BLOCK)
    for _ in range(3):
        first, second = driver.run(write, paced, backend="pread", depth=2).jobs
        assert first["synced_files"] == 1
        assert first["end_ns"] < second["last_io_ns"]


def test_more_files_than_a_ring_can_register(driver: Driver, tmp_path: Path) -> None:
    files = [tmp_path / f"{i}" for i in range(1100)]
    for file in files:
        file.write_bytes(bytes(4096))
    plan = Plan(paths=files, extents=[(i, 0, 4096) for i in range(1100)], block=4096)
    job = driver.run(plan, register=3).job
    assert (job["code"], job["operations"]) == (0, 1100)
