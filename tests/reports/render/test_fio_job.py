"""A job for fio has the requests of its run, and the block layer sees them alike."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from configparser import ConfigParser
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from tests.core.storage.loops import loop_device, must
from tests.core.storage.mounting import mounted
from tests.records import Scenario, make_run
from wattload.core.errors import ConfigError
from wattload.core.host.counters import BlockStat, read_block_stat
from wattload.core.record.results import Latency
from wattload.core.record.run import RunRecord
from wattload.core.units import MIB
from wattload.reports.render.fio_job import fio_job
from wattload.reports.render.output import make_report
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.runs.traces import Categories, OperationTrace, Traces
from wattload.results.reading import metrics_of

BLOCK_BYTES = 4 * MIB
MEMORY = Path("/dev/shm")
"""No block device is below it, so that of a loop device counts what is asked of it alone."""


def sections(job: str) -> dict[str, dict[str, str | None]]:
    parser = ConfigParser(allow_no_value=True, interpolation=None, comment_prefixes=(";",))
    parser.read_string(job)
    return {name: dict(parser[name]) for name in parser.sections()}


def sampled(record: RunRecord, offsets: list[int]) -> Traces:
    """Return traces with a sample of requests of the first timed phase, a microsecond apart."""
    [window] = record.timed_windows()
    rows = len(offsets)

    def word(text: str) -> Categories:
        return Categories((text,), np.zeros(rows, dtype=np.int32))

    operations = OperationTrace(
        time_ns=window.start_ns + 1000 * np.arange(rows, dtype=np.int64),
        host=word(window.host),
        phase=word(window.name),
        kind=word("read"),
        target=np.zeros(rows, dtype=np.int64),
        file=word("data.bin"),
        file_bytes=np.full(rows, 100 * BLOCK_BYTES),
        offset_bytes=np.array(offsets) * BLOCK_BYTES,
        latency_ns=np.full(rows, 1000),
    )
    return Traces(throughput=None, power=None, notes=(), digests={}, operations=operations)


def direct_run(offsets: list[int], ranks: int = 1, **changes: Any) -> Run:
    """Return a run of direct reads with 16 in flight."""
    record, _ = make_run(Scenario(pace=1.0, seconds=8.0))
    [window] = record.timed_windows()
    work = record.workload.model_copy(update={"queue_depth_asked": 16, "rank_count": ranks})
    row = Latency(
        phase=window.name,
        kind="read",
        operation_bytes=BLOCK_BYTES,
        sum_s=window.active_s * 15.5,
        min_s=0.001,
        max_s=1.0,
        buckets=((900, round(window.read_bytes / BLOCK_BYTES)),),
    )
    record = record.model_copy(update={"workload": work, "latencies": (row,), **changes})
    return Run(record=record, traces=sampled(record, offsets))


IN_ORDER, RANDOM = list(range(2000)), [int(n) for n in np.random.default_rng(1).permutation(9000)]


def test_order_depth_and_bytes_are_those_of_the_run() -> None:
    run = direct_run(RANDOM)
    [window] = run.record.timed_windows()
    found = sections(fio_job([run]))
    assert found["global"]["iodepth"] == "16"
    job = found[window.name]
    assert (job["rw"], job["bs"], job["size"]) == ("randread", "4194304", str(100 * BLOCK_BYTES))
    assert abs(int(job["io_size"] or 0) - window.read_bytes) <= BLOCK_BYTES / 2
    assert job["norandommap"] == "0"
    twice = sections(fio_job([direct_run([7, 3, 7, 3, *RANDOM])]))[window.name]
    assert twice["norandommap"] == "1"
    job = sections(fio_job([direct_run(IN_ORDER)]))[window.name]
    spans = len(run.record.spans_by_phase[window.host, window.name])
    assert (job["rw"], job["loops"]) == ("read", str(spans))
    assert abs(int(job["size"] or 0) * spans - window.read_bytes) <= BLOCK_BYTES / 2 * spans
    assert "in flight on average" in fio_job([run])


def test_ranks_are_jobs_that_share_the_depth_and_what_files_they_shared() -> None:
    found = sections(fio_job([direct_run(RANDOM, ranks=4)]))
    assert (found["global"]["numjobs"], found["global"]["iodepth"]) == ("4", "4")
    [name] = found.keys() - {"global"}
    assert found[name]["filename_format"] == "$jobname.$filenum"


def with_path(run: Run, **changes: Any) -> Run:
    [path] = run.record.workload.paths
    work = run.record.workload.model_copy(update={"paths": (path.model_copy(update=changes),)})
    return replace(run, record=run.record.model_copy(update={"workload": work}))


def with_work(run: Run, **changes: Any) -> Run:
    work = run.record.workload.model_copy(update=changes)
    return replace(run, record=run.record.model_copy(update={"workload": work}))


def with_size(run: Run, factor: float) -> Run:
    [row] = run.record.latencies
    rows = (row.model_copy(update={"operation_bytes": round(row.operation_bytes * factor)}),)
    return replace(run, record=run.record.model_copy(update={"latencies": rows}))


def at_full_pace(run: Run) -> Run:
    metrics = [
        each.model_copy(update={"value": 0.99}) if each.name == "au_nominal" else each
        for each in metrics_of(run.record)
    ]
    return replace(run, record=run.record.model_copy(update={"metrics": tuple(metrics)}))


def on_a_whole_drive(run: Run) -> Run:
    [target] = run.record.targets
    target = target.model_copy(
        update={"facts": target.facts.model_copy(update={"kind": "block", "path": "/dev/nvme0n1"})}
    )
    return replace(run, record=run.record.model_copy(update={"targets": (target,)}))


def with_writes(run: Run) -> Run:
    [row] = run.record.latencies
    rows = (row, row.model_copy(update={"kind": "write"}))
    return replace(run, record=run.record.model_copy(update={"latencies": rows}))


def changed(**changes: Any) -> Callable[[Run], Run]:
    return lambda run: replace(run, record=run.record.model_copy(update=changes))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (changed(status="aborted"), "it is aborted"),
        (changed(spans=()), "moved no bytes"),
        (changed(latencies=()), "not counted one by one"),
        (
            lambda run: with_path(run, path_requested="page_cache"),
            "through page_cache, not by direct",
        ),
        (lambda run: with_path(run, path_requested="gpu_pull"), "through gpu_pull, not by direct"),
        (lambda run: with_path(run, data_path="o_direct, extending writes"), "extended files"),
        (lambda run: with_work(run, queue_depth_asked=None), "no queue depth was set"),
        (lambda run: with_size(run, 1.1), "vary in size: at most 4.61 MB, on average 4.19 MB"),
        (lambda run: replace(run, traces=replace(run.traces, operations=None)), "no trace shows"),
        (at_full_pace, "the accelerator set the pace"),
        (lambda run: changed(targets=run.record.targets * 2)(run), "several hosts or targets"),
        (on_a_whole_drive, "it used a whole drive"),
        (with_writes, "have several sizes or kinds"),
    ],
)
def test_what_fio_cannot_repeat_is_refused(change: Callable[[Run], Run], reason: str) -> None:
    run = direct_run(IN_ORDER)
    assert fio_job([run])
    with pytest.raises(ConfigError, match=reason):
        fio_job([change(run)])


def test_a_job_is_of_one_run() -> None:
    run = direct_run(IN_ORDER)
    with pytest.raises(ConfigError, match="one run, got 2"):
        fio_job([run, run])


def test_no_text_of_a_record_is_an_option_of_the_job() -> None:
    """fio runs a program that ``exec_prerun`` names."""
    run = direct_run(IN_ORDER, run_id="a\nexec_prerun=touch x")
    assert all("exec_prerun" not in own for own in sections(fio_job([run])).values())


@pytest.fixture
def drive() -> Iterator[tuple[Path, str]]:
    """A file system on a loop device in memory, and the device's name."""
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed")
    if os.geteuid() != 0 or not os.access(MEMORY, os.W_OK):
        pytest.skip("only root can mount, and a file in memory is needed")
    folder = MEMORY / f"wattload-test-{os.getpid()}"
    folder.mkdir()
    try:
        image = folder / "disk.img"
        with loop_device(image, size_bytes=1 << 30) as device:
            must("mkfs.ext4", "-q", "-O", "^has_journal", str(device))
            with mounted(folder / "mounted", str(device)) as at:
                yield at, device.name
    finally:
        shutil.rmtree(folder)


