"""Which phase a drive throttled in, by the samples of its own counters."""

from __future__ import annotations

import pytest

from tests.power.energy_facts import window
from tests.power.energy_traces import samples_of
from wattload.core.power import Channel, Sample
from wattload.core.record.energy import ThrottlingRecord
from wattload.core.record.phase import PhaseWindow
from wattload.power.energy.ledger import EnergyLedger

TIMES_S = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)


def counted(
    seconds: tuple[float | None, ...], entries: tuple[float | None, ...] = (0.0,) * 8
) -> list[Sample]:
    return [
        *samples_of(TIMES_S, seconds, channel=Channel.THROTTLED_S),
        *samples_of(TIMES_S, entries, channel=Channel.THERMAL_TRANSITIONS),
    ]


def of(samples: list[Sample], phase: PhaseWindow) -> ThrottlingRecord:
    (found,) = EnergyLedger(samples, [], host="host1").throttling_records([phase])
    return found


def test_heat_before_a_phase_is_none_of_it() -> None:
    samples = counted((0, 2, 4, 4, 4, 4, 4, 4), (0, 1, 1, 1, 1, 1, 1, 1))
    found = of(samples, window("read", 2.5, 6.0))
    assert (found.device, found.phase) == ("SERIAL1", "read")
    assert (found.transition_count, found.throttled_s) == (0, 0)


def test_heat_in_a_phase_is_counted_to_the_reads_around_it() -> None:
    samples = counted((0, 0, 0, 0, 1, 2, 3, 9), (0, 0, 0, 1, 1, 1, 1, 1))
    found = of(samples, window("read", 2.5, 5.5))
    assert (found.transition_count, found.throttled_s) == (1, 3)


def test_drive_that_throttles_all_through_counts_seconds_without_an_entry() -> None:
    found = of(counted(TIMES_S), window("read", 2.0, 5.0))
    assert (found.transition_count, found.throttled_s) == (0, 3)


def test_pauses_of_a_phase_are_left_out() -> None:
    phase = window("read", 1.0, 6.0)
    both = ((phase.start_ns, phase.start_ns + 10**9), (phase.end_ns - 10**9, phase.end_ns))
    found = of(counted((0, 0, 0, 5, 5, 5, 6, 6)), phase.model_copy(update={"intervals": both}))
    assert found.throttled_s == 1


def test_what_grew_between_two_reads_is_counted_once_for_all_intervals_in_between() -> None:
    phase = window("write", 1.2, 3.6)
    base_ns = phase.start_ns
    many = tuple((base_ns + k * 300_000_000, base_ns + k * 300_000_000 + 10**8) for k in range(9))
    found = of(counted((0, 0, 4, 5, 5, 5, 5, 5)), phase.model_copy(update={"intervals": many}))
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
    found = of(counted(seconds), window("read", 2.0, 6.0))
    assert found.throttled_s is None
    assert reason in found.missing["throttled_s"]
    assert found.transition_count == 0


def test_one_counter_alone_is_told_with_the_other_missing() -> None:
    samples = samples_of(TIMES_S, TIMES_S, channel=Channel.THROTTLED_S)
    found = of(samples, window("read", 2.0, 5.0))
    assert found.missing == {"transition_count": "it was not read"}


def test_only_timed_phases_of_the_host_and_drives_with_counters_have_a_record() -> None:
    untimed, elsewhere = window("idle", 1, 2, timed=False), window("read", 1, 2, host="other")
    assert (
        EnergyLedger(counted(TIMES_S), [], host="host1").throttling_records([untimed, elsewhere])
        == ()
    )
    assert (
        EnergyLedger(samples_of(TIMES_S, TIMES_S), [], host="host1").throttling_records(
            [window("read", 1, 2)]
        )
        == ()
    )
