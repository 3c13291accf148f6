"""unet3d of MLPerf Storage: whole records of 147 MB read in batches, as medical images are."""

from wattload.workloads.unet3d.config import Config, Scale, Sizes
from wattload.workloads.unet3d.workload import Unet3d

__all__ = ["Config", "Scale", "Sizes", "Unet3d"]
