"""What this host has and allows for reads into GPU memory: GPUs, cuFile, targets and limits.

CUDA and cuFile are asked in a process of their own: libcufile 1.20 does not return where there is
no CUDA device, and a driver that was opened stays in its process.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wattload.core.errors import ConfigError, RunError, TargetError, WattloadError
from wattload.core.host.capabilities import Capability, has_capability
from wattload.core.host.cgroups import memory_limit_bytes, task_limits
from wattload.core.storage.targets import Target
from wattload.core.sysfs import LIVE, Roots, read_int
from wattload.core.units import compared_bytes
from wattload.loaders.aligned_io import PAGE_BYTES, check_alignment
from wattload.loaders.block_reads import ReadPlan
from wattload.loaders.engine import library
from wattload.loaders.gpu import failures
from wattload.loaders.gpu.failures import NativeError
from wattload.loaders.gpu.process import ENGINE, Child, Request, environment_of

TIMEOUT_S = 20.0
_SPARE_TASKS = 16
"""Threads of Python, of the CUDA driver and of cuFile beside our own."""

_SPARE_FILES = 64

_MIB = 1 << 20

_LEAST_IO_KB = 1024
MOST_IO_KB = 16384
"""The range of cuFile's ``max_direct_io_size_kb``: with less, cuFile 1.15 does not start (-22)."""


