"""checkpoint: the shards of a Llama-3 model, saved, proved and loaded again."""

from wattload.workloads.checkpoint.config import Config, Scale
from wattload.workloads.checkpoint.workload import Checkpoint

__all__ = ["Checkpoint", "Config", "Scale"]
