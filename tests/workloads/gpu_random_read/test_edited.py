"""Records of whole runs that were edited: whatever stands twice in a record can't be changed once.

Edits that change everything that follows from a figure consistently can't be found out. These here
change as much as one is likely to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.run.running import record_of, run
from tests.workloads.gpu_random_read.test_end_to_end import WITH_CACHE, WORDS
from wattload.core.checks.evaluation import rechecked
from wattload.core.io import PathCounts
from wattload.core.record.run import RunRecord

pytestmark = pytest.mark.slow

PHASE = "gpu_random_read"
Json = dict[str, Any]
Edit = Callable[[Json], None]

ALONE = {
    "software", "name", "node",  # of what ran
    "pull_per_s", "queue_per_s", "busy_s",  # matter only where they are near a limit
    "one_drive_targets", "path",  # follow from the host
}  # fmt: skip
"""Details that stand nowhere else in a record."""


def made(folder: Path, *words: str, ranks: int = 1, library: str = "") -> Json:
    """Return the record of a run, as JSON; ``library`` is the folder of an emulated driver."""
    done = run(folder, *words, ranks=ranks, LD_LIBRARY_PATH=library)
    assert done.returncode == 0, done.stderr
    found: Json = json.loads(record_of(folder).model_dump_json())
    assert not failures(found)
    return found


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """A run of storage by requesters on the CPU."""
    return made(tmp_path_factory.mktemp("queue"), *WORDS, "workload.duration_s=0.5")


@pytest.fixture(scope="module")
def null(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """A run without storage."""
    return made(tmp_path_factory.mktemp("null"), *WORDS, "loader.engine=null")


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """A run of blocks of a table, whose path has no counts."""
    return made(tmp_path_factory.mktemp("memory"), *WORDS, "loader.engine=memory")


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory, emulated: Path) -> Json:
    """A run by an emulated GPU with a cache."""
    return made(tmp_path_factory.mktemp("gpu"), *WITH_CACHE, library=str(emulated))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """A run of two processes on three targets."""
    folder = tmp_path_factory.mktemp("ranks")
    for name in "abc":
        (folder / name).mkdir()
    paths = ",".join(str(folder / name) for name in "abc")
    return made(folder, *WORDS, f"target.path=[{paths}]", ranks=2)


def arm(folder: Path, loader: str) -> Json:
    words = [word for word in WORDS if not word.startswith("loader.")]
    return made(folder, *words, f"loader={loader}")


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """A run by the engine's own pattern."""
    return arm(tmp_path_factory.mktemp("direct"), "direct")


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """A run of mapped files."""
    return arm(tmp_path_factory.mktemp("mapped"), "mmap")


def failures(record: Json) -> set[str]:
    """Return the checks that fail when a record is judged."""
    return {
        check.name
        for check in rechecked(RunRecord.model_validate(record)).checks
        if check.verdict == "fail"
    }


def edited(record: Json, *edits: Edit) -> Json:
    copy: Json = json.loads(json.dumps(record))
    for edit in edits:
        edit(copy)
    return copy


def details(**changes: Any) -> Edit:
    """Change details to a value, or by a function of what they are."""

    def edit(record: Json) -> None:
        found = record["workload"]["details"]
        for name, change in changes.items():
            found[name] = change(found[name]) if callable(change) else change

    return edit


def row(name: str, **changes: Any) -> Edit:
    return lambda record: record["workload"]["details"][name][0].update(changes)


def figures(check: str, **changes: Any) -> Edit:
    def edit(record: Json) -> None:
        [found] = [each for each in record["checks"] if each["name"] == check]
        found["figures"].update(changes)

    return edit


def metric(name: str, factor: float = 1.0, to: float | None = None) -> Edit:
    def edit(record: Json) -> None:
        for each in record["metrics"]:
            if each["name"] == name:
                each["value"] = each["value"] * factor if to is None else to

    return edit


def latencies(kind: str, **changes: float) -> Edit:
    def edit(record: Json) -> None:
        for each in record["latencies"]:
            if each["kind"] == kind:
                each.update(changes)

    return edit


def faster(record: Json) -> None:
    """Make the rate tenfold in phases, spans, metrics and the details' own count."""
    for each in (*record["windows"], *record["spans"]):
        if each["name"] == PHASE:
            each["operations"] *= 10
    for name, factor in {
        "reads_per_s": 10,
        "delivered_bytes_per_s": 10,
        "cpu_s_per_million_reads": 0.1,
    }.items():
        metric(name, factor)(record)
    details(operations=lambda count: 10 * count)(record)


def asked_by_gpu(record: Json) -> None:
    """Let the path say that a GPU asked, with all that follows from it."""
    [path] = record["workload"]["paths"]
    path["counts"]["requester"] = "gpu"
    path |= {"initiator": "gpu", "path_effective": "gpu_pull", "path_requested": "gpu_pull"}
    path["path_evidence"] = PathCounts.model_validate(path["counts"]).evidence


def requested_by_gpu(record: Json) -> None:
    """Let settings and details say so too."""
    asked_by_gpu(record)
    record["config"]["loader"]["requester"] = "gpu"
    details(requester="gpu")(record)


def without_counts(record: Json) -> None:
    record["workload"]["paths"][0]["counts"] = None


