"""Times of several hosts on the clock of the first one."""

from __future__ import annotations

import numpy as np

from tests.records import Scenario, make_run
from wattload.core.record.clocks import CommonClock
from wattload.core.record.host import ClockOffset

S = 1_000_000_000
AHEAD_NS = 98_765_432 * S
"""About three years: more ns than a float has digits for."""


def clock(*drifts_ns: int, bound_ns: int = 100) -> CommonClock:
    """Return the clock of two hosts whose offset has grown so far, read every 10 s."""
    offsets = tuple(
        ClockOffset(
            monotonic_ns=AHEAD_NS + 10 * S * number,
            offset_ns=AHEAD_NS + drift_ns,
            bound_ns=bound_ns * (number + 1),
        )
        for number, drift_ns in enumerate(drifts_ns)
    )
    return CommonClock({"one": (), "two": offsets})


def test_the_first_host_keeps_its_times() -> None:
    assert clock(0).ns("one", 12_345) == 12_345
    assert clock(0).bound_ns("one") is None


def test_offsets_between_exchanges_are_on_a_line_and_outside_those_of_the_nearest() -> None:
    drifting = clock(0, 1000, 1000)
    assert drifting.ns("two", AHEAD_NS - S) == -S
    assert drifting.ns("two", AHEAD_NS + 5 * S) == 5 * S - 500
    assert drifting.ns("two", AHEAD_NS + 15 * S) == 15 * S - 1000
    assert drifting.ns("two", AHEAD_NS + 99 * S) == 99 * S - 1000


def test_an_array_of_times_is_converted_as_each_of_them() -> None:
    drifting = clock(0, 1000)
    times = AHEAD_NS + np.arange(-2, 12, dtype=np.int64) * S + 7
    assert drifting.ns("two", times).tolist() == [
        drifting.ns("two", each) for each in times.tolist()
    ]


def test_the_bound_of_the_job_has_the_drift_between_its_two_exchanges() -> None:
    assert clock(0).bound_ns("two") == 100
    assert clock(0, 1000).bound_ns("two") == 200 + 1000
    assert clock(-50_000, 1000, 900).bound_ns("two") == 300 + 100


def test_a_phase_over_hosts_is_from_its_first_start_to_its_last_end() -> None:
    record, _ = make_run(Scenario())
    (one,) = record.hosts
    offset = ClockOffset(monotonic_ns=0, offset_ns=AHEAD_NS, bound_ns=100)
    facts = one.facts.model_copy(update={"name": "two"})
    two = one.model_copy(update={"facts": facts, "offsets": (offset,)})
    late_ns = S // 2
    span = record.spans[-1].model_copy(update={"rank": 1, "host": "two"})
    times = {name: getattr(span, name) + AHEAD_NS + late_ns for name in ("start_ns", "end_ns")}
    both = (*record.spans, span.model_copy(update=times))
    joined = record.model_copy(update={"hosts": (one, two), "spans": both}).joined_windows[-1]
    alone = record.windows[-1]
    assert (joined.start_ns, joined.end_ns) == (alone.start_ns, alone.end_ns + late_ns)
    assert joined.seconds == alone.seconds + 0.5
    assert (joined.start_spread_s, joined.end_spread_s) == (0.5, 0.5)
    assert joined.rank_count == 2
    assert joined.read_bytes == alone.read_bytes + span.read_bytes
