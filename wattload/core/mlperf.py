"""What MLPerf Storage publishes of the jobs that are run here: its figures and its data set rule.

Sources: ``mlpstorage/rules.py`` (``calculate_training_data_size``) and the DLIO configurations of
``mlcommons/storage``, v1.0 to v3.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wattload.core.units import GIB

MINIMUM_STEPS = 500
"""Steps that an epoch has at least."""
MEMORY_FACTOR = 5
"""How many times the hosts' memory a training data set is."""
CHECKPOINT_MEMORY_FACTOR = 3
"""From this many times a client's memory on, caches need no dropping between save and load."""
RUN_COUNT = 5
"""Runs whose mean is the result."""
RUN_SPREAD = 0.05
"""How far each of them may be from their mean."""
CHECKPOINT_COUNT = 10
"""Checkpoints that are written, and then as many read."""
CHECKPOINT_INTERVAL_S = 5.0
"""Seconds between two of them, ``time_between_checkpoints``; CLOSED may set the folder alone."""
SUBSET_RANKS = 8
"""Processes of a larger model's checkpoint in the subset mode of v2.0."""


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
    """Accelerator to ``computation_time`` of a step in seconds."""


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

CHECKPOINT_RANKS: Mapping[str, int] = {"8b": 8, "70b": 64, "405b": 512, "1t": 1024}
"""Model to the processes that CLOSED asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSetRule:
    """How many files a training job needs, at one sample per file, and which half of it rules.

    ``memory_bytes`` is the sum over the hosts. It is rounded up to whole GiB: a kernel update
    changes MemTotal by some pages, and that must not ask for other data.
    """

    accelerators: int
    batch_samples: int
    record_bytes: int
    memory_bytes: int

    @property
    def by_memory(self) -> int:
        """Files that hold five times the hosts' memory."""
        memory_bytes = -(-self.memory_bytes // GIB) * GIB
        return MEMORY_FACTOR * memory_bytes // self.record_bytes

    @property
    def by_steps(self) -> int:
        """Files that last every accelerator 500 steps."""
        return MINIMUM_STEPS * self.accelerators * self.batch_samples

    @property
    def files(self) -> int:
        """The files that the rule asks for: ``max(5 * memory // record, 500 * N * batch)``."""
        return max(self.by_memory, self.by_steps)

    @property
    def steps(self) -> int:
        """The steps of an epoch that takes in at least so many files, in whole batches."""
        return -(-self.files // (self.accelerators * self.batch_samples))
