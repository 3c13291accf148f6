"""Why the queue of a GPU can't be opened: sentences for the user."""

from __future__ import annotations

from wattload.core.errors import ConfigError, DataError, NoGpuError
from wattload.core.units import format_bytes
from wattload.loaders.engine import library
from wattload.loaders.gpu.failures import opening_error
from wattload.loaders.gpu.native import NativeError

DRIVER = "/dev/nvidiactl"
_LESS = "use a smaller loader.host_share or fewer outstanding reads"


def no_gpu() -> NoGpuError:
    return NoGpuError(
        f"loader=gpu_queue needs an NVIDIA GPU and {DRIVER} is missing; loader.requester=cpu runs "
        "the same queue from CPU threads, and every page says so"
    )


def rows_error(error: NativeError, *, remedy: str) -> Exception:
    """Return the exception for a queue of rows of features that could not be opened.

    ``remedy`` says what to do about a damaged file.
    """
    if error.code == library.OTHER_SIZE:
        return DataError(f"{error.path} is {error.offset} bytes long, fewer than planned; {remedy}")
    if error.code == library.GPU_MEMORY:
        return ConfigError(
            f"the GPU has no {format_bytes(error.offset)} free for {error.text}: use a smaller "
            "loader.cache_share, smaller batches or a smaller graph"
        )
    if error.code == library.NOT_PINNED:
        return ConfigError(
            f"{format_bytes(error.offset)} of host memory can't be pinned ({error.text}): {_LESS}, "
            "or raise ulimit -l and the memory limit of the cgroup"
        )
    return opening_error(error, {}, _LESS)
