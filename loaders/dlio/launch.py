"""Starts dlio-benchmark without two packages that it imports and unet3d does not need.

``python -m wattload.loaders.dlio.launch`` takes the program's own (Hydra's) arguments. Released
2.0.0 imports pydftracer (``dftracer.logger``), and breaks without it, because the fallback of its
own takes no arguments; and TensorFlow, for a profiler that is not asked for.
"""

from __future__ import annotations

import os
import sys
import traceback
from types import ModuleType
from typing import NoReturn

from wattload.loaders.dlio.tracer import TraceLog, Tracer


class NoTensorFlowProfiler:
    """Stands in for ``TFProfiler``, which only ``profiling.profiler=tensorboard`` asks for."""

    @staticmethod
    def get_instance() -> NoReturn:
        """Say what is missing."""
        raise RuntimeError("dlio-benchmark's TensorFlow profiler needs TensorFlow")


def stand_in() -> None:
    """Put our modules where the program looks for the missing ones."""
    logger = _module("dftracer.logger", dftracer=TraceLog(), dft_fn=Tracer, DFTRACER_ENABLE=False)
    _module("dftracer", logger=logger)
    _module("dlio_benchmark.profiler.tf_profiler", TFProfiler=NoTensorFlowProfiler)


def main() -> None:
    """Run the program; when it fails on one rank, end the others too, which would wait for it."""
    # Hydra would shorten the program's own failure to its last line.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        from dlio_benchmark.main import main as benchmark

        benchmark()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        _end_all_ranks()
        raise SystemExit(1) from None


def _end_all_ranks() -> None:
    from mpi4py import MPI

    if MPI.Is_initialized() and MPI.COMM_WORLD.Get_size() > 1:
        MPI.COMM_WORLD.Abort(1)


def _module(name: str, **contents: object) -> ModuleType:
    module = ModuleType(name, "Stands in for the package of this name.")
    module.__dict__.update(contents)
    sys.modules[name] = module
    return module


if __name__ in {"__main__", "__mp_main__"}:  # a DataLoader worker that is spawned imports it too
    stand_in()
if __name__ == "__main__":
    main()
