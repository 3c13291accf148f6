"""What the I/O engine can do here: its ring, and the memory that it may pin."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

from wattload.cli.finding import Finding, Verdict
from wattload.core.errors import MissingExtraError
from wattload.core.units import format_bytes
from wattload.loaders.native.backend import IO_URING, PREAD, unavailable

_ADDS = "loader=direct at the speed of the drive, at little CPU"
_CAPABILITY_BIT = 14
"""CAP_IPC_LOCK: with it the limit does not count (``capabilities(7)``)."""


def io_findings() -> Iterator[Finding]:
    """Yield whether the engine is built, may use io_uring, and may pin its buffers."""
    try:
        reason = unavailable(IO_URING)
    except MissingExtraError as error:
        yield Finding(
            name="I/O engine",
            verdict=Verdict.NO,
            says=str(error),
            adds=_ADDS,
            mend="make setup",
        )
        return
    if reason is not None:
        yield Finding(
            name="I/O engine",
            verdict=Verdict.PARTLY,
            says=f"{reason}; loader.engine=auto takes {PREAD}, threads that wait",
            adds=_ADDS,
            mend="sudo sysctl kernel.io_uring_disabled=0",
        )
        return
    yield Finding(name="I/O engine", verdict=Verdict.YES, says="io_uring may be used", adds=_ADDS)
    yield _locked_memory()


def _locked_memory() -> Finding:
    """Return what may be pinned: registered buffers save the kernel a look-up per operation."""
    adds = "buffers that the kernel looks up once, not for each operation"
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit_bytes == resource.RLIM_INFINITY or _may_pin_anything():
        return Finding(name="locked memory", verdict=Verdict.YES, says="without limit", adds=adds)
    return Finding(
        name="locked memory",
        verdict=Verdict.PARTLY,
        says=f"{format_bytes(limit_bytes)} may be pinned; larger buffers are not registered",
        adds=adds,
        mend="ulimit -l unlimited",
    )


def _may_pin_anything() -> bool:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    held = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(held, 16) >> _CAPABILITY_BIT & 1)
