"""Checks on time: a window must be long enough to be measured, and its halves alike."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.record.check import Check
from wattload.core.record.phase import PhaseWindow
from wattload.core.record.run import RunRecord
from wattload.core.units import format_rate

SHORT_S = 30.0
FEW_SAMPLES = 100
UNSTEADY = 0.10


def long_enough(record: RunRecord) -> Sequence[Check]:
    """Warn of timed windows under 30 s, or with under 100 samples where power is measured."""
    checks = []
    for window in record.timed_windows():
        if not window.read_bytes + window.written_bytes:
            continue
        samples = [
            e.sample_count
            for e in record.power.energy
            if e.phase == window.name and e.chosen and e.host == window.host
        ]
        few = min(samples, default=FEW_SAMPLES) < FEW_SAMPLES
        short = window.active_s < SHORT_S
        sentence = f"The phase {window.name} was active for {window.active_s:.1f} s"
        sentence += f", under {SHORT_S:.0f} s" if short else ""
        sentence += f", with {min(samples)} power samples, under {FEW_SAMPLES}" if few else ""
        checks.append(
            Check(
                name=f"short_run_{window.name}",
                verdict="warn" if short or few else "pass",
                sentence=sentence + (": caches and edges weigh in." if short or few else "."),
                figures={"active_s": window.active_s, "samples": min(samples, default=None)},
            )
        )
    return checks


def steady(record: RunRecord) -> Sequence[Check]:
    """Compare the rate of the first and the second half of each timed phase's active time."""
    return [
        _steady(window)
        for window in record.timed_windows()
        if window.read_bytes + window.written_bytes
    ]


def _steady(window: PhaseWindow) -> Check:
    name = f"steady_{window.name}"
    halves = window.half_rates_bytes_per_s
    if halves is None:
        return Check(
            name=name,
            verdict="not_checked",
            sentence=f"{window.name} was active for {window.active_s:.2f} s, too short to halve.",
        )
    apart = abs(halves[1] - halves[0]) / max(halves)
    calm = apart <= UNSTEADY
    return Check(
        name=name,
        verdict="pass" if calm else "warn",
        sentence=(
            f"{window.name} moved {format_rate(halves[0])} in the first half of its active time "
            f"and {format_rate(halves[1])} in the second"
            + ("." if calm else ": more than 10 % apart, not steady.")
        ),
        figures={"first_bytes_per_s": halves[0], "second_bytes_per_s": halves[1]},
    )
