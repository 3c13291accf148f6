"""A plan as lines for people, each formula with its figures."""

from __future__ import annotations

from collections.abc import Iterator

from wattload.cli.plan_record import Rates
from wattload.core.units import GIB, format_bytes, format_rate, format_seconds
from wattload.workloads.checkpoint.estimate import Drives, Energy, Shape, Watts


def lines(
    shape: Shape,
    rates: Rates,
    seconds: float | None,
    energy: Energy | None,
    drives: Drives | None,
) -> Iterator[str]:
    """Yield the lines of a plan."""
    yield from _size(shape)
    if rates.rate_bytes_per_s is None or seconds is None:
        yield _line("rate", "not given; add rate=GB/s of one drive, or record=RUN")
        return
    unit = _unit(rates)
    yield _line("rate", f"{format_rate(rates.rate_bytes_per_s)} of {unit}, {rates.rate_source}")
    yield _line("time", f"{format_seconds(seconds)} on {unit} = bytes / rate")
    yield from _energy(rates, energy)
    if drives is not None:
        yield from _drives(drives, rates, shape)
    for remark in rates.remarks:
        yield _line("caveat", f"that run was {remark}")
    if rates.failed_checks:
        yield _line("warning", f"that run failed {', '.join(rates.failed_checks)}")
    if rates.warned_checks:
        yield _line("warning", f"that run had warnings: {', '.join(rates.warned_checks)}")


def _size(shape: Shape) -> Iterator[str]:
    part = (
        f"all {shape.ranks} ranks"
        if shape.ranks == shape.model_ranks
        else f"the first {shape.ranks} of {shape.model_ranks} ranks"
    )
    least, most = format_bytes(shape.rank_min_bytes), format_bytes(shape.rank_max_bytes)
    each = f"{least} each" if least == most else f"{least} to {most} each"
    yield _line("model", f"{shape.model}, {shape.parameters:,} parameters")
    yield _line("shards", f"{part}, {each}")
    if shape.file_count is None:
        why = f"; {shape.file_count_missing}" if shape.file_count_missing else ""
        yield _line("files", f"{shape.ranks} with loader=direct, one a rank{why}")
    else:
        yield _line(
            "files",
            f"{shape.file_count:,} as DLIO lays them out; {shape.ranks} with loader=direct",
        )
    total = f"{format_bytes(shape.total_bytes)} = {shape.total_bytes / GIB:,.3f} GiB"
    yield _line("total", f"{total}; published {shape.published}")


def _energy(rates: Rates, energy: Energy | None) -> Iterator[str]:
    if rates.watts is None or energy is None:
        yield _line("energy", f"unknown: power is {rates.watts_source}")
        return
    yield _line("power", f"{_power(rates.watts)} of {_unit(rates)}, {rates.watts_source}")
    shown = _bounded(energy.energy_wh, energy.lower_wh, energy.upper_wh, "Wh")
    yield _line("energy", f"{shown} a checkpoint = power x time, however many drives share it")


def _power(watts: Watts) -> str:
    return _bounded(watts.mean_w, watts.lower_w, watts.upper_w, "W")


def _bounded(value: float | None, lower: float | None, upper: float | None, unit: str) -> str:
    """Return a figure, or its bounds as such: a lone maximum is ``≤``."""
    if value is not None:
        return f"{value:.4g} {unit}"
    if lower is None:
        return f"≤ {upper:.4g} {unit}"
    return f"{lower:.4g} to {upper:.4g} {unit}"


def _drives(drives: Drives, rates: Rates, shape: Shape) -> Iterator[str]:
    each = f"{format_bytes(shape.total_bytes)} / ({format_rate(rates.rate_bytes_per_s or 0)}"
    interval = f"{drives.interval_s:g} s"
    yield _line(
        "sync",
        f"{_many(drives.sync_count, rates)}, as n >= bytes / (rate x overhead x interval) = "
        f"{each} x {drives.overhead:g} x {interval}); the stall is "
        f"{format_seconds(drives.stall_s)}, {drives.lost_share:.2%} of the interval",
    )
    yield _line(
        "async",
        f"{_many(drives.async_count, rates)}, as n >= bytes / (rate x interval) = "
        f"{each} x {interval}); the drain takes {format_seconds(drives.drain_s)}, the snapshot is "
        "not in it",
    )


def _many(count: int, rates: Rates) -> str:
    each = "drive" if rates.drive_count == 1 else "target"
    of = "" if rates.drive_count == 1 else f" of {rates.drive_count} drives each"
    return f"{count} {each}{'' if count == 1 else 's'}{of}"


def _unit(rates: Rates) -> str:
    return "one drive" if rates.drive_count == 1 else f"one target of {rates.drive_count} drives"


def _line(name: str, text: str) -> str:
    return f"{name:<8}{text}"
