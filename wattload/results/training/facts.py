"""The facts of training on whole records, with emulated accelerators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from wattload.core.base_models import Frozen
from wattload.results.facts import Facts, Settings, divided, fact
from wattload.results.facts import Run as AnyRun

PHASE = "read"
LOAD, COPY, COMPUTE, BARRIER, REST = "load", "copy", "compute", "barrier", "rest"
PARTS = {
    LOAD: ("load_wait", "waiting for the next batch"),
    COPY: ("copy_wait", "staging batches for the device and waiting for earlier copies"),
    COMPUTE: ("compute", "the emulated computation, by its actual duration"),
    BARRIER: ("barrier", "waiting for the other ranks"),
    REST: ("rest", "everything else in the loop, mostly hashing for verification"),
}
"""The parts of a step: the names of their figures, and what they are."""
STEPS, DECODE, HASH, OPEN = "steps", "decode", "hash", "open"
"""Other times of steps that may be missing."""


class TrainingSettings(Settings):
    """The settings of the workload that are read here."""

    source: str | None = None
    record_mean_bytes: int
    record_divisor: int = Field(ge=1)
    batch_samples: int
    epochs: int

    @property
    def record_bytes(self) -> float:
        """The configured mean of the records."""
        return self.record_mean_bytes / self.record_divisor


class Epoch(Frozen):
    """One epoch on one rank, or on one accelerator of a program that owns the loop."""

    duration_s: float = fact("the whole epoch, barriers included", "s", gt=0)
    first_step_s: float = fact("its first step, up to the end of the computation", "s", ge=0)
    first_compute_s: float = fact("the computation of its first step", "s")
    parts_s: Mapping[str, float] = fact("each part of the steps that was timed", "s")
    steps_s: float | None = fact("all steps by CLOCK_MONOTONIC_RAW; None if not timed", "s")
    decode_s: float | None = fact("decoding of all batches; None if not timed", "s")
    open_s: float | None = fact(
        "opening and closing of all files, over the loader's workers; None if not timed",
        "s",
        default=None,
    )
    read_bytes: int = fact("bytes of files", "B", gt=0)
    cpu_s: float = fact("CPU time, with that of the loader's processes", "s", ge=0)
    hash_cpu_s: float | None = fact("CPU time of verification; None without any", "s")
    copied_bytes: int = fact("bytes that arrived on the device", "B", ge=0)
    device_copy_s: float = fact("the copies, by the device's clock", "s", ge=0)

    @property
    def compute_s(self) -> float:
        return self.parts_s[COMPUTE]

    @property
    def window_s(self) -> float:
        """The epoch without its first step: the denominator of every utilisation.

        The load of the first step cannot overlap with computation.
        """
        return self.duration_s - self.first_step_s


class Spread(Frozen):
    """How single times of a kind were spread, over all ranks and epochs."""

    p50_s: float = fact("the median", "s")
    max_s: float = fact("the longest", "s")


class ProgramEpoch(Frozen):
    """What a program that owns the loop reported of an epoch, and what the kernel counted of it.

    A count is ``None`` where there is none.
    """

    window_s: float = fact("the epoch on CLOCK_MONOTONIC, from the program's log", "s", gt=0)
    called_bytes: int | None = fact("what its read calls returned, from any source", "B")
    storage_bytes: int | None = fact("what was fetched from storage for it", "B")
    peak_bytes: int | None = fact("peak memory of its processes, each at its own peak", "B")
    plugged_bytes: int | None = fact("what our reader read inside the program", "B")
    au: float = fact("accelerator utilisation as it reports it")
    samples_per_s: float = fact("throughput as it reports it", "1/s")
    nominal_bytes_per_s: float = fact("throughput in nominal bytes as it reports it", "B/s")


class Program(Frozen):
    """An outside program that owns the loop."""

    version: str = fact("its version")
    command: tuple[str, ...] = fact("its command line")
    epochs: tuple[ProgramEpoch, ...] = fact("its epochs", min_length=1)


class TrainingFacts(Facts):
    """The facts of all epochs.

    Every rank drives equally many accelerators in step, so its times hold for each of them. A
    program that owns the loop reports the times of each accelerator, as of one rank each.
    """

    settings: TrainingSettings = fact("of the workload", exclude=True)
    file_count: int = fact("files of the data set", ge=1)
    epoch_files: int = fact("files that an epoch reads", ge=1)
    record_mean_bytes: float = fact("mean payload of the files' records", "B", gt=0)
    record_stdev_bytes: float = fact("standard deviation of these payloads", "B", ge=0)
    accelerators: int = fact("emulated accelerators over all ranks", ge=1)
    steps_per_epoch: int = fact("steps of an epoch", ge=1)
    step_s: float = fact("nominal computation time of a step", "s", ge=0)
    crc_checked: bool = fact("whether the CRC-32 of npz files was computed")
    device: str | None = fact("the device that batches were copied to")
    draw: str | None = fact("what the samples that were hashed were drawn with, in hex")
    ranks: tuple[tuple[Epoch, ...], ...] = fact("the epochs of each rank", min_length=1)
    spreads: Mapping[str, Spread] = fact("of waits, steps, decoding and computations", "s")
    missing: Mapping[str, str] = fact("why times are missing, by name")
    ceiling_bytes_per_s: float | None = fact("the same from memory without computation", "B/s")
    ceiling_reason: str = fact("why there is no such ceiling")
    program: Program | None = fact("the program that owned the loop")

    @property
    def all_epochs(self) -> Sequence[Epoch]:
        """The epochs of all ranks."""
        return [epoch for epochs in self.ranks for epoch in epochs]

    @property
    def by_epoch(self) -> Sequence[Sequence[Epoch]]:
        """Each epoch on all ranks."""
        return list(zip(*self.ranks, strict=True))

    @property
    def per_rank(self) -> int:
        """Accelerators whose times are those of one rank."""
        return self.accelerators // len(self.ranks)

    @property
    def epochs_s(self) -> Sequence[float]:
        """The seconds of each epoch, by its slowest rank."""
        return [max(epoch.duration_s for epoch in epochs) for epochs in self.by_epoch]

    @property
    def read_bytes(self) -> int:
        return sum(epoch.read_bytes for epoch in self.all_epochs)

    @property
    def read_bytes_per_s(self) -> float:
        return self.read_bytes / sum(self.epochs_s)

    @property
    def demand_bytes_per_s(self) -> float | None:
        """The rate at which the accelerators read if they never wait; ``None`` if unpaced."""
        step_bytes = self.accelerators * self.settings.batch_samples * self.record_mean_bytes
        return divided(step_bytes, self.step_s)

    @property
    def nominal_bytes(self) -> float:
        """The configured mean of the records; of a source, the mean of its files'."""
        is_source = self.settings.source is not None
        return self.record_mean_bytes if is_source else self.settings.record_bytes

    def part_s(self, name: str) -> float | None:
        """Return the sum of a part over ranks and epochs; ``None`` if it was not timed in all."""
        known = [each.parts_s[name] for each in self.all_epochs if name in each.parts_s]
        return sum(known) if len(known) == len(self.all_epochs) else None


Run = AnyRun[TrainingFacts]
