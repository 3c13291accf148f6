"""A GPU that runs random_read.cu on the CPU, for whole readers and runs without one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.building import made_once
from wattload.core.host.gpus import Gpu
from wattload.loaders.gpu import process
from wattload.loaders.gpu_queue import config
from wattload.workloads.gpu_read import workload

ROOT = Path(__file__).parents[3]
ADDRESS = "0000:65:00.0"
"""Of the only GPU that the driver knows."""
MEMORY_BYTES = 1 << 30
"""The most that it allocates at once."""
PROCESS = "tests.loaders.gpu_queue.emulated_process"


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a driver of CUDA that runs random_read.cu on the CPU."""
    return made_once(tmp_path_factory, "emulated", build_driver)


def build_driver(folder: Path) -> None:
    """Compile the driver, ``libcuda.so.1``, into a folder."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    source = Path(__file__).parent / "emulated"
    includes = [source, ROOT / "loaders/gpu_queue", ROOT / "loaders/engine/src"]
    command = [
        *(compiler, "-std=c++17", "-O1", "-shared", "-fPIC", "-pthread"),
        *("-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-unknown-pragmas"),
        *(f"-I{each}" for each in includes),
        *("-Wl,-soname,libcuda.so.1", "-o", str(folder / "libcuda.so.1")),
        str(source / "libcuda.cpp"),
    ]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr


def install(patch: pytest.MonkeyPatch) -> None:
    """Let readers and runs of this process find the GPU; ``LD_LIBRARY_PATH`` has its driver."""
    patch.setenv("PYTHONPATH", str(ROOT))
    patch.setattr(config, "DRIVER", "/dev/null")
    patch.setattr(process, "MODULE", PROCESS)
    patch.setattr(workload, "gpu_of_process", lambda *_: Gpu(address=ADDRESS, name="Emulated GPU"))
