"""What a failure of CUDA, of cuFile or of the kernel means: sentences for the user.

cuFile's codes and their meanings are those of ``CUFILEOP_STATUS_ENTRIES`` in ``cufile.h``.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from wattload.core.errors import ConfigError, NoGpuError, RunError, TargetError, WattloadError
from wattload.core.storage.targets import DATA_FOLDER_NAME
from wattload.core.units import format_bytes
from wattload.loaders.aligned_io import refuses_direct
from wattload.loaders.engine import library
from wattload.loaders.gpu import native
from wattload.loaders.gpu_reads import GpuReadPlan

CUFILE_BASE = 5000
NO_DRIVER = "install NVIDIA's driver, or in a container pass the GPU into it"

_REFUSALS = {
    5001: "nvidia-fs is not loaded, and PCI P2PDMA is not available; `wattload doctor` says what "
    "is missing; load it with `modprobe nvidia-fs`, or use loader=cufile_auto, which reads through "
    "host memory",
    5007: "this platform does not support GPUDirect Storage; `wattload doctor` says what is "
    "missing; use loader=cufile_auto, which reads through host memory",
    5008: "GPUDirect Storage does not support this file system or disk here, and "
    "loader=cufile forbids the path through host memory; `wattload doctor` says what is missing, "
    "and cuFile's log in the run's folder has the reason; use loader=cufile_auto, which allows it",
    5009: "GPUDirect Storage does not support this GPU; use loader=cufile_auto, which goes through "
    "host memory",
    5018: "it is not a regular file",
    5020: "it was not opened with O_DIRECT; use a file system that supports O_DIRECT",
    5025: "permission denied; start wattload as a user who may read it",
    5027: "udev knows nothing of its disk; start systemd-udevd, or in a container mount the host's "
    "/run/udev (tmpfs and overlay file systems have no disk)",
    5033: "the driver of GPUDirect Storage could not be set up; cuFile's log in the run's folder "
    "has the reason",
    5034: "the configuration of cuFile disables it for this file",
    5036: "the GPU's memory can't be pinned, such as where its BAR1 is too small; use fewer "
    "threads",
    5045: "a buffer can't be registered; use fewer threads or smaller blocks",
}
_MEANINGS = {
    5011: "an error of the CUDA driver",
    5012: "an invalid device pointer",
    5022: "an invalid argument",
    5024: "the buffer is not registered",
    5030: "an internal error",
    5031: "no new file descriptor",
    5036: "GPU memory could not be pinned",
    5043: "out of memory",
    5044: "an I/O error",
    5048: "an internal error of nvidia-fs",
    5050: "the limit of GPUDirect Storage",
}


def failure_clause(code: int) -> str:
    """Return why a read failed, by its code: see ``wl_gpu_failure`` in the header."""
    if code == errno.EPERM:  # pread has no such error; cuFile 1.15 has it for all without a code
        return "an error without a code, which cuFile's log in the run's folder explains"
    if code > 0:
        return f"{os.strerror(code)} ({errno.errorcode.get(code, code)})"
    if code == library.SHORT_READ:
        return "fewer bytes than asked for"
    if code < -CUFILE_BASE:
        meaning = _MEANINGS.get(-code)
        return f"cuFile error {-code}" + (f": {meaning}" if meaning else "")
    return "other errors"


def failure_error(code: int, plan: GpuReadPlan) -> OSError:
    """Return the error for a run of which every read failed with that code first."""
    number = code if code > 0 else errno.EIO
    first = plan.files[0].path
    return OSError(number, f"no read succeeded: {failure_clause(code)}", str(first))


def cufile_refusal(code: int, path: str) -> WattloadError:
    """Return the error for a file that cuFile does not register, or for its driver without one.

    ``code`` is cuFile's, or an errno, negated: -22 for a configuration that it can't read.
    """
    meaning = os.strerror(-code) if code < 0 else _MEANINGS.get(code, "an unknown error")
    reason = _REFUSALS.get(code) or (
        f"{meaning}; cuFile's log in the run's folder has more, and loader=bounce reads without "
        "cuFile"
    )
    if not path:
        return ConfigError(f"cuFile does not start ({code}): {reason}")
    return TargetError(f"cuFile refuses {target_of(path)} ({code}): {reason}")


def target_of(path: str) -> str:
    """Return the target that a file of ours is on, or the file's own path."""
    parts = Path(path).parts
    if DATA_FOLDER_NAME not in parts:
        return path
    return str(Path(*parts[: parts.index(DATA_FOLDER_NAME)]))


def missing_library(text: str) -> ConfigError:
    """Return the error for a library of NVIDIA's that does not load; ``text`` is dlopen's."""
    if "libcufile" in text:
        return ConfigError(
            "cuFile is not installed (libcufile.so.0): install NVIDIA's gds-tools or the package "
            "nvidia-cufile and put its folder into LD_LIBRARY_PATH, or use loader=bounce; "
            f"the loader said: {text}"
        )
    if "has no function" in text:
        return ConfigError(f"{text}: the NVIDIA driver is too old; install a newer one")
    return NoGpuError(f"no CUDA driver (libcuda.so.1): {NO_DRIVER}; the loader said: {text}")


def preparation_error(error: native.NativeError, plan: GpuReadPlan) -> Exception:
    """Return the exception for readers that could not be prepared."""
    if error.code > 0:
        return _of_errno(error, plan)
    if error.code == library.OTHER_SIZE:
        planned = {str(file.path): file.size_bytes for file in plan.files}[error.path]
        return TargetError(
            f"file of {format_bytes(error.offset)}, {format_bytes(planned)} planned: {error.path}; "
            "remove the data folder to generate it again"
        )
    kinds: dict[int, Exception] = {
        library.NO_LIBRARY: missing_library(error.text),
        library.CUDA: ConfigError(f"CUDA refuses: {error.text}; check the GPU with nvidia-smi"),
        library.NO_GPU: ConfigError(
            f"{error.text}: check workload.gpus and CUDA_VISIBLE_DEVICES, and whether MIG is on, "
            "which wattload does not support"
        ),
        library.GPU_MEMORY: ConfigError(
            f"{error.text}; use fewer threads or smaller blocks, or end what uses the GPU"
        ),
        library.CUFILE: cufile_refusal(error.detail, error.path),
        library.NOT_DIRECT: TargetError(refuses_direct(error.path)),
        library.UNAVAILABLE: ConfigError(f"{error.text}; use loader.submit=thread"),
    }
    return kinds.get(error.code) or ConfigError(error.text)


def _of_errno(error: native.NativeError, plan: GpuReadPlan) -> Exception:
    if error.code == errno.EAGAIN:
        return ConfigError(
            f"{plan.threads} threads do not start ({error.text} failed: "
            f"{os.strerror(error.code)}); use fewer threads, or raise pids.max and the limit on "
            "processes (ulimit -u)"
        )
    if error.path:
        return OSError(error.code, f"{error.text} failed: {os.strerror(error.code)}", error.path)
    return ConfigError(f"{error.text} failed: {os.strerror(error.code)}; use fewer threads")


def lost_error(error: native.NativeError) -> RunError:
    """Return the exception for reads that an error ended: the GPU was lost, or the ring."""
    if error.code > 0:
        return RunError(f"reads ended: {error.text} failed: {os.strerror(error.code)}")
    return RunError(
        f"the GPU was lost, reads ended: {error.text}; check it with nvidia-smi and the kernel log"
    )