@dataclass(frozen=True)
class Repeated:
    """A run, what the device counted of its job, and requests in flight during each, as sampled."""

    run: Run
    counted: BlockStat
    in_flight: Sequence[int]
    in_flight_of_fio: Sequence[int]


@contextmanager
def sampled_in_flight(device: str) -> Iterator[list[tuple[int, int]]]:
    """Sample the time and how many requests of a device are in flight, every ms or so."""
    samples: list[tuple[int, int]] = []
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(0.001):
            counts = Path(f"/sys/block/{device}/inflight").read_text().split()
            samples.append((time.monotonic_ns(), sum(map(int, counts))))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def run_and_repeat(drive: tuple[Path, str], folder: Path, *words: str) -> Repeated:
    """Run wattload on a drive, and then its requests by fio."""
    at, device = drive
    command = [sys.executable, "-m", "wattload", "run", *words, "scale=demo", f"target.path={at}"]
    command += ["target.max_write_bytes=1000000000000", "power=none", f"runs={folder}"]
    with sampled_in_flight(device) as samples:
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    text, job = make_report([folder], form="fio").text, folder / "job.fio"
    assert isinstance(text, str)
    job.write_text(text)
    fio = ["fio", f"--directory={at}", str(job)]
    environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    for arguments in (["--create_only=1"], []):
        os.sync()
        before = read_block_stat(device)
        with sampled_in_flight(device) as of_fio:
            subprocess.run([*fio, *arguments], check=True, capture_output=True, env=environment)
    counted = read_block_stat(device).since(before)
    [run] = load_runs([folder])
    assert counted is not None
    windows = run.record.timed_windows()
    inside = [n for at_ns, n in samples if any(w.start_ns <= at_ns <= w.end_ns for w in windows)]
    return Repeated(run, counted, list(filter(None, inside)), [n for _, n in of_fio if n])


