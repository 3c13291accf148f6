"""Which blocks are moved, in which order and how often; what histograms and traces say of it."""

from __future__ import annotations

import struct
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.native.driver import Build, Driver
from tests.native.plans import LISTED, RANDOM, SEQUENTIAL, Plan
from wattload.core.histogram import Histogram, bucket_of

BLOCK = 4096
LOOPS = ["null", "memory"]


def traced(path: Path) -> list[tuple[int, int, int, int]]:
    """Return the rows of a trace: submit_ns, offset, latency_ns, file."""
    return list(struct.iter_unpack("<QQII", path.read_bytes()))


@pytest.mark.parametrize("backend", LOOPS)
@pytest.mark.parametrize("pollers", [1, 3])
@pytest.mark.parametrize("order", [SEQUENTIAL, RANDOM])
def test_one_pass_touches_each_block_once(
    driver: Driver, tmp_path: Path, backend: str, pollers: int, order: int
) -> None:
    extents = [(0, 0, 1000 * BLOCK), (1, 0, 0), (1, BLOCK, 333 * BLOCK + 5), (0, 1 << 30, BLOCK)]
    plan = Plan(
        paths=[Path("/a"), Path("/b")], extents=extents, block=BLOCK, order=order, trace_every=1
    )
    trace = tmp_path / "trace"
    job = driver.run(plan, backend=backend, pollers=pollers, trace=trace).job
    expected = [(file, at) for file, o, n in extents for at in range(o, o + n, BLOCK)]
    seen = [(file, offset) for _, offset, _, file in traced(trace)]
    assert sorted(seen) == sorted(expected)
    assert job["operations"] == job["counted"] == job["rows"] == len(expected)
    assert job["bytes"] == sum(length for _, _, length in extents)


@pytest.mark.parametrize("backend", LOOPS)
@pytest.mark.parametrize("pollers", [1, 3])
def test_listed_blocks_are_moved_as_often_as_they_are_listed(
    driver: Driver, tmp_path: Path, backend: str, pollers: int
) -> None:
    extents = [(0, 1 << 20, 3 * BLOCK), (1, 0, 0), (1, BLOCK, 2 * BLOCK + 5)]
    places = [(0, (1 << 20) + at * BLOCK) for at in range(3)]
    places += [(1, at * BLOCK) for at in (1, 2, 3)]
    listed = [5, 0, 3, 3, 2, 5, 4] * 100
    plan = Plan(
        paths=[Path("/a"), Path("/b")], extents=extents, block=BLOCK, order=LISTED,
        listed=listed, trace_every=1,
    )  # fmt: skip
    trace = tmp_path / "trace"
    job = driver.run(plan, backend=backend, pollers=pollers, trace=trace).job
    seen = [(file, offset) for _, offset, _, file in traced(trace)]
    assert Counter(seen) == Counter(places[number] for number in listed)
    assert job["operations"] == len(listed)
    assert job["bytes"] == sum(5 if number == 5 else BLOCK for number in listed)


