"""Reads into GPU memory as recorded: failures, the path in words and its proof, Little's law."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wattload.core.io import DIRECT_WORDS, DataPath
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.runs.details import count_of, rows_of
from wattload.results.quantity import MOST, counted, listed, quantity, whole

GPU_READ = "gpu_read"
"""The name of the workload and of its only phase."""

_PATH_WORDS: Mapping[str, str] = {
    "p2p_nvfs": "GPUDirect Storage (nvidia-fs)",
    "p2p_pci": "GPUDirect Storage (PCI P2PDMA)",
    "p2p_via_peer_gpu": "GPUDirect Storage through another GPU",
    "posix_bounce": "through host memory (cuFile compatibility mode)",
    "host_bounce": "through pinned host memory",
    "gpu_pull": "asked by the GPU, which pulls the blocks through host memory",
    "cpu_queue": "asked by CPU threads through the queue, delivered in host memory",
    "mixed": "partly direct, partly through host memory",
    "unverified": "path not proved",
}
_COUNTERS: Mapping[str, str] = {
    "reads": "own count",
    "library_reads": "library",
    "p2p_reads": "by PCI P2PDMA",
    "nvfs_reads": "by nvidia-fs",
    "posix_reads": "through host memory",
    "peer_reads": "through another GPU",
    "nvidia_fs_reads": "nvidia-fs driver, all processes",
    "pinned_copies": "copies from pinned memory",
    "asked": "asked",
    "taken": "taken by pollers",
    "answered": "answered",
    "delivered": "delivered",
}
_COUNTER_OF: Mapping[str, str] = {
    "p2p_nvfs": "nvfs_reads",
    "p2p_pci": "p2p_reads",
    "p2p_via_peer_gpu": "peer_reads",
    "posix_bounce": "posix_reads",
    "host_bounce": "pinned_copies",
    "gpu_pull": "delivered",
    "cpu_queue": "delivered",
}
"""The counter of the reads that took a path."""

_NO_READ = "no read was made"
_SOFTWARE_ORDER = ("cuda", "nvidia_driver", "cufile", "kvikio", "nvidia_fs")
_SOFTWARE_NAMES: Mapping[str, str] = {
    "cuda": "CUDA",
    "nvidia_driver": "NVIDIA driver",
    "cufile": "cuFile",
    "kvikio": "KvikIO",
    "nvidia_fs": "nvidia-fs",
}


def reads_words(records: Sequence[RunRecord]) -> str:
    """Return how long runs read, from files of which size; empty for another workload."""
    details = records[0].workload.details if records else {}
    seconds, size = details.get("duration_s"), details.get("file_bytes")
    if not records or records[0].workload.name != GPU_READ:
        return ""
    parts = [f"{quantity(seconds, Unit.SECONDS, 3)}"] if isinstance(seconds, int | float) else []
    if isinstance(size, int | float):
        parts.append(f"files of {quantity(size, Unit.BYTES, 3)}")
    return ", ".join(["random reads", *parts])


def gpu_paths(record: RunRecord) -> tuple[DataPath, ...]:
    """Return the paths whose bytes end in GPU memory, which have counters."""
    return tuple(path for path in record.workload.paths if path.counts is not None)


def path_words(path: DataPath, loader: str = "") -> str:
    """Return the effective path in words; only a proved direct path is GPUDirect Storage.

    Args:
        path: of any workload; other paths are returned as recorded.
        loader: the loader of the run: KvikIO reads by POSIX without cuFile.
    """
    if path.counts is None:
        return path.path_effective
    if path.path_effective == "posix_bounce" and loader == "kvikio":
        return "through host memory (KvikIO, POSIX)"
    return _PATH_WORDS.get(path.path_effective, path.path_effective)


def is_direct(record: RunRecord) -> bool:
    """Return whether counters prove that the drive wrote into GPU memory in every read."""
    paths = gpu_paths(record)
    return bool(paths) and all(path.path_effective in DIRECT_WORDS for path in paths)


def is_proved_indirect(record: RunRecord) -> bool:
    """Return whether counters prove that every read went through host memory."""
    words = {path.path_effective for path in gpu_paths(record)}
    return bool(words) and words <= {"posix_bounce", "host_bounce"}


def paths_of(record: RunRecord) -> str:
    """Return the paths of a run in words, or that no read was made or its path is not proved."""
    words = [path_words(path, record.workload.loader) for path in gpu_paths(record)]
    if (
        not words
        and record.status == "failed"
        and not any(s.name == GPU_READ for s in record.spans)
    ):
        return _NO_READ
    return listed([*dict.fromkeys(words)]) or _PATH_WORDS["unverified"]


def arms_paths(arms: Mapping[str, Sequence[RunRecord]]) -> str:
    """Return the paths of arms; of several, also whether none is direct.

    For example ``A: through pinned host memory; none is direct``. A path without proof is not
    called indirect either.
    """
    records = [record for own in arms.values() for record in own]
    found = {
        name: listed([*dict.fromkeys(map(paths_of, own))]) for name, own in arms.items() if own
    }
    if len(found) == 1:
        return next(iter(found.values()))
    text = " · ".join(f"{name}: {words}" for name, words in found.items())
    if records and all(map(is_proved_indirect, records)):
        return f"{text}; none is direct"
    taken = {path.path_effective for record in records for path in gpu_paths(record)}
    if taken & {"mixed", *DIRECT_WORDS} or not taken:
        return text
    return f"{text}; none is proved to be direct"


def counted_path(record: RunRecord) -> str:
    """Return a run's paths with the reads that took them, for a line of a terminal.

    It is empty for a run without counters.
    """
    return "; ".join(
        f"{path_words(path, record.workload.loader)}, {_reads_on(path)}"
        for path in gpu_paths(record)
    )


def _reads_on(path: DataPath) -> str:
    """Return how many of all reads took the effective path, or all counters where it is unclear."""
    counts, name = path.counts, _COUNTER_OF.get(path.path_effective)
    value = getattr(counts, name) if counts is not None and name is not None else None
    if counts is None or value is None:
        return proof([path])
    if name == "pinned_copies" and counts.pinned_bytes == counts.read_bytes:
        value = counts.reads  # a copy may be of several reads
    return f"{whole(value)} of {counted(counts.reads, 'read')}"


def proof(paths: Sequence[DataPath]) -> str:
    """Return the counters of paths, summed: ``own count 1,000, through host memory 1,000``."""
    known = [path.counts for path in paths if path.counts is not None]
    parts = []
    for name, words in _COUNTERS.items():
        values = [value for counts in known if (value := getattr(counts, name)) is not None]
        if values and (sum(values) or name == "reads"):
            parts.append(f"{words} {whole(sum(values))}")
    if known and len(parts) == 1:
        parts.append("nothing else counts")
    return ", ".join(parts)


def failed_reads(record: RunRecord) -> int:
    """Return how many reads failed; none is tried again."""
    found = record.workload.details.get("failed_reads")
    if found is None and (metric := record.metric("failed_reads")) is not None:
        found = metric.value
    return int(found) if isinstance(found, int | float) and 0 < found < MOST else 0


def failures_words(records: Sequence[RunRecord]) -> str:
    """Return how many reads failed in how many runs; empty if none did."""
    known = [count for record in records if (count := failed_reads(record))]
    if not known:
        return ""
    return f"{counted(sum(known), 'read')} failed in {counted(len(known), 'run')}"


def failure_reasons(record: RunRecord) -> Mapping[str, int]:
    """Return how many reads failed, by reason."""
    found: dict[str, int] = {}
    for each in rows_of(record.workload.details.get("failures")):
        reason = str(each.get("reason") or "unknown reason")
        found[reason] = found.get(reason, 0) + count_of(each.get("count"))
    return found


def outside_latency(record: RunRecord) -> float | None:
    """Return the share of a thread's time in no latency, by Little's law.

    It is that of the check, which leaves out the reads that the end cut off; ``None`` where the
    check was not made. A small negative share is within the error of the rate.
    """
    found = [check for check in record.checks if check.name == "littles_law"]
    ratio = found[0].figures.get("ratio") if found else None
    return 1 - 1 / ratio if isinstance(ratio, (int, float)) and ratio > 0 else None


def topology(record: RunRecord) -> list[Mapping[str, Any]]:
    """Return which GPU each target is read into, and how they are linked."""
    found = record.workload.details.get("topology")
    if not isinstance(found, (list, tuple)):
        return []
    return [each for each in found if isinstance(each, Mapping)]


def software_versions(record: RunRecord) -> Iterator[tuple[str, str]]:
    """Yield the versions of CUDA, driver, libraries and others that the reader's process saw."""
    found = record.workload.details.get("software")
    if not isinstance(found, Mapping):
        return
    rest = sorted(set(found) - set(_SOFTWARE_ORDER))
    for name in (*_SOFTWARE_ORDER, *rest):
        if found.get(name):
            yield _SOFTWARE_NAMES.get(name, name), str(found[name])
