"""The exchange of time stamps between the first process of each host and the root."""

from __future__ import annotations

import time
from collections.abc import Callable

from wattload.core.record.host import ClockOffset
from wattload.core.workload import Communicator
from wattload.run.ranks import MpiCommunicator

ROUND_TRIPS = 50
CLOSE_NS = 200_000
MOST_ROUND_TRIPS = 1000
"""A busy host is asked so often, until the offset is known within ``CLOSE_NS``."""


def exchange(
    leaders: Communicator | None, clock: Callable[[], int] = time.monotonic_ns
) -> ClockOffset | None:
    """Return how far this host's clock is ahead of the root's; every leader must call it.

    Each leader in turn asks for the root's time and takes it for that of the middle of the round
    trip. Of some tries the one with the shortest round trip counts: the true time is within half
    of it, however long one direction took.

    Args:
        leaders: the hosts' first processes, of which 0 is the root; ``None`` on other processes.
        clock: the host's clock in ns.

    Returns:
        ``None`` on the root, and on processes that are not leaders.
    """
    if not isinstance(leaders, MpiCommunicator):
        return None
    if leaders.rank == 0:
        for leader in range(1, leaders.world_size):
            while leaders.receive(leader):
                leaders.send(clock(), leader)
        return None
    best = _ask(leaders, clock)
    for number in range(1, MOST_ROUND_TRIPS):
        if number >= ROUND_TRIPS and best.bound_ns <= CLOSE_NS:
            break
        best = min(best, _ask(leaders, clock), key=lambda each: each.bound_ns)
    leaders.send(False, 0)
    return best


def _ask(leaders: MpiCommunicator, clock: Callable[[], int]) -> ClockOffset:
    start_ns = clock()
    leaders.send(True, 0)
    root_ns: int = leaders.receive(0)
    end_ns = clock()
    middle_ns = (start_ns + end_ns) // 2
    resolution_ns = round(time.get_clock_info("monotonic").resolution * 1e9)
    return ClockOffset(
        monotonic_ns=middle_ns,
        offset_ns=middle_ns - root_ns,
        bound_ns=(end_ns - start_ns + 1) // 2 + resolution_ns,
    )
