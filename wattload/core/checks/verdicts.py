"""How a check is made: of what is unknown, of what holds, of which host, and of which meter."""

from __future__ import annotations

from collections.abc import Mapping

from wattload.core.power import OTHER_SCOPES, Scope
from wattload.core.record.energy import EnergyRecord
from wattload.core.record.results import NO_DRIVE, Check, Meter, Verdict
from wattload.core.record.run import RunRecord

Figures = Mapping[str, float | int | str | None]

SIGMAS = 3.0
"""By so many of its standard uncertainties a finding must exceed a limit to fail a check."""
CERTAIN = SIGMAS / 2
"""The same in stated uncertainties, which are at k = 2."""


def of_host(record: RunRecord, host: str) -> str:
    """Return the suffix of a check's name for a host; empty if the run has one host."""
    return f"_{host}" if len(record.hosts) > 1 else ""


def on_host(record: RunRecord, host: str, check: Check) -> Check:
    """Return a check whose name ends with that of its host, if the run has several."""
    return check.model_copy(update={"name": check.name + of_host(record, host)})


def unknown(
    name: str,
    sentence: str,
    *,
    cause: str = "",
    figures: Figures | None = None,
    mandatory: bool = False,
) -> Check:
    """Return a check that could not be made; the sentence says why."""
    return Check(
        name=name,
        verdict="not_checked",
        sentence=sentence,
        cause=cause,
        figures=figures or {},
        mandatory=mandatory,
    )


def no_drive(name: str, what: str) -> Check:
    """Return a check of a drive on a host that has none under the target."""
    sentence = f"There is no NVMe controller under the target, so {what} is unknown."
    return unknown(name, sentence, cause=NO_DRIVE)


def judged(
    name: str,
    sentence: str,
    fault: str,
    *,
    holds: bool,
    figures: Figures,
    worst: Verdict = "warn",
    mandatory: bool = False,
) -> Check:
    """Return a check that passes if it ``holds``, and has the verdict ``worst`` if not.

    ``sentence`` has no full stop; ``fault`` is added to it if the check does not hold.
    """
    return Check(
        name=name,
        verdict="pass" if holds else worst,
        sentence=f"{sentence}{'' if holds else fault}.",
        figures=figures,
        mandatory=mandatory,
    )


def meter_of(energy: EnergyRecord) -> Meter:
    """Return the meter from whose readings an energy is made."""
    return energy.host, energy.source, energy.device


def of_meter(scope: Scope, check: Check, *meters: Meter) -> Check:
    """Return a check of meters' readings with the verdict that the meters' scope allows.

    A meter of a GPU or of a node measures nothing of the drive. What would fail the run, or keep
    the energy from being compared, if it were the drive's leaves the energy of its own device
    unchecked: it never fails the run and never bars a verdict on the drive.
    """
    if scope is Scope.DRIVE:
        return check
    changes: dict[str, object] = {"mandatory": False}
    if check.verdict == "fail" or check.bars_verdict:
        changes["verdict"] = "not_checked"
        changes["doubted_meters"] = meters
        changes["sentence"] = (
            f"{check.sentence} So the energy of this {OTHER_SCOPES[scope]} is not checked; the "
            "drive's figures do not depend on it."
        )
    return check.model_copy(update=changes)
