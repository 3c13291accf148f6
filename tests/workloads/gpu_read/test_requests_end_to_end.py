"""Whole runs by the command line, by requesters on the CPU."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.run.running import launched, record_of, run, run_here, until
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.loaders.block_reads import LEAST_CLOCK_STEPS
from wattload.loaders.gpu_queue.config import DRIVER
from wattload.results.gpu_read.facts import Run
from wattload.results.gpu_read.figures import bottleneck, seen_in_flight
from wattload.results.reading import judged, run_of

pytestmark = pytest.mark.slow

WORDS = (
    "workload=gpu_random_read",
    "loader.requester=cpu",
    "scale=demo",
    "power=none",
    "workload.file_bytes=1048576",
    "workload.duration_s=0.3",
    "workload.requesters=64",
)
PHASE = "gpu_random_read"
QUEUE = "wattload.loaders.gpu"


def verdicts(record: RunRecord) -> dict[str, str]:
    return {check.name: check.verdict for check in judged(record).checks}


def known(record: RunRecord) -> Run:
    run = run_of(record)
    assert run is not None
    return run


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    """The record of a run that read storage."""
    folder = tmp_path_factory.mktemp("run")
    done = run_here(folder, *WORDS)
    assert done.returncode == 0, done.stderr
    return record_of(folder)


def test_a_run_is_proved_by_its_counts(record: RunRecord) -> None:
    found = verdicts(record)
    assert not [name for name, verdict in found.items() if verdict == "fail"]
    for name in ("data_path", "queue_counts", "delivered_bytes", "failed_reads"):
        assert found[name] == "pass", name
    assert_read_from_devices(record)
    (path,) = record.workload.paths
    assert (path.path_effective, path.initiator) == ("cpu_queue", "cpu")
    assert (record.workload.queue_depth_asked, record.workload.block_bytes_asked) == (
        64,
        known(record).facts.read_bytes,
    )
    (window,) = record.timed_windows()
    assert window.read_bytes == window.operations * known(record).facts.read_bytes
    assert "of the CPU (loader.requester=cpu)" in " ".join(record.workload.remarks)


def assert_read_from_devices(record: RunRecord) -> None:
    """The devices moved what was read, unless none below the folder of the tests counts."""
    name = f"device_bytes_{PHASE}_read"
    [check] = [each for each in judged(record).checks if each.name == name]
    assert check.figures["application_bytes"] == record.moved_bytes(PHASE, "read") > 0
    counted = [
        each.read_bytes
        for each in record.counters
        if each.phase == PHASE and each.read_bytes is not None
    ]
    if not counted:
        assert (check.verdict, check.mandatory) == ("not_checked", True)
        return
    assert check.figures["device_bytes"] == sum(counted)
    assert sum(counted) >= 0.98 * record.moved_bytes(PHASE, "read")
    assert check.verdict in ("pass", "warn"), "warns where others read from the devices too"


WITH_CACHE = (
    *(word for word in WORDS if not word.startswith("loader.requester")),
    "workload._target_=tests.workloads.gpu_read.emulated.Emulated",
    "loader.cache_bytes=524288",
)
"""A run by an emulated GPU with a cache of half its file."""


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory, emulated: Path) -> RunRecord:
    """The record of a run that an emulated GPU made through a cache of half its file."""
    folder = tmp_path_factory.mktemp("cached")
    done = run(folder, *WITH_CACHE, LD_LIBRARY_PATH=str(emulated))
    assert done.returncode == 0, done.stderr
    assert "of the GPU, " in next(
        line for line in done.stdout.splitlines() if line.strip().startswith("cache ")
    )
    return record_of(folder)


def metric_of(record: RunRecord, name: str) -> float:
    return next(each.value or 0.0 for each in judged(record).metrics if each.name == name)


def test_a_cache_is_in_every_count(cached: RunRecord) -> None:
    found = verdicts(cached)
    assert not [name for name, verdict in found.items() if verdict == "fail"]
    for name in ("data_path", "queue_counts", "delivered_bytes", "failed_reads"):
        assert found[name] == "pass", name
    facts = known(cached).facts
    counts = dict(facts.queue or {})
    read = counts["misses"] + counts["bypassed"]
    assert facts.cache_bytes == cached.config["loader"]["cache_bytes"] == 524288
    met = counts["coalesced"] + counts["hits"] + counts["merged"]
    assert counts["requests"] == counts["delivered"] == met + read
    assert counts["taken"] == counts["answered"] == facts.operations == read
    (window,) = cached.timed_windows()
    least_bytes = facts.read_bytes
    assert (window.operations, window.read_bytes) == (read, read * least_bytes)
    assert_read_from_devices(cached)
    assert cached.workload.queue_depth_asked is None
    seconds = facts.ranks[0].seconds
    assert metric_of(cached, "reads_per_s") == pytest.approx(read / seconds)
    assert metric_of(cached, "requests_per_s") == pytest.approx(counts["requests"] / seconds)
    assert metric_of(cached, "hit_rate") == pytest.approx(counts["hits"] / counts["requests"])
    delivered = counts["requests"] * 512 / seconds
    assert metric_of(cached, "delivered_bytes_per_s") == pytest.approx(delivered)
    assert metric_of(cached, "read_bytes_per_s") == pytest.approx(read * least_bytes / seconds)
    assert 0 < (seen_in_flight(known(cached)) or 0) < facts.in_flight, "hits are not in flight"
    assert bottleneck(known(cached))[0] != "storage", "hits take time too"
    (path,) = cached.workload.paths
    assert (path.path_effective, path.initiator) == ("gpu_pull", "gpu")


def test_latencies_of_few_steps_of_the_clock_are_missing(tmp_path: Path, emulated: Path) -> None:
    step_ns = 1_000_000
    path = str(emulated)
    done = run(tmp_path, *WITH_CACHE, LD_LIBRARY_PATH=path, EMULATED_CLOCK_STEP_NS=str(step_ns))
    assert done.returncode == 0, done.stderr
    record = record_of(tmp_path)
    found_s = known(record).facts.ranks[0].clock_step_s
    assert found_s is not None
    # A thread that waits for a core misses steps, and finds a multiple.
    found_ns = round(found_s * NS_PER_S)
    assert found_ns > 0
    assert found_ns % step_ns == 0
    [metric] = [each for each in judged(record).metrics if each.name == "mean_latency_s"]
    if metric.value is None:
        assert f"the GPU's clock has steps of {found_ns} ns" in metric.missing["value"]
        assert {row.kind for row in record.latencies} == {"read"}
    else:  # on a machine so busy that half of the reads take 20 steps
        assert metric.value * NS_PER_S >= LEAST_CLOCK_STEPS * found_ns / 2


@pytest.mark.thorough
def test_caches_of_several_processes_are_counted_together(tmp_path: Path, emulated: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    paths = f"target.path=[{tmp_path / 'a'},{tmp_path / 'b'}]"
    done = run(tmp_path, *WITH_CACHE, paths, ranks=2, LD_LIBRARY_PATH=str(emulated))
    assert done.returncode == 0, done.stderr
    record = record_of(tmp_path)
    found = verdicts(record)
    assert not [name for name, verdict in found.items() if verdict == "fail"]
    assert found["data_path"] == found["queue_counts"] == "pass"
    facts = known(record).facts
    counts = dict(facts.queue or {})
    assert counts["delivered"] == counts["requests"]
    assert counts["misses"] + counts["bypassed"] == facts.operations


@pytest.mark.parametrize("engine", ["null", "memory"])
def test_a_run_without_storage_says_so(tmp_path: Path, engine: str) -> None:
    done = run_here(tmp_path, *WORDS, f"loader.engine={engine}")
    assert done.returncode == 0, done.stderr
    record = record_of(tmp_path)
    found = verdicts(record)
    assert not [name for name, verdict in found.items() if verdict == "fail"]
    assert "data_path" not in found
    assert found["queue_counts"] == found["delivered_bytes"] == "pass"
    assert record.config["loader"]["engine"] == engine
    assert (record.workload.data, record.moved_bytes(PHASE, "read")) == (None, 0)
    (path,) = record.workload.paths
    assert (path.path_effective, path.initiator) == ("unverified", "cpu")
    assert f"No storage was read (loader.engine={engine})" in " ".join(record.workload.remarks)


def test_processes_share_the_targets(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
    paths = ",".join(str(tmp_path / name) for name in "abc")
    done = run(tmp_path, *WORDS, f"target.path=[{paths}]", ranks=2)
    assert done.returncode == 0, done.stderr
    record = record_of(tmp_path)
    found = verdicts(record)
    assert not [name for name, verdict in found.items() if verdict == "fail"]
    assert found["data_path"] == found["queue_counts"] == "pass"
    files = known(record).facts.files
    assert [(rank.rank, file.target) for rank, file in files] == [(0, 0), (1, 1), (0, 2)]
    assert record.workload.queue_depth_asked == 3 * 64
    assert {row.kind for row in record.latencies} == {"read", "request"}


def test_more_processes_than_targets(tmp_path: Path) -> None:
    done = run(tmp_path, *WORDS, ranks=2)
    assert done.returncode == 2
    assert "2 processes, but target.path names 1: each process needs" in done.stderr


def test_a_drive_that_hangs_while_another_answers_is_a_failed_record(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    paths = ",".join(str(tmp_path / name) for name in "ab")
    target = "workload._target_=tests.workloads.gpu_read.hanging.Hanging"
    done = run_here(tmp_path, *WORDS, target, "workload.duration_s=30", f"target.path=[{paths}]")
    assert done.returncode == 1
    record = record_of(tmp_path)
    assert record.status == "failed"
    [file] = (tmp_path / "b").rglob("blocks_*.bin")
    assert f"64 requests unanswered for 0.3 s on {file}: the drive" in record.status_reason
    assert record.status_reason in done.stderr


def queues_below(pid: int) -> list[int]:
    """Return the processes of queues below a process, over all levels."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child] if QUEUE in command_of(child) else []
            found += queues_below(child)
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    ranks = 2
    for name in "ab":
        (tmp_path / name).mkdir()
    paths = ",".join(str(tmp_path / name) for name in "ab")
    words = (*WORDS, "workload.duration_s=60", f"target.path=[{paths}]")
    with launched(tmp_path, *words, ranks=ranks) as process:
        until(lambda: reading(tmp_path, ranks), process)
        queues = queues_below(process.pid)
        assert len(queues) == ranks
        if number is signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            os.kill(parent_of(queues[0]), number)
        until(lambda: not any(map(command_of, queues)), seconds=30)  # the run would take 60
        process.communicate()
    if number is signal.SIGINT:
        assert record_of(tmp_path).status == "aborted"


