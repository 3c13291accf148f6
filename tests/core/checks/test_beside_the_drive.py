"""Meters of other devices than the drive: their faults fail no run and bar no verdict on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.core.checks.changed_records import (
    checks,
    record_of,
    with_energy,
    with_power,
    with_source,
)
from tests.core.checks.test_energy import attached, with_lost, with_statistics
from tests.core.checks.test_sensors import stuck, whole
from wattload.core.checks import energy, sensors
from wattload.core.checks.evaluation import evaluate
from wattload.core.checks.verdicts import meter_of
from wattload.core.power import OTHER_SCOPES, Scope
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord


def pair() -> RunRecord:
    record = record_of()
    return with_power(
        record, whole_run=(whole(record, "one", 1200.0), whole(record, "other", 1900.0))
    )


def unknown_coverage() -> RunRecord:
    record = record_of()
    (each,) = record.power.energy
    return with_energy(record, coverage=None, missing={**each.missing, "coverage": "it was lost"})


FAULTS: dict[str, Callable[[], RunRecord]] = {
    "energy_cross_check": pair,
    "power_updates": stuck,
    "power_coverage": lambda: with_energy(record_of(), coverage=0.5),
    "power_coverage_": unknown_coverage,
    "power_statistics": lambda: with_statistics(peak_1s_w=-3.0),
    "wall_clock": lambda: attached(ntp_offset_s=50.0, ntp_error_s=0.1, ntp_max_error_s=0.2),
    "power_data_lost": lambda: with_lost(record_of(), "its program exited with 1"),
    "power_of_this_run": lambda: with_source(record_of(), is_recorded=True),
}
"""Records with a fault of the drive's meter, by the beginning of the check that sees it."""
DOUBTED = [name for name in FAULTS if name not in ("power_coverage_", "power_of_this_run")]
"""Faults that put another device's meter in doubt: an unknown is none, nor is a recording."""


def of_scope(record: RunRecord, scope: Scope) -> RunRecord:
    """Return the record with the same meters and readings, of another device."""
    moved = with_source(with_energy(record, scope=scope), scope=scope)
    parts = tuple(each.model_copy(update={"scope": scope}) for each in record.power.whole_run)
    hosts = tuple(
        each.model_copy(
            update={
                "data_lost": tuple(
                    lost.model_copy(update={"scope": scope}) for lost in each.data_lost
                )
            }
        )
        for each in record.power.hosts
    )
    return with_power(moved, whole_run=parts, hosts=hosts)


def harmful(found: Sequence[Check]) -> list[str]:
    return [c.name for c in found if c.verdict == "fail" or (c.mandatory and c.verdict != "pass")]


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_meter_of_the_drive_harms(name: str) -> None:
    assert harmful(checks(FAULTS[name](), name))


@pytest.mark.parametrize("scope", OTHER_SCOPES)
@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_meter_beside_the_drive_does_not(name: str, scope: Scope) -> None:
    record = of_scope(FAULTS[name](), scope)
    found = [each for each in checks(record, name) if each.name != "power_coverage"]
    assert harmful(found) == []
    without = with_power(record, energy=(), whole_run=(), sources=())
    assert set(harmful(evaluate(record))) <= set(harmful(evaluate(without)))


@pytest.mark.parametrize("scope", OTHER_SCOPES)
@pytest.mark.parametrize("name", DOUBTED)
def test_a_faulty_meter_beside_the_drive_is_doubted(name: str, scope: Scope) -> None:
    record = of_scope(FAULTS[name](), scope)
    power = record.power
    energies = power.whole_run if name == "energy_cross_check" else power.energy
    meters = {meter_of(each) for each in energies if each.source != "nvme_ipm"}  # which changed
    found = [each for each in checks(record, name) if each.doubted_meters]
    assert {meter for each in found for meter in each.doubted_meters} == meters
    assert all("is not checked; the drive's figures do" in each.sentence for each in found)


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_meter_of_the_drive_is_no_doubted_one(name: str) -> None:
    assert not any(each.doubted_meters for each in evaluate(FAULTS[name]()))


def test_the_energy_of_a_doubted_meter_is_not_checked_and_says_why() -> None:
    record = of_scope(FAULTS["power_updates"](), Scope.GPU)
    (found,) = checks(record, "power_updates")
    assert (found.verdict, found.mandatory, found.bars_energy) == ("not_checked", False, False)
    assert found.sentence.endswith(
        "it was stuck. So the energy of this GPU is not checked; the drive's figures do "
        "not depend on it."
    )


def test_every_rule_on_power_has_a_fault_here() -> None:
    """A new rule has to say whether it is of the drive's meter alone."""
    of_the_drive = {
        energy.energy_remarks,
        energy.energy_tail,
        sensors.energy_lifetime,
        sensors.power_within_bounds,
        sensors.sensor_calibrated,
    }
    seen = set()
    for module in (energy, sensors):
        rules = [
            getattr(module, name)
            for name in vars(module)
            if getattr(vars(module)[name], "__module__", "") == module.__name__
            and getattr(vars(module)[name], "__annotations__", {})
            == {"record": "RunRecord", "return": "Sequence[Check]"}
        ]
        for rule in rules:
            if any(harmful(rule(make())) for make in FAULTS.values()):
                seen.add(rule)
            else:
                assert rule in of_the_drive, rule
    assert not seen & of_the_drive