def total(run: Run, name: str) -> float:
    """Return what the block device counted in the timed phases of a run."""
    phases = {window.name for window in run.record.timed_windows()}
    return sum(float(getattr(each, name)) for each in run.record.counters if each.phase in phases)


@pytest.mark.slow
@pytest.mark.thorough
def test_the_block_layer_sees_the_same_sizes_and_depth(
    drive: tuple[Path, str], tmp_path: Path
) -> None:
    found = run_and_repeat(
        drive,
        tmp_path,
        "workload=random_write",
        "workload.block_bytes=524288",  # one request each, whatever memory it is in
        "workload.queue_depth=8",
        "workload.range_bytes=268435456",
        "workload.passes=4",
    )
    run, by_fio = found.run, found.counted
    assert by_fio.written_bytes == pytest.approx(total(run, "written_bytes"), rel=0.02)
    assert by_fio.write_operations == pytest.approx(total(run, "write_operations"), rel=0.02)
    assert by_fio.read_bytes < by_fio.written_bytes / 100
    # A median: others may take the CPU of either at times, and the queue then runs empty.
    assert median(found.in_flight_of_fio) == pytest.approx(median(found.in_flight), rel=0.02)
    assert median(found.in_flight) == 8


@pytest.mark.slow
@pytest.mark.thorough
def test_the_block_layer_sees_the_same_mix_of_writes_and_reads(
    drive: tuple[Path, str], tmp_path: Path
) -> None:
    found = run_and_repeat(
        drive,
        tmp_path,
        "workload=checkpoint",
        "loader.block_bytes=524288",
        "workload.shrink_bytes=268435456",
        "workload.checkpoint_count=2",
    )
    run, by_fio = found.run, found.counted
    assert by_fio.read_bytes == pytest.approx(total(run, "read_bytes"), rel=0.02)
    assert by_fio.written_bytes == pytest.approx(total(run, "written_bytes"), rel=0.02)
    assert by_fio.read_operations == pytest.approx(total(run, "read_operations"), rel=0.02)
