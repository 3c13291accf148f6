"""A small training job for tests of the DLIO harness."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from wattload.loaders.dlio.config import Config
from wattload.loaders.samples import SampleSet, Training

FILES, BATCH, EPOCHS = 8, 2, 2
RESIZE = 64 * 64

needs_dlio = pytest.mark.skipif(
    not all(requirement.is_installed for requirement in Config.requires),
    reason="dlio-benchmark is not installed here; docs/install.md has its two commands",
)


def make_training(
    folder: Path,
    *,
    accelerators: int = 1,
    epochs: int = EPOCHS,
    step_s: float = 0.01,
    check_crc: bool = False,
    rows: int = 300,
) -> Training:
    """Return a job over records of ``rows`` x 1000 bytes and more, as numpy writes them."""
    paths = []
    for index in range(FILES):
        path = folder / f"img_{index}_of_{FILES}.npz"
        record = np.random.default_rng(index).integers(0, 255, (rows, 1000 + index, 1), np.uint8)
        np.savez(path, x=record, y=[0])
        paths.append(path)
    samples = SampleSet(
        paths=tuple(paths),
        file_bytes=tuple(path.stat().st_size for path in paths),
        record_format="npz",
        batch_samples=BATCH,
        resize_bytes=RESIZE,
        check_crc=check_crc,
        accelerators=accelerators,
    )
    shard = FILES // accelerators
    orders = []
    for epoch in range(epochs):
        order = [int(index) for index in np.random.default_rng(epoch).permutation(FILES)]
        orders.append([order[start : start + shard] for start in range(0, FILES, shard)])
    return Training(
        samples=samples,
        orders=orders,
        step_s=step_s,
        record_mean_bytes=rows * 1000,
        record_stdev_bytes=0,
    )


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
