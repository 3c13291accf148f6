"""Energy of the whole run: by the drive's own integral, and by all that was sampled."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.power.energy_facts import facts
from tests.power.energy_traces import ns, samples_of
from wattload.core.power import Boxcar, Evidence, Scope, WindowEnergy
from wattload.core.record.energy import WHOLE_RUN
from wattload.power.energy.drive_integrals import own_record
from wattload.power.energy.ledger import EnergyLedger

OWN = WindowEnergy(
    source="nvme_25h",
    device="SERIAL1",
    start_ns=ns(0.4),
    end_ns=ns(100.9),
    energy_j=12.0 * 100.5,
    evidence=Evidence.SELF_REPORTED,
    accuracy_percent=2.0,
    resolution_w=0.01,
    uncovered_s=0.5,
    max_w=20.0,
)
IPM = facts("ipm", sensor=Boxcar(window_s=1.0, update_period_s=0.0))
TIMES_S = np.round(np.arange(0, 1020) / 10, 6)
SAMPLES = samples_of(TIMES_S, np.full(TIMES_S.size, 12.0), source="ipm")


def test_a_drives_own_integral_is_one_record_of_its_own_window() -> None:
    record = own_record(OWN, Scope.DRIVE, host="box")
    assert (record.phase, record.source) == (WHOLE_RUN, "nvme_25h")
    assert record.evidence is Evidence.SELF_REPORTED
    assert record.energy_j == 12.0 * 100.5
    assert record.mean_w == pytest.approx(12.0)
    assert record.coverage == pytest.approx(100 / 100.5)
    assert not record.chosen
    assert record.scope is Scope.DRIVE
    assert record.max_interval_w == 20.0
    assert record.missing["statistics"] == "the device reports one mean only"


def test_its_uncertainty_is_what_the_drive_states_its_step_and_what_it_left_out() -> None:
    record = own_record(OWN, Scope.DRIVE, host="box")
    assert record.uncertainty_parts_j == pytest.approx(
        {
            "gain": 0.02 * 12.0 * 100.5,
            "quantisation": 2 * 0.01 / math.sqrt(12) * 100.5,
            "gap": 12.0 * 0.5,
        }
    )
    assert record.uncertainty_j == pytest.approx(math.hypot(*record.uncertainty_parts_j.values()))


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"accuracy_percent": None}, "gain"),
        ({"resolution_w": None}, "quantisation"),
        ({"uncovered_s": None}, "gap"),
        ({"max_w": None}, "gap"),
    ],
)
def test_what_the_drive_does_not_state_leaves_the_uncertainty_unknown(
    changed: dict[str, None], part: str
) -> None:
    record = own_record(OWN.model_copy(update=changed), Scope.DRIVE, host="box")
    assert record.uncertainty_j is None
    assert part not in record.uncertainty_parts_j
    assert part in record.missing["uncertainty_j"]
    assert record.energy_j == OWN.energy_j


def test_an_answer_that_can_not_be_used_is_missing_with_its_reason() -> None:
    reason = "it was started anew by someone else"
    unusable = OWN.model_copy(update={"energy_j": None, "reason": reason})
    record = own_record(unusable, Scope.DRIVE, host="box")
    for name in ("energy_j", "uncertainty_j", "max_interval_w"):
        assert record.missing[name] == reason


def test_what_was_sampled_is_integrated_over_the_same_window() -> None:
    record = own_record(OWN, Scope.DRIVE, host="box")
    own, ipm = EnergyLedger(SAMPLES, [IPM], host="box").whole_run_records([record])
    assert own == record
    assert (ipm.source, ipm.start_ns, ipm.end_ns) == ("ipm", own.start_ns, own.end_ns)
    assert ipm.energy_j == pytest.approx(12.0 * 100.5, rel=1e-5)


def test_without_an_integral_the_samples_span_the_run() -> None:
    (ipm,) = EnergyLedger(SAMPLES, [IPM, facts("other")], host="box").whole_run_records()
    assert (ipm.start_ns, ipm.end_ns) == (ns(0), ns(101.9))
    assert ipm.coverage is not None
    assert ipm.coverage > 0.99


def test_a_quiet_at_either_end_is_no_part_of_what_was_sampled() -> None:
    window = (ns(10.0), ns(90.0))
    (ipm,) = EnergyLedger(SAMPLES, [IPM], host="box").whole_run_records(polled=window)
    assert (ipm.start_ns, ipm.end_ns) == window
    assert ipm.energy_j == pytest.approx(12.0 * 80, rel=1e-5)


def test_bounds_are_no_measurement_of_the_run() -> None:
    ledger = EnergyLedger(SAMPLES, [facts("ipm", Evidence.BOUNDS)], host="box")
    assert ledger.whole_run_records() == ()
