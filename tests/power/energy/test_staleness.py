"""A reading that stands still while a drive works is a hole; flat power in coarse steps is not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.power.energy_facts import activity_of, facts, window
from tests.power.energy_traces import Floats, samples_of
from wattload.core.power import Boxcar, Channel, Evidence, Instant, Sample, Scope, Sensor
from wattload.core.record.energy import EnergyRecord
from wattload.power.energy.ledger import EnergyLedger

TIMES_S = np.round(np.arange(-200, 650) / 10, 6)
WORKS = TIMES_S >= 0
GB = 1e9


def noise(watts: Floats | float, step_w: float, seed: int = 0) -> Floats:
    noisy = watts + np.random.default_rng(seed).normal(0, 0.05, TIMES_S.size)
    return np.round(noisy / step_w) * step_w


def stuck(watts: Floats, from_s: float, to_s: float = 1e9) -> Floats:
    """Return the readings with that of ``from_s`` repeated up to ``to_s``."""
    at = int(np.searchsorted(TIMES_S, from_s))
    return np.where((from_s < TIMES_S) & (to_s > TIMES_S), watts[at], watts)


def counted(bytes_per_s: Floats | float, device: str = "nvme0n1") -> list[Sample]:
    """Return what the block layer counts where so much moves from second 0 on."""
    moved = np.cumsum(np.where(WORKS, bytes_per_s, 0.0)) * 0.1
    channels = {Channel.READ_BYTES: moved, Channel.WRITTEN_BYTES: np.zeros(moved.size)}
    return [
        sample
        for channel, values in channels.items()
        for sample in samples_of(TIMES_S, values, source="block", device=device, channel=channel)
    ]


def record_of(
    watts: Floats,
    *beside: Sequence[Sample],
    step_w: float | None = 0.01,
    sensor: Sensor | None = None,
    scope: Scope = Scope.DRIVE,
    end_s: float = 60,
) -> EnergyRecord:
    source = facts(
        "nvme_ipm", sensor=sensor or Boxcar(window_s=1.0), resolution_w=step_w, scope=scope
    )
    samples = [
        *samples_of(TIMES_S, watts, source="nvme_ipm"),
        *(sample for others in beside for sample in others),
    ]
    phase = window("read", 0, end_s, host="box")
    ledger = EnergyLedger(samples, [source], host="box", activity=activity_of(phase))
    (record,) = ledger.phase_records([phase])
    return record


def test_sensor_that_freezes_in_the_second_half_covers_the_first() -> None:
    """It was 8 W and then 20 W: 840 J, of which a frozen sensor would make 480."""
    true_w = np.where(TIMES_S < 30, noise(8.0, 0.01), noise(20.0, 0.01, 1))
    found = record_of(stuck(true_w, 29.0), counted(np.where(TIMES_S < 30, 1 * GB, 3 * GB)))
    assert found.freshness == "stale"
    assert "changed all the time" in found.freshness_reason
    assert found.stale_s == pytest.approx(31, abs=0.2)
    assert found.coverage == pytest.approx(0.475, abs=0.03)
    assert found.energy_j is None


@pytest.mark.parametrize("step_w", [0.01, 1.0])
def test_sensor_that_tells_idle_all_through_the_work_covers_nothing(step_w: float) -> None:
    found = record_of(np.full(TIMES_S.size, 5.0), counted(6 * GB), step_w=step_w)
    assert (found.freshness, found.coverage) == ("stale", 0.0)
    assert found.freshness_reason == "the drive went from idle to busy or back"


def test_own_readings_tell_that_slow_work_shows() -> None:
    """40 MB/s would be hidden by steps of 1 W; readings before say that this drive shows it."""
    works = WORKS & (TIMES_S % 8 < 4)
    watts = np.where(works, 9.0, 5.0)
    slow = counted(np.where(works, 4e7, 0.0))
    assert record_of(watts, slow, step_w=1.0).freshness == "fresh"
    assert record_of(stuck(watts, 17.0), slow, step_w=1.0).freshness == "stale"


def test_flat_power_in_coarse_steps_is_information() -> None:
    found = record_of(noise(np.where(WORKS, 14.2, 5.1), 1.0), counted(2 * GB), step_w=1.0)
    assert (found.freshness, found.stale_s) == ("fresh", 0.0)
    assert found.coverage == pytest.approx(1)
    assert found.energy_j == pytest.approx(840, rel=0.02)


def test_slow_work_in_steps_that_hide_it_is_neither_stale_nor_fresh() -> None:
    found = record_of(np.full(TIMES_S.size, 5.0), counted(1e8), step_w=1.0)
    assert found.freshness == "unjudged"
    assert "the same at idle and under work" in found.freshness_reason
    assert found.energy_j == pytest.approx(300)


def test_steady_work_of_a_drive_without_noise_is_no_standstill() -> None:
    """Power moves with the work: where this is steady, that may be so too."""
    unsteady = np.random.default_rng(3).uniform(0.5, 1.5, TIMES_S.size // 20 + 1).repeat(20)
    shape = np.where(TIMES_S < 25, unsteady[: TIMES_S.size], 1.5)
    watts = np.asarray(np.round(np.where(WORKS, 5 + 8 * shape, 5.0), 2), np.float64)
    assert record_of(watts, counted(2 * GB * shape)).freshness == "fresh"


def test_another_sensor_of_the_drive_contradicts() -> None:
    watts = noise(10.0, 0.01)
    other = samples_of(TIMES_S, np.where(TIMES_S < 40, 10.0, 15.0), source="meter")
    found = record_of(stuck(watts, 30.0), other)
    assert (found.freshness, found.stale_s > 29) == ("stale", True)
    assert "another sensor" in found.freshness_reason
    agreeing = samples_of(TIMES_S, np.full(TIMES_S.size, 10.0), source="meter")
    assert record_of(stuck(watts, 30.0), agreeing).freshness == "fresh"


def test_two_power_states_alone_are_no_contradiction() -> None:
    states = samples_of(
        TIMES_S, np.where(TIMES_S < 40, 0.0, 1.0), source="nvme", channel=Channel.POWER_STATE
    )
    assert record_of(np.full(TIMES_S.size, 5.0), states).freshness == "unjudged"


def test_without_another_account_it_is_not_told() -> None:
    found = record_of(np.full(TIMES_S.size, 9.0))
    assert found.freshness == "unjudged"
    assert "no other trace shows" in found.freshness_reason
    assert found.energy_j == pytest.approx(540)
    other = record_of(np.full(TIMES_S.size, 9.0), counted(GB, device="nvme1n1"))
    assert other.freshness == "unjudged"


def test_short_phase_is_too_short_to_tell() -> None:
    found = record_of(np.full(TIMES_S.size, 9.0), counted(1e6), end_s=5)
    assert found.freshness == "unjudged"
    assert found.freshness_reason == "the window is shorter than the 10 s needed"


def test_reading_that_is_held_by_its_source_is_given_longer() -> None:
    held = 5 + np.floor(TIMES_S / 12) % 2
    found = record_of(held, counted(6 * GB), sensor=Instant(update_period_s=12.0))
    assert found.freshness == "fresh"


def test_failed_reads_part_a_standstill() -> None:
    """A drive that tells nothing while it sleeps has not repeated itself meanwhile."""
    values = [None if 10 < time_s < 40 else 9.0 for time_s in TIMES_S]
    samples = samples_of(TIMES_S, values, source="nvme_ipm")
    (record,) = EnergyLedger(
        [*samples, *samples_of(TIMES_S, np.where((TIMES_S > 15) & (TIMES_S < 35), 0.4, 9.0))],
        [facts("nvme_ipm", sensor=Boxcar(window_s=1.0))],
        host="box",
    ).phase_records([window("read", 0, 60, host="box")])
    assert record.freshness == "fresh"


def test_more_than_a_drive_is_not_asked() -> None:
    found = record_of(np.full(TIMES_S.size, 5.0), counted(6 * GB), scope=Scope.NODE)
    assert found.freshness == ""
    assert found.coverage == pytest.approx(1)


def test_another_runs_recording_is_not_held_against_this_one() -> None:
    source = facts("replay", Evidence.MEASURED).model_copy(update={"is_recorded": True})
    (record,) = EnergyLedger(
        [*samples_of(TIMES_S, np.full(TIMES_S.size, 5.0), source="replay"), *counted(6 * GB)],
        [source],
        host="box",
    ).phase_records([window("read", 0, 60, host="box")])
    assert (record.freshness, record.stale_s) == ("", 0.0)


def test_data_sheet_is_flat_by_nature() -> None:
    source = facts("declared", Evidence.DECLARED)
    (record,) = EnergyLedger(
        [
            *samples_of(
                TIMES_S,
                np.full(TIMES_S.size, 20.0),
                source="declared",
                evidence=Evidence.DECLARED,
            ),
            *counted(6 * GB),
        ],
        [source],
        host="box",
    ).phase_records([window("read", 0, 60, host="box")], requested="declared")
    assert record.freshness == ""
    assert record.coverage == pytest.approx(1)


def test_sensor_whose_steps_nobody_knows_is_not_told() -> None:
    assert (
        record_of(np.full(TIMES_S.size, 5.0), counted(6 * GB), step_w=None).freshness == "unjudged"
    )
    lately = np.where(TIMES_S < -15, 5.01, 5.0)
    assert record_of(lately, counted(6 * GB), step_w=None).freshness == "stale"
