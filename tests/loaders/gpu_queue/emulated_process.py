"""The process that reads where the GPU is emulated: there are no kernels to compile."""

from __future__ import annotations

import runpy

import pytest

from wattload.loaders.gpu_queue import kernels

if __name__ == "__main__":
    pytest.MonkeyPatch().setattr(kernels, "compiled", lambda _: b"emulated")
    runpy.run_module("wattload.loaders.gpu", run_name="__main__")