def reading(folder: Path, ranks: int) -> bool:
    """Return whether the timed phase has begun on every rank."""
    begun = [
        text
        for path in folder.glob("runs/*/*.jsonl")
        if f'"name":"{PHASE}"' in (text := path.read_text())
    ]
    return len(begun) >= ranks


@pytest.mark.gpu
@pytest.mark.skipif(not Path(DRIVER).exists(), reason="no GPU")
@pytest.mark.parametrize("engine", ["storage", "memory", "null"])
def test_a_gpu_asks_and_pulls(tmp_path: Path, engine: str) -> None:
    words = [word for word in WORDS if not word.startswith("loader.requester")]
    done = run(tmp_path, *words, f"loader.engine={engine}", seconds=120)
    assert done.returncode == 0, done.stderr
    record = record_of(tmp_path)
    found = verdicts(record)
    assert not [name for name, verdict in found.items() if verdict == "fail"]
    assert found["queue_counts"] == found["delivered_bytes"] == "pass"
    [rank] = known(record).facts.ranks
    assert rank.gpu is not None
    assert min(rank.pull_per_s or 0, rank.queue_per_s or 0) > 0
    (path,) = record.workload.paths
    if engine == "storage":
        assert (path.path_effective, path.initiator) == ("gpu_pull", "gpu")
    else:
        assert (path.path_effective, path.initiator) == ("unverified", "cpu")
