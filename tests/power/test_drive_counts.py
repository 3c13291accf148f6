"""What drives count themselves, per phase: throttling by samples, bytes interpolated."""

from __future__ import annotations

import numpy as np
import pytest

from tests.power.energy_facts import window
from tests.power.energy_traces import Floats, samples_of, traces
from wattload.core.power import ENDURANCE_GROUP, OCP, SMART, Channel, Sample
from wattload.core.record.energy import ThrottlingRecord, WrittenRecord
from wattload.core.record.phase import PhaseWindow
from wattload.power.drive_counts import throttling_records, written_records

SECONDS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)


def counted(
    seconds: tuple[float | None, ...], entries: tuple[float | None, ...] = (0.0,) * 8
) -> list[Sample]:
    return [
        *samples_of(SECONDS, seconds, channel=Channel.THROTTLED_S),
        *samples_of(SECONDS, entries, channel=Channel.THERMAL_TRANSITIONS),
    ]


def heat(samples: list[Sample], phase: PhaseWindow) -> ThrottlingRecord:
    (found,) = throttling_records(traces(samples), [phase], host="host1")
    return found


def test_heat_before_a_phase_is_none_of_it() -> None:
    samples = counted((0, 2, 4, 4, 4, 4, 4, 4), (0, 1, 1, 1, 1, 1, 1, 1))
    found = heat(samples, window("read", 2.5, 6.0))
    assert (found.device, found.phase) == ("SERIAL1", "read")
    assert (found.transition_count, found.throttled_s) == (0, 0)


def test_heat_in_a_phase_is_counted_to_the_reads_around_it() -> None:
    samples = counted((0, 0, 0, 0, 1, 2, 3, 9), (0, 0, 0, 1, 1, 1, 1, 1))
    found = heat(samples, window("read", 2.5, 5.5))
    assert (found.transition_count, found.throttled_s) == (1, 3)


def test_drive_that_throttles_all_through_counts_seconds_without_an_entry() -> None:
    found = heat(counted(SECONDS), window("read", 2.0, 5.0))
    assert (found.transition_count, found.throttled_s) == (0, 3)


def test_heat_in_pauses_of_a_phase_is_left_out() -> None:
    phase = window("read", 1.0, 6.0)
    both = ((phase.start_ns, phase.start_ns + 10**9), (phase.end_ns - 10**9, phase.end_ns))
    found = heat(counted((0, 0, 0, 5, 5, 5, 6, 6)), phase.model_copy(update={"intervals": both}))
    assert found.throttled_s == 1


def test_what_grew_between_two_reads_is_counted_once_for_all_intervals_in_between() -> None:
    phase = window("write", 1.2, 3.6)
    base_ns = phase.start_ns
    many = tuple((base_ns + k * 300_000_000, base_ns + k * 300_000_000 + 10**8) for k in range(9))
    found = heat(counted((0, 0, 4, 5, 5, 5, 5, 5)), phase.model_copy(update={"intervals": many}))
    assert found.throttled_s == 5


@pytest.mark.parametrize(
    ("seconds", "reason"),
    [
        ((None, None, None, 0, 0, 0, 0, 0), "not read both before and after"),
        ((0, 0, 0, 0, 0, None, None, None), "not read both before and after"),
        ((5, 5, 5, 5, 0, 0, 9, 9), "it decreased"),
    ],
)
def test_counter_that_tells_nothing_of_a_phase_says_why(
    seconds: tuple[float | None, ...], reason: str
) -> None:
    found = heat(counted(seconds), window("read", 2.0, 6.0))
    assert found.throttled_s is None
    assert reason in found.missing["throttled_s"]
    assert found.transition_count == 0


def test_one_counter_alone_is_told_with_the_other_missing() -> None:
    samples = samples_of(SECONDS, SECONDS, channel=Channel.THROTTLED_S)
    found = heat(samples, window("read", 2.0, 5.0))
    assert found.missing == {"transition_count": "it was not read"}


def test_only_timed_phases_of_the_host_and_drives_with_counters_have_a_record() -> None:
    untimed, elsewhere = window("idle", 1, 2, timed=False), window("read", 1, 2, host="other")
    by_key, others = traces(counted(SECONDS)), traces(samples_of(SECONDS, SECONDS))
    assert throttling_records(by_key, [untimed, elsewhere], host="host1") == ()
    assert throttling_records(others, [window("read", 1, 2)], host="host1") == ()


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


def written(samples: list[Sample], phase: PhaseWindow = PHASE) -> WrittenRecord:
    (found,) = written_records(traces(samples), [phase], host="host1")
    return found


