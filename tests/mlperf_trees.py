"""Published trees of MLPerf Storage, written by us: training runs as DLIO leaves them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime.fromisoformat("2024-08-17T22:55:06.210629")
BLOCK_S = 100.0
STEP_S, COMPUTE_S = 0.5, 0.323
STEPS, BATCH, EPOCHS, ACCELERATORS = 12, 7, 2, 2
SAMPLES_PER_S = STEPS * BATCH * ACCELERATORS / BLOCK_S
SYSTEM = "Closed/Acme/results/box_1host"

CONFIG = """\
workload:
  model: {model}
  dataset: {{num_files_train: {files}, record_length: 146600628}}
  reader: {{batch_size: 7, read_threads: 4, file_shuffle: seed}}
  train: {{epochs: 2, computation_time: {compute_s}}}
"""
OVERRIDES = """\
- workload={model}_{accelerator}
- ++workload.dataset.num_files_train={files}
- ++workload.dataset.data_folder=/data/a=b
"""


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def per_epoch(epochs: int = EPOCHS) -> dict[str, Any]:
    """Return the times of epochs with a block of 100 s each."""
    return {
        str(epoch): {
            "start": at(110 * epoch),
            "block1": {"start": at(110 * epoch + 1), "end": at(110 * epoch + 1 + BLOCK_S)},
            "end": at(110 * epoch + 105),
        }
        for epoch in range(1, epochs + 1)
    }


def output(steps: int = STEPS, epochs: int = EPOCHS) -> dict[str, Any]:
    """Return the step lists of a rank: its first step takes 2 s more than the others."""
    lists = {
        "proc": {"block1": [STEP_S + 2, *[STEP_S] * (steps - 1)]},
        "compute": {"block1": [COMPUTE_S] * steps},
    }
    return {"hostname": "a", **{str(epoch): lists for epoch in range(1, epochs + 1)}}


def summary(**changes: Any) -> dict[str, Any]:
    metric = {
        "train_au_percentage": [90.0] * EPOCHS,
        "train_au_mean_percentage": 90.0,
        "train_throughput_samples_per_second": [SAMPLES_PER_S] * EPOCHS,
        "train_throughput_mean_samples_per_second": SAMPLES_PER_S,
        "train_io_mean_MB_per_second": 2.0,
    }
    return {
        "start": at(0),
        "end": at(500),
        "num_accelerators": ACCELERATORS,
        "num_hosts": 1,
        "hostname": "node1",
        "epochs": EPOCHS,
        # the rest fills no batch
        "num_files_train": STEPS * BATCH * ACCELERATORS + 3,
        "num_samples_per_file": 1,
        "host_memory_GB": [4.0],
        "host_cpu_count": [8],
        "metric": metric,
        **changes,
    }


def write_run(
    folder: Path,
    *,
    model: str = "unet3d",
    accelerator: str = "h100",
    ranks: Sequence[int] = (),
    **changes: Any,
) -> Path:
    """Write a run's folder; ``ranks`` are those whose step lists it has."""
    found = summary(**changes)
    (folder / "configs").mkdir(parents=True)
    named = {
        "model": model,
        "accelerator": accelerator,
        "files": found["num_files_train"],
        "compute_s": COMPUTE_S,
    }
    (folder / "configs/config.yaml").write_text(CONFIG.format(**named))
    (folder / "configs/overrides.yaml").write_text(OVERRIDES.format(**named))
    write(folder / "summary.json", found)
    write(folder / "per_epoch_stats.json", per_epoch())
    for rank in ranks:
        write(folder / f"{rank}_output.json", output())
    return folder


def write_set(tree: Path, folder: str = f"{SYSTEM}/unet3d-h100", runs: int = 5) -> Path:
    for number in range(1, runs + 1):
        write_run(tree / folder / f"run{number}")
    return tree / folder


def write_report(folder: Path, names: Sequence[str]) -> None:
    rates = {name: {"train_throughput_samples_per_second": SAMPLES_PER_S} for name in names}
    overall = {"train_throughput_mean_samples_per_second": SAMPLES_PER_S}
    write(folder / "mlperf_storage_report.json", {"overall": overall, "runs": rates})


def write(file: Path, document: object) -> None:
    file.write_text(json.dumps(document))