@dataclass(frozen=True, slots=True)
class ProbedGpu:
    """A GPU that CUDA shows: its PCI address, such as ``0000:65:00.0``, and its name."""

    address: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The CUDA version of the driver, the GPUs by number, and libcufile.

    ``cufile_refusal`` is why cuFile can't be used, ``None`` if its driver was opened.
    ``cufile`` is its version, ``None`` without cuFile or if it does not say.
    """

    cuda: str
    gpus: tuple[ProbedGpu, ...]
    cufile: str | None
    cufile_refusal: WattloadError | None


def probe(*, with_cufile: bool = True) -> Probe:
    """Return what CUDA and cuFile say, in a second or so; cuFile gets 20 s.

    Raises:
        ConfigError: there is no CUDA driver, no GPU, or neither answers.
        RunError: the process that asked ended.
    """
    # CUDA first and alone, so that a cuFile that hangs does not hide what CUDA says.
    found = _ask("cuda")
    gpus = tuple(ProbedGpu(*each) for each in found["gpus"])
    cuda = str(found["cuda"])
    if not gpus:
        raise ConfigError(
            "CUDA shows no GPU: check nvidia-smi, and CUDA_VISIBLE_DEVICES in the environment"
        )
    if not with_cufile:
        return Probe(cuda=cuda, gpus=gpus, cufile=None, cufile_refusal=None)
    try:
        answer = _ask("cufile")
    except (ConfigError, RunError) as error:
        return Probe(cuda=cuda, gpus=gpus, cufile=None, cufile_refusal=error)
    failed = answer["cufile_error"]
    refusal = None if failed is None else _refusal(failed)
    return Probe(cuda=cuda, gpus=gpus, cufile=answer["cufile"], cufile_refusal=refusal)


def _ask(what: str) -> dict[str, Any]:
    child = Child(Request(ENGINE, (what,), is_probe=True), environment_of())
    subject = "the CUDA driver"
    try:
        message = child.receive(TIMEOUT_S)
        if message and message.kind == "opening":
            subject = f"libcufile {message.value or 'of an unknown version'}"
            message = child.receive(TIMEOUT_S)
    finally:
        child.close()
    if message is None:
        raise ConfigError(
            f"{subject} did not answer in {TIMEOUT_S:.0f} s; check nvidia-smi and the kernel log"
            + (", and try another version of cuFile, or loader=bounce" if what == "cufile" else "")
        )
    if message.kind == "error":
        raise _refusal(message.value)
    found: dict[str, Any] = message.value
    return found


def _refusal(error: NativeError) -> WattloadError:
    if error.code == library.NO_LIBRARY:
        return failures.missing_library(error.text)
    if error.code == library.CUFILE:
        return failures.cufile_refusal(error.detail, "")
    return ConfigError(f"CUDA refuses: {error.text}; check the GPU with nvidia-smi")


def cufile_io_kb(block_bytes: int) -> int:
    """Return the least ``max_direct_io_size_kb`` that cuts reads of ``block_bytes`` least.

    With each registered buffer cuFile 1.15 pins a host buffer of this size, whatever the length:
    with its default, 2048 buffers take 32 GiB.
    """
    return min(max(block_bytes >> 10, _LEAST_IO_KB), MOST_IO_KB)


def check_host(
    plan: ReadPlan,
    targets: Sequence[Target],
    *,
    buffer_bytes: int = 0,
    ring: bool = False,
    with_cufile: bool = False,
) -> Probe:
    """Raise for a plan that can't work here; return what CUDA, and if asked for cuFile, says.

    Raises:
        ConfigError: the blocks are no multiple of what O_DIRECT needs, a limit forbids the threads
            or buffers (see ``check_limits``), or CUDA does not show a GPU of the plan.
        TargetError: a target has no O_DIRECT.
    """
    if plan.block_bytes % PAGE_BYTES:
        raise ConfigError(
            f"this loader reads blocks of multiples of {PAGE_BYTES} bytes into GPU memory, and "
            f"workload.block_bytes is {plan.block_bytes}; use loader=gpu_queue for smaller ones"
        )
    for target in targets:
        if target.direct_io is None:
            raise TargetError(
                f"{target.path} has no O_DIRECT ({target.direct_io_missing}), which reads into GPU "
                "memory need; choose a target on a local disk"
            )
        check_alignment(target, plan.block_bytes, "workload.block_bytes")
    check_limits(plan, buffer_bytes=buffer_bytes, ring=ring)
    found = probe(with_cufile=with_cufile)
    shown = {gpu.address.lower() for gpu in found.gpus}
    missing = sorted(gpu for gpu in plan.gpus if gpu.lower() not in shown)
    if missing:
        raise ConfigError(
            f"CUDA does not show GPU {', '.join(missing)}, only {', '.join(sorted(shown))}: check "
            "workload.gpus and CUDA_VISIBLE_DEVICES, and whether MIG is on, which wattload does "
            "not support"
        )
    return found


def check_limits(
    plan: ReadPlan, *, buffer_bytes: int = 0, ring: bool = False, roots: Roots = LIVE
) -> None:
    """Raise for threads or buffers that a limit forbids; ``ring`` registers buffers in io_uring.

    ``buffer_bytes`` is the pinned host memory of each thread, by default a block.

    Raises:
        ConfigError: the message has the limit's name and value, and what to do.
    """
    _check_tasks(plan, roots)
    _check_files(plan)
    pinned_bytes = plan.in_flight * (buffer_bytes or plan.block_bytes)
    limit_bytes, _ = memory_limit_bytes(roots)
    if limit_bytes is not None and pinned_bytes > limit_bytes:
        pinned, limit = compared_bytes(pinned_bytes, limit_bytes)
        raise ConfigError(
            f"buffers of {pinned} for {plan.in_flight} threads, the memory limit of the cgroup is "
            f"{limit}: use fewer threads or smaller blocks"
        )
    if ring:
        check_locked(pinned_bytes, "use loader.submit=thread", roots)


def _check_tasks(plan: ReadPlan, roots: Roots) -> None:
    needed = plan.in_flight + _SPARE_TASKS
    advice = "use fewer threads, or raise the limit"
    for most, now in task_limits(roots):
        if now + needed > most:
            raise ConfigError(
                f"{plan.in_flight} threads, pids.max is {most} and {now} are in use: {advice} of "
                "the cgroup (docker run --pids-limit, TasksMax= of systemd)"
            )
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    # The kernel does not apply it to root.
    if os.geteuid() != 0 and soft != resource.RLIM_INFINITY and needed > soft:
        raise ConfigError(
            f"{plan.in_flight} threads, RLIMIT_NPROC is {soft}: {advice} with ulimit -u {needed}"
        )
    most = read_int(roots.proc / "sys/kernel/threads-max")
    if needed > most:
        raise ConfigError(
            f"{plan.in_flight} threads, kernel.threads-max is {most}: {advice} with sysctl"
        )


def _check_files(plan: ReadPlan) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(plan.files) + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and needed > soft:
        raise ConfigError(
            f"{len(plan.files)} files, RLIMIT_NOFILE is {soft}: use workload.files=per_target, or "
            f"raise the limit with ulimit -n {needed}"
        )


def check_locked(pinned_bytes: int, alternative: str, roots: Roots = LIVE) -> None:
    """Raise ``ConfigError`` with an ``alternative`` for buffers that io_uring may not register."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if (
        soft == resource.RLIM_INFINITY
        or pinned_bytes <= soft
        or has_capability(Capability.IPC_LOCK, roots)
    ):
        return
    raise ConfigError(
        f"RLIMIT_MEMLOCK {soft / _MIB:.4g} MiB, io_uring registers buffers of "
        f"{pinned_bytes / _MIB:.4g} MiB: raise the limit with ulimit -l "
        f"{-(-pinned_bytes // 1024)}, or {alternative}"
    )
