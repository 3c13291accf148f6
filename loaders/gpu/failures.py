"""What an error of CUDA, of cuFile or of the engine's library means: sentences for the user."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Mapping
from ctypes import c_void_p
from pathlib import Path

from wattload.core.errors import ConfigError, NoGpuError, RunError, TargetError, WattloadError
from wattload.core.storage.targets import DATA_FOLDER_NAME
from wattload.core.units import MIB, format_bytes
from wattload.loaders.aligned_io import refuses_direct
from wattload.loaders.engine import library

CUFILE_BASE = 5000
CUFILE_MEANINGS = {
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


class NativeError(Exception):
    """A call of the library failed; ``text`` is its clause. See ``wl_error`` for the fields."""

    def __init__(
        self, code: int, text: str, path: str = "", offset: int = 0, detail: int = 0
    ) -> None:
        super().__init__(code, text, path, offset, detail)  # which goes from process to process
        self.code, self.text, self.path, self.offset, self.detail = code, text, path, offset, detail

    def __str__(self) -> str:
        return self.text

    @classmethod
    def of(cls, error: ctypes.Structure) -> NativeError:
        return cls(
            code=int(error.code),
            detail=int(error.detail),
            offset=int(error.offset),
            path=os.fsdecode(error.path),
            text=error.text.decode("utf-8", "replace"),
        )


def invoke(name: str, *arguments: object) -> None:
    """Call a function of the library as ``library.invoke``; raises ``NativeError``."""
    library.invoke(name, *arguments, raises=NativeError.of)


def open_handle(name: str, setup: ctypes.Structure) -> c_void_p:
    """Return what a function opens for a setup; raises ``NativeError``."""
    return library.open_handle(name, setup, raises=NativeError.of)


def cufile_refusal(code: int, path: str) -> WattloadError:
    """Return the error for a file that cuFile does not register, or for its driver without one.

    ``code`` is cuFile's, or an errno, negated: -22 for a configuration that it can't read.
    """
    meaning = CUFILE_MEANINGS.get(code, "an unknown error")
    if code < 0:
        meaning = os.strerror(-code)
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


def opening_error(error: NativeError, sizes: Mapping[str, int], less: str) -> Exception:
    """Return the exception for readers or a queue that could not be opened.

    ``sizes`` are those of the planned files by path, ``less`` what takes less memory and fewer
    threads: "use fewer threads".
    """
    if error.code > 0:
        failed = f"{error.text} failed: {os.strerror(error.code)}"
        if error.path:
            return OSError(error.code, failed, error.path)
        if error.code == errno.EAGAIN:
            less += ", or raise pids.max and the limit on processes (ulimit -u)"
        return ConfigError(f"{failed}; {less}")
    if error.code == library.OTHER_SIZE:
        return TargetError(
            f"{error.path} is a file of {error.offset} bytes, {sizes[error.path]} are planned; "
            "remove the data folder to generate it again"
        )
    kinds: dict[int, Exception] = {
        library.NO_LIBRARY: missing_library(error.text),
        library.CUDA: ConfigError(f"CUDA refuses: {error.text}; check the GPU with nvidia-smi"),
        library.NO_GPU: ConfigError(
            f"{error.text}: check workload.gpus and CUDA_VISIBLE_DEVICES, and whether MIG is on, "
            "which wattload does not support"
        ),
        library.GPU_MEMORY: ConfigError(f"{_no_room(error)}; {less}, or end what uses the GPU"),
        library.CUFILE: cufile_refusal(error.detail, error.path),
        library.NOT_DIRECT: TargetError(refuses_direct(error.path)),
        library.NOT_PINNED: ConfigError(
            f"{error.offset / MIB:.4g} MiB can't be pinned ({error.text}); raise ulimit -l and the "
            f"memory limit of the cgroup, or {less}"
        ),
    }
    return kinds.get(error.code) or ConfigError(f"{error.text}; {less}")


def _no_room(error: NativeError) -> str:
    if error.offset == library.NO_OFFSET:
        return error.text
    return f"the GPU has no {format_bytes(error.offset)} free for {error.text}"


def lost_error(error: NativeError, hang_s: float = 0.0) -> RunError:
    """Return the exception for reads that an error ended; a queue waits ``hang_s`` for answers."""
    if error.code == library.HANGS:
        where = f" on {error.path}" if error.path else ""
        return RunError(
            f"{error.offset:,} requests unanswered for {hang_s:.3g} s{where}: the drive or a "
            "poller hangs; check the kernel log"
        )
    if error.code == library.CUDA:
        return RunError(
            f"the GPU was lost, reads ended: {error.text}; check it with nvidia-smi and the kernel "
            "log"
        )
    reason = f" failed: {os.strerror(error.code)}" if error.code > 0 else ""
    return RunError(f"reads ended: {error.text}{reason}")


def failure_clause(code: int) -> str:
    """Return why a read failed, by its code: see ``wl_gpu_failure`` in the header.

    cuFile's codes and their meanings are those of ``CUFILEOP_STATUS_ENTRIES`` in ``cufile.h``.
    """
    if code == errno.EPERM:  # pread has no such error; cuFile 1.15 has it for all without a code
        return "an error without a code, which cuFile's log in the run's folder explains"
    if code > 0:
        return f"{os.strerror(code)} ({errno.errorcode.get(code, code)})"
    if code == library.SHORT_READ:
        return "fewer bytes than requested"
    if code < -CUFILE_BASE:
        meaning = CUFILE_MEANINGS.get(-code)
        return f"cuFile error {-code}" + (f": {meaning}" if meaning else "")
    return "other errors"
