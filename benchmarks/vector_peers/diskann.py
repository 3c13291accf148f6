"""diskannpy 0.7.0, in its environment: ``python diskann.py JOB`` builds an index or searches one.

A search is one thread that asks one query after another inside DiskANN. Two threads load the index,
because loading by one never ends in 0.7.0.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import diskannpy
import numpy as np

job = json.loads(sys.argv[1])
LIKE = {"distance_metric": "l2", "vector_dtype": np.float32, "index_prefix": "index"}


def build() -> None:
    """Build an index; DiskANN rounds the budget down, hence half a byte more for each vector."""
    diskannpy.build_disk_index(
        data=job["vectors"],
        index_directory=job["index"],
        complexity=job["build_list"],
        graph_degree=job["degree"],
        search_memory_maximum=job["count"] * (job["chunks"] + 0.5) / (1 << 30),
        build_memory_maximum=64.0,
        num_threads=job["threads"],
        **LIKE,
    )


def search(index: diskannpy.StaticDiskIndex, queries: np.ndarray) -> None:
    found = index.batch_search(queries, job["k"], job["search_list"], job["threads"], job["beam"])
    np.save(Path(job["folder"], "answers.npy"), found.identifiers)


def counters() -> list[float]:
    io = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return [time.monotonic(), time.process_time(), int(io["read_bytes"])]


if "search_list" in job:
    queries = np.load(Path(job["folder"], "queries.npy"))
    sizes = {"num_threads": 2, "num_nodes_to_cache": 0, "dimensions": queries.shape[1]}
    index = diskannpy.StaticDiskIndex(job["index"], cache_mechanism=0, **sizes, **LIKE)
    work: Callable[[], None] = partial(search, index, queries)
else:
    work = build
before = counters()
work()
used = [after - start for start, after in zip(before, counters(), strict=True)]
figures = dict(zip(("seconds", "cpu_s", "read_bytes"), used, strict=True))
peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print("\n" + json.dumps(figures | {"peak_bytes": peak_bytes}), flush=True)
os._exit(0)  # DiskANN prints when it is destroyed
