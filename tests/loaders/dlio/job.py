"""A small training job for tests of the DLIO harness, and a phase to run it in."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contracts.loader import write_record
from wattload.loaders.dlio.config import Config
from wattload.loaders.samples import SampleSet, Training

FILES, BATCH = 8, 2
RESIZE = 64 * 64

needs_dlio = pytest.mark.skipif(
    not all(requirement.is_installed for requirement in Config.requires),
    reason="dlio-benchmark is not installed here; docs/install.md has its two commands",
)


def make_training(
    folder: Path,
    *,
    accelerators: int = 1,
    step_s: float = 0.01,
    check_crc: bool = False,
    rows: int = 300,
    epochs: int = 1,
    record_format: str = "npz",
) -> Training:
    """Return a job over records of ``rows`` x 1000 bytes and more, as numpy writes them.

    numpy writes no JPEG: those are ours.
    """
    paths = []
    for index in range(FILES):
        path = folder / f"img_{index}_of_{FILES}.{record_format}"
        record = np.random.default_rng(index).integers(0, 255, (rows, 1000 + index, 1), np.uint8)
        if record_format == "npz":
            np.savez(path, x=record, y=[0])
        else:
            write_record(path, record.reshape(-1), record_format, None)
        paths.append(path)
    samples = SampleSet(
        paths=tuple(paths),
        file_bytes=tuple(path.stat().st_size for path in paths),
        record_format=record_format,
        batch_samples=BATCH,
        resize_bytes=RESIZE,
        check_crc=check_crc,
        accelerators=accelerators,
    )
    shard = FILES // accelerators
    order = [int(index) for index in np.random.default_rng(0).permutation(FILES)]
    return Training(
        samples=samples,
        orders=[order[start : start + shard] for start in range(0, FILES, shard)],
        model="unet3d",
        accelerator="h100",
        step_s=step_s,
        record_mean_bytes=rows * 1000,
        record_stdev_bytes=0,
        epochs=epochs,
    )


class Window:
    """A stand-in for the phases of epochs; keeps the calls that each receives."""

    def __init__(self) -> None:
        self.phases: list[WindowPhase] = []

    @contextmanager
    def __call__(self) -> Iterator[Any]:
        phase = self.phase()
        phase.opened_ns = time.monotonic_ns()
        self.phases.append(phase)
        try:
            yield phase
        finally:
            phase.closed_ns = time.monotonic_ns()

    def phase(self) -> WindowPhase:
        return WindowPhase()


class WindowPhase:
    """A stand-in for the phase of one epoch."""

    def __init__(self) -> None:
        self.read_bytes = 0
        self.edges_ns = (0, 0)
        self.opened_ns = self.closed_ns = 0

    def moved(self, *, read_bytes: int) -> None:
        self.read_bytes += read_bytes

    def set_edges(self, start_ns: int, end_ns: int) -> None:
        self.edges_ns = (start_ns, end_ns)


def processes_that_say(word: str) -> list[int]:
    """Return the processes whose command line or folder has a word in it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            said = (entry / "cmdline").read_bytes() + os.fsencode((entry / "cwd").readlink())
        except OSError:
            continue
        if word.encode() in said and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found
