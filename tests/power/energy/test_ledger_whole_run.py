"""Energy of the whole run: by the drive's own integral, and by all that was sampled."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.power.energy_facts import facts
from tests.power.energy_traces import ns, samples_of, traces
from wattload.core.power import Boxcar, Evidence, Scope, WindowEnergy
from wattload.core.record.energy import WHOLE_RUN, EnergyRecord
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


def of_own(**changes: object) -> EnergyRecord:
    return own_record(OWN.model_copy(update=changes), Scope.DRIVE, host="box")


def test_a_drives_own_integral_is_one_record_of_its_own_window() -> None:
    record = of_own()
    assert (record.phase, record.source, record.scope) == (WHOLE_RUN, "nvme_25h", Scope.DRIVE)
    assert record.evidence is Evidence.SELF_REPORTED
    assert (record.energy_j, record.max_interval_w) == (12.0 * 100.5, 20.0)
    assert record.mean_w == pytest.approx(12.0)
    assert record.coverage == pytest.approx(100 / 100.5)
    assert not record.chosen
    assert record.missing["statistics"] == "the device reports one mean only"
    assert record.uncertainty_parts_j == pytest.approx(
        {
            "gain": 0.02 * 12.0 * 100.5,
            "quantisation": 2 * 0.01 / math.sqrt(12) * 100.5,
            "gap": 12.0 * 0.5,
        }
    )
    assert record.uncertainty_j == pytest.approx(math.hypot(*record.uncertainty_parts_j.values()))


@pytest.mark.parametrize(
    ("unknown", "part"),
    [
        ("accuracy_percent", "gain"),
        ("resolution_w", "quantisation"),
        ("uncovered_s", "gap"),
        ("max_w", "gap"),
    ],
)
def test_what_the_drive_does_not_state_leaves_the_uncertainty_unknown(
    unknown: str, part: str
) -> None:
    record = of_own(**{unknown: None})
    assert part not in record.uncertainty_parts_j
    assert part in record.missing["uncertainty_j"]
    assert record.energy_j == OWN.energy_j


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"energy_j": None, "reason": "someone else started it"}, "someone else started it"),
        ({"energy_j": 1e12}, "an energy of 1e+12 J in 100.500 s is impossible"),
        ({"end_ns": OWN.start_ns}, "the window is empty"),
    ],
)
def test_an_answer_that_can_not_be_used_is_missing_with_its_reason(
    changes: dict[str, object], reason: str
) -> None:
    record = of_own(**changes)
    for name in ("energy_j", "uncertainty_j", "coverage", "max_interval_w"):
        assert record.missing[name] == reason


def test_what_was_sampled_is_integrated_over_the_same_window() -> None:
    own, ipm = EnergyLedger(traces(SAMPLES), [IPM], host="box").whole_run_records([of_own()])
    assert (ipm.source, ipm.start_ns, ipm.end_ns) == ("ipm", own.start_ns, own.end_ns)
    assert ipm.energy_j == pytest.approx(12.0 * 100.5, rel=1e-5)


def test_without_an_integral_the_samples_span_the_run() -> None:
    (ipm,) = EnergyLedger(traces(SAMPLES), [IPM, facts("other")], host="box").whole_run_records()
    assert (ipm.start_ns, ipm.end_ns) == (ns(0), ns(101.9))
    assert ipm.coverage is not None
    assert ipm.coverage > 0.99


def test_a_quiet_at_either_end_is_no_part_of_what_was_sampled() -> None:
    window = (ns(10.0), ns(90.0))
    (ipm,) = EnergyLedger(traces(SAMPLES), [IPM], host="box").whole_run_records(polled=window)
    assert (ipm.start_ns, ipm.end_ns) == window
    assert ipm.energy_j == pytest.approx(12.0 * 80, rel=1e-5)


def test_bounds_are_no_measurement_of_the_run() -> None:
    ledger = EnergyLedger(traces(SAMPLES), [facts("ipm", Evidence.BOUNDS)], host="box")
    assert ledger.whole_run_records() == ()
