"""A preset of ``gpu_read`` for loaders with requesters, and the checks of its records."""

from wattload.workloads.gpu_read.checks import OF_REQUESTERS as CHECKS
from wattload.workloads.gpu_read.config import Config

__all__ = ["CHECKS", "Config"]
