"""What one run of a search says: utilisation, throughput, watts, and what the host could do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wattload.core.power import Scope
from wattload.core.record.base import Frozen, Observed
from wattload.core.record.run import RunRecord

DECIDING, BESIDE = "au_dlio", "au_nominal"
RATE, SAMPLES, CEILING = "read_bytes_per_s", "samples_per_s", "harness_ceiling_bytes_per_s"


class Measurement(Observed):
    """One run of a count of accelerators, as its record has it.

    ``demand_bytes_per_s`` is what so many accelerators read that never wait. ``drive_w`` is the
    mean power of all drives under the target in the timed phase. ``faults`` are the checks that
    failed, ``unproved`` the mandatory ones that were not made, those of power alone left out: they
    bar no throughput.
    """

    accelerators: int
    repetition: int
    run_id: str
    seconds: float
    au_dlio: float | None
    au_nominal: float | None
    samples_per_s: float | None
    read_bytes_per_s: float | None
    ceiling_bytes_per_s: float | None
    demand_bytes_per_s: float | None
    drive_w: float | None
    drive_w_evidence: str | None
    faults: tuple[str, ...] = ()
    unproved: tuple[str, ...] = ()

    def holds(self, threshold: float) -> bool:
        """Return whether the utilisation reaches the threshold; it is decided as DLIO codes it."""
        return self.au_dlio is not None and self.au_dlio >= threshold


def measured(record: RunRecord, accelerators: int, repetition: int) -> Measurement:
    """Return what a finished run says."""
    fields: dict[str, float | None] = {}
    missing: dict[str, str] = {}
    for field, name in (
        ("au_dlio", DECIDING),
        ("au_nominal", BESIDE),
        ("samples_per_s", SAMPLES),
        ("read_bytes_per_s", RATE),
        ("ceiling_bytes_per_s", CEILING),
    ):
        metric = record.metric(name)
        fields[field] = metric.value if metric else None
        if fields[field] is None:
            missing[field] = metric.missing["value"] if metric else f"the run has no {name}"
    fields["demand_bytes_per_s"] = _demand(record, accelerators)
    if fields["demand_bytes_per_s"] is None:
        missing["demand_bytes_per_s"] = "the run says no batch, record or step time"
    watts, evidence = _drive_power(record)
    if watts is None:
        missing["drive_w"] = record.power.choice
    if evidence is None:
        missing["drive_w_evidence"] = record.power.choice
    return Measurement(
        accelerators=accelerators,
        repetition=repetition,
        run_id=record.run_id,
        seconds=_seconds(record),
        drive_w=watts,
        drive_w_evidence=evidence,
        faults=tuple(f"{c.name}: {c.sentence}" for c in record.checks if c.verdict == "fail"),
        unproved=tuple(_unproved(record)),
        missing=missing,
        **fields,
    )


def _unproved(record: RunRecord) -> Iterator[str]:
    for check in record.checks:
        is_of_power = check.name.startswith(("power_", "energy_"))
        if check.mandatory and check.verdict == "not_checked" and not is_of_power:
            yield f"{check.name}: {check.sentence}"


def _timed_phase(record: RunRecord) -> str:
    metric = record.metric(RATE)
    return metric.phase if metric else ""


def _seconds(record: RunRecord) -> float:
    """Return the active seconds of the timed phase, on the host where it took longest."""
    phase = _timed_phase(record)
    return max((w.active_s for w in record.timed_windows() if w.name == phase), default=0.0)


def _demand(record: RunRecord, accelerators: int) -> float | None:
    details = record.workload.details
    batch, record_bytes, step_s = (
        details.get(name) for name in ("batch_samples", "record_mean_bytes", "step_s")
    )
    if not batch or not record_bytes or not step_s:
        return None
    return float(accelerators * batch * record_bytes / step_s)


def _drive_power(record: RunRecord) -> tuple[float | None, str | None]:
    """Return the drives' mean watts in the timed phase, summed, and the evidence they rest on."""
    phase = _timed_phase(record)
    chosen = [
        energy
        for energy in record.power.energy
        if energy.chosen and energy.scope is Scope.DRIVE and energy.phase == phase
    ]
    known = [energy.mean_w for energy in chosen if energy.mean_w is not None]
    evidence = " and ".join(sorted({energy.evidence.value for energy in chosen})) or None
    return (sum(known) if known and len(known) == len(chosen) else None), evidence


class Pooled(Frozen):
    """The runs of one count together: mean utilisations, rates as totals over total seconds."""

    accelerators: int
    runs: int
    held: bool
    au_dlio: float | None
    au_nominal: float | None
    samples_per_s: float | None
    read_bytes_per_s: float | None
    drive_w: float | None


def pooled(runs: Sequence[Measurement], threshold: float) -> Pooled:
    """Return the runs of one count, at least one, as one figure each; ``None`` if a part is."""

    def mean(name: str, weights: Sequence[float]) -> float | None:
        values = [getattr(run, name) for run in runs]
        if any(value is None for value in values) or not sum(weights):
            return None
        weighted = zip(values, weights, strict=True)
        return float(sum(value * weight for value, weight in weighted) / sum(weights))

    seconds, each = [run.seconds for run in runs], [1.0] * len(runs)
    return Pooled(
        accelerators=runs[0].accelerators,
        runs=len(runs),
        held=all(run.holds(threshold) for run in runs),
        au_dlio=mean("au_dlio", each),
        au_nominal=mean("au_nominal", each),
        samples_per_s=mean("samples_per_s", seconds),
        read_bytes_per_s=mean("read_bytes_per_s", seconds),
        drive_w=mean("drive_w", seconds),
    )
