"""The settings of the unet3d workload."""

from __future__ import annotations

from wattload.workloads.training.config import Config

__all__ = ["Config"]
