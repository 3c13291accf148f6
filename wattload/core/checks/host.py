"""Checks on the host: its clocks, who was the bottleneck, and whether links ran at full speed."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.record.check import Check
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S, format_rate

CLOCK_TOLERANCE_S = 0.05
CLOCK_TOLERANCE = 1e-3
CEILING_FACTOR = 2.0


def clocks_agree(record: RunRecord) -> Sequence[Check]:
    """Compare the run's length on the monotonic and on the wall clock, per host."""
    checks = []
    for host in record.hosts:
        if host.after is None:
            continue
        first, last = host.before.clock, host.after.clock
        monotonic_s = (last.monotonic_ns - first.monotonic_ns) / NS_PER_S
        wall_s = (last.realtime_ns - first.realtime_ns) / NS_PER_S
        apart_s = abs(monotonic_s - wall_s)
        agree = apart_s <= CLOCK_TOLERANCE_S + CLOCK_TOLERANCE * abs(monotonic_s)
        checks.append(
            Check(
                name=f"clocks_agree_{host.facts.name}",
                verdict="pass" if agree else "warn",
                sentence=(
                    f"The run took {monotonic_s:.3f} s on the monotonic and {wall_s:.3f} s on the "
                    "wall clock"
                    + (
                        "."
                        if agree
                        else ": the wall clock was stepped; all figures use the monotonic one."
                    )
                ),
                figures={"monotonic_s": monotonic_s, "wall_s": wall_s},
            )
        )
    return checks


def bottleneck(record: RunRecord) -> Sequence[Check]:
    """Compare the host's own ceilings (no drive in the loop) with the result."""
    checks = []
    for metric in record.metrics:
        if not metric.name.endswith("_ceiling_bytes_per_s"):
            continue
        result = max(
            (
                m.value
                for m in record.metrics
                if m.headline and m.unit == "B/s" and m.value is not None
            ),
            default=None,
        )
        if metric.value is None or result is None or result <= 0:
            checks.append(
                Check(
                    name=f"bottleneck_{metric.name}",
                    verdict="not_checked",
                    sentence=metric.missing.get(
                        "value", "There is no rate to compare the ceiling with."
                    ),
                )
            )
            continue
        factor = metric.value / result
        checks.append(
            Check(
                name=f"bottleneck_{metric.name}",
                verdict="pass" if factor >= CEILING_FACTOR else "warn",
                sentence=(
                    f"Without a drive the same loop does {format_rate(metric.value)}, {factor:.1f} "
                    "times the result"
                    + ("." if factor >= CEILING_FACTOR else ": the host was measured as well.")
                ),
                figures={
                    "ceiling_bytes_per_s": metric.value,
                    "result_bytes_per_s": result,
                    "factor": factor,
                },
            )
        )
    return checks


def link_at_maximum(record: RunRecord) -> Sequence[Check]:
    """Compare each controller's PCIe link with what the drive can do."""
    checks = []
    for controller in record.controllers:
        facts, state = controller.facts, controller.before
        now = (state.link_speed_gt_per_s, state.link_width) if state else (None, None)
        best = (facts.link_speed_max_gt_per_s, facts.link_width_max)
        if None in now or None in best:
            continue
        full = now == best
        checks.append(
            Check(
                name=f"link_at_maximum_{facts.serial}",
                verdict="pass" if full else "warn",
                sentence=(
                    f"{facts.name} runs at {now[0]} GT/s x{now[1]}; it can do {best[0]} GT/s "
                    f"x{best[1]}" + ("." if full else ": the slot limits the drive.")
                ),
                figures={
                    "speed_gt_per_s": now[0],
                    "width": now[1],
                    "speed_max_gt_per_s": best[0],
                    "width_max": best[1],
                },
            )
        )
    return checks
