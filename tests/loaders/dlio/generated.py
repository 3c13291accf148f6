"""Data sets that dlio-benchmark itself generates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from wattload.loaders import dlio

RECORD_BYTES, STDEV_BYTES = 300_000, 60_000


def generate(folder: Path, record_format: str, *, files: int, subfolders: int = 0) -> Path:
    """Return DLIO's data folder, with ``train`` and ``valid`` in it, below a folder."""
    settings = {
        "model": "unet3d",
        "framework": "pytorch",
        "workflow": {"generate_data": True, "train": False, "checkpoint": False},
        "dataset": {
            "data_folder": "data",
            "format": record_format,
            "num_files_train": files,
            "num_subfolders_train": subfolders,
            "num_samples_per_file": 1,
            "record_length": RECORD_BYTES,
            "record_length_stdev": STDEV_BYTES,
        },
        "reader": {"data_loader": "pytorch", "batch_size": 1},
        "checkpoint": {"checkpoint_folder": "none", "model_size": 0, "layer_parameters": []},
        "output": {"folder": "output"},
    }
    (folder / "config" / "workload").mkdir(parents=True)
    (folder / "config" / "workload" / "ours.yaml").write_text(json.dumps(settings))
    root = Path(dlio.__file__).parent
    environment = {
        **os.environ,
        "OMPI_MCA_ess_singleton_isolated": "1",
        "PYTHONPATH": str(root / "stand_ins"),
    }
    arguments = ("--config-dir=config", "workload=ours", "hydra.run.dir=output")
    command = [sys.executable, "-P", "-m", "dlio_benchmark.main", *arguments]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return folder / "data"
