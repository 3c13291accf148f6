"""The rate and the power that a plan counts with: as given, or those of a run's write phase."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattload.core.errors import RecordError
from wattload.core.power import Scope, weakest
from wattload.core.record.energy import EnergyRecord
from wattload.core.record.run import RECORD_FILE, RunRecord, read_record
from wattload.workloads.checkpoint.estimate import Watts

RATE_METRIC = "write_bytes_per_s"
WRITE_PHASE = "write"

_PARTIAL = ("shrunken", "sliced")
"""How the remarks of a checkpoint run begin that wrote less than its ranks' shards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What one drive writes in B/s and draws meanwhile, and where each figure comes from.

    ``drive_count`` is how many drives the rate and the power are of: a run may have several.
    ``remarks`` say how that run was shrunken or sliced; ``failed_checks`` and ``warned_checks``
    name the checks of it that failed or warned.
    """

    rate_bytes_per_s: float | None
    rate_source: str
    drive_count: int = 1
    watts: Watts | None = None
    watts_source: str = "not given"
    remarks: tuple[str, ...] = ()
    failed_checks: tuple[str, ...] = ()
    warned_checks: tuple[str, ...] = ()


def given_rates(rate_bytes_per_s: float | None, power_w: float | None) -> Rates:
    """Return the figures that were given."""
    return Rates(
        rate_bytes_per_s=rate_bytes_per_s,
        rate_source="given" if rate_bytes_per_s is not None else "not given",
        watts=_as_given(power_w) if power_w is not None else None,
        watts_source="given" if power_w is not None else "not given",
    )


def rates_of_record(path: Path, power_w: float | None) -> Rates:
    """Return a run's write rate, and the power of its drives in that phase unless it is given.

    ``power_w`` is of one drive, as it is without a record; the run's drives draw it each.

    Raises ``RecordError`` for a record that is missing, of an unfinished run, or without the rate.
    """
    record = read_record(path / RECORD_FILE if path.is_dir() else path)
    if record.status != "complete":
        raise RecordError(
            f"{path} is of a run that is {record.status}; a plan needs one that is complete"
        )
    rate = next((m.value for m in record.metrics if m.name == RATE_METRIC), None)
    if not rate:
        raise RecordError(
            f"{path} has no {RATE_METRIC}; a plan needs a run of workload=checkpoint, and this is "
            f"one of {record.workload.name}"
        )
    energies = _drives(record)
    drive_count = max(1, len(energies), len(record.controllers), len(_devices(record)))
    known = _watts(energies) if len(energies) == drive_count else None
    watts = _as_given(power_w * drive_count) if power_w is not None else known
    return Rates(
        rate_bytes_per_s=rate,
        rate_source=record.run_id,
        drive_count=drive_count,
        watts=watts,
        watts_source=_watts_source(record, power_w, watts),
        remarks=tuple(r for r in record.workload.remarks if r.startswith(_PARTIAL)),
        failed_checks=tuple(c.name for c in record.checks if c.verdict == "fail"),
        warned_checks=tuple(c.name for c in record.checks if c.verdict == "warn"),
    )


def _devices(record: RunRecord) -> set[tuple[str, str]]:
    """Return the lowest block devices under the targets: not all are NVMe controllers."""
    facts = (target.facts for target in record.targets)
    return {(target.host, device) for target in facts for device in target.devices}


def _drives(record: RunRecord) -> list[EnergyRecord]:
    return [
        energy
        for energy in record.power.energy
        if energy.chosen and energy.scope is Scope.DRIVE and energy.phase == WRITE_PHASE
    ]


def _watts(energies: Sequence[EnergyRecord]) -> Watts | None:
    """Return the power of all drives together; a sum with a part missing is none."""
    mean_w = _sum(energies, lambda energy: energy.mean_w)
    lower_w = _sum(energies, lambda energy: _over(energy.lower_j, energy.seconds))
    upper_w = _sum(energies, lambda energy: _over(energy.upper_j, energy.seconds))
    if mean_w is None and upper_w is None:
        return None
    evidence = str(weakest(energy.evidence for energy in energies))
    if mean_w is not None:
        return Watts(mean_w=mean_w, lower_w=None, upper_w=None, evidence=evidence)
    return Watts(mean_w=None, lower_w=lower_w, upper_w=upper_w, evidence=evidence)


def _sum(
    energies: Sequence[EnergyRecord], of: Callable[[EnergyRecord], float | None]
) -> float | None:
    parts = [of(energy) for energy in energies]
    known = [part for part in parts if part is not None]
    return sum(known) if parts and len(known) == len(parts) else None


def _over(energy_j: float | None, seconds: float) -> float | None:
    return energy_j / seconds if energy_j is not None and seconds else None


def _watts_source(record: RunRecord, power_w: float | None, watts: Watts | None) -> str:
    if power_w is not None:
        return "given"
    if watts is None:
        return (
            f"{record.run_id} has no power of all its drives ({record.power.choice}); add power_w="
        )
    return f"{watts.evidence}, {record.run_id}"


def _as_given(power_w: float) -> Watts:
    return Watts(mean_w=power_w, lower_w=None, upper_w=None, evidence="given")
