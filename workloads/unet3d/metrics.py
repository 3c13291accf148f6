"""The metrics of a unet3d run, from the times of its steps.

Some follow DLIO's formulas, the others only need bytes and seconds.

DLIO's formulas are those of ``dlio_benchmark/utils/statscounter.py`` (``compute_metrics_train``,
``end_train``, ``end_run``) in 2.0.1, main and branch mlperf_storage_v2.0, with
``metric_exclude_start_steps`` 1 and ``..._end_steps`` 0. Release 2.0.0 (the one on PyPI) and branch
mlperf_storage_v1.0 differ: AU sums the configured step time, like ``nominal_utilisation``, and
throughput is all steps over the whole block. An epoch is one of DLIO's blocks, because no
checkpoint divides it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean, median, pstdev
from typing import Any

from wattload.core.record.results import Better, Check, Metric, amount
from wattload.core.units import MIB, Unit
from wattload.core.workload import Figures

PHASE = "read"

EXCLUDED_START_STEPS = 1
"""Steps excluded from the window: the load of the first one cannot overlap with computation."""

PARTS = {
    "load_wait": ("load_s", "waiting for the next batch"),
    "copy_wait": ("copy_s", "staging batches for the device and waiting for earlier copies"),
    "compute": ("compute_s", "the emulated computation, by its actual duration"),
    "barrier": ("barrier_s", "waiting for the other ranks"),
    "rest": ("rest_s", "everything else in the loop, mostly hashing for verification"),
}
"""The parts of a step: the name in metrics, the field of ``EpochTimes``, the meaning."""

WHOLE = "an accelerator's time in all epochs"
"""The whole that the parts in seconds sum to."""

CLOSES_WITHIN, CLOSES_WITHIN_S = 0.005, 0.010
"""How far the parts of an epoch may be from its steps by another clock: the larger of both.

The clocks differ by at most 0.05 %, but a process can lose its core between reading the two.
"""

SERIES_STEPS = 128
"""The most steps of an epoch in a series."""
_NOT_REPORTED = "not reported by this loop"
UNPACED = "the step time is 0, so no accelerator was emulated"
_ONE_STEP = "an epoch of one step has no window, because the first step is excluded"

figure = partial(Metric.of, phase=PHASE)
"""Create a metric of this phase; see ``Metric.of``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTimes:
    """One epoch on one rank; times in seconds, one entry per step.

    ``load_s`` is the wait for a batch. ``copy_s`` is the time to stage batches for a device and to
    wait for earlier copies. ``compute_s`` is the actual duration of the emulated computation,
    ``barrier_s`` the wait for the other ranks, and ``rest_s`` everything else, mostly hashing.
    ``step_s`` is the whole step by a separate clock (CLOCK_MONOTONIC_RAW). ``processed_s`` is
    DLIO's: the step up to the end of the computation, without the barrier. ``decode_s`` has an
    entry per batch: the time that the loader's workers spent on decoding it. ``None`` means not
    measured.

    ``duration_s`` is the whole epoch including barriers. ``cpu_s`` includes the loader's own
    processes. ``copied_bytes`` arrived on the device, in ``device_copy_s`` seconds of its clock.
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
        return self.compute_s[EXCLUDED_START_STEPS:]


def dlio_utilisation(epoch: EpochTimes) -> float:
    """Return DLIO's AU of one epoch on one rank, in [0, 1]: actual computation over the window.

    ``sum(compute[1:]) / (end - start - proc[0])``; 0 where nothing was computed.
    """
    computed_s = sum(epoch.window_compute_s)
    return computed_s / epoch.window_s if computed_s else 0.0


def dlio_samples_per_s(epoch: EpochTimes, batch_samples: int) -> float:
    """Return DLIO's throughput of one accelerator in samples per second.

    ``(len(compute) - 2) / window * batch``: the count always excludes two steps, whatever the
    window excludes. Short epochs are therefore understated (by half at 4 steps, below 0 at 1).
    """
    return (len(epoch.compute_s) - 2) / epoch.window_s * batch_samples


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTimes:
    """The epochs of all ranks, ``ranks[rank][epoch]``, and their settings.

    Every rank drives ``per_rank`` accelerators in step, so its times hold for each of them.
    ``missing`` has the reason for each field of ``EpochTimes`` that is ``None``.
    """

    ranks: Sequence[Sequence[EpochTimes]]
    per_rank: int
    batch_samples: int
    step_s: float
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def window_steps(self) -> int:
        """The number of steps of one epoch in the window."""
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

        Unlike DLIO's AU, it does not count oversleeping as computation. The sums go over all ranks
        and epochs.
        """
        epochs = [epoch for rank in self.ranks for epoch in rank]
        nominal_s = len(epochs) * self.window_steps * self.step_s
        return nominal_s / sum(epoch.window_s for epoch in epochs)

    def active_s(self) -> float:
        """Return the seconds of all epochs, each by its slowest rank."""
        return sum(max(epoch.duration_s for epoch in epochs) for epochs in self._epochs())

    def total(self, name: str) -> float:
        """Return the sum of a field of ``EpochTimes`` over all ranks and epochs."""
        return float(sum(getattr(epoch, name) for rank in self.ranks for epoch in rank))

    def sample_count(self) -> int:
        steps = sum(len(epoch.compute_s) for rank in self.ranks for epoch in rank)
        return steps * self.per_rank * self.batch_samples

    def entries(self, name: str) -> list[float] | None:
        """Return all entries of a field of ``EpochTimes`` with one per step or per batch.

        They cover ranks, epochs and steps; ``None`` if some were not measured.
        """
        parts = [getattr(epoch, name) for rank in self.ranks for epoch in rank]
        if any(part is None for part in parts):
            return None
        return [value for part in parts for value in part]

    def sleep_overshoots_s(self) -> list[float]:
        """Return by how much each emulated computation exceeded the step time."""
        return [slept - self.step_s for slept in self.entries("compute_s") or ()]

    def _epochs(self) -> list[tuple[EpochTimes, ...]]:
        return list(zip(*self.ranks, strict=True))


