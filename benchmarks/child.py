"""Child processes of benchmarks: their output, and what a run of I/O in one comes to."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.measure import NotMeasuredError

ROOT = Path(__file__).resolve().parents[1]
PREFIX = "wattload: "


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


def own_cpu_s() -> float:
    """Return user and system seconds of all threads of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
