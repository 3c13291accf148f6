"""The process of the queue where the GPU is emulated: there are no kernels to compile."""

from __future__ import annotations

import runpy

from wattload.loaders.gpu_queue import kernels


def _image(_: str) -> bytes:
    return b"emulated"


if __name__ == "__main__":
    kernels.compiled = _image
    runpy.run_module("wattload.loaders.gpu_queue", run_name="__main__")
