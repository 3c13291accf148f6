r"""LMCache's own disk backend without a GPU: ``python lmcache_disk.py JOB``, in its environment.

It runs with its defaults: four threads, a write or a ``readinto`` a block. Its memory is allocated
and filled before the clock starts, so no copy from or to a GPU is included. To install it::

    python3 -m venv lmcache  # torch: its CPU build is enough
    lmcache/bin/pip install torch==2.13.0
    lmcache/bin/pip install "numpy<=2.2.6" numba transformers cryptography requests aiohttp \
        aiofile cachetools msgspec nvtx "opentelemetry-sdk<=1.40.0" "prometheus-client<=0.24.1" \
        psutil py-cpuinfo pyzmq sortedcontainers
    lmcache/bin/pip install --no-deps lmcache==0.5.6
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

os.environ |= {"LMCACHE_LOG_LEVEL": "ERROR", "LMCACHE_TRACK_USAGE": "false"}

import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.memory_allocators.mixed_memory_allocator import MixedMemoryAllocator
from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from lmcache.v1.storage_backend.local_disk_backend import LocalDiskBackend

LAYERS, VECTOR = 32, 1024
"""Of llama3.1-8b: 8 heads of 128 numbers."""
LIKE = (torch.bfloat16, MemoryFormat.KV_2LTD)


def run(job: dict[str, Any]) -> dict[str, float]:
    shape = torch.Size([2, LAYERS, job["tokens"], VECTOR])
    block_bytes = shape.numel() * torch.bfloat16.itemsize
    keys = [CacheEngineKey("model", 1, 0, n, torch.bfloat16) for n in range(job["count"])]
    step = job["request_blocks"]
    requests = [keys[first : first + step] for first in range(0, len(keys), step)]
    config = LMCacheEngineConfig.from_defaults(
        chunk_size=job["tokens"],
        local_cpu=False,
        local_disk=f"file://{job['folder']}/",
        max_local_disk_size=1 << 20,
        extra_config={"use_odirect": job["mover"].endswith("O_DIRECT")},
    )
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    memory = LocalCPUBackend(config, memory_allocator=MixedMemoryAllocator(step * block_bytes))
    disk = LocalDiskBackend(config, loop, memory, dst_device="cpu")
    contents = []
    if job["kind"] == "write":
        contents = [memory.allocate(shape, *LIKE) for _ in range(step)]
        for each in contents:
            each.raw_data.random_(0, 256)
    else:
        for key, stored in zip(keys, job["stored"], strict=True):
            with suppress(FileExistsError):
                os.link(stored, disk._key_to_path(key))
            disk.insert_key(key, block_bytes, shape, *LIKE)
    start_s, start_cpu_s = time.monotonic(), time.process_time()
    if contents:
        store(disk, requests, contents)
        subprocess.run(["sync", "--file-system", job["folder"]], check=True)
    else:  # one request after another, as LMCache looks them up
        for request in requests:
            for found in disk.batched_get_blocking(request):
                found.ref_count_down()
    cpu_s, seconds = time.process_time() - start_cpu_s, time.monotonic() - start_s
    if not all(map(disk.contains, keys)):
        sys.exit("LMCache lost a block")
    return {"moved_bytes": len(keys) * block_bytes, "seconds": seconds, "cpu_s": cpu_s}


def store(disk: LocalDiskBackend, requests: list[Any], contents: list[Any]) -> None:
    """Store the same contents for each request, all of them queued at once."""
    done = threading.Semaphore(0)
    for request in requests:
        disk.batched_submit_put_task(
            request, contents, on_complete_callback=lambda _: done.release()
        )
    for _ in range(sum(map(len, requests))):
        done.acquire()


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))), flush=True)
    os._exit(0)  # its threads do not end by themselves
