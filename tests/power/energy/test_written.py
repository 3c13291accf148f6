"""Bytes that drives count themselves, per phase: interpolated, and refused where they mislead."""

from __future__ import annotations

import numpy as np
import pytest

from tests.power.energy_facts import facts, window
from tests.power.energy_traces import Floats, samples_of
from wattload.core.power import ENDURANCE_GROUP, OCP, SMART, Channel, Sample
from wattload.core.record.energy import WrittenRecord
from wattload.core.record.phase import PhaseWindow
from wattload.power.energy.ledger import EnergyLedger

RATE = 2_000_000_000.0
TIMES_S = np.arange(-5.0, 2005.0, 10.0)
PHASE = window("write", 98.0, 1702.0)


def counts(
    host: Floats, media: Floats | None, *, times_s: Floats = TIMES_S, log: str = OCP
) -> list[Sample]:
    found = samples_of(times_s, host, channel=Channel.HOST_WRITTEN_BYTES, source=SMART)
    if media is not None:
        found += samples_of(times_s, media, channel=Channel.MEDIA_WRITTEN_BYTES, source=log)
    return found


def of(samples: list[Sample], phase: PhaseWindow = PHASE) -> WrittenRecord:
    (found,) = EnergyLedger(samples, [], host="host1").written_records([phase])
    return found


def test_counts_are_interpolated_at_the_edges_of_the_phase() -> None:
    found = of(counts(1e12 + RATE * TIMES_S, 5e12 + 2.5 * RATE * TIMES_S))
    assert (found.device, found.phase, found.media_source) == ("SERIAL1", "write", "ocp")
    assert found.host_written_bytes == pytest.approx(RATE * 1604, abs=1)
    assert found.media_written_bytes == pytest.approx(2.5 * RATE * 1604, abs=1)
    assert found.write_amplification == pytest.approx(2.5, rel=1e-9)
    assert not found.missing


def test_pauses_of_a_phase_are_left_out() -> None:
    base_ns = PHASE.start_ns
    parts = ((base_ns, base_ns + 700 * 10**9), (PHASE.end_ns - 800 * 10**9, PHASE.end_ns))
    found = of(counts(RATE * TIMES_S, None), PHASE.model_copy(update={"intervals": parts}))
    assert found.host_written_bytes == pytest.approx(RATE * 1500, abs=1)


def test_a_drive_without_a_count_of_media_bytes_says_so() -> None:
    found = of(counts(RATE * TIMES_S, None))
    assert found.host_written_bytes is not None
    assert found.missing == dict.fromkeys(
        ("media_written_bytes", "write_amplification", "media_source"),
        "the drive reports no count of media bytes",
    )


@pytest.mark.parametrize("at_s", [500.0, 95.0, 1695.0])
def test_a_count_that_falls_in_the_phase_gives_no_figure(at_s: float) -> None:
    host = RATE * (TIMES_S + 10)
    host[at_s + 5 < TIMES_S + 0.1] -= RATE * 100
    found = of(counts(host, RATE * TIMES_S))
    assert found.host_written_bytes is None
    assert found.missing["host_written_bytes"].startswith("it fell from ")
    assert found.missing["write_amplification"] == found.missing["host_written_bytes"]
    assert found.media_written_bytes is not None


def test_a_fall_outside_of_the_phase_does_not_matter() -> None:
    host = RATE * TIMES_S
    host[TIMES_S > 1800] = 0
    assert of(counts(host, None)).host_written_bytes is not None


def test_readings_over_a_minute_from_an_edge_give_no_figure() -> None:
    far = TIMES_S[(TIMES_S < 30) | (TIMES_S > 160)]
    found = of(counts(RATE * far, None, times_s=far))
    assert found.missing["host_written_bytes"] == "it was not read within 60 s of an edge"


@pytest.mark.parametrize("kept", [TIMES_S > 100, TIMES_S < 1700])
def test_a_phase_that_no_reading_precedes_or_follows_has_no_figure(kept: np.ndarray) -> None:
    found = of(counts(RATE * TIMES_S[kept], None, times_s=TIMES_S[kept]))
    reason = "it was not read both before and after the phase"
    assert found.missing["host_written_bytes"] == reason


def test_a_failed_read_is_passed_over() -> None:
    host = RATE * TIMES_S
    host[20] = np.nan
    assert of(counts(host, None)).host_written_bytes == pytest.approx(RATE * 1604, abs=1)


def test_a_count_in_steps_of_over_a_hundredth_gives_no_figure() -> None:
    slow = 60e6  # 96 GB in the phase, 96 steps of a log that counts in 10^9 bytes
    media = np.floor(slow * TIMES_S / 1e9) * 1e9
    found = of(counts(slow * TIMES_S, media, log=ENDURANCE_GROUP))
    assert found.media_source == "endurance_group"
    assert (
        "counts in steps of 1000000000 B: under 100 steps" in (found.missing["media_written_bytes"])
    )
    assert found.host_written_bytes is not None


def test_a_phase_without_writes_has_no_amplification() -> None:
    still = np.full(TIMES_S.size, 1e12)
    assert "it grew by 0 B" in of(counts(still, still)).missing["write_amplification"]


def test_a_phase_too_short_for_the_time_between_readings_gives_no_figure() -> None:
    found = of(counts(RATE * TIMES_S, None), window("write", 98.0, 158.0))
    assert (
        "between two readings of the count; at most 5% is allowed"
        in (found.missing["host_written_bytes"])
    )


def test_untimed_phases_and_other_sources_have_no_record() -> None:
    ledger = EnergyLedger(counts(RATE * TIMES_S, None), [], host="host1")
    assert not ledger.written_records([window("fill", 98, 1702, timed=False)])
    assert not ledger.written_records([window("write", 98, 1702, host="other")])
    assert not EnergyLedger(
        samples_of(TIMES_S, TIMES_S), [facts("meter")], host="host1"
    ).written_records([PHASE])
