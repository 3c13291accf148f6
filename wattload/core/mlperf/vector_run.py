"""A run of MLPerf Storage v3's vector database benchmark.

Its figures are in ``summary.json``, else in ``statistics.json``; the log of ``vdbbench`` has the
size of the collection and the degree of DiskANN's graph (mlcommons/storage, ``vdb_benchmark``).
"""

from __future__ import annotations

import re

from wattload.core.mlperf.dlio_run import UNKNOWN, RunSummary, published_run
from wattload.core.mlperf.files import SUMMARY, RunFolder, Values
from wattload.core.mlperf.metadata import metadata_of, recorded, times_of
from wattload.core.mlperf.published import PublishedRun, VectorFacts
from wattload.core.units import MILLI

_LOG = r"vector_database_run.*\.stdout\.log"
_LOGGED = re.compile(r"'(row_count|max_degree)': (\d{1,15})\b")


def read_vectors(folder: RunFolder) -> PublishedRun:
    """Return a run of a vector database; raises as ``read_training`` does."""
    name = folder.summary_name
    found, metadata = Values(folder, name, folder.summary), metadata_of(folder)
    logged: dict[str, int] = {}
    for match in folder.matching(_LOG):
        logged |= {key: int(value) for key, value in _LOGGED.findall(folder.text(match[0]))}
    is_nested = found.get("recall", dict) is not None
    facts = {
        "database": found.get("database.database", str)
        or metadata.get("args.vdb_engine", str)
        or UNKNOWN,
        "index": found.get("index_type", str) or metadata.get("args.vdb_index", str) or UNKNOWN,
        "vectors": found.number("num_vectors") or logged.get("row_count"),
        "dimensions": found.number("dimension") or metadata.number("args.vector_dim"),
        "max_degree": logged.get("max_degree"),
        "queries": found.number("query_count" if name == SUMMARY else "total_queries"),
        "seconds": found.number("total_time_seconds"),
        "queries_per_s": found.number("throughput_qps"),
        "recall": found.number("recall.mean_recall" if is_nested else "recall"),
        "latency_p99_s": found.number("p99_latency_ms", MILLI),
    }
    job = {"num_accelerators": metadata.whole("mpi_world_size") or 1}
    run = folder.part(name, RunSummary, times_of(folder) | job)
    settings = {**recorded(folder)[0], "ranks": run.num_accelerators}
    return published_run(folder, run, folder.part(name, VectorFacts, facts), settings, {})
