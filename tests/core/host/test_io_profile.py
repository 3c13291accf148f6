"""What block devices saw: recorded pages of a real trace, pairs by hand, and a real trace."""

from __future__ import annotations

import base64
import gzip
import json
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.core.storage.mounting import mounted
from wattload.core.host.block_trace import (
    COMPLETE,
    ISSUE,
    REQUEUE,
    BlockEvents,
    TraceFormat,
    decode,
    device_number,
)
from wattload.core.host.io_profile import IOProfile, pair, profile, summary, table
from wattload.core.storage.targets import counting_devices, resolve_targets
from wattload.core.sysfs import Roots

RECORDED = Path(__file__).parents[2] / "data/trace/block_requests.json"
"""Linux 6.18: buffer pages of two CPUs, and the same events as the kernel prints them."""
KINDS = ("issue", "complete", "requeue")
ROW = 4096


def test_binary_pages_hold_the_events_that_the_kernel_prints() -> None:
    recorded = json.loads(RECORDED.read_text())
    found = decode(
        gzip.decompress(base64.b64decode(recorded["pages"])),
        TraceFormat.parse(recorded["header_page"]),
        [TraceFormat.parse(recorded[f"block_rq_{kind}"]) for kind in KINDS],
    )
    printed = []
    for line in recorded["events"]:
        at, kind, operation, sector, count = line.split()
        if int(count) and operation[0] in "RW":
            is_read = operation[0] == "R"
            printed.append((at, KINDS.index(kind), int(sector), int(count), is_read))
    times_us = (found.times_ns + 500) // 1000
    times = [f"{each // 10**6}.{each % 10**6:06}" for each in times_us.tolist()]
    columns = (found.kinds, found.sectors, found.sector_counts, found.is_read)
    assert len(printed) > 300
    assert list(zip(times, *(each.tolist() for each in columns), strict=True)) == printed
    assert set(found.numbers.tolist()) == {device_number("254:0")}


def events(*rows: tuple[int, int, int, int]) -> BlockEvents:
    """Return reads of 8 sectors from time (us), kind, device and sector."""
    times, kinds, numbers, sectors = (np.array(column) for column in zip(*rows, strict=True))
    return BlockEvents(
        times_ns=times.astype(np.int64) * 1000,
        kinds=kinds.astype(np.uint8),
        numbers=numbers.astype(np.uint32),
        sectors=sectors.astype(np.uint64),
        sector_counts=np.full(len(rows), 8, np.uint32),
        is_read=np.ones(len(rows), dtype=bool),
    )


