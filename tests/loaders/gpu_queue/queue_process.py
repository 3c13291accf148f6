"""Runs one queue with requesters on a GPU and prints what came of it, as JSON.

``python -m tests.loaders.gpu_queue.queue_process JSON`` takes the arguments of ``queue_of``, with
``targets`` as lists. In addition, ``ordinal`` is the number of the GPU, ``truncate`` the size to
which the first target is cut once it is open, and ``stop_s`` when another thread ends the run. It
is a process of its own because a driver of CUDA is loaded once. With ``EMULATED_CUDA`` set there is
no image.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from tests.loaders.gpu_queue.plans import queue_file, queue_of
from wattload.loaders.gpu_queue.kernels import compiled


def gpu_here(ordinal: int) -> tuple[str, bytes]:
    """Return the PCI address of a GPU, and the kernels for it."""
    if "EMULATED_CUDA" in os.environ:
        return "0000:65:00.0", b"emulated"
    from cuda.bindings import driver

    names = driver.CUdevice_attribute
    driver.cuInit(0)
    _, device = driver.cuDeviceGet(ordinal)
    _, address = driver.cuDeviceGetPCIBusId(20, device)
    major, minor = (
        driver.cuDeviceGetAttribute(name, device)[1]
        for name in (
            names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    return address.split(b"\0")[0].decode(), compiled(f"sm_{major}{minor}")


def gpus_in_use() -> list[int]:
    """Return the numbers of the GPUs on which this process has a context."""
    if "EMULATED_CUDA" in os.environ:
        return [0]
    from cuda.bindings import driver

    _, count = driver.cuDeviceGetCount()
    devices = [driver.cuDeviceGet(number)[1] for number in range(count)]
    states = [driver.cuDevicePrimaryCtxGetState(device) for device in devices]
    return [number for number, (_, _, is_active) in enumerate(states) if is_active]


def main(options: dict[str, Any]) -> dict[str, Any]:
    """Run it."""
    targets = [queue_file(*each) for each in options.pop("targets")]
    cut_bytes, stop_s = options.pop("truncate", None), options.pop("stop_s", None)
    gpu, image = gpu_here(options.pop("ordinal", 0))
    queue = queue_of(targets, gpu=gpu, image=image, **options)
    if cut_bytes is not None:
        os.truncate(targets[0].path, cut_bytes)
    if stop_s is None:
        queue.start()
    else:
        threading.Timer(stop_s, queue.stop).start()
    result, error = queue.run()
    ended_s = time.monotonic()
    found = {
        name: getattr(result, name)
        for name, kind, *_ in result._fields_
        if name not in ("failures", "counts")
    }
    found["failures"] = [
        [each.code, each.target, each.offset, each.count] for each in result.failures if each.count
    ]
    found["sampled"] = sum(result.counts)
    found["error"] = None if error is None else [error.code, error.path, error.offset]
    found["gpus"] = gpus_in_use()
    queue.close()
    found["close_s"] = time.monotonic() - ended_s
    return found


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
