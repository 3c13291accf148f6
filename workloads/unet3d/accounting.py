"""What the step times of a job amount to: as DLIO computes it, and by bytes and seconds alone.

DLIO's formulas are those of ``dlio_benchmark/utils/statscounter.py`` (``compute_metrics_train``,
``end_train``, ``end_run``) in 2.0.1, main and branch mlperf_storage_v2.0, with
``metric_exclude_start_steps`` 1 and ``..._end_steps`` 0. Release 2.0.0, which is what PyPI has, and
branch mlperf_storage_v1.0 have others: AU adds up the step time that was asked for, as
``nominal_utilisation`` does, and throughput is all steps over the whole block. An epoch is one of
its blocks, since no checkpoint divides it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

EXCLUDED_START_STEPS = 1
"""Steps that the window leaves out: the first, whose load nothing could hide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTimes:
    """One epoch on one rank; times in seconds, one entry per step.

    ``load_s`` is the wait for a batch, ``copy_s`` what staging batches for a device and waiting for
    earlier copies took, ``compute_s`` the emulated computation as it really lasted, ``barrier_s``
    the wait for the other ranks and ``rest_s`` all else, of which hashing is most. ``step_s`` is
    the whole step by a clock of its own (CLOCK_MONOTONIC_RAW). ``processed_s`` is DLIO's: the step
    up to the end of the computation, without the barrier. ``decode_s`` has an entry per batch: what
    the loader's workers spent on decoding it. ``None`` stands for what was not measured.

    ``duration_s`` spans the whole epoch, barriers included. ``cpu_s`` includes the loader's own
    processes. ``copied_bytes`` arrived on the device, for which it took ``device_copy_s``.
    """

    duration_s: float
    load_s: tuple[float, ...]
    compute_s: tuple[float, ...]
    processed_s: tuple[float, ...]
    payload_bytes: int
    read_bytes: int
    cpu_s: float
    hash_cpu_s: float
    copy_s: tuple[float, ...] | None = None
    barrier_s: tuple[float, ...] | None = None
    rest_s: tuple[float, ...] | None = None
    step_s: tuple[float, ...] | None = None
    decode_s: tuple[float, ...] | None = None
    copied_bytes: int = 0
    device_copy_s: float = 0.0

    @property
    def window_s(self) -> float:
        """The epoch without its first step: the denominator of every utilisation."""
        return self.duration_s - sum(self.processed_s[:EXCLUDED_START_STEPS])

    @property
    def window_compute_s(self) -> tuple[float, ...]:
        """The computation of the steps in the window."""
        return self.compute_s[EXCLUDED_START_STEPS:]


def dlio_utilisation(epoch: EpochTimes) -> float:
    """Return DLIO's AU of one epoch on one rank, in [0, 1]: computation as slept, over the window.

    ``sum(compute[1:]) / (end - start - proc[0])``; 0 where nothing was computed.
    """
    computed_s = sum(epoch.window_compute_s)
    return computed_s / epoch.window_s if computed_s else 0.0


def dlio_samples_per_s(epoch: EpochTimes, batch_samples: int) -> float:
    """Return DLIO's throughput of one accelerator in samples per second.

    ``(len(compute) - 2) / window * batch``: two steps are left out of the count, whatever was left
    out of the time, so a short epoch is understated (by half at 4 steps), to below 0 at 1.
    """
    return (len(epoch.compute_s) - 2) / epoch.window_s * batch_samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The epochs of all ranks, ``ranks[rank][epoch]``, and what they were asked to do.

    Every rank drives ``per_rank`` accelerators in step, so its times are those of each. ``missing``
    says of fields of ``EpochTimes`` that are ``None`` why they are.
    """

    ranks: Sequence[Sequence[EpochTimes]]
    per_rank: int
    batch_samples: int
    step_s: float
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def window_steps(self) -> int:
        """The steps of one epoch that are in the window."""
        return max(len(self.ranks[0][0].compute_s) - EXCLUDED_START_STEPS, 0)

    def dlio_epoch_utilisations(self) -> list[float]:
        """Return DLIO's AU per epoch in [0, 1]: the mean over the ranks."""
        return [fmean(map(dlio_utilisation, epochs)) for epochs in self._epochs()]

    def dlio_epoch_samples_per_s(self) -> list[float]:
        """Return DLIO's throughput per epoch in samples per second: the sum over accelerators."""
        return [
            self.per_rank * sum(dlio_samples_per_s(epoch, self.batch_samples) for epoch in epochs)
            for epochs in self._epochs()
        ]

    def nominal_utilisation(self) -> float:
        """Return the steps in the window times the nominal step, over the window's wall time.

        Unlike DLIO's AU it does not take an overslept step for computation. Over all ranks and
        epochs: sum over sum.
        """
        epochs = [epoch for rank in self.ranks for epoch in rank]
        nominal_s = len(epochs) * self.window_steps * self.step_s
        return nominal_s / sum(epoch.window_s for epoch in epochs)

    def active_s(self) -> float:
        """Return the seconds of all epochs; one lasts as long as on its slowest rank."""
        return sum(max(epoch.duration_s for epoch in epochs) for epochs in self._epochs())

    def total(self, name: str) -> float:
        """Return the sum of a field of ``EpochTimes`` over all ranks and epochs."""
        return float(sum(getattr(epoch, name) for rank in self.ranks for epoch in rank))

    def sample_count(self) -> int:
        """Return how many samples were delivered to all accelerators."""
        steps = sum(len(epoch.compute_s) for rank in self.ranks for epoch in rank)
        return steps * self.per_rank * self.batch_samples

    def entries(self, name: str) -> list[float] | None:
        """Return all entries of a field of ``EpochTimes`` that has one per step, or per batch.

        Over ranks, epochs and steps; ``None`` if a part of them was not measured.
        """
        parts = [getattr(epoch, name) for rank in self.ranks for epoch in rank]
        if any(part is None for part in parts):
            return None
        return [value for part in parts for value in part]

    def sleep_overshoots_s(self) -> list[float]:
        """Return by how much each emulated computation lasted longer than asked."""
        return [slept - self.step_s for slept in self.entries("compute_s") or ()]

    def _epochs(self) -> list[tuple[EpochTimes, ...]]:
        return list(zip(*self.ranks, strict=True))