def unread(record: Json) -> None:
    """Let the cache's state be unknown, so that reads may come from memory."""
    [check] = [each for each in record["checks"] if each["name"] == "cold_cache"]
    check |= {"verdict": "not_checked", "mandatory": False}


TENTH: Callable[[float], float] = lambda value: value / 10  # noqa: E731 - used by name
TENFOLD: Callable[[float], float] = lambda value: value * 10  # noqa: E731 - used by name

EDITS: dict[str, tuple[Edit, ...]] = {
    "seconds": (details(seconds=TENTH),),
    "percentile of a file": (row("files", p99_s=1e-6),),
    "reads of a file": (row("files", operations=9_999_999),),
    "seconds of a file": (row("files", seconds=0.01),),
    "answers of a poller": (row("pollers", answered=1),),
    "seconds of a poller": (row("pollers", seconds=100.0),),
    "no poller": (details(pollers=[]),),
    "no file": (details(files=[]),),
    "in flight": (details(outstanding_seen=5120.0),),
    "asked at once": (details(outstanding_asked=5120),),
    "link": (details(bottleneck="link"),),
    "link with a ceiling": (
        details(bottleneck="link", bottleneck_reason="1.00 of what the GPU pulls without a queue"),
        lambda record: details(
            pull_per_s=record["workload"]["details"]["operations"]
            / record["workload"]["details"]["seconds"]
        )(record),
    ),
    # More, not less: requesters that sleep leave so little CPU time that a tenth may be in doubt.
    "cpu and its metric": (details(cpu_s=TENFOLD), metric("cpu_s_per_million_reads", 10)),
    "wrong blocks": (details(wrong_blocks=5),),
    "bad blocks": (details(bad_blocks=5),),
    "compared bytes": (figures("delivered_bytes", compared_bytes=512),),
    "delivered blocks": (figures("delivered_bytes", delivered_blocks=1),),
    "delivered blocks in both": (
        figures("delivered_bytes", delivered_blocks=1),
        details(delivered=1),
    ),
    "uncounted blocks": (figures("delivered_bytes", requests=None),),
    "requests": (details(requests=1),),
    "counts of a check": (figures("queue_counts", requests=1, taken=1, answered=1, operations=1),),
    "reads of a check": (figures("failed_reads", operations=1),),
    "failures": (
        details(failures=[{"file": "x", "reason": "y", "offset_bytes": 0, "count": 3}]),
        figures("failed_reads", failed_reads=0),
        metric("failed_reads", 0),
    ),
    "rate": (faster,),
    "engine": (details(engine="null"),),
    "path": (asked_by_gpu,),
    "path and requester": (requested_by_gpu,),
    "path, requester and GPU": (
        requested_by_gpu,
        details(
            gpus=[
                {"rank": 0, "address": "0000:01:00.0", "name": "H100", "node": 0,
                 "operations": 10**9, "delivered": 10**9, "seconds": 1.0}
            ]
        ),
    ),
    "counts of the path": (without_counts,),
    "cold cache": (unread,),
    "mean latency of reads": (latencies("read", mean_s=1e-6),),
    "mean latency of requests": (
        latencies("request", mean_s=1e-6),
        metric("mean_latency_s", to=1e-6),
    ),
    "percentile": (latencies("read", p99_s=1e-6),),
    "no details": (lambda record: record["workload"].update(details={}),),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_found_out(queue: Json, name: str) -> None:
    assert failures(edited(queue, *EDITS[name]))


def test_null_does_not_become_storage(null: Json) -> None:
    def configured(record: Json) -> None:
        record["config"]["loader"]["engine"] = "storage"

    engine = details(engine="storage")
    assert failures(edited(null, engine))
    assert failures(edited(null, engine, configured))
    read = figures("delivered_bytes", engine="storage")
    assert failures(edited(null, engine, configured, read))


def test_every_block_of_memory_was_compared(memory: Json) -> None:
    """Its path has no counts, so only the check itself can find it out."""
    count = memory["workload"]["details"]["delivered"] - 1
    edits = details(delivered=count), figures("delivered_bytes", delivered_blocks=count)
    assert failures(edited(memory, *edits)) == {"delivered_bytes"}


def leaves(found: Any, *path: str | int) -> Iterator[tuple[str | int, ...]]:
    """Yield where the numbers, texts and gaps are in nested details."""
    if isinstance(found, dict | list):
        for key, value in found.items() if isinstance(found, dict) else enumerate(found):
            yield from leaves(value, *path, key)
    else:
        yield path


def other(value: Any) -> Any:
    if value is None:
        return 1
    return f"{value}x" if isinstance(value, str) else 2 * value + 1


@pytest.mark.parametrize("name", ["queue", "null", "memory", "gpu", "ranks", "direct", "mapped"])
def test_each_detail_stands_twice(name: str, request: pytest.FixtureRequest) -> None:
    record = request.getfixturevalue(name)
    unnoticed = set()
    for path in leaves(record["workload"]["details"]):
        copy = edited(record)
        found = copy["workload"]["details"]
        for step in path[:-1]:
            found = found[step]
        found[path[-1]] = other(found[path[-1]])
        if not failures(copy):
            unnoticed.add(path)
    alone = ALONE | ({"outstanding_asked"} if name == "mapped" else set())  # one thread per CPU
    assert {path for path in unnoticed if not alone & set(path)} == set()
