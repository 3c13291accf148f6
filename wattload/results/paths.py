"""The paths of bytes in words, and the counters that prove them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wattload.core.io import DIRECT_WORDS, DataPath
from wattload.core.record.run import RunRecord
from wattload.results.quantity import counted, whole

NOT_PROVED = "path not proved"

_PATH_TEXT: Mapping[str, str] = {
    "p2p_nvfs": "GPUDirect Storage (nvidia-fs)",
    "p2p_pci": "GPUDirect Storage (PCI P2PDMA)",
    "p2p_via_peer_gpu": "GPUDirect Storage through another GPU",
    "posix_bounce": "through host memory (cuFile compatibility mode)",
    "host_bounce": "through pinned host memory",
    "gpu_pull": "asked by the GPU, which pulls the blocks through host memory",
    "cpu_queue": "asked by CPU threads through the queue, delivered in host memory",
    "mixed": "partly direct, partly through host memory",
    "unverified": NOT_PROVED,
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
_INDIRECT = frozenset({"posix_bounce", "host_bounce"})


def counted_paths(record: RunRecord) -> tuple[DataPath, ...]:
    """Return the paths that have counters."""
    return tuple(path for path in record.workload.paths if path.counts is not None)


def path_text(path: DataPath, loader: str = "") -> str:
    """Return the effective path in words; only a proved direct path is GPUDirect Storage.

    A path without counters is returned as recorded. KvikIO, as ``loader``, reads by POSIX without
    cuFile.
    """
    if path.counts is None:
        return path.path_effective
    if path.path_effective == "posix_bounce" and loader == "kvikio":
        return "through host memory (KvikIO, POSIX)"
    return _PATH_TEXT.get(path.path_effective, path.path_effective)


def is_direct(path: DataPath) -> bool:
    """Return whether counters prove that drives wrote into GPU memory in every read."""
    return path.counts is not None and path.path_effective in DIRECT_WORDS


def is_proved_indirect(path: DataPath) -> bool:
    """Return whether counters prove that every read went through host memory."""
    return path.counts is not None and path.path_effective in _INDIRECT


def counted_text(record: RunRecord) -> str:
    """Return a run's paths with the reads that took them; empty without counters."""
    return "; ".join(
        f"{path_text(path, record.workload.loader)}, {_reads_on(path)}"
        for path in counted_paths(record)
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


def proof(paths: Iterable[DataPath]) -> str:
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
