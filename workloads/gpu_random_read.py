"""A preset of ``gpu_read`` for loaders with requesters."""

from wattload.workloads.gpu_read.config import Config

__all__ = ["Config"]
