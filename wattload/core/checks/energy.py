"""Checks on power: coverage, closure, the state that was held, and throttling."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.record.check import Check, Verdict
from wattload.core.record.energy import EnergyRecord
from wattload.core.record.run import RunRecord

COVERAGE_WARN, COVERAGE_FAIL = 0.99, 0.95
TOLERANCE = 1e-6
CLOSURE = 1e-3


def _chosen(record: RunRecord) -> list[EnergyRecord]:
    return [energy for energy in record.power.energy if energy.chosen]


def power_coverage(record: RunRecord) -> Sequence[Check]:
    """Judge how much of each timed window the chosen trace covers."""
    if not _chosen(record):
        return [
            Check(
                name="power_coverage",
                verdict="not_checked",
                sentence=record.power.choice,
                mandatory=True,
            )
        ]
    return [_coverage(energy) for energy in _chosen(record)]


def _coverage(energy: EnergyRecord) -> Check:
    name = f"power_coverage_{energy.phase}_{energy.device}"
    if energy.coverage is None:
        return Check(
            name=name, verdict="not_checked", mandatory=True, sentence=energy.missing["coverage"]
        )
    verdict: Verdict = (
        "fail"
        if energy.coverage < COVERAGE_FAIL
        else "warn"
        if energy.coverage < COVERAGE_WARN
        else "pass"
    )
    return Check(
        name=name,
        verdict=verdict,
        mandatory=True,
        sentence=f"The trace of {energy.source} covers {energy.coverage:.2%} of {energy.phase}.",
        figures={"coverage": energy.coverage, "samples": energy.sample_count},
    )


def energy_closure(record: RunRecord) -> Sequence[Check]:
    """Compare each chosen energy with its mean power times the phase's own active seconds."""
    checks = []
    for energy in _chosen(record):
        window = next(
            (w for w in record.windows if (w.name, w.host) == (energy.phase, energy.host)), None
        )
        if energy.energy_j is None or energy.mean_w is None or window is None:
            continue
        product_j = energy.mean_w * window.active_s
        agree = abs(product_j - energy.energy_j) <= CLOSURE * abs(energy.energy_j)
        checks.append(
            Check(
                name=f"energy_closure_{energy.phase}_{energy.device}_{energy.scope}",
                verdict="pass" if agree else "fail",
                sentence=(
                    f"{energy.energy_j:.6g} J against mean power times the phase's seconds, "
                    f"{product_j:.6g} J" + ("." if agree else ": these must be one figure.")
                ),
                figures={"energy_j": energy.energy_j, "product_j": product_j},
            )
        )
    return checks


def power_state_shares(record: RunRecord) -> Sequence[Check]:
    """Compare the sums over observed power states with the window's own seconds and joules."""
    checks = []
    for energy in _chosen(record):
        if not energy.states:
            continue
        seconds = sum(share.seconds for share in energy.states)
        agree = abs(seconds - energy.seconds) <= TOLERANCE * max(energy.seconds, 1.0)
        parts_j = [share.energy_j for share in energy.states]
        if energy.energy_j is not None and all(part is not None for part in parts_j):
            total_j = sum(part for part in parts_j if part is not None)
            agree = agree and abs(total_j - energy.energy_j) <= TOLERANCE * max(
                energy.energy_j, 1.0
            )
        checks.append(
            Check(
                name=f"power_state_shares_{energy.phase}_{energy.device}",
                verdict="pass" if agree else "fail",
                sentence=(
                    f"The power states' seconds sum to {seconds:.3f} of {energy.seconds:.3f}"
                    + ("." if agree else ": parts must sum to the whole.")
                ),
                figures={"states_s": seconds, "window_s": energy.seconds},
            )
        )
    return checks


def power_state_held(record: RunRecord) -> Sequence[Check]:
    """Compare the power state asked for with what was read back before and after the run."""
    checks = []
    for state in record.power.states:
        if state.requested is None:
            continue
        held = state.verified == state.requested == state.after
        checks.append(
            Check(
                name=f"power_state_held_{state.serial}",
                verdict="pass" if held else "fail",
                sentence=(
                    f"PS{state.requested} was asked for, PS{state.verified} read back before and "
                    f"PS{state.after} after the run"
                    + ("." if held else ": the drive did not keep it.")
                ),
                figures={
                    "requested": state.requested,
                    "before": state.verified,
                    "after": state.after,
                },
                mandatory=True,
            )
        )
    return checks


def thermal(record: RunRecord) -> Sequence[Check]:
    """Fail a run in which a drive's thermal management fired."""
    checks = []
    for controller in record.controllers:
        difference = controller.difference
        if difference is None or difference.thermal_transitions is None:
            continue
        count = difference.thermal_transitions
        checks.append(
            Check(
                name=f"throttled_{controller.facts.serial}",
                verdict="fail" if count else "pass",
                sentence=(
                    f"{controller.facts.name} made {count} thermal transitions during the run"
                    + (": it was throttled." if count else ".")
                ),
                figures={"thermal_transitions": count},
            )
        )
    return checks