@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 64, 65, 4097])
def test_every_size_of_a_permutation_is_one(driver: Driver, tmp_path: Path, blocks: int) -> None:
    trace = tmp_path / "trace"
    orders = []
    for seed in (1, 2):
        plan = Plan(
            paths=[Path("/a")], extents=[(0, 0, blocks * BLOCK)], block=BLOCK, order=RANDOM,
            seed=seed, trace_every=1, depth=1,
        )  # fmt: skip
        driver.run(plan, backend="null", trace=trace)
        orders.append([offset // BLOCK for _, offset, _, _ in traced(trace)])
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(blocks))
    if blocks > 5:
        assert orders[0] != orders[1] != sorted(orders[1])


@pytest.mark.parametrize("blocks", [(1 << 32) + 1, 1 << 40])
def test_a_permutation_of_more_than_32_bits_is_one(
    build: Build, tmp_path: Path, blocks: int
) -> None:
    """A million operations meet no block twice, in each order.

    Drawn uniformly they would meet 2^40 / 2 / blocks twice: 128, 43 or 0.5 on average.
    """
    program = build("address", "blocks.c")
    count = 1 << 20
    orders = []
    for seed in (1, 2):
        path = tmp_path / f"{seed}.plan"
        plan = Plan(
            paths=[Path("/a")], extents=[(0, 0, blocks * BLOCK)], block=BLOCK, order=RANDOM,
            seed=seed,
        )  # fmt: skip
        path.write_bytes(plan.encode())
        command = [str(program), str(path), str(count)]
        ran = subprocess.run(command, capture_output=True, check=False)
        assert not ran.returncode, ran.stderr
        orders.append(np.frombuffer(ran.stdout, dtype=np.uint64))
    for order in orders:
        assert len(np.unique(order)) == count
        assert order.max() < blocks
        # the mean of uniform numbers is off by more than six deviations once in 10^9
        assert abs(order.mean() / blocks - 0.5) < 6 / (12 * count) ** 0.5
    assert (orders[0] == orders[1]).sum() < 10


def test_sequential_blocks_come_in_order_and_again_from_the_start(
    driver: Driver, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    plan = Plan(
        paths=[Path("/a")], extents=[(0, 0, 3 * BLOCK), (0, 8 * BLOCK, 2 * BLOCK)], block=BLOCK,
        operations=12, trace_every=1, depth=1,
    )  # fmt: skip
    driver.run(plan, backend="null", trace=trace)
    offsets = [offset // BLOCK for _, offset, _, _ in traced(trace)]
    assert offsets == [0, 1, 2, 8, 9, 0, 1, 2, 8, 9, 0, 1]


def test_uniform_draws_reach_all_blocks_evenly(driver: Driver, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    plan = Plan(
        paths=[Path("/a")], extents=[(0, 0, 100 * BLOCK)], block=BLOCK, order=RANDOM,
        operations=50_000, trace_every=1,
    )  # fmt: skip
    job = driver.run(plan, backend="null", trace=trace).job
    counts = Counter(offset for _, offset, _, _ in traced(trace))
    expected = 500
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert job["operations"] == 50_000
    assert len(counts) == 100
    assert chi_square < 170  # 99 degrees of freedom: above with a chance of 1e-5


@pytest.mark.parametrize("pollers", [1, 4])
def test_a_long_trace_is_thinned_evenly(driver: Driver, tmp_path: Path, pollers: int) -> None:
    trace = tmp_path / "trace"
    plan = Plan(paths=[Path("/a")], extents=[(0, 0, 300_000 * BLOCK)], block=BLOCK, trace_every=2)
    job = driver.run(plan, backend="null", pollers=pollers, trace=trace).job
    rows = traced(trace)
    blocks = sorted(offset // BLOCK for _, offset, _, _ in rows)
    steps = {b - a for a, b in pairwise(blocks)}
    assert 2_000 < job["rows"] <= 65_536
    assert len(steps) == 1
    assert (steps.pop() & 1) == 0
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)


def test_under_a_rate_latency_runs_from_when_an_operation_was_due(
    driver: Driver, tmp_path: Path
) -> None:
    """One read of 1,000 a second takes half a second: those due meanwhile wait for it.

    The operation due t after the stalled one waits 0.5 s - t, so that 500 are late, 250 of them by
    a quarter of a second and more. From its own submission only one is slow: the trace says so.
    """
    file, counts, trace = tmp_path / "file", tmp_path / "counts", tmp_path / "trace"
    file.write_bytes(bytes(64 * BLOCK))
    plan = Plan(
        paths=[file], extents=[(0, 0, 64 * BLOCK)], block=BLOCK, rate=1000 * BLOCK, depth=1,
        operations=1500, trace_every=1,
    )  # fmt: skip
    stall = {"stall_ms": 500, "stall_at": 300}
    job = driver.run(plan, backend="pread", depth=1, counts=counts, trace=trace, **stall).job
    histogram = Histogram(np.frombuffer(counts.read_bytes(), dtype=np.uint64))
    quarter = bucket_of(250_000_000)
    assert histogram.count == job["operations"] == 1500
    assert histogram.counts[quarter:].sum() >= 245
    assert histogram.counts[bucket_of(100_000_000) :].sum() >= 395
    assert job["latency_max_ns"] >= 500_000_000
    assert job["latency_sum_ns"] >= 500 * 250_000_000 * 0.98
    in_flight = [latency for _, _, latency, _ in traced(trace)]
    assert max(in_flight) >= 500_000_000
    assert sum(in_flight) < job["latency_sum_ns"] / 10
