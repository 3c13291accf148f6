"""Child processes of benchmarks and files on the target, and what a run of I/O comes to."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.measure import NotMeasuredError
from wattload.core.io import IOKind, IOOrder
from wattload.core.units import MIB
from wattload.loaders.data.cold_cache import evict

ROOT = Path(__file__).resolve().parents[1]
PREFIX = "wattload: "
_BLOCK_BYTES = 8 * MIB


def output(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    accepted: Sequence[int] = (0,),
) -> str:
    """Run a command in the root of the repository and return what it printed.

    Raises:
        NotMeasuredError: it is not installed, or failed; the message has its error, for other
            programs than wattload its last line.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment
        )
    except FileNotFoundError as error:
        raise NotMeasuredError(f"{command[0]} is not installed") from error
    if done.returncode not in accepted:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        lines = lines or [f"{command[0]} ended with status {done.returncode}"]
        errors = [line for line in lines if line.startswith(PREFIX)]
        raise NotMeasuredError((errors or lines)[-1].removeprefix(PREFIX))
    return done.stdout


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What an engine does: move ``files`` in blocks of ``block_bytes`` for ``seconds``."""

    kind: IOKind
    order: IOOrder
    files: Sequence[Path]
    block_bytes: int
    depth: int
    seconds: float
    direct: bool = True


def io_figures(
    *, moved_bytes: float, operations: float, seconds: float, cpu_s: float
) -> dict[str, float]:
    """Return the figures of a run of I/O; CPU time is user and system."""
    return {
        "bytes_per_s": moved_bytes / seconds,
        "operations_per_s": operations / seconds,
        "cpu_s_per_byte": cpu_s / moved_bytes if moved_bytes else 0.0,
        "cpu_s_per_operation": cpu_s / operations,
    }


@contextmanager
def scratch(target: Path) -> Iterator[Path]:
    """Hold a folder on the target; it is removed with all its files."""
    with tempfile.TemporaryDirectory(prefix="wattload-bench-", dir=target) as folder:
        yield Path(folder)


@contextmanager
def written_files(target: Path, count: int, size_bytes: int) -> Iterator[Sequence[Path]]:
    """Hold ``count`` files of random bytes, durable and out of the page cache.

    Every byte is written: a read of blocks that are only preallocated never reaches the drive, and
    a write to them has to change the file system's map.
    """
    with scratch(target) as folder:
        files = [folder / f"{number}.bin" for number in range(count)]
        for number, path in enumerate(files):
            _write(path, size_bytes, seed=number)
        evict(files)
        yield files


def _write(path: Path, size_bytes: int, *, seed: int) -> None:
    random = np.random.default_rng(seed)
    with path.open("wb") as file:
        for start in range(0, size_bytes, _BLOCK_BYTES):
            file.write(random.bytes(min(_BLOCK_BYTES, size_bytes - start)))
        file.flush()
        os.fsync(file.fileno())
