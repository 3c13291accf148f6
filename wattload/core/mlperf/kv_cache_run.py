"""A run of MLPerf Storage v3's KV cache benchmark: its summary, and a file of each trial and rank.

GB mean GiB: ``tier_storage_read_bandwidth_gbps`` is GiB over ``elapsed_time`` (mlcommons/storage,
``kv_cache_benchmark`` and ``mlpstorage_py/benchmarks/kvcache.py``).
"""

from __future__ import annotations

import re

from wattload.core.mlperf.dlio_run import UNKNOWN, RunSummary, published_run
from wattload.core.mlperf.files import SUMMARY, RunFolder, Values
from wattload.core.mlperf.metadata import metadata_of, times_of
from wattload.core.mlperf.published import CacheFacts, CacheTrial, PublishedRun
from wattload.core.units import GIB, MILLI

_TRIALS = r"option_(\d+)/trial_(\d+)/rank_(\d+)/kvcache_results_.*\.json"


def read_cache(folder: RunFolder) -> PublishedRun:
    """Return a run of the KV cache; raises as ``read_training`` does."""
    summary, metadata = Values(folder, SUMMARY, folder.summary), metadata_of(folder)
    ranks, count = summary.whole("total_ranks") or 0, summary.whole("trials_per_option") or 0
    options: dict[str, object] = summary.get("options", dict) or {}
    trials: dict[str, dict[tuple[int, int], CacheTrial]] = {name: {} for name in options}
    for match in folder.matching(_TRIALS):
        of, trial, rank = match[1], int(match[2]), int(match[3])
        if of not in trials or trial >= count or rank >= ranks or (trial, rank) in trials[of]:
            folder.refuse(match[0], f"its option, trial or rank is not in {SUMMARY}, or twice here")
        trials[of][trial, rank] = _trial(folder, match[0])
    placed = re.search(r"kv_cache/([^/]+)/", folder.path)
    facts = {
        "model": metadata.get("model", str) or (placed[1] if placed else UNKNOWN),
        "ranks": ranks,
        "trials": count,
        "options": tuple(
            {
                "option": name,
                "read_bytes_per_s": option.number("aggregated_read_bandwidth_gbps", GIB),
                "written_bytes_per_s": option.number("aggregated_write_bandwidth_gbps", GIB),
                "tokens_per_s": option.number("aggregated_avg_throughput_tokens_per_sec"),
                "trials": tuple(trials[name].values()),
            }
            for name in sorted(options)
            for option in [Values(folder, SUMMARY, options[name])]
        ),
    }
    found = folder.part(SUMMARY, CacheFacts, facts)
    job = {"num_accelerators": ranks, "num_hosts": summary.whole("host_count")}
    run = folder.part(SUMMARY, RunSummary, times_of(folder) | job)
    return published_run(folder, run, found, {}, {})


def _trial(folder: RunFolder, name: str) -> CacheTrial:
    found = Values(folder, name, folder.json(name))
    stats = "summary.cache_stats."
    tiers = [
        found.whole(f"{stats}tier_{tier}_kv_bytes_read_gb", GIB)
        for tier in ("gpu", "cpu", "storage")
    ]
    known = [tier for tier in tiers if tier is not None]
    is_known = len(known) == len(tiers)
    return folder.part(
        name,
        CacheTrial,
        {
            "seconds": found.number("summary.elapsed_time"),
            "read_bytes": sum(known) if is_known else None,
            "memory_bytes": sum(known[:-1]) if is_known else None,
            "tokens_processed": found.number(f"{stats}storage_tokens_processed"),
            "write_p95_s": found.number(f"{stats}storage_write_p95_ms", MILLI),
            "fsync_p95_s": found.number(f"{stats}storage_write_device_p95_ms", MILLI),
        },
    )
