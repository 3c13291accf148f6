"""The emulated GPU."""

from __future__ import annotations

from tests.loaders.gpu_queue.emulated_gpu import emulated

__all__ = ["emulated"]
