"""The metrics of a run by an outside program: ours from its times, and its own under its name."""

from __future__ import annotations

from wattload.core.record.metric import Metric
from wattload.core.units import MIB, Unit
from wattload.loaders.sampleharness import Training, TrainingResult
from wattload.workloads.unet3d.accounting import Account
from wattload.workloads.unet3d.figures import figure, fraction, seconds
from wattload.workloads.unet3d.metrics import metrics

_NOT_HASHED = "dlio-benchmark throws the bytes away, so nothing was hashed"
_UNPACED = "the step time is 0, so no accelerator was emulated"
_UNTOLD = "the kernel does not tell the memory of its processes"


def harness_metrics(account: Account, result: TrainingResult, training: Training) -> list[Metric]:
    """Return the metrics of unet3d, as far as the program's times give them, then its own."""
    ours = [
        seconds(metric.name, None, metric.meaning, reason=_NOT_HASHED)
        if metric.name == "hash_cpu_s"
        else metric
        for metric in metrics(account, training.record_mean_bytes)
    ]
    return [*ours, *_reported(result, training), _memory(result)]


def _reported(result: TrainingResult, training: Training) -> list[Metric]:
    """Return what the program prints, in SI units."""
    said = result.reported
    utilisation = float(said["train_au_mean_percentage"]) / 100
    return [
        fraction(
            "dlio_reported_au",
            utilisation if training.step_s else None,
            _UNPACED,
            "Accelerator utilisation as dlio-benchmark prints it; 2.0.0 adds up the step time that "
            "was asked for.",
            headline=True,
        ),
        figure(
            "dlio_reported_samples_per_s",
            float(said["train_throughput_mean_samples_per_second"]),
            Unit.SAMPLES_PER_SECOND,
            "higher",
            "Throughput as dlio-benchmark prints it: the mean over epochs.",
        ),
        figure(
            "dlio_reported_nominal_bytes_per_s",
            float(said["train_io_mean_MB_per_second"]) * MIB,
            Unit.BYTES_PER_SECOND,
            "higher",
            "Its samples per second times the configured mean record, which it prints as MB/s and "
            "means MiB/s: nominal bytes, not those that moved.",
        ),
    ]


def _memory(result: TrainingResult) -> Metric:
    """Return the most memory of all its processes."""
    sums = [
        [trained.peak_bytes for trained in epoch if trained.peak_bytes is not None]
        for epoch in result.epochs
    ]
    known = all(len(part) == len(epoch) for part, epoch in zip(sums, result.epochs, strict=True))
    return figure(
        "harness_peak_bytes",
        max(map(sum, sums)) if known else None,
        Unit.BYTES,
        "lower",
        "The most memory of the program's processes, each at its own peak, shared pages counted "
        "once.",
        reason=_UNTOLD,
    )