def test_issues_meet_their_own_completions() -> None:
    requests = pair(
        events(
            (1, COMPLETE, 1, 0),  # of a request from before the trace
            (2, ISSUE, 1, 0),
            (3, ISSUE, 2, 0),  # the same sector of another device
            (4, ISSUE, 1, 0),  # twice at once: the first comes first
            (5, ISSUE, 1, 8),
            (6, REQUEUE, 1, 8),  # given back by the driver
            (7, COMPLETE, 1, 0),
            (9, ISSUE, 1, 8),
            (12, COMPLETE, 1, 0),
            (13, COMPLETE, 2, 0),
            (14, COMPLETE, 1, 8),
            (15, ISSUE, 1, 16),  # not completed within it
        )
    )
    spans = [(2, 7, 1), (3, 13, 2), (4, 12, 1), (9, 14, 1)]
    found = zip(requests["issued_ns"], requests["completed_ns"], requests["number"], strict=True)
    assert [(one // 1000, other // 1000, number) for one, other, number in found] == spans
    said = summary(requests, seconds=1.0, lost_events=3)
    assert said.reads == 4
    assert said.read_bytes == 4 * ROW
    assert said.peak_depth == 3
    # From 2 to 14 us something was in flight; the requests took 5, 10, 8 and 5 us.
    assert said.mean_depth == pytest.approx(28 / 12)
    assert said.latency is not None
    assert said.latency.mean_s == pytest.approx(7e-6)
    assert said.latency.p99_s == pytest.approx(10e-6)
    assert said.lost_events == 3
    assert table(requests, {1: "a", 2: "b"}).column("device").to_pylist() == ["a", "b", "a", "a"]


def test_nothing_traced_is_none_not_zero() -> None:
    said = summary(pair(events((1, ISSUE, 1, 0))), seconds=1.0, lost_events=0)
    assert (said.reads, said.sizes, said.mean_read_bytes) == (0, (), None)
    assert (said.mean_depth, said.peak_depth, said.latency) == (None, None, None)


@pytest.fixture
def devices(tmp_path: Path) -> tuple[str, ...]:
    found = counting_devices(resolve_targets([tmp_path], host="h")[0])
    if not found:
        pytest.skip(f"no block device is known below {tmp_path}")
    return found


@pytest.fixture
def tracing(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "tracing", "-t", "tracefs", "tracefs") as at:
        yield at


def read_rows(path: Path, count: int) -> None:
    """Write a file and read rows of it by O_DIRECT, one at a time."""
    path.write_bytes(os.urandom(count * ROW))
    with mmap.mmap(-1, ROW) as memory:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            os.fsync(descriptor)
            for row in range(count):
                os.preadv(descriptor, [memory], row * ROW)
        finally:
            os.close(descriptor)


def test_a_trace_has_every_read_and_goes(
    tmp_path: Path, devices: tuple[str, ...], tracing: Path
) -> None:
    killed = "import os; from wattload.core.host.block_trace import BlockTrace; " + (
        f"trace = BlockTrace([{device_number('7:0')}]); os.kill(os.getpid(), 9)"
    )
    process = subprocess.Popen([sys.executable, "-c", killed])
    process.wait(timeout=60)
    instances = tracing / "instances"
    assert list(instances.glob(f"wattload-trace-{process.pid}-*"))
    with profile(devices) as traced:
        assert list(instances.glob(f"wattload-trace-{os.getpid()}-*"))
        read_rows(tmp_path / "rows", 300)
    for pid in (process.pid, os.getpid()):
        assert not list(instances.glob(f"wattload-trace-{pid}-*"))
    said, requests = traced.result, traced.requests
    assert said is not None
    assert said.source == "tracefs"
    assert said.lost_events == 0
    assert (said.reads or 0) >= 300  # others read too
    assert any(each.bytes == ROW and each.count >= 300 for each in said.sizes or ())
    assert said.mean_depth is not None
    assert said.mean_depth >= 1
    assert said.latency is not None
    assert 0 < (said.latency.p50_s or 0) <= (said.latency.p99_s or 0) < said.seconds
    assert requests is not None
    assert requests.num_rows >= 300
    assert set(requests.column("device").to_pylist()) <= set(devices)


def test_counters_give_means_where_there_is_no_trace(
    tmp_path: Path, devices: tuple[str, ...]
) -> None:
    mounts = tmp_path / "proc/self/mountinfo"
    mounts.parent.mkdir(parents=True)
    mounts.write_text("")
    (tmp_path / "proc/filesystems").write_text("nodev\tproc\n")
    with profile(devices, Roots(proc=tmp_path / "proc")) as traced:
        read_rows(tmp_path / "rows", 100)
    said = traced.result
    assert isinstance(said, IOProfile)
    assert said.source == "block counters"
    assert said.reason == "this kernel has no tracefs; it is built without CONFIG_TRACING"
    assert (said.reads or 0) >= 100
    assert (said.mean_read_bytes or 0) >= ROW
    assert (said.sizes, said.peak_depth, traced.requests) == (None, None, None)
    assert said.as_json()["latency"]["p99_s"] is None


def test_unknown_devices_give_no_figures() -> None:
    with profile(["no-such-device"]) as traced:
        pass
    assert traced.result is not None
    assert traced.result.source is None
    assert traced.result.reads is None
    assert "there is no block device no-such-device" in (traced.result.reason or "")


def test_without_a_device_nothing_is_traced() -> None:
    with profile([]) as found:
        pass
    assert found.result is not None
    assert (found.result.source, found.requests) == (None, None)
    assert "no block device is known" in (found.result.reason or "")
