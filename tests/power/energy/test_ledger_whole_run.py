"""Energy of the whole run: by the drive's own integral, and by all that was sampled."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.power.energy_facts import facts
from tests.power.energy_traces import ns, samples_of
from wattload.core.power import Boxcar, Channel, Counter, Evidence, Scope, WindowEnergy
from wattload.core.record.energy import WHOLE_RUN, EnergyRecord
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


def own_record(own: WindowEnergy) -> EnergyRecord:
    (record,) = EnergyLedger([], [], host="box").whole_run_records([own])
    return record


def test_a_drives_own_integral_is_one_record_of_its_own_window() -> None:
    record = own_record(OWN)
    assert (record.phase, record.source, record.evidence) == (
        WHOLE_RUN,
        "nvme_25h",
        Evidence.SELF_REPORTED,
    )
    assert record.energy_j == 12.0 * 100.5
    assert record.mean_w == pytest.approx(12.0)
    assert record.seconds == pytest.approx(100.5)
    assert record.coverage == pytest.approx(100 / 100.5)
    assert not record.chosen
    assert record.scope is Scope.DRIVE
    assert record.max_interval_w == 20.0
    assert record.missing["statistics"] == "the device reports one mean only"


def test_its_uncertainty_is_what_the_drive_states_its_step_and_what_it_left_out() -> None:
    record = own_record(OWN)
    assert record.uncertainty_parts_j == pytest.approx(
        {
            "gain": 0.02 * 12.0 * 100.5,
            "quantisation": 2 * 0.01 / math.sqrt(12) * 100.5,
            "gap": 12.0 * 0.5,
        }
    )
    assert record.uncertainty_j == pytest.approx(math.hypot(*record.uncertainty_parts_j.values()))


def test_a_window_that_is_covered_whole_has_no_gap() -> None:
    record = own_record(OWN.model_copy(update={"uncovered_s": 0.0, "max_w": None}))
    assert record.uncertainty_parts_j["gap"] == 0
    assert record.coverage == 1


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
    record = own_record(OWN.model_copy(update=changed))
    assert record.uncertainty_j is None
    assert part not in record.uncertainty_parts_j
    assert part in record.missing["uncertainty_j"]
    assert record.energy_j == OWN.energy_j


def test_an_answer_that_can_not_be_used_is_missing_with_its_reason() -> None:
    record = own_record(
        OWN.model_copy(update={"energy_j": None, "reason": "it was started anew by someone else"})
    )
    assert record.energy_j is None
    assert record.missing["energy_j"] == "it was started anew by someone else"
    assert record.missing["uncertainty_j"] == "it was started anew by someone else"
    assert record.missing["max_interval_w"] == "it was started anew by someone else"


def test_a_window_without_length_has_no_energy() -> None:
    record = own_record(OWN.model_copy(update={"end_ns": OWN.start_ns}))
    assert record.missing["energy_j"] == "the window is empty"


def test_what_was_sampled_is_integrated_over_the_same_window() -> None:
    own, ipm = EnergyLedger(SAMPLES, [IPM], host="box").whole_run_records([OWN])
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


def test_a_counter_in_watt_hours_is_told_with_the_reason_it_is_no_figure() -> None:
    lifetime = facts("nvme_lifetime", sensor=Counter(quantum_j=3600))
    counts = samples_of(TIMES_S, np.full(TIMES_S.size, 7200.0), source="nvme_lifetime",
                        channel=Channel.ENERGY_J)  # fmt: skip
    records = EnergyLedger(SAMPLES + counts, [IPM, lifetime], host="box").whole_run_records([OWN])
    (found,) = [record for record in records if record.source == "nvme_lifetime"]
    assert "too coarse" in found.missing["energy_j"]


def test_bounds_are_no_measurement_of_the_run() -> None:
    assert (
        EnergyLedger(SAMPLES, [facts("ipm", Evidence.BOUNDS)], host="box").whole_run_records() == ()
    )


def test_restart_of_a_drive_reaches_the_whole_run_of_its_counter() -> None:
    """It began again at nothing while nobody could read it, and was soon beyond where it had been.

    What it counted between is no difference of the two counts.
    """
    times_s = np.arange(0.0, 101.0)
    joules = np.where(times_s < 2, 10 * times_s, 10 * (times_s - 2.5))
    kept = (times_s < 2) | (times_s >= 4)
    samples = samples_of(times_s[kept], joules[kept], source="rail", channel=Channel.ENERGY_J)
    rail = facts("rail", sensor=Counter(quantum_j=0.001)).model_copy(update={"period_s": 1.0})
    restarts = {"SERIAL1": [ns(3.0)]}
    (known,) = EnergyLedger(samples, [rail], host="box", resets_ns=restarts).whole_run_records()
    (unknown,) = EnergyLedger(samples, [rail], host="box").whole_run_records()
    assert unknown.coverage == pytest.approx(1.0)
    assert unknown.energy_j == pytest.approx(975.0, rel=0.005)
    assert known.coverage == pytest.approx(0.97)
    assert known.energy_j == pytest.approx(1000.0, rel=0.005)
