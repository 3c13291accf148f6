"""The page cache: evict files from it, and prove that they are evicted."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from wattload.core.files import naming
from wattload.core.record.results import Check, amount
from wattload.core.sysfs import LIVE, Roots, explain, read_int
from wattload.core.units import format_percent

RESIDENT_LIMIT = 0.01
"""The share of a cold data set that may be in memory: 1 %."""

_WORST_FIRST = ("fail", "not_checked", "warn", "pass")
_WINDOW_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Residency:
    """How much of a set of files is in the page cache, in whole pages.

    ``resident_bytes`` is ``None`` if it is unknown; ``missing`` then has the reason.
    """

    resident_bytes: int | None
    total_bytes: int
    missing: str | None = None

    @property
    def fraction(self) -> float | None:
        """The resident share in [0, 1]; 0 for no bytes at all, ``None`` where unknown."""
        if self.resident_bytes is None:
            return None
        return self.resident_bytes / self.total_bytes if self.total_bytes else 0.0


def evict(paths: Iterable[Path]) -> None:
    """Write the files' dirty pages and drop all their pages from the page cache.

    Needs no privilege. Pages that another process maps or locks stay; ``residency`` counts them.

    Raises:
        OSError: a file can't be opened or written.
    """
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            with naming(path):
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def residency(paths: Iterable[Path]) -> Residency:
    """Return how much of the files is in the page cache, by ``mincore``.

    Linux reports it to a file's owner, to users who may write it, and to root. For others it
    reports every page as resident (``can_do_mincore`` in the kernel's mm/mincore.c), so the answer
    is then unknown.

    Raises:
        OSError: a file can't be opened or mapped.
    """
    resident = total = 0
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            total += status.st_size
            if not _may_know(path, status):
                reason = f"{path} belongs to another user; the kernel reports it to the owner only"
                return Residency(resident_bytes=None, total_bytes=total, missing=reason)
            resident += _resident_bytes(descriptor, status.st_size, path)
        finally:
            os.close(descriptor)
    return Residency(resident_bytes=resident, total_bytes=total)


def resident_fraction(paths: Iterable[Path]) -> float | None:
    """Return the share of the files that is in the page cache, ``None`` if it is unknown."""
    return residency(paths).fraction


def cold_cache_check(paths: Iterable[Path], *, name: str = "cold_cache") -> Check:
    """Return the check that the files are not in the page cache, before a timed read."""
    found = residency(paths)
    if found.fraction is None:
        return Check(
            name=name,
            verdict="not_checked",
            sentence=f"Whether the page cache was cold is unknown: {found.missing}.",
            mandatory=True,
        )
    figures = {
        "resident_bytes": found.resident_bytes,
        "total_bytes": found.total_bytes,
        "limit_fraction": RESIDENT_LIMIT,
    }
    return Check(
        name=name,
        verdict="pass" if is_cold(figures) else "fail",
        sentence=(
            f"{format_percent(found.fraction, 2)} of the files' {found.total_bytes} bytes were in "
            f"the page cache before the read; at most {format_percent(RESIDENT_LIMIT)} may be."
        ),
        figures=figures,
        mandatory=True,
    )


def is_cold(figures: Mapping[str, float | int | str | None]) -> bool:
    """Return whether the figures of a cold-cache check are those of a cold cache."""
    total_bytes = amount(figures, "total_bytes")
    return amount(figures, "resident_bytes") <= RESIDENT_LIMIT * total_bytes


def worst_of(checks: Iterable[Check]) -> Check:
    """Return the worst of one or more checks of one name, made at several times."""
    made = list(checks)
    worst = min(
        made,
        key=lambda check: (
            _WORST_FIRST.index(check.verdict),
            -float(check.figures.get("resident_bytes") or 0),
        ),
    )
    return worst.model_copy(update={"figures": {**worst.figures, "times_checked": len(made)}})


def worst_of_each(checks: Iterable[Check]) -> list[Check]:
    """Return the worst check of each name, in the order in which the names were first checked."""
    made = list(checks)
    names = dict.fromkeys(check.name for check in made)
    return [worst_of(check for check in made if check.name == name) for name in names]


def worst_over_hosts(by_rank: Iterable[tuple[str, Iterable[Check]]]) -> list[Check]:
    """Return the worst check of each name over all ranks, each given with the name of its host.

    With several hosts, the sentence names the host.
    """
    ranks = [(host, list(checks)) for host, checks in by_rank]
    count = len({host for host, _ in ranks})
    return worst_of_each(
        check.model_copy(update={"sentence": f"On {host}, the worst of {count} hosts: {sentence}"})
        if count > 1
        else check
        for host, checks in ranks
        for check in checks
        for sentence in [check.sentence[:1].lower() + check.sentence[1:]]
    )


def read_ahead_remarks(paths: Sequence[Path], roots: Roots = LIVE) -> tuple[str, ...]:
    """Return a sentence for each disk under the files: its read-ahead, or why it is unknown."""
    remarks = []
    for device in dict.fromkeys(path.stat().st_dev for path in paths):
        number = f"{os.major(device)}:{os.minor(device)}"
        folder = (roots.sys / "dev/block" / number).resolve()
        disk = folder if (folder / "queue").is_dir() else folder.parent
        try:
            size_kb = read_int(disk / "queue/read_ahead_kb")
        except (OSError, ValueError) as error:
            remarks.append(f"The read-ahead of device {number} is unknown: {explain(error)}.")
        else:
            remarks.append(f"The read-ahead of {disk.name} is {size_kb} KiB (read_ahead_kb).")
    return tuple(remarks)


def _may_know(path: Path, status: os.stat_result) -> bool:
    user = os.geteuid()
    return user in {0, status.st_uid} or os.access(path, os.W_OK, effective_ids=True)


def _resident_bytes(descriptor: int, size_bytes: int, path: Path) -> int:
    """Return the resident bytes of one file, counted a window at a time."""
    found = 0
    for offset in range(0, size_bytes, _WINDOW_BYTES):
        length = min(_WINDOW_BYTES, size_bytes - offset)
        pages = _resident_pages(descriptor, offset, length, path)
        tail_bytes = -length % mmap.PAGESIZE if pages[-1] else 0
        found += int(np.count_nonzero(pages)) * mmap.PAGESIZE - tail_bytes
    return found


def _resident_pages(descriptor: int, offset: int, length: int, path: Path) -> np.ndarray:
    """Return one flag per page of a window, shape ``(ceil(length / page),)``."""
    pages = np.zeros(-(-length // mmap.PAGESIZE), dtype=np.uint8)
    with naming(path), mmap.mmap(descriptor, length, prot=mmap.PROT_READ, offset=offset) as window:
        content = np.frombuffer(window, np.uint8)
        address, flags = ctypes.c_void_p(content.ctypes.data), ctypes.c_void_p(pages.ctypes.data)
        del content  # a window that is in use can't be closed
        if _libc().mincore(address, ctypes.c_size_t(length), flags):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    return pages & 1


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
