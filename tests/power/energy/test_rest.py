"""The tail: net energy in the rest behind a phase, from the end of its last interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.power.energy.simulated_runs import (
    IDLE_W,
    KINDS,
    calibration,
    collecting_late,
    outcome,
    phase_window,
)
from tests.power.energy_facts import facts, times_of, window
from tests.power.energy_traces import Floats, ns, samples_of, traces
from wattload.core.record.energy import EnergyRecord
from wattload.core.record.phase import PhaseWindow
from wattload.power.energy.activity import Activity
from wattload.power.energy.ledger import EnergyLedger

TIMES_S = np.round(np.arange(-600, 750) / 10, 6)
SAVE = window("save", 0, 20)
REST = (20.0, 50.0)


def watts(*drains: tuple[float, float], drain_w: float = 9.0, idle_w: float = IDLE_W) -> Floats:
    """Return power that is high in the phase and higher than idle in some times after it."""
    found = np.where((TIMES_S > 0) & (TIMES_S < 20), 15.0, np.where(TIMES_S < 10, IDLE_W, idle_w))
    for start_s, end_s in drains:
        found[(start_s < TIMES_S) & (end_s > TIMES_S)] = drain_w
    return found


def recorded(
    values: Floats | Sequence[float | None],
    phases: Sequence[PhaseWindow] = (SAVE,),
    *,
    rests: Sequence[tuple[float, float]] = (REST,),
    after_s: tuple[float, float] | None = (50.0, 70.0),
    others: Sequence[Activity] = (),
) -> tuple[EnergyRecord, ...]:
    ledger = EnergyLedger(
        traces(samples_of(TIMES_S, values)),
        [facts("meter", accuracy_percent=0.1)],
        host="host1",
        times=times_of(
            *phases,
            before=(ns(-60), ns(-1)),
            after=None if after_s is None else (ns(after_s[0]), ns(after_s[1])),
            rests=[(ns(a), ns(b)) for a, b in rests],
            others=others,
        ),
    )
    return ledger.phase_records(phases)


def test_tail_is_what_a_drive_uses_above_idle() -> None:
    (found,) = recorded(watts((20, 28)))
    assert found.energy_j == pytest.approx(15 * 20, rel=0.01)
    assert found.tail_j == pytest.approx(4 * 8, abs=1)
    assert found.work_j == pytest.approx(15 * 20 + 4 * 8, rel=0.005)
    assert found.rest_s == 30
    assert not found.is_at_least
    assert found.tail_uncertainty_j is not None
    assert found.work_uncertainty_j is not None
    assert found.uncertainty_j is not None


@pytest.mark.parametrize("end_s", [24.0, 27.0, 32.0])
def test_rest_cut_short_says_at_least(end_s: float) -> None:
    (found,) = recorded(watts((20, 40)), rests=[(20.0, end_s)])
    assert found.tail_j == pytest.approx(4 * (end_s - 20), abs=1)
    assert found.is_at_least


def test_garbage_collection_after_the_rest_is_not_noticed() -> None:
    for seed in range(3):
        found = outcome(replace(KINDS[0], load=collecting_late), seed).records[-1]
        assert not found.is_at_least
        assert found.tail_j is not None
        assert found.tail_uncertainty_j is not None
        assert abs(found.tail_j) <= found.tail_uncertainty_j


def test_drive_that_does_not_return_to_idle_is_remarked() -> None:
    (found,) = recorded(watts(idle_w=7.0))
    assert found.tail_j == pytest.approx(0, abs=1)
    assert found.tail_uncertainty_j is not None
    assert found.tail_uncertainty_j >= 30
    assert any(
        each.startswith("idle power was 5 W before the job and 7 W") for each in found.remarks
    )


def test_drift_too_small_for_a_remark_is_in_the_uncertainty() -> None:
    (found,) = recorded(watts(idle_w=IDLE_W + 0.4))
    values = watts()
    values[TIMES_S > 50] += 0.4
    (late,) = recorded(values)
    for each, true_j in (found, 0.4 * 30), (late, 0.0):
        assert each.tail_j is not None
        assert each.tail_uncertainty_j is not None
        assert each.tail_uncertainty_j >= 0.4 * 30
        assert abs(each.tail_j - true_j) <= each.tail_uncertainty_j
        assert not any(text.startswith("idle power") for text in each.remarks)


def test_meter_that_dies_in_the_rest_gives_no_tail() -> None:
    values = [float(w) if s < 30 else None for s, w in zip(TIMES_S, watts((20, 28)), strict=True)]
    (found,) = recorded(values)
    assert found.energy_j == pytest.approx(15 * 20, rel=0.01)
    assert (found.tail_j, found.work_j, found.tail_uncertainty_j) == (None, None, None)
    assert "of the time; at least 95 % are required" in found.missing["tail_j"]


def test_idle_power_before_the_job_stands_in_with_a_remark() -> None:
    (found,) = recorded(watts((20, 28)), after_s=None)
    assert found.tail_j == pytest.approx(4 * 8, abs=1)
    assert found.tail_uncertainty_j is not None
    assert found.tail_uncertainty_j >= 0.1 * IDLE_W * 30
    assert any("idle power after the job was not measured" in each for each in found.remarks)


def test_work_in_the_rest_leaves_no_tail() -> None:
    scrub = Activity(start_ns=ns(25), end_ns=ns(30), name="scrub")
    (found,) = recorded(watts((25, 30)), others=[scrub])
    assert found.missing["tail_j"] == "scrub ran in its rest"


def test_the_last_phase_before_a_rest_has_the_tail() -> None:
    first, second = recorded(watts(), [window("write", 0, 12), window("read", 12, 20)])
    assert first.missing["tail_j"] == "no tail of its own: read came before the rest"
    assert second.tail_j == pytest.approx(0, abs=1)
    (both,) = recorded(watts(), [window("whole", 0, 20)])
    assert (first.energy_j or 0) + (second.energy_j or 0) == pytest.approx(both.energy_j)


def test_pauses_of_a_job_are_its_rests_too() -> None:
    halves = phase_window("save", ((0, 8), (14, 20)))
    values = watts()
    values[(TIMES_S > 8) & (TIMES_S < 14)] = IDLE_W
    values[(TIMES_S > 8) & (TIMES_S < 10)] = 9.0
    (found,) = recorded(values, [halves], rests=[(8.0, 14.0), REST])
    assert found.rest_s == 36
    assert found.tail_j == pytest.approx(4 * 2, abs=2)


def test_pause_without_a_rest_leaves_no_tail() -> None:
    halves = phase_window("save", ((0, 8), (14, 20)))
    (found,) = recorded(watts((8, 12)), [halves])
    assert found.missing["tail_j"] == "1 of 2 intervals have a rest behind them"
    read = window("read", 8, 13)
    save, _ = recorded(watts((8, 12)), [halves, read])
    assert save.tail_j is not None, "the energy behind the first half is in the window of read"


def test_without_a_rest_no_phase_precedes_one() -> None:
    for each in recorded(watts(), [window("write", 0, 12), window("read", 12, 20)], rests=[]):
        assert each.missing["tail_j"] == "no rest followed it"


@pytest.mark.parametrize(("begun_s", "rest_s"), [(18.5, 0.0), (19.2, 29.2), (20.9, 30.9)])
def test_rest_begins_when_the_last_rank_ends(begun_s: float, rest_s: float) -> None:
    (found,) = recorded(watts(), rests=[(begun_s, begun_s + 30)])
    assert found.rest_s == pytest.approx(rest_s)


def test_calibration_of_another_drive_is_not_used() -> None:
    kind, rng = KINDS[0], np.random.default_rng(0)
    made = calibration(kind, kind.sensor(rng), rng)
    assert made is not None
    for device, basis in (("SERIAL1", "calibrated"), ("SERIAL2", "declared")):
        ledger = EnergyLedger(
            traces(samples_of(TIMES_S, watts())),
            [kind.facts],
            host="host1",
            calibrations=[made.model_copy(update={"device": device})],
        )
        sensor = ledger.sensor(kind.facts)
        assert sensor is not None
        assert sensor.basis == basis
