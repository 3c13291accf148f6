"""The figures of a unet3d run, as metrics and as DLIO prints them."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, pstdev
from typing import Any

from wattload.core.record.metric import Metric
from wattload.core.units import MIB, Unit
from wattload.workloads.unet3d.accounting import Account
from wattload.workloads.unet3d.figures import figure, fraction, seconds
from wattload.workloads.unet3d.stepmetrics import device_metrics, step_metrics

_UNPACED = "the step time is 0, so no accelerator was emulated"
_ONE_STEP = "an epoch of one step has no window: the first step is left out"


def metrics(account: Account, record_bytes: float) -> list[Metric]:
    """Return the metrics of the timed phase; ``record_bytes`` is the configured mean record."""
    return [
        *_rates(account),
        *_utilisations(account),
        *_dlio_rates(account, record_bytes),
        *step_metrics(account),
        *_sleeps(account),
        *device_metrics(account),
        *_costs(account),
    ]


def ceiling_metric(bytes_per_s: float) -> Metric:
    """Return what the same loop does from memory with no computation, over all ranks."""
    return figure(
        "harness_ceiling_bytes_per_s",
        bytes_per_s,
        Unit.BYTES_PER_SECOND,
        "higher",
        "The same loader and loop on files in memory in place of the drive, step time 0, nothing "
        "hashed, batches copied to the device where the run's are.",
        phase="",
    )


def dlio_summary(account: Account, record_bytes: float) -> Mapping[str, Any]:
    """Return the figures under the names and in the units of DLIO's ``summary.json``.

    Percent, samples per second, and the ``MB_per_second`` that is MiB of nominal record length.
    """
    utilisations = [100 * value for value in account.dlio_epoch_utilisations()]
    rates = account.dlio_epoch_samples_per_s()
    return {
        "train_au_percentage": utilisations,
        "train_au_mean_percentage": fmean(utilisations),
        "train_au_stdev_percentage": pstdev(utilisations),
        "train_throughput_samples_per_second": rates,
        "train_throughput_mean_samples_per_second": fmean(rates),
        "train_throughput_stdev_samples_per_second": pstdev(rates),
        "train_io_mean_MB_per_second": fmean(rates) * record_bytes / MIB,
        "train_io_stdev_MB_per_second": pstdev(rates) * record_bytes / MIB,
    }


def _rates(account: Account) -> list[Metric]:
    active_s = account.active_s()
    return [
        figure(
            "read_bytes_per_s",
            account.total("read_bytes") / active_s,
            Unit.BYTES_PER_SECOND,
            "higher",
            "Bytes of all files that were read, divided by the seconds of all epochs.",
            headline=True,
            rate_of="read",
        ),
        figure(
            "samples_per_s",
            account.sample_count() / active_s,
            Unit.SAMPLES_PER_SECOND,
            "higher",
            "Samples delivered to all accelerators, divided by the seconds of all epochs.",
        ),
    ]


def _utilisations(account: Account) -> list[Metric]:
    reason = _ONE_STEP if not account.window_steps else _UNPACED
    known = account.window_steps > 0 and account.step_s > 0
    dlio = fmean(account.dlio_epoch_utilisations())
    nominal = account.nominal_utilisation() if known else None
    return [
        fraction(
            "au_dlio",
            dlio if known else None,
            reason,
            "Accelerator utilisation as DLIO computes it from 2.0.1 on: computation as slept, over "
            "the epoch without its first step; mean over ranks, then over epochs.",
            headline=True,
        ),
        fraction(
            "au_nominal",
            nominal,
            reason,
            "Steps in the same windows times the nominal step time, divided by their wall time.",
            headline=True,
        ),
    ]


def _dlio_rates(account: Account, record_bytes: float) -> list[Metric]:
    rate = fmean(account.dlio_epoch_samples_per_s())
    return [
        figure(
            "dlio_samples_per_s",
            rate,
            Unit.SAMPLES_PER_SECOND,
            "higher",
            "Throughput as DLIO computes it from 2.0.1 on, (steps - 2) / window x batch: its mean "
            "over epochs, understated in short epochs.",
        ),
        figure(
            "dlio_nominal_bytes_per_s",
            rate * record_bytes,
            Unit.BYTES_PER_SECOND,
            "higher",
            "dlio_samples_per_s times the configured mean record, which DLIO prints as MB/s and "
            "means MiB/s: nominal bytes, not those that moved.",
        ),
    ]


def _sleeps(account: Account) -> list[Metric]:
    overshoots_s = account.sleep_overshoots_s()
    return [
        seconds(
            "sleep_overshoot_mean_s",
            fmean(overshoots_s),
            "By how much an emulated computation lasted longer than the step time, on average.",
        ),
        seconds(
            "sleep_overshoot_max_s",
            max(overshoots_s),
            "By how much the longest emulated computation exceeded the step time.",
        ),
    ]


def _costs(account: Account) -> list[Metric]:
    return [
        figure(
            "read_cpu_s_per_byte",
            account.total("cpu_s") / account.total("read_bytes"),
            Unit.SECONDS_PER_BYTE,
            "lower",
            "CPU seconds of the ranks and the loaders' processes per byte read, hashing included.",
        ),
        seconds(
            "hash_cpu_s",
            account.total("hash_cpu_s"),
            "CPU seconds spent hashing 1 in 16 of the delivered samples, their payloads in the "
            "loader's workers and their rows in the loop, within the timed window, the same with "
            "every loader.",
        ),
    ]
