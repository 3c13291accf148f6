"""What every queue holds to: each request is answered once, with its own block, or is missed."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.loaders.faults import breaking_file
from tests.loaders.gpu_queue.plans import NONCE, UNIT, queue_file, queue_of
from wattload.core.io import BlockIdentity
from wattload.loaders.block_reads import ReadFile
from wattload.loaders.engine import library
from wattload.loaders.gpu.failures import NativeError
from wattload.loaders.gpu.native import block_numbers
from wattload.loaders.stamps import seal

MIB = 1 << 20
FILE_BYTES = MIB
SPARSE_BYTES = 1 << 40
EDGE_NS = 5 * 10**6
"""A poller's CPU time is read a little before and after its requests."""
FIRST_NUMBERS = [0, (1 << 20) - 1, (1 << 20) - 3, (1 << 27) - 3, (1 << 32) - 3, (1 << 40) + 5]
"""Beginnings before the wrap of generations, of the positions of a ring, and of 32 bits."""


class Outcome(NamedTuple):
    """What a run left, with the queue closed."""

    result: ctypes.Structure
    error: NativeError | None
    targets: list[ctypes.Structure]
    pollers: list[ctypes.Structure]
    trace: NDArray[np.void]


def stamped(word: int, size: int = FILE_BYTES, first_block: int = 0) -> NDArray[np.uint8]:
    content = np.random.default_rng(word).integers(0, 256, size, dtype=np.uint8)
    seal(content, BlockIdentity(NONCE, word), first_block=first_block, unit_bytes=UNIT)
    return content


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[ReadFile]:
    """Three files with stamps of their own."""
    folder = tmp_path_factory.mktemp("files")
    targets = []
    for word in range(3):
        path = folder / f"{word}"
        path.write_bytes(stamped(word, first_block=100 * word).tobytes())
        targets.append(queue_file(path, FILE_BYTES, word, 100 * word))
    return targets


def run(targets: Sequence[ReadFile], **changes: Any) -> Outcome:
    """Run a small queue with requesters on the CPU."""
    queue = queue_of(targets, **changes)
    try:
        queue.start()
        result, error = queue.run()
        return Outcome(
            result,
            error,
            [queue.target(number) for number in range(len(targets))],
            [queue.poller(number) for number in range(changes.get("pollers", 1))],
            queue.trace(),
        )
    finally:
        queue.close()


@st.composite
def geometries(draw: st.DrawFn) -> dict[str, Any]:
    """Return the numbers of a queue of up to three targets."""
    requesters = 32 * draw(st.integers(1, 5))
    least = (requesters - 1).bit_length()
    targets, pairs = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    block = draw(st.sampled_from([512, 1024, 4096]))
    return {
        "targets": targets,
        "engine": draw(st.sampled_from(["storage", "memory", "null"])),
        "requesters": requesters,
        "queue_pairs": pairs,
        "queue_size": 1 << draw(st.integers(least, 10)),
        "pollers": draw(st.integers(1, min(4, pairs * targets))),
        "requester_threads": draw(st.integers(1, 3)),
        "pattern": draw(st.sampled_from(["uniform", "regions"])),
        "block_bytes": block,
        "read_bytes": block << draw(st.integers(0, 3)),
        "first_number": draw(st.sampled_from(FIRST_NUMBERS)),
        "seed": draw(st.integers(0, (1 << 64) - 1)),
    }


@settings(max_examples=25, deadline=None)
@given(geometry=geometries())
def test_every_request_is_answered_once_with_its_own_block(
    files: list[ReadFile], geometry: dict[str, Any]
) -> None:
    numbers = dict(geometry)
    targets = files[: numbers.pop("targets")]
    result, error, found, pollers, _ = run(targets, duration_s=0.02, **numbers)
    assert error is None
    assert result.requests == result.taken == result.answered == result.operations
    assert result.failed == result.wrong == result.unanswered == result.bad_blocks == 0
    assert sum(each.operations for each in found) == result.operations
    assert sum(each.answered for each in pollers) == result.answered
    longest_ns = result.end_ns - result.start_ns + EDGE_NS
    assert all(0 < each.busy_ns <= longest_ns for each in pollers if each.answered)
    delivers = geometry["engine"] != "null"
    reads = geometry["engine"] == "storage"
    slots = len(targets) * geometry["requesters"]
    assert result.delivered == (result.requests if delivers else 0)
    assert result.compared_bytes <= slots * geometry["block_bytes"]
    assert (result.compared_bytes > 0) == (delivers and result.requests > 0)
    assert sum(sum(each.latencies.counts) for each in found) == (result.operations if reads else 0)


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> ReadFile:
    """A file of so many blocks, all holes, that no two lanes draw the same one."""
    path = tmp_path_factory.mktemp("sparse") / "file"
    path.touch()
    os.truncate(path, SPARSE_BYTES)
    return queue_file(path, SPARSE_BYTES, 0)


