"""Checks of a run that takes turns with others: a drive as warm as at first, a pair side by side.

Both sides come from different hands: the drive's thermometer at this run and at the session's first
on that drive; the end of one run and the start of the other, by the wall clock of both.
"""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.checks.energy import of_host
from wattload.core.record.check import Check
from wattload.core.record.run import RunRecord, RunStart, StartTemperature

LONGEST_GAP_S = 600.0
"""A session that nothing interrupts goes from run to run in seconds, waits for heat left out."""


def start_temperature(record: RunRecord) -> Sequence[Check]:
    """Warn of a drive that began warmer or colder than at the session's first compared run."""
    start = record.comparison.start
    if start is None:
        return []
    if not start.drives:
        return [
            Check(
                name="start_temperature",
                verdict="not_checked",
                sentence="No NVMe controller lies under the target, so nothing tells how warm the "
                "drive began.",
            )
        ]
    return [_start(record, start, drive) for drive in start.drives]


def _start(record: RunRecord, start: RunStart, drive: StartTemperature) -> Check:
    name = f"start_temperature_{drive.serial}{of_host(record, drive.host)}"
    if drive.temperature_k is None or drive.reference_k is None:
        gaps = "; ".join(dict.fromkeys(drive.missing.values()))
        return Check(
            name=name,
            verdict="not_checked",
            sentence=f"How warm drive {drive.serial} began is not known: {gaps}.",
        )
    off_k = drive.temperature_k - drive.reference_k
    told = f"Drive {drive.serial} began {_off(off_k)} the session's first run on it"
    if start.waited_s:
        told += f", after {start.waited_s:.0f} s of waiting for it to cool"
    holds = abs(off_k) <= start.allowed_k
    return Check(
        name=name,
        verdict="pass" if holds else "warn",
        sentence=f"{told}." if holds else f"{told}, where {start.allowed_k:g} °C are allowed.",
        figures={
            "start_k": drive.temperature_k,
            "reference_k": drive.reference_k,
            "allowed_k": start.allowed_k,
            "waited_s": start.waited_s,
            "limit_s": start.limit_s,
        },
    )


def _off(off_k: int) -> str:
    """Return a difference of temperatures in words; kelvins and degrees Celsius are as large."""
    if not off_k:
        return "as warm as"
    return f"{abs(off_k)} °C {'warmer' if off_k > 0 else 'colder'} than"


def pair_together(record: RunRecord) -> Sequence[Check]:
    """Warn of a pair that an interruption has parted: what drifted meanwhile is in its ratio."""
    gap_s, start = record.comparison.pair_gap_s, record.comparison.start
    if gap_s is None or start is None:
        return []
    if gap_s < 0:
        return [
            Check(
                name="pair_together",
                verdict="not_checked",
                sentence="How long after the pair's other run this one began is not known: the "
                f"wall clock was set back, by {-gap_s:.0f} s at least.",
            )
        ]
    holds = gap_s - start.waited_s <= LONGEST_GAP_S
    return [
        Check(
            name="pair_together",
            verdict="pass" if holds else "warn",
            sentence=f"The pair's other run ended {gap_s:.0f} s before this one began, "
            f"{start.waited_s:.0f} s of it spent waiting for drives to cool"
            + ("." if holds else ": the session was interrupted between them."),
            figures={
                "gap_s": gap_s,
                "waited_s": start.waited_s,
                "allowed_s": LONGEST_GAP_S,
            },
        )
    ]
