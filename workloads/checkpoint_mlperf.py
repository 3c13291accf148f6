"""checkpoint_mlperf: the checkpoint workload with the settings of MLPerf Storage."""

from wattload.workloads.checkpoint.config import Config

__all__ = ["Config"]
