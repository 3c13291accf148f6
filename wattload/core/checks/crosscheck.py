"""Checks of one source of power against another: what none of them could have made up alone."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

from wattload.core.checks.energy import of_host
from wattload.core.power import MEASURING, Evidence, Scope
from wattload.core.record.check import Check, Verdict
from wattload.core.record.controller import ControllerFacts, ControllerRecord
from wattload.core.record.energy import EnergyRecord
from wattload.core.record.run import RunRecord
from wattload.core.units import J_PER_WH, NS_PER_S

AGREE_SHARE = 0.01
"""Two sources that state no wider uncertainty agree within this share of the energy."""
DIFFER_SHARE = 0.05
"""From here on two sources of one device don't measure the same thing."""


def energy_cross_check(record: RunRecord) -> Sequence[Check]:
    """Compare what several sources say of the whole run's energy on one device.

    Two accounts of equal evidence that are far apart fail the run: one of them did not see it. A
    drive that reports otherwise than a meter, or only estimates, is warned of.
    """
    groups: defaultdict[tuple[str, str, Scope, int, int], list[EnergyRecord]] = defaultdict(list)
    for energy in record.power.whole_run:
        key = (energy.host, energy.device, energy.scope, energy.start_ns, energy.end_ns)
        groups[key].append(energy)
    checks = [check for group in groups.values() for check in _pairs(record, group)]
    if checks:
        return checks
    sources = sorted({energy.source for energy in record.power.whole_run})
    reason = f"{' and '.join(sources)} alone" if sources else "no source"
    return [
        Check(
            name="energy_cross_check",
            verdict="not_checked",
            sentence=f"The whole run's energy has nothing to be compared with: {reason} tells it.",
        )
    ]


def _pairs(record: RunRecord, group: Sequence[EnergyRecord]) -> Iterator[Check]:
    for one, other in combinations(group, 2):
        name = f"energy_cross_check_{one.device}_{one.source}_{other.source}"
        name += of_host(record, one.host)
        if one.energy_j is None or other.energy_j is None:
            silent = one if one.energy_j is None else other
            yield Check(
                name=name,
                verdict="not_checked",
                sentence=f"{silent.source} has no figure: {silent.missing['energy_j']}.",
            )
        else:
            yield _pair(name, one, other, one.energy_j, other.energy_j)


def _pair(name: str, one: EnergyRecord, other: EnergyRecord, one_j: float, other_j: float) -> Check:
    parts = (*one.uncertainty_parts_j.values(), *other.uncertainty_parts_j.values())
    most_j = max(abs(one_j), abs(other_j))
    allowed_j = max(math.hypot(*parts), AGREE_SHARE * most_j)
    apart_j = abs(one_j - other_j)
    verdict: Verdict = "pass" if apart_j <= allowed_j else "warn"
    are_alike = one.evidence is other.evidence and one.evidence is not Evidence.ESTIMATED
    if are_alike and apart_j > max(allowed_j, DIFFER_SHARE * most_j):
        verdict = "fail"
    return Check(
        name=name,
        verdict=verdict,
        sentence=(
            f"Over the whole run {one.source} tells {one_j:.6g} J and {other.source} "
            f"{other_j:.6g} J, where {allowed_j:.3g} J apart can be explained"
            + ("." if verdict == "pass" else ": one of them is wrong.")
        ),
        figures={"one_j": one_j, "other_j": other_j, "allowed_j": allowed_j},
    )


def energy_lifetime(record: RunRecord) -> Sequence[Check]:
    """Compare the whole run's energy with the growth of the drive's lifetime counter (SMART OLEC).

    That counter is read before the data are made and after the run, in Wh rounded up: the run can
    have used no more than its growth and one Wh, and no less than what the time around it leaves.
    """
    if not record.controllers:
        return [_not_lifetime("energy_lifetime", "no NVMe controller lies under the target")]
    return [_lifetime(record, controller) for controller in record.controllers]


def _not_lifetime(name: str, reason: str) -> Check:
    return Check(
        name=name,
        verdict="not_checked",
        sentence=f"No lifetime energy counter (SMART OLEC) to compare with: {reason}.",
    )


