"""What goes wrong in the process of the queue: sentences for the user."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from wattload.core.errors import ConfigError, DataError, NoGpuError, RunError, TargetError
from wattload.core.units import MIB, format_bytes
from wattload.loaders.aligned_io import refuses_direct
from wattload.loaders.engine import library
from wattload.loaders.gpu import failures
from wattload.loaders.gpu.native import NativeError

DRIVER = "/dev/nvidiactl"
_LESS = "use fewer workload.requesters, or a smaller workload.block_bytes or loader.table_bytes"


def no_gpu() -> NoGpuError:
    return NoGpuError(
        f"loader=gpu_queue needs an NVIDIA GPU and {DRIVER} is missing; loader.requester=cpu runs "
        "the same queue from CPU threads, and every page says so"
    )


def preparation_error(error: NativeError, planned: Mapping[str, int]) -> Exception:
    """Return the exception for a queue that could not be opened.

    ``planned`` are the sizes of its files by path.
    """
    if error.code > 0 and error.path:
        return OSError(error.code, f"{error.text} failed: {os.strerror(error.code)}", error.path)
    if error.code > 0:
        return ConfigError(f"{error.text} failed: {os.strerror(error.code)}; {_LESS}")
    if error.code == library.OTHER_SIZE:
        return TargetError(
            f"file of {format_bytes(error.offset)}, {format_bytes(planned[error.path])} planned: "
            f"{error.path}; "
            "remove the data folder to generate it again"
        )
    sentences = {
        library.CUDA: f"CUDA refuses: {error.text}; check the GPU with nvidia-smi",
        library.NO_GPU: (
            f"{error.text}: check workload.gpus and CUDA_VISIBLE_DEVICES, and whether MIG is on, "
            "which wattload does not support"
        ),
        library.GPU_MEMORY: (
            f"{error.text}; use fewer workload.requesters or a smaller loader.cache_bytes"
        ),
        library.UNAVAILABLE: f"{error.text}; {_LESS}",
        library.NOT_PINNED: (
            f"{error.offset / MIB:.4g} MiB can't be pinned ({error.text}); raise ulimit -l and the "
            f"memory limit of the cgroup, or {_LESS}"
        ),
        library.TOO_MANY: f"{error.text}; use fewer workload.requesters",
    }
    if error.code == library.NO_LIBRARY:
        return failures.missing_library(error.text)
    if error.code == library.NOT_DIRECT:
        return TargetError(refuses_direct(error.path))
    return ConfigError(sentences.get(error.code, error.text))


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
            f"{format_bytes(error.offset)} of host memory can't be pinned ({error.text}): use a "
            "smaller loader.host_share or fewer outstanding reads, or raise ulimit -l and the "
            "memory limit of the cgroup"
        )
    if error.code > 0 and not error.path:
        return ConfigError(
            f"{error.text} failed: {os.strerror(error.code)}; use a smaller loader.host_share or "
            "fewer outstanding reads"
        )
    return preparation_error(error, {})


def lost_error(error: NativeError, hang_s: float) -> RunError:
    """Return the exception for what ended the requests: a drive that hangs, or a lost GPU."""
    if error.code == library.HANGS:
        where = f" on {error.path}" if error.path else ""
        return RunError(
            f"{error.offset:,} requests unanswered for {hang_s:.3g} s{where}: the drive or a "
            "poller hangs; check the kernel log"
        )
    if error.code == library.CUDA:
        return RunError(
            f"the GPU was lost, its requests ended: {error.text}; check it with nvidia-smi and "
            "the kernel log"
        )
    reason = f": {os.strerror(error.code)}" if error.code > 0 else ""
    return RunError(f"requests ended: {error.text}{reason}")


def failure_reason(code: int) -> str:
    """Return why reads failed: an errno of the kernel, or fewer bytes than requested."""
    if code > 0:
        return f"{os.strerror(code)} ({errno.errorcode.get(code, code)})"
    return "fewer bytes than requested" if code == library.SHORT_READ else "other errors"