def assert_next_of_a_lane(
    read: Sequence[int], warp: int, count: int, *, first: int = 0, number: int = 0
) -> None:
    """Each block that was read, in order, is the next one of a lane of the warp."""
    numbers = number + np.arange(len(read) + 1, dtype=np.uint64)
    drawn = [
        (block_numbers(9, 32 * warp + lane, numbers, count) + np.uint64(first)).tolist()
        for lane in range(32)
    ]
    made = [0] * 32
    expected = {drawn[lane][0]: lane for lane in range(32)}
    for block in read:
        lane = expected.pop(block)
        made[lane] += 1
        expected[drawn[lane][made[lane]]] = lane
    assert min(made) > 0


@pytest.mark.parametrize("pattern", ["uniform", "regions"])
@pytest.mark.parametrize(("block", "read"), [(512, 512), (512, 4096), (4096, 4096)])
@pytest.mark.parametrize("number", [0, (1 << 32) - 3])
def test_reads_are_those_of_seed_and_requester(
    sparse: ReadFile, pattern: str, block: int, read: int, number: int
) -> None:
    found = run(
        [sparse] * 3, requesters=32, queue_size=32, pattern=pattern, block_bytes=block,
        read_bytes=read, first_number=number, trace_every=1, seed=9, duration_s=0.01,
    )  # fmt: skip
    assert found.error is None
    assert len(found.trace) == found.result.requests
    for target in range(3):
        rows = found.trace[found.trace["file"] == target]
        blocks = (rows["offset_bytes"] // block).tolist()
        assert_next_of_a_lane(blocks, target, SPARSE_BYTES // block, number=number)


def test_a_warp_reads_its_own_region(sparse: ReadFile) -> None:
    warps, count = 3, SPARSE_BYTES // 512 // 3
    found = run(
        [sparse],
        requesters=32 * warps,
        queue_size=128,
        pattern="regions",
        trace_every=1,
        seed=9,
        duration_s=0.01,
    )
    blocks = found.trace["offset_bytes"] // 512
    assert len(blocks) == found.result.requests
    for warp in range(warps):
        own = blocks[(blocks >= warp * count) & (blocks < (warp + 1) * count)]
        assert_next_of_a_lane(own.tolist(), warp, count, first=warp * count)


def test_the_queue_alone_is_measured_before(files: list[ReadFile]) -> None:
    result = run(files[:1], ceiling_s=0.05).result
    assert min(result.null_requests, result.requests) > 0
    assert result.null_ns >= 0.05e9
    assert result.pull_requests == result.pull_ns == 0


def test_latencies_are_those_of_all_reads_and_of_some_requests(files: list[ReadFile]) -> None:
    result, _, (target,), _, _ = run(files[:1], sample_every=4)
    mean_ns = target.latencies.sum_ns / target.operations
    assert 0 < target.latencies.min_ns <= mean_ns <= target.latencies.max_ns
    assert abs(sum(result.counts) - result.requests / 4) <= 64  # the requests of two warps


@pytest.mark.parametrize("engine", ["storage", "memory", "null"])
@pytest.mark.parametrize("pollers", [1, 3])
def test_a_target_that_hangs_is_named(files: list[ReadFile], engine: str, pollers: int) -> None:
    result, error, ends, *_ = run(
        files, engine=engine, pollers=pollers, fault="silent", hang_s=0.3, duration_s=30
    )
    assert error is not None
    assert (error.code, error.offset) == (library.HANGS, 64)
    assert error.path == (str(files[-1].path) if engine == "storage" else "")
    assert result.unanswered == 64
    assert all(each.operations > 64 for each in ends[:-1])


@pytest.mark.parametrize("engine", ["storage", "memory", "null"])
def test_an_answer_that_counts_twice_is_seen_in_the_counts(
    files: list[ReadFile], engine: str
) -> None:
    result, error, *_ = run(files[:1], engine=engine, fault="twice", duration_s=1)
    assert error is None
    assert result.requests == result.taken
    assert result.answered == result.operations > result.requests


@pytest.mark.parametrize(("block", "read"), [(512, 512), (512, 4096)])
def test_a_swapped_answer_is_seen_in_the_stamps(
    files: list[ReadFile], block: int, read: int
) -> None:
    result, error, *_ = run(
        files[:2], fault="swapped", duration_s=1, block_bytes=block, read_bytes=read
    )
    assert error is None
    assert result.answered == result.requests == result.delivered + result.wrong
    assert 0 < result.wrong <= result.requests // 64 + 1
    assert result.wrong_target in (0, 1)
    assert result.wrong_offset % block == 0


def test_a_changed_block_is_named(tmp_path: Path) -> None:
    size = 64 * UNIT
    content = stamped(1, size)
    content[30 * UNIT] ^= 1
    (tmp_path / "file").write_bytes(content.tobytes())
    result = run([queue_file(tmp_path / "file", size, 1)], duration_s=0.5).result
    assert result.wrong > 0
    assert (result.wrong_target, result.wrong_offset) == (0, 30 * UNIT)


def test_bytes_behind_the_stamp_are_compared_in_the_last_blocks(tmp_path: Path) -> None:
    content = stamped(1).reshape(-1, UNIT)
    content[:, 200] ^= 1
    (tmp_path / "file").write_bytes(content.tobytes())
    result = run([queue_file(tmp_path / "file", FILE_BYTES, 1)]).result
    assert result.wrong == 0
    assert result.bad_blocks == result.compared_bytes // UNIT == 64


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReadFile]:
    """A file with stamps of which reads fail from some block on, with EIO."""
    size = 24 * MIB
    content = stamped(1, size).tobytes()
    with breaking_file(tmp_path_factory.mktemp("broken"), size, content) as path:
        yield queue_file(path, size, 1)


@settings(max_examples=25, deadline=None)
@given(geometry=geometries(), place=st.integers(0, 2), size_mib=st.integers(20, 24))
def test_errors_in_random_slots_are_counted_once_and_for_their_file(
    files: list[ReadFile], broken: ReadFile, geometry: dict[str, Any], place: int, size_mib: int
) -> None:
    numbers = {**geometry, "engine": "storage"}
    targets = files[: numbers.pop("targets")]
    place = min(place, len(targets) - 1)
    targets[place] = replace(broken, size_bytes=size_mib * MIB)
    result, error, ends, _, trace = run(targets, duration_s=0.02, trace_every=1, **numbers)
    assert error is None
    assert result.requests == result.taken == result.answered
    assert result.requests == result.delivered + result.failed
    assert result.operations == result.delivered == sum(each.operations for each in ends)
    assert result.wrong == result.unanswered == result.bad_blocks == 0
    failures = [each for each in result.failures if each.count]
    assert sum(each.count for each in failures) == result.failed
    assert {(each.target, each.code) for each in failures} <= {
        (place, code) for code in (errno.EIO, library.SHORT_READ)
    }
    assert all(each.offset % numbers["block_bytes"] == 0 for each in failures)
    assert len(trace) == result.operations, "what failed is not traced"


def test_a_read_past_the_end_is_short(files: list[ReadFile], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(stamped(1).tobytes())
    queue = queue_of([files[0], queue_file(path, FILE_BYTES, 1)])
    os.truncate(path, FILE_BYTES // 2)
    try:
        queue.start()
        result, error = queue.run()
    finally:
        queue.close()
    assert error is None
    assert result.requests == result.answered == result.delivered + result.failed
    (failure,) = (each for each in result.failures if each.count)
    assert (failure.code, failure.target) == (library.SHORT_READ, 1)
    assert failure.count == result.failed > 0
    assert failure.offset >= FILE_BYTES // 2


@pytest.mark.parametrize("engine", ["storage", "null"])
def test_stop_ends_a_run_within_a_second(files: list[ReadFile], engine: str) -> None:
    queue = queue_of(files[:2], engine=engine, duration_s=600, ceiling_s=600, pollers=2)
    stopped_s = []

    def stop() -> None:
        time.sleep(0.2)
        stopped_s.append(time.monotonic())
        queue.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        result, error = queue.run()
        ended_s = time.monotonic()
    finally:
        thread.join()
        queue.close()
    assert error is None
    assert ended_s - stopped_s[0] < 1
    assert result.requests == result.answered


def test_a_queue_that_never_ran_is_closed(files: list[ReadFile]) -> None:
    queue_of(files, pollers=4).close()


def test_more_requesters_than_a_ring_has_places_starve_no_target(files: list[ReadFile]) -> None:
    """One poller, and as many requesters as it takes entries from the kernel's largest ring."""
    found = run(
        files, requesters=16384, queue_size=16384, queue_pairs=1, duration_s=0.3,
        table_bytes=1 << 23,
    )  # fmt: skip
    assert found.error is None
    least, *_, most = sorted(each.operations for each in found.targets)
    assert least > most / 2


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"requesters": 500}, "multiple of 32"),
        ({"requesters": 64, "queue_size": 32}, "at least requesters"),
        ({"queue_size": 96}, "power of two"),
        ({"pollers": 3}, "at most all queue pairs"),
        ({"block_bytes": 256}, "512 to 65536"),
        ({"block_bytes": 4096, "read_bytes": 512}, "block_bytes to 1 MiB"),
        ({"table_bytes": 1 << 15}, "64 KiB to 4 GiB"),
        ({"hang_s": 0.0}, "hang_ms"),
        (
            {"pattern": "regions", "block_bytes": 65536, "read_bytes": 65536, "requesters": 1024,
             "queue_size": 1024},
            "a block for each warp",
        ),
    ],
)  # fmt: skip
def test_numbers_that_do_not_fit_are_refused(
    files: list[ReadFile], changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(NativeError, match=text) as refused:
        run(files[:1], **changes)
    assert refused.value.code == library.BAD_SETUP


def test_a_file_that_is_shorter_than_planned_is_refused(files: list[ReadFile]) -> None:
    target = queue_file(files[0].path, FILE_BYTES + 512, 0)
    with pytest.raises(NativeError) as refused:
        run([target])
    assert (refused.value.code, refused.value.offset) == (library.OTHER_SIZE, FILE_BYTES)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NativeError) as refused:
        run([queue_file(tmp_path / "none", FILE_BYTES, 0)])
    assert (refused.value.code, refused.value.path) == (errno.ENOENT, str(tmp_path / "none"))