def _lifetime(record: RunRecord, controller: ControllerRecord) -> Check:
    facts = controller.facts
    name = f"energy_lifetime_{facts.serial}{of_host(record, facts.host)}"
    grown_wh, reason = _grown_wh(controller)
    energy = _known_whole(record, facts)
    around_s = _seconds_around(record, facts.host, energy)
    if grown_wh is None or energy is None or energy.energy_j is None or around_s is None:
        return _not_lifetime(name, reason or "the whole run's energy is not known")
    unsure_j = _unsure_j(energy, energy.energy_j)
    most_j = (grown_wh + 1) * J_PER_WH + unsure_j
    greatest_w = _greatest_w(controller)
    least_j = 0.0
    if greatest_w is not None:
        least_j = (grown_wh - 1) * J_PER_WH - greatest_w * around_s - unsure_j
    holds = least_j <= energy.energy_j <= most_j
    return Check(
        name=name,
        verdict="pass" if holds else "fail",
        sentence=(
            f"{facts.name} counted {grown_wh} Wh more, so that the run used {max(0.0, least_j):.6g}"
            f" to {most_j:.6g} J; {energy.source} tells {energy.energy_j:.6g} J"
            + ("." if holds else ": one of them is wrong.")
        ),
        figures={
            "energy_j": energy.energy_j,
            "least_j": least_j,
            "most_j": most_j,
            "grown_wh": grown_wh,
        },
    )


def _unsure_j(energy: EnergyRecord, energy_j: float) -> float:
    """Return by how much a figure may be off: one that does not tell, by ``DIFFER_SHARE``."""
    if energy.uncertainty_j is not None:
        return energy.uncertainty_j
    return DIFFER_SHARE * abs(energy_j)


def _known_whole(record: RunRecord, facts: ControllerFacts) -> EnergyRecord | None:
    """Return the whole run's energy by the first source that has a figure of the controller."""
    found = (each for each in record.power.whole_run if each.energy_j is not None)
    key = (facts.host, facts.serial)
    return next((each for each in found if (each.host, each.device) == key), None)


def _grown_wh(controller: ControllerRecord) -> tuple[int | None, str]:
    values = []
    for word, state in (("before", controller.before), ("after", controller.after)):
        if state is None or state.smart is None:
            return None, f"SMART was not read {word} the run"
        if state.smart.lifetime_energy_wh is None:
            return None, state.smart.missing["lifetime_energy_wh"]
        values.append(state.smart.lifetime_energy_wh)
    if values[1] < values[0]:
        return None, f"it fell from {values[0]} to {values[1]} Wh"
    return values[1] - values[0], ""


def _seconds_around(record: RunRecord, host: str, energy: EnergyRecord | None) -> float | None:
    """Return the seconds between both readings of the host that lie outside of the run's energy."""
    found = next((each for each in record.hosts if each.facts.name == host), None)
    if found is None or found.after is None or energy is None:
        return None
    length_ns = found.after.clock.monotonic_ns - found.before.clock.monotonic_ns
    return max(0.0, length_ns / NS_PER_S - energy.seconds)


def _greatest_w(controller: ControllerRecord) -> float | None:
    watts = [state.max_w for state in controller.facts.power_states or ()]
    return max((w for w in watts if w is not None), default=None)


def power_within_bounds(record: RunRecord) -> Sequence[Check]:
    """Compare what was measured of a drive with the most that its power states allow."""
    checks = []
    for energy in record.power.energy:
        if energy.evidence not in MEASURING or energy.energy_j is None:
            continue
        for bound in record.power.energy:
            same = (bound.host, bound.device, bound.phase) == (
                energy.host,
                energy.device,
                energy.phase,
            )
            if same and bound.upper_j is not None and energy.seconds >= 1:
                checks.append(_within(record, energy, bound, energy.energy_j, bound.upper_j))
    return checks


def _within(
    record: RunRecord, energy: EnergyRecord, bound: EnergyRecord, energy_j: float, upper_j: float
) -> Check:
    allowed_j = upper_j + (energy.uncertainty_j or AGREE_SHARE * upper_j)
    holds = energy_j <= allowed_j
    return Check(
        name=f"power_within_bounds_{energy.phase}_{energy.device}_{energy.source}"
        + of_host(record, energy.host),
        verdict="pass" if holds else "warn",
        sentence=(
            f"{energy.source} tells {energy_j:.6g} J in {energy.phase}, where the drive's power "
            f"states allow {upper_j:.6g} J" + ("." if holds else ": it draws more than it states.")
        ),
        figures={"energy_j": energy_j, "upper_j": upper_j, "source_of_bound": bound.source},
    )
