"""Published figures of MLPerf Storage's jobs, and its data set rule.

Sources: ``mlpstorage/rules.py`` (``calculate_training_data_size``) and the DLIO configurations of
``mlcommons/storage``, v1.0 to v3.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wattload.core.units import GIB

MINIMUM_STEPS = 500
"""Minimum steps of an epoch."""
MEMORY_FACTOR = 5
"""Minimum size of a training data set, as a multiple of the hosts' memory."""
CHECKPOINT_MEMORY_FACTOR = 3
"""If a client's data is at least this multiple of its memory, caches need not be dropped."""
RUN_COUNT = 5
"""Number of runs whose mean is the result."""
RUN_SPREAD = 0.05
"""Maximum deviation of each run from the mean."""
CHECKPOINT_COUNT = 10
"""Number of checkpoints written and then read."""
CHECKPOINT_INTERVAL_S = 5.0
"""Seconds between two checkpoints, ``time_between_checkpoints``; fixed in CLOSED."""
SUBSET_RANKS = 8
"""Processes of a larger model's checkpoint in v2.0's subset mode."""

CHECKPOINT_RANKS: Mapping[str, int] = {"8b": 8, "70b": 64, "405b": 512, "1t": 1024}
"""Processes that CLOSED requires, by model."""

CLOSED_WRITER = "torch"
"""The loader that writes checkpoints as CLOSED requires: ``torch.save``, as DLIO calls it."""
CLOSED_LOADERS = frozenset({"torch", "dlio"})
"""The loaders that can read a training data set as CLOSED requires."""
CLOSED_READER = "dlio"
"""The reader they need for it: DLIO's PyTorch data loader (``framework: pytorch`` in DLIO)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The published job of one training workload; sizes are payload bytes of a record."""

    record_mean_bytes: int
    record_stdev_bytes: int
    resize_bytes: int
    batch_samples: int
    epochs: int
    record_format: str
    au_threshold: float
    step_s: Mapping[str, float] = field(default_factory=dict)
    """``computation_time`` of a step in seconds, by accelerator."""


UNET3D = Training(
    record_mean_bytes=146_600_628,
    record_stdev_bytes=68_341_808,
    resize_bytes=2_097_152,
    batch_samples=7,
    epochs=5,
    record_format="npz",
    au_threshold=0.90,
    step_s={"a100": 0.636, "h100": 0.323, "b200": 0.162},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSetRule:
    """The minimum number of files of a training job, at one sample per file.

    ``memory_bytes`` is the sum over the hosts. It is rounded up to whole GiB, so that a kernel
    update, which changes MemTotal by some pages, does not require new data.
    """

    accelerators: int
    batch_samples: int
    record_bytes: int
    memory_bytes: int

    @property
    def by_memory(self) -> int:
        memory_bytes = -(-self.memory_bytes // GIB) * GIB
        return MEMORY_FACTOR * memory_bytes // self.record_bytes

    @property
    def by_steps(self) -> int:
        """Files for 500 steps of every accelerator."""
        return MINIMUM_STEPS * self.accelerators * self.batch_samples

    @property
    def files(self) -> int:
        """The required number of files: ``max(5 * memory // record, 500 * N * batch)``."""
        return max(self.by_memory, self.by_steps)

    @property
    def steps(self) -> int:
        """The steps of an epoch with at least that many files, in whole batches."""
        return -(-self.files // (self.accelerators * self.batch_samples))