def test_counts_are_interpolated_at_the_edges_of_the_phase() -> None:
    found = written(counts(1e12 + RATE * TIMES_S, 5e12 + 2.5 * RATE * TIMES_S))
    assert (found.device, found.phase, found.media_source) == ("SERIAL1", "write", "ocp")
    assert found.host_written_bytes == pytest.approx(RATE * 1604, abs=1)
    assert found.media_written_bytes == pytest.approx(2.5 * RATE * 1604, abs=1)
    assert found.write_amplification == pytest.approx(2.5, rel=1e-9)
    assert not found.missing


def test_bytes_in_pauses_of_a_phase_are_left_out() -> None:
    base_ns = PHASE.start_ns
    parts = ((base_ns, base_ns + 700 * 10**9), (PHASE.end_ns - 800 * 10**9, PHASE.end_ns))
    found = written(counts(RATE * TIMES_S, None), PHASE.model_copy(update={"intervals": parts}))
    assert found.host_written_bytes == pytest.approx(RATE * 1500, abs=1)


def test_a_drive_without_a_count_of_media_bytes_says_so() -> None:
    found = written(counts(RATE * TIMES_S, None))
    assert found.host_written_bytes is not None
    assert found.missing == dict.fromkeys(
        ("media_written_bytes", "write_amplification", "media_source"),
        "the drive reports no count of media bytes",
    )


@pytest.mark.parametrize("at_s", [500.0, 95.0, 1695.0])
def test_a_count_that_falls_in_the_phase_gives_no_figure(at_s: float) -> None:
    host = RATE * (TIMES_S + 10)
    host[at_s + 5 < TIMES_S + 0.1] -= RATE * 100
    found = written(counts(host, RATE * TIMES_S))
    assert found.host_written_bytes is None
    assert found.missing["host_written_bytes"].startswith("it fell from ")
    assert found.missing["write_amplification"] == found.missing["host_written_bytes"]
    assert found.media_written_bytes is not None


def test_a_fall_outside_of_the_phase_does_not_matter() -> None:
    host = RATE * TIMES_S
    host[TIMES_S > 1800] = 0
    assert written(counts(host, None)).host_written_bytes is not None


def test_readings_over_a_minute_from_an_edge_give_no_figure() -> None:
    far = TIMES_S[(TIMES_S < 30) | (TIMES_S > 160)]
    found = written(counts(RATE * far, None, times_s=far))
    assert found.missing["host_written_bytes"] == "it was not read within 60 s of an edge"


@pytest.mark.parametrize("kept", [TIMES_S > 100, TIMES_S < 1700])
def test_a_phase_that_no_reading_precedes_or_follows_has_no_figure(kept: np.ndarray) -> None:
    found = written(counts(RATE * TIMES_S[kept], None, times_s=TIMES_S[kept]))
    reason = "it was not read both before and after the phase"
    assert found.missing["host_written_bytes"] == reason


def test_a_failed_read_is_passed_over() -> None:
    host = RATE * TIMES_S
    host[20] = np.nan
    assert written(counts(host, None)).host_written_bytes == pytest.approx(RATE * 1604, abs=1)


def test_a_count_in_steps_of_over_a_hundredth_gives_no_figure() -> None:
    slow = 60e6  # 96 GB in the phase, 96 steps of a log that counts in 10^9 bytes
    media = np.floor(slow * TIMES_S / 1e9) * 1e9
    found = written(counts(slow * TIMES_S, media, log=ENDURANCE_GROUP))
    assert found.media_source == "endurance_group"
    assert (
        "counts in steps of 1000000000 B: under 100 steps" in (found.missing["media_written_bytes"])
    )
    assert found.host_written_bytes is not None


def test_a_phase_without_writes_has_no_amplification() -> None:
    still = np.full(TIMES_S.size, 1e12)
    assert "it grew by 0 B" in written(counts(still, still)).missing["write_amplification"]


def test_a_phase_too_short_for_the_time_between_readings_gives_no_figure() -> None:
    found = written(counts(RATE * TIMES_S, None), window("write", 98.0, 158.0))
    assert (
        "between two readings of the count; at most 5% is allowed"
        in (found.missing["host_written_bytes"])
    )


def test_untimed_phases_and_other_sources_have_no_record() -> None:
    by_key, others = traces(counts(RATE * TIMES_S, None)), traces(samples_of(TIMES_S, TIMES_S))
    untimed, elsewhere = window("fill", 98, 1702, timed=False), window("write", 98, 1702, host="b")
    assert not written_records(by_key, [untimed, elsewhere], host="host1")
    assert not written_records(others, [PHASE], host="host1")
