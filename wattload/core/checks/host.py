"""Checks on the host: its clocks, who was the bottleneck, and whether links ran at full speed."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.record.check import Check
from wattload.core.record.controller import ControllerRecord
from wattload.core.record.metric import Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S, format_rate

CLOCK_TOLERANCE_S = 0.05
CLOCK_TOLERANCE = 1e-3
CEILING_FACTOR = 2.0
CEILING_SUFFIX = "_ceiling_bytes_per_s"


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
    """Compare the host's own ceilings (no drive in the loop) with the rates they bound."""
    ceilings = [m for m in record.metrics if m.name.endswith(CEILING_SUFFIX)]
    return [_ceiling_check(ceiling, _bounded_rate(record, ceiling)) for ceiling in ceilings]


def _bounded_rate(record: RunRecord, ceiling: Metric) -> Metric | None:
    """Return the rate that a ceiling bounds: of its direction, else the headline's first."""
    rates = [m for m in record.metrics if m.headline and m.unit == "B/s" and m.value is not None]
    direction = "read" if "read" in ceiling.name else "write"
    own = [rate for rate in rates if rate.name.startswith(direction)]
    return next(iter(own or rates), None)


def _ceiling_check(ceiling: Metric, rate: Metric | None) -> Check:
    name = f"bottleneck_{ceiling.name}"
    if ceiling.value is None or rate is None or not rate.value:
        reason = ceiling.missing.get("value", "there is no rate to compare the ceiling with")
        return Check(name=name, verdict="not_checked", sentence=f"Not compared: {reason}.")
    factor = ceiling.value / rate.value
    enough = factor >= CEILING_FACTOR
    return Check(
        name=name,
        verdict="pass" if enough else "warn",
        sentence=(
            f"Without a drive the same loop does {format_rate(ceiling.value)}, {factor:.1f} times "
            f"{rate.name}" + ("." if enough else ": the host was measured as well.")
        ),
        figures={
            "ceiling_bytes_per_s": ceiling.value,
            "result_bytes_per_s": rate.value,
            "factor": factor,
        },
    )


def link_at_maximum(record: RunRecord) -> Sequence[Check]:
    """Compare each controller's PCIe link with what the drive can do."""
    if record.controllers:
        return [_link(controller) for controller in record.controllers]
    return [
        Check(
            name="link_at_maximum",
            verdict="not_checked",
            sentence="No NVMe controller lies under the target, so no link is known.",
        )
    ]


def _link(controller: ControllerRecord) -> Check:
    facts, state = controller.facts, controller.before
    name = f"link_at_maximum_{facts.serial}"
    now = (state.link_speed_gt_per_s, state.link_width) if state else (None, None)
    best = (facts.link_speed_max_gt_per_s, facts.link_width_max)
    if None in now or None in best:
        reasons = {**facts.missing, **(state.missing if state else {})}
        found = [reason for field, reason in reasons.items() if field.startswith("link_")]
        reason = next(iter(found), "its state was not read")
        return Check(
            name=name,
            verdict="not_checked",
            sentence=f"The PCIe link of {facts.name} is not known: {reason}.",
        )
    full = now == best
    return Check(
        name=name,
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
