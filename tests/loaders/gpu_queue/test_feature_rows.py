"""Gathers through the queue by threads of the CPU: the contract, counts, and what goes wrong."""

from __future__ import annotations

from typing import Any

from tests.contracts.feature_rows import FeatureRowsContract
from wattload.loaders.gpu_queue.config import Config


class TestThreads(FeatureRowsContract):
    def config(self, **changed: Any) -> Config:
        return Config(requester="cpu", requester_threads=2, **changed)