def seconds(
    name: str, value: float | None, meaning: str, *, reason: str = "", part_of: str = ""
) -> Metric:
    """Return a metric in seconds; lower is better."""
    return figure(name, value, Unit.SECONDS, "lower", meaning, reason=reason, part_of=part_of)


def fraction(
    name: str,
    value: float | None,
    reason: str,
    meaning: str,
    *,
    better: Better = "higher",
    headline: bool = False,
) -> Metric:
    """Return a metric in [0, 1]."""
    return figure(name, value, Unit.FRACTION, better, meaning, headline=headline, reason=reason)


def metrics(times: JobTimes, record_bytes: float) -> list[Metric]:
    """Return the metrics of the timed phase; ``record_bytes`` is the configured mean record."""
    return [
        *_rates(times),
        *step_metrics(times),
        *_utilisations(times),
        *_dlio_rates(times, record_bytes),
        *_sleeps(times),
        *device_metrics(times),
        *_costs(times),
    ]


def _rates(times: JobTimes) -> list[Metric]:
    active_s = times.active_s()
    return [
        figure(
            "read_bytes_per_s",
            times.total("read_bytes") / active_s,
            Unit.BYTES_PER_SECOND,
            "higher",
            "Bytes read from all files, divided by the seconds of all epochs.",
            headline=True,
            rate_of="read",
        ),
        figure(
            "samples_per_s",
            times.sample_count() / active_s,
            Unit.SAMPLES_PER_SECOND,
            "higher",
            "Samples delivered to all accelerators, divided by the seconds of all epochs.",
        ),
    ]


