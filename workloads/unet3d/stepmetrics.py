"""The parts of a step as metrics, shares and series, and the check that they make up the whole."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, median
from typing import Any

from wattload.core.record.check import Check
from wattload.core.record.metric import Metric
from wattload.core.units import Unit
from wattload.workloads.unet3d.accounting import Account, EpochTimes
from wattload.workloads.unet3d.figures import figure, fraction, seconds

PARTS = {
    "load_wait": ("load_s", "waiting for the next batch"),
    "copy_wait": ("copy_s", "staging batches for the device and waiting for earlier copies"),
    "compute": ("compute_s", "the emulated computation, as long as it really lasted"),
    "barrier": ("barrier_s", "waiting for the other ranks"),
    "rest": ("rest_s", "everything else in the loop, most of it hashing for the proof"),
}
"""The parts of a step: name of the metrics, field of ``EpochTimes``, what it is."""

WHOLE = "an accelerator's time in all epochs"
"""What the parts in seconds add up to."""

CLOSES_WITHIN = 0.005
CLOSES_WITHIN_S = 0.010
"""How far the parts of an epoch may be from the whole by the other clock: the larger of both. The
clocks differ by 0.05 % at most, but a process can lose its core between reading one and the other.
"""

SERIES_STEPS = 128
"""How many steps of an epoch a series shows."""

_UNTOLD = "the loop that was run does not tell it"


def step_metrics(account: Account) -> list[Metric]:
    """Return the seconds and shares of the parts of a step, and of decoding."""
    return [
        *(_part(account, name) for name in PARTS),
        *(_share(account, name) for name in PARTS),
        *_spreads(account),
        *_decoding(account),
    ]


def device_metrics(account: Account) -> list[Metric]:
    """Return what the copies to the device amount to, by the device's own clock."""
    missing = account.missing.get("copy_s", _UNTOLD)
    copied = account.entries("copy_s") is not None
    copied_bytes = account.total("copied_bytes") if copied else None
    device_s = account.total("device_copy_s") if copied else None
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
            "Seconds in which the device copied them, by its own clock; copies go on under "
            "computation and loading, so they are no part of the epoch's sum.",
            reason=missing,
        ),
        figure(
            "device_copy_bytes_per_s",
            copied_bytes / device_s if copied_bytes and device_s else None,
            Unit.BYTES_PER_SECOND,
            "higher",
            "Bytes that were copied to the device, divided by the seconds of the copies.",
            reason=missing,
        ),
    ]


def closure_check(account: Account) -> Check:
    """Return whether the parts of each epoch add up to its steps by a clock of their own."""
    sides = [_sides(epoch) for rank in account.ranks for epoch in rank]
    known = [side for side in sides if side is not None]
    if len(known) < len(sides):
        return Check(
            name="step_times_close",
            verdict="not_checked",
            sentence=f"Not compared: {account.missing.get('step_s', _UNTOLD)}.",
        )
    parts_s, steps_s = max(
        known,
        key=lambda side: abs(side[0] - side[1]) / max(side[1] * CLOSES_WITHIN, CLOSES_WITHIN_S),
    )
    closes = abs(parts_s - steps_s) <= max(steps_s * CLOSES_WITHIN, CLOSES_WITHIN_S)
    return Check(
        name="step_times_close",
        verdict="pass" if closes else "fail",
        sentence=(
            f"Load, copy, compute, barrier and rest sum to {parts_s:.3f} s in the epoch that fits "
            f"worst, its steps to {steps_s:.3f} s by a clock of their own"
            + ("." if closes else ": the times of this run do not describe it.")
        ),
        figures={"parts_s": parts_s, "steps_s": steps_s, "epochs_checked": len(known)},
    )


def step_series(account: Account) -> Mapping[str, Any]:
    """Return the parts of the steps over time: per epoch, the mean over ranks, in microseconds.

    Of long epochs every ``every``-th step is shown.
    """
    steps = len(account.ranks[0][0].load_s)
    every = -(-steps // SERIES_STEPS)
    shown = {
        name: [
            [
                round(fmean(step) * 1e6)
                for step in zip(*(getattr(e, field) for e in epochs), strict=True)
            ][::every]
            for epochs in zip(*account.ranks, strict=True)
        ]
        for name, (field, _) in PARTS.items()
        if account.entries(field) is not None
    }
    return {"every": every, **{f"{name}_us": series for name, series in shown.items()}}


def _part(account: Account, name: str) -> Metric:
    field, what = PARTS[name]
    entries = account.entries(field)
    return seconds(
        f"{name}_s",
        None if entries is None else sum(entries) / len(account.ranks),
        f"Seconds of an accelerator in all epochs: {what}.",
        reason=account.missing.get(field, _UNTOLD),
        part_of=WHOLE,
    )


def _share(account: Account, name: str) -> Metric:
    field, what = PARTS[name]
    entries = account.entries(field)
    return fraction(
        f"{name}_fraction",
        None if entries is None else sum(entries) / account.total("duration_s"),
        account.missing.get(field, _UNTOLD),
        f"Share of the epochs' seconds: {what}.",
        better="higher" if name == "compute" else "lower",
    )


def _spreads(account: Account) -> list[Metric]:
    found = []
    for name, field, what in (
        ("load_wait", "load_s", "waits for the next batch"),
        ("step", "step_s", "steps"),
    ):
        entries, reason = account.entries(field), account.missing.get(field, _UNTOLD)
        half, longest = (median(entries), max(entries)) if entries else (None, None)
        found += [
            seconds(f"{name}_p50_s", half, f"Half of the {what} were shorter.", reason=reason),
            seconds(f"{name}_max_s", longest, f"The longest of the {what}.", reason=reason),
        ]
    return found


def _decoding(account: Account) -> list[Metric]:
    entries, reason = account.entries("decode_s"), account.missing.get("decode_s", _UNTOLD)
    total_s, half_s = (sum(entries), median(entries)) if entries else (None, None)
    return [
        seconds(
            "decode_s",
            total_s,
            "Seconds that the loaders' workers spent between the bytes of a file and its row, "
            "summed over workers, which run side by side and beside the loop.",
            reason=reason,
        ),
        seconds("decode_p50_s", half_s, "Half of the batches took less to decode.", reason=reason),
    ]


def _sides(epoch: EpochTimes) -> tuple[float, float] | None:
    """Return the parts of an epoch and its steps, each in seconds by its own clock."""
    if epoch.step_s is None or epoch.barrier_s is None or epoch.rest_s is None:
        return None
    parts = (epoch.load_s, epoch.copy_s or (), epoch.compute_s, epoch.barrier_s, epoch.rest_s)
    return sum(map(sum, parts)), sum(epoch.step_s)
