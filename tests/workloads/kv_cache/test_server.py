"""The loop of events with a drive of known speed, in virtual time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

import pytest

from benchmarks.kv_virtual import NullTier, VirtualClock
from wattload.core.io import DataPath, IOResult
from wattload.core.units import NS_PER_S
from wattload.loaders.block_transfers import Transfer
from wattload.results.kv_cache.facts import Admission, Layout, Loop, Times
from wattload.workloads.kv_cache.cache import BlockCache
from wattload.workloads.kv_cache.geometry import Geometry
from wattload.workloads.kv_cache.requests import Request
from wattload.workloads.kv_cache.server import PROGRESS_S, Server, count_nothing
from wattload.workloads.kv_cache.tally import Tally
from wattload.workloads.kv_cache.tier import Placed

BLOCK_BYTES = 4096
GEOMETRY = Geometry(
    layout=Layout.block_file,
    tokens=16,
    bytes_per_token=256,
    pieces=1,
    piece_bytes=BLOCK_BYTES,
    first_layer_pieces=1,
)


@dataclass
class Timed:
    """A transfer with a start and an end in virtual time."""

    clock: VirtualClock
    start_s: float
    end_s: float
    size_bytes: int
    is_write: bool = False

    def wait(self, timeout_s: float | None = None) -> bool:
        return self.clock.now() >= self.end_s

    def progress(self) -> tuple[int, int]:
        return (self.size_bytes, 1) if self.wait() else (0, 0)

    def result(self) -> IOResult:
        return IOResult(
            moved_bytes=self.size_bytes,
            operation_count=1,
            start_ns=round(self.start_s * NS_PER_S),
            end_ns=round(self.end_s * NS_PER_S),
            cpu_s=0.0,
            path=DataPath(data_path="virtual", path_requested="virtual"),
            synced_files=int(self.is_write),
        )

    def discard(self) -> None:
        pass


@dataclass
class TimedTier:
    """A drive that moves one block after another of each kind, each in ``block_s`` seconds."""

    clock: VirtualClock
    block_s: float
    free_s: dict[bool, float] = field(default_factory=lambda: {False: 0.0, True: 0.0})
    log: list[tuple[str, float]] = field(default_factory=list)
    files: set[Placed] = field(default_factory=set)
    signal: int | None = None

    def transfer(self, blocks: int, *, is_write: bool) -> Timed:
        start_s = max(self.clock.now(), self.free_s[is_write])
        self.free_s[is_write] = end_s = start_s + blocks * self.block_s
        self.log.append(("store" if is_write else "restore", self.clock.now()))
        return Timed(self.clock, start_s, end_s, blocks * BLOCK_BYTES, is_write)

    def restore(self, blocks: Sequence[Placed]) -> Sequence[tuple[Transfer, int]]:
        assert set(blocks) <= self.files, "a block that is not there is restored"
        return [(self.transfer(len(blocks), is_write=False), len(blocks) * BLOCK_BYTES)]

    def store(self, block: Placed) -> Transfer | None:
        return self.transfer(1, is_write=True)

    def commit(self, block: Placed) -> int:
        self.files.add(block)
        return 1

    def delete(self, blocks: Iterable[Placed], *, unfinished: bool = False) -> None:
        if not unfinished:
            self.files -= set(blocks)

    def share_target(self, slot: int, other: int) -> bool:
        return True

    def sync(self) -> int:
        return 0


@dataclass
class Open:
    """Requests at given times, in an open loop."""

    requests: list[Request]
    is_closed: bool = False

    def first(self) -> Iterable[Request]:
        return self.requests[:1]

    def following(self, request: Request, time_s: float) -> Request | None:
        after = self.requests.index(request) + 1
        return self.requests[after] if after < len(self.requests) else None


@dataclass
class Closed:
    """Users that ask for new blocks, or always for the same, after a pause."""

    users: int
    think_s: float
    blocks: int = 2
    is_new: bool = True
    is_closed: bool = True
    numbers: count[int] = field(default_factory=count)

    def request(self, user: int, arrival_s: float) -> Request:
        first = next(self.numbers) if self.is_new else user
        blocks = range(first * self.blocks, (first + 1) * self.blocks)
        return Request(arrival_s, blocks, 16 * self.blocks, 10, user, self.think_s)

    def first(self) -> Iterable[Request]:
        return [self.request(user, self.think_s * user / self.users) for user in range(self.users)]

    def following(self, request: Request, time_s: float) -> Request | None:
        return self.request(request.user, time_s + self.think_s)


def server_of(
    source: Open | Closed,
    tier: TimedTier | NullTier,
    clock: VirtualClock,
    *,
    capacity: int = 100,
    max_backlog: int = 1000,
    prefill_tokens_per_s: float | None = None,
    decode_s_per_token: float | None = None,
) -> Server:
    return Server(
        source,
        BlockCache(capacity),
        tier,
        GEOMETRY,
        clock,
        admission=Admission.all,
        window_bytes=BLOCK_BYTES,
        max_backlog=max_backlog,
        prefill_tokens_per_s=prefill_tokens_per_s,
        decode_s_per_token=decode_s_per_token,
    )


def mixed(
    source: Open | Closed, *, seconds: float, block_s: float = 0.01, **settings: float
) -> tuple[Server, Tally, TimedTier]:
    clock = VirtualClock()
    tier = TimedTier(clock, block_s)
    server = server_of(source, tier, clock, **settings)  # type: ignore[arg-type]
    return server, server.mix(seconds, count_nothing), tier


def only_times(server: Server) -> Times:
    return next(server.times.times(BLOCK_BYTES))


def little(loop: Loop) -> float:
    """Return the requests in the system by counting, over those by their residences."""
    return loop.in_system_s / loop.residence_s


def test_users_times_seconds_are_residence_and_pauses() -> None:
    server, tally, _ = mixed(Closed(users=7, think_s=0.5), seconds=60.0, decode_s_per_token=0.02)
    loop = server.loop.loop(7, None)
    assert tally.requests > 100
    assert loop.seconds == pytest.approx(60.0)
    assert loop.residence_s + loop.think_s == pytest.approx(7 * 60.0, rel=0.01)
    assert little(loop) == pytest.approx(1.0, rel=0.01)


def test_requests_in_the_system_are_arrivals_times_residence_in_an_open_loop() -> None:
    source = Open([Request(0.1 * n, (2 * n, 2 * n + 1), 32, 5) for n in range(600)])
    server, tally, _ = mixed(source, seconds=60.0, decode_s_per_token=0.05)
    assert tally.requests > 500
    assert little(server.loop.loop(None, None)) == pytest.approx(1.0, rel=0.01)


def test_the_schedule_of_an_open_loop_stays_when_the_drive_is_too_slow() -> None:
    source = Open([Request(0.1 * n, (0,), 16, 1) for n in range(200)])
    server, _, _ = mixed(source, seconds=20.0, block_s=0.2)
    loop, times = server.loop.loop(None, None), only_times(server)
    assert loop.arrived == 200, "no request is skipped"
    assert loop.schedule_s == pytest.approx(sum(each.arrival_s for each in source.requests))
    assert loop.backlog_end > 50 > loop.backlog_start == 0, "the backlog grows"
    assert times.service.max_s == pytest.approx(0.2)
    assert times.response.max_s > 5, "the wait for earlier requests is in the response"


def test_a_backlog_ends_the_mix() -> None:
    source = Open([Request(0.01 * n, (0,), 16, 1) for n in range(2000)])
    server, _, _ = mixed(source, seconds=20.0, block_s=0.5, max_backlog=50)
    loop = server.loop.loop(None, None)
    assert loop.ended_early
    assert 50 < loop.backlog_end < 60


def test_a_block_that_is_being_stored_is_a_pending_miss() -> None:
    source = Open([Request(0.0, (1, 2), 32, 1), Request(0.01, (1, 2, 3), 48, 1)])
    _, tally, _ = mixed(source, seconds=5.0, block_s=0.5)
    assert (tally.missed_blocks, tally.pending_blocks) == (3, 2)
    assert (tally.stored_blocks, tally.restored_blocks) == (3, 0)


def test_stores_wait_behind_reads_and_for_the_computation() -> None:
    source = Open([Request(0.0, (1,), 16, 1), Request(3.0, (1, 2), 32, 1)])
    _, _, tier = mixed(source, seconds=9.0, block_s=0.1, prefill_tokens_per_s=16.0)
    assert [kind for kind, _ in tier.log] == ["store", "restore", "store"]
    assert tier.log[-1][1] >= 3.0 + 0.1 + 1.0, "what was missed is computed first"


def test_a_saturated_drive_restores_before_it_stores() -> None:
    repeats = [Request(1.0 + 0.001 * n, range(20), 320, 1) for n in range(5)]
    source = Open([Request(0.0, range(20), 320, 1), *repeats, Request(1.1, (50,), 16, 1)])
    _, _, tier = mixed(source, seconds=30.0, block_s=0.01)
    last_store_s = [time_s for kind, time_s in tier.log if kind == "store"][-1]
    assert last_store_s >= 1.0 + 5 * 20 * 0.01 - 0.01 - PROGRESS_S


def test_hits_pendings_and_misses_are_all_blocks_of_requests() -> None:
    server, tally, _ = mixed(Closed(users=5, think_s=0.1, is_new=False), seconds=10.0)
    requests = server.loop.arrived
    found = tally.memory_blocks + tally.drive_blocks + tally.pending_blocks + tally.missed_blocks
    assert found == 2 * requests
    assert sum(tally.hit_shares) == requests
    assert tally.hit_shares[10] > 0.9 * requests


def test_the_fill_ends_when_a_fifth_of_the_capacity_was_evicted() -> None:
    clock = VirtualClock()
    tier = TimedTier(clock, 0.001)
    server = server_of(Closed(users=3, think_s=1.0), tier, clock, capacity=50)
    tally = server.fill(0.2, count_nothing, 10_000)
    assert tally.evicted_blocks in (10, 11)
    assert (
        tally.stored_blocks
        == tally.renamed_files
        == tally.synced_files
        == 50 + tally.evicted_blocks
    )
    assert len(tier.files) == 50


def test_the_mix_goes_on_with_the_requests_behind_the_fill() -> None:
    clock = VirtualClock()
    source = Open([Request(float(n), (n,), 16, 1) for n in range(100)])
    tier = TimedTier(clock, 0.001)
    server = server_of(source, tier, clock, capacity=10)
    filled = server.fill(0.2, count_nothing, 10_000)
    mix = server.mix(20.0, count_nothing)
    assert filled.requests == 12
    assert 19 <= mix.requests <= 20, "one a second, as the source has them"


def test_a_fill_that_evicts_nothing_ends_after_the_most_requests() -> None:
    clock = VirtualClock()
    source = Closed(users=2, think_s=1.0, is_new=False)
    server = server_of(source, TimedTier(clock, 0.001), clock, capacity=50)
    tally = server.fill(0.2, count_nothing, 40)
    assert (tally.requests, tally.evicted_blocks) == (40, 0)


def test_what_is_under_way_at_the_end_is_given_up() -> None:
    source = Open([Request(0.0, range(4), 64, 1), Request(9.0, range(10, 40), 480, 1)])
    server, tally, tier = mixed(source, seconds=10.0, block_s=0.2)
    server.cut()
    assert (tally.requests, tally.cut_requests) == (1, 1)
    assert tally.stored_blocks == len(tier.files)


def test_the_restores_of_the_mix_are_repeated_in_their_order() -> None:
    source = Open(
        [Request(0.0, (1, 2), 32, 1), Request(1.0, (5,), 16, 1)]
        + [Request(2.0 + n, (1, 2), 32, 1) for n in range(3)]
        + [Request(6.0, (5,), 16, 1)]
    )
    server, _, tier = mixed(source, seconds=8.0, block_s=0.01)
    server.cut()
    order = server.restorable()
    assert [[block for block, _ in blocks] for blocks in order] == [[1, 2], [1, 2], [1, 2], [5]]
    forgotten: list[Sequence[Placed]] = []
    moved: list[int] = []
    tally = server.restore_again(
        2.0, lambda **counts: moved.append(counts["read_bytes"]), order, forgotten.append
    )
    assert tally.restored_blocks == sum(map(len, forgotten)) > 50
    assert sum(moved) == tally.restored_blocks * BLOCK_BYTES
    assert tier.files


def test_stores_alone_evict_and_end_after_the_most_blocks() -> None:
    clock = VirtualClock()
    tier = TimedTier(clock, 0.01)
    server = server_of(Closed(users=1, think_s=1.0), tier, clock, capacity=10)
    tally = server.store_new(100.0, count_nothing, 35)
    assert (tally.stored_blocks, tally.evicted_blocks) == (35, 25)
    assert len(tier.files) == 10


def test_a_server_without_a_drive_takes_no_time() -> None:
    clock = VirtualClock()
    server = server_of(Closed(users=10, think_s=1.0), NullTier(), clock)
    tally = server.mix(100.0, count_nothing)
    assert tally.requests == pytest.approx(1000, abs=10)
    assert tally.stored_blocks == 2 * server.loop.arrived