def _utilisations(times: JobTimes) -> list[Metric]:
    reason = _ONE_STEP if not times.window_steps else UNPACED
    known = times.window_steps > 0 and times.step_s > 0
    dlio = fmean(times.dlio_epoch_utilisations())
    nominal = times.nominal_utilisation() if known else None
    return [
        fraction(
            "au_dlio",
            dlio if known else None,
            reason,
            "Accelerator utilisation in MLPerf Storage's form, as in DLIO 2.0.1 and later: actual "
            "computation divided by the epoch without its first step; mean over ranks, then over "
            "epochs. It is above the share of the whole time that computed.",
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


def _dlio_rates(times: JobTimes, record_bytes: float) -> list[Metric]:
    rate = fmean(times.dlio_epoch_samples_per_s())
    return [
        figure(
            "dlio_samples_per_s",
            rate,
            Unit.SAMPLES_PER_SECOND,
            "higher",
            "Throughput as in DLIO 2.0.1 and later, (steps - 2) / window x batch; mean over "
            "epochs, understated in short epochs.",
        ),
        figure(
            "dlio_nominal_bytes_per_s",
            rate * record_bytes,
            Unit.BYTES_PER_SECOND,
            "higher",
            "dlio_samples_per_s times the configured mean record size. DLIO prints it as MB/s but "
            "means MiB/s. These are nominal bytes, not bytes that moved.",
        ),
    ]


def step_metrics(times: JobTimes) -> list[Metric]:
    """Return the seconds and shares of the parts of a step, and of decoding."""
    return [
        *(_part(times, name) for name in PARTS),
        *(_share(times, name) for name in PARTS),
        *_spreads(times),
        *_decoding(times),
    ]


def _part(times: JobTimes, name: str) -> Metric:
    field, what = PARTS[name]
    entries = times.entries(field)
    return seconds(
        f"{name}_s",
        None if entries is None else sum(entries) / len(times.ranks),
        f"Seconds of an accelerator in all epochs: {what}.",
        reason=times.missing.get(field, _NOT_REPORTED),
        part_of=WHOLE,
    )


def _share(times: JobTimes, name: str) -> Metric:
    field, what = PARTS[name]
    entries = times.entries(field)
    return fraction(
        f"{name}_fraction",
        None if entries is None else sum(entries) / times.total("duration_s"),
        times.missing.get(field, _NOT_REPORTED),
        f"Share of the epochs' seconds: {what}.",
        better="higher" if name == "compute" else "lower",
        headline=name == "compute" and times.step_s > 0,
    )


def _spreads(times: JobTimes) -> list[Metric]:
    found = []
    for name, key, what in (
        ("load_wait", "load_s", "waits for the next batch"),
        ("step", "step_s", "steps"),
    ):
        entries, reason = times.entries(key), times.missing.get(key, _NOT_REPORTED)
        half, longest = (median(entries), max(entries)) if entries else (None, None)
        found += [
            seconds(f"{name}_p50_s", half, f"The median of the {what}.", reason=reason),
            seconds(f"{name}_max_s", longest, f"The longest of the {what}.", reason=reason),
        ]
    return found


def _decoding(times: JobTimes) -> list[Metric]:
    entries, reason = times.entries("decode_s"), times.missing.get("decode_s", _NOT_REPORTED)
    total_s, half_s = (sum(entries), median(entries)) if entries else (None, None)
    return [
        seconds(
            "decode_s",
            total_s,
            "Seconds that the loaders' workers spent on turning the bytes of files into rows, "
            "summed over workers. They run in parallel with each other and with the loop.",
            reason=reason,
        ),
        seconds("decode_p50_s", half_s, "The median decoding time of a batch.", reason=reason),
    ]


def _sleeps(times: JobTimes) -> list[Metric]:
    overshoots_s = times.sleep_overshoots_s()
    return [
        seconds(
            "sleep_overshoot_mean_s",
            fmean(overshoots_s),
            "By how much an emulated computation exceeded the step time, on average.",
        ),
        seconds(
            "sleep_overshoot_max_s",
            max(overshoots_s),
            "By how much the longest emulated computation exceeded the step time.",
        ),
    ]


def device_metrics(times: JobTimes) -> list[Metric]:
    """Return bytes, time and rate of the copies to the device, by the device's clock."""
    missing = times.missing.get("copy_s", _NOT_REPORTED)
    copied = times.entries("copy_s") is not None
    copied_bytes = times.total("copied_bytes") if copied else None
    device_s = times.total("device_copy_s") if copied else None
    return [
        figure(
            "copied_bytes",
            copied_bytes,
            Unit.BYTES,
            "neither",
            "Bytes of batches that arrived on the device.",
            reason=missing,
        ),
        seconds(
            "device_copy_s",
            device_s,
            "Seconds that the device spent on these copies, by its own clock. Copies overlap with "
            "computation and loading, so they are not part of the epoch's sum.",
            reason=missing,
        ),
        figure(
            "device_copy_bytes_per_s",
            copied_bytes / device_s if copied_bytes and device_s else None,
            Unit.BYTES_PER_SECOND,
            "higher",
            "Bytes copied to the device, divided by the seconds of the copies.",
            reason=missing,
        ),
    ]


def _costs(times: JobTimes) -> list[Metric]:
    return [
        figure(
            "read_cpu_s_per_byte",
            times.total("cpu_s") / times.total("read_bytes"),
            Unit.SECONDS_PER_BYTE,
            "lower",
            "CPU seconds of the ranks and the loaders' processes per byte read, including "
            "verification.",
        ),
        seconds(
            "hash_cpu_s",
            times.total("hash_cpu_s"),
            "CPU seconds spent on verification within the timed window: of blocks in the loader's "
            "workers, and of 1 in 16 rows in the loop.",
        ),
    ]


def ceiling_metric(bytes_per_s: float) -> Metric:
    """Return the rate of the same loop from memory without computation, over all ranks."""
    return figure(
        "harness_ceiling_bytes_per_s",
        bytes_per_s,
        Unit.BYTES_PER_SECOND,
        "higher",
        "The same loader and loop with files in memory and step time 0, verification included; "
        "batches are copied to the device if the run copies them.",
        phase="",
    )


def dlio_summary(times: JobTimes, record_bytes: float) -> Mapping[str, Any]:
    """Return the figures under the names and in the units of DLIO's ``summary.json``.

    Units are percent and samples per second; ``MB_per_second`` is MiB of nominal record length.
    """
    utilisations = [100 * value for value in times.dlio_epoch_utilisations()]
    rates = times.dlio_epoch_samples_per_s()
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


def step_series(times: JobTimes) -> Mapping[str, Any]:
    """Return the parts of the steps over time: per epoch, the mean over ranks, in microseconds.

    Long epochs have every ``every``-th step only.
    """
    steps = len(times.ranks[0][0].load_s)
    every = -(-steps // SERIES_STEPS)
    shown = {
        name: [
            [
                round(fmean(step) * 1e6)
                for step in zip(*(getattr(e, field) for e in epochs), strict=True)
            ][::every]
            for epochs in zip(*times.ranks, strict=True)
        ]
        for name, (field, _) in PARTS.items()
        if times.entries(field) is not None
    }
    return {"every": every, **{f"{name}_us": series for name, series in shown.items()}}


def are_steps_close(figures: Figures) -> bool:
    """Return whether two clocks agree on the steps: of our loop, or of an outside program."""
    if "parts_s" in figures:
        steps_s = amount(figures, "steps_s")
        apart_s = abs(amount(figures, "parts_s") - steps_s)
        return apart_s <= max(steps_s * CLOSES_WITHIN, CLOSES_WITHIN_S)
    # The program's steps exclude the barriers after them, so only an excess is a contradiction.
    epoch_s = amount(figures, "epoch_s")
    excess_s = amount(figures, "steps_s") - epoch_s
    return excess_s <= max(epoch_s * CLOSES_WITHIN, CLOSES_WITHIN_S)


def closure_check(times: JobTimes) -> Check:
    """Compare the parts of each epoch with its steps by a separate clock."""
    sides = [_sides(epoch) for rank in times.ranks for epoch in rank]
    known = [side for side in sides if side is not None]
    if len(known) < len(sides):
        return Check(
            name="step_times_close",
            verdict="not_checked",
            sentence=f"Not compared: {times.missing.get('step_s', _NOT_REPORTED)}.",
        )
    parts_s, steps_s = max(
        known,
        key=lambda side: abs(side[0] - side[1]) / max(side[1] * CLOSES_WITHIN, CLOSES_WITHIN_S),
    )
    figures = {"parts_s": parts_s, "steps_s": steps_s, "epochs_checked": len(known)}
    closes = are_steps_close(figures)
    return Check(
        name="step_times_close",
        verdict="pass" if closes else "fail",
        sentence=(
            f"In the worst epoch, load, copy, compute, barrier and rest sum to {parts_s:.3f} s; "
            f"its steps take {steps_s:.3f} s by a separate clock"
            + ("." if closes else ": the times of this run are inconsistent.")
        ),
        figures=figures,
    )


def _sides(epoch: EpochTimes) -> tuple[float, float] | None:
    """Return the sums of the parts and of the steps of an epoch, each in seconds by its clock."""
    if epoch.step_s is None or epoch.barrier_s is None or epoch.rest_s is None:
        return None
    parts = (epoch.load_s, epoch.copy_s or (), epoch.compute_s, epoch.barrier_s, epoch.rest_s)
    return sum(map(sum, parts)), sum(epoch.step_s)
