"""A run of MLPerf Storage v3's KV cache benchmark: its summary, and a file of each trial and rank.

GB mean GiB: ``tier_storage_read_bandwidth_gbps`` is GiB over ``elapsed_time`` (mlcommons/storage,
``kv_cache_benchmark`` and ``mlpstorage_py/benchmarks/kvcache.py``).
"""

from __future__ import annotations

import re
from collections import defaultdict

from wattload.core.mlperf.dlio_run import UNKNOWN
from wattload.core.mlperf.files import SUMMARY, RunFolder, Setting, Values
from wattload.core.mlperf.metadata import metadata_of, run_by_metadata
from wattload.core.mlperf.published import CacheFacts, CacheTrial, PublishedRun
from wattload.core.units import GIB, MILLI

_TRIALS = r"option_(\d+)/trial_(\d+)/rank_(\d+)/kvcache_results_.*\.json"
_FLAG = re.compile(r"--(model|num-users|duration|[gc]pu-mem-gb|max-concurrent-allocs) (\S+)")


def read_cache(folder: RunFolder) -> PublishedRun:
    """Return a run of the KV cache.

    Raises:
        UnreadableError: a file of the run is missing or contradicts itself.
    """
    summary, metadata = Values(folder, SUMMARY, folder.summary), metadata_of(folder)
    options = {
        name: Values(folder, SUMMARY, option)
        for name, option in sorted(summary.members("options").items())
    }
    ranks, count = summary.number("total_ranks"), summary.number("trials_per_option")
    trials: dict[str, dict[tuple[int, int], CacheTrial]] = defaultdict(dict)
    for match in folder.matching(_TRIALS):
        trial, rank = int(match[2]), int(match[3])
        is_known = match[1] in options and trial < (count or 0) and rank < (ranks or 0)
        if not is_known or (trial, rank) in trials[match[1]]:
            folder.refuse(match[0], f"its option, trial or rank is not in {SUMMARY}, or twice here")
        trials[match[1]][trial, rank] = _trial(folder, match[0], trial, rank)
    placed = re.search(r"kv_cache/([^/]+)/", folder.path)
    facts = {
        "model": metadata.text("model") or (placed[1] if placed else UNKNOWN),
        "ranks": ranks,
        "trials": count,
        "options": tuple(
            {
                "option": name,
                "read_bytes_per_s": option.number("aggregated_read_bandwidth_gbps", GIB),
                "written_bytes_per_s": option.number("aggregated_write_bandwidth_gbps", GIB),
                "tokens_per_s": option.number("aggregated_avg_throughput_tokens_per_sec"),
                "storage_tokens_per_s": option.number(
                    "aggregated_storage_throughput_tokens_per_sec"
                ),
                "trials": tuple(trials[name].values()),
            }
            for name, option in options.items()
        ),
    }
    settings: dict[str, Setting] = {
        "partial_failure": folder.summary.get("partial_failure") is True
    }
    # A program runs for each option and trial; the metadata's own parameters are unused defaults.
    for each in metadata.each("command_output_files"):
        command = each.text("command") or ""
        if named := re.search(r"option_\d+", command):
            settings |= {f"{named[0]}.{flag}": text for flag, text in _FLAG.findall(command)}
    return run_by_metadata(folder, folder.part(SUMMARY, CacheFacts, facts), settings)


def _trial(folder: RunFolder, name: str, trial: int, rank: int) -> CacheTrial:
    found = Values(folder, name, folder.json(name))
    stats = "summary.cache_stats."
    tiers = [
        found.bytes(f"{stats}tier_{tier}_kv_bytes_read_gb") for tier in ("gpu", "cpu", "storage")
    ]
    known = [tier for tier in tiers if tier is not None]
    is_known = len(known) == len(tiers)
    return folder.part(
        name,
        CacheTrial,
        {
            "trial": trial,
            "rank": rank,
            "seconds": found.number("summary.elapsed_time"),
            "read_bytes": sum(known) if is_known else None,
            "written_bytes": found.bytes(f"{stats}tier_storage_kv_bytes_written_gb"),
            "memory_bytes": sum(known[:-1]) if is_known else None,
            "tokens_processed": found.number(f"{stats}storage_tokens_processed"),
            "write_p95_s": found.number(f"{stats}storage_write_p95_ms", MILLI),
            "fsync_p95_s": found.number(f"{stats}storage_write_device_p95_ms", MILLI),
        },
    )
