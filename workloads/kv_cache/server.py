"""The server: requests arrive, are restored, computed, stored and decoded; one loop of events.

A request is admitted when it arrives. Its reads are in flight together. When the last block is
there, the tokens that were missed are computed, which takes no time unless a rate is set. Then its
new blocks wait to be stored, behind all reads that wait for the drive, and its output is decoded.
It leaves the system when both are over: until then a server needs its memory.
"""

from __future__ import annotations

import errno
import heapq
import os
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, cycle
from typing import Protocol

from wattload.core.io import IOResult
from wattload.core.units import NS_PER_S
from wattload.loaders.block_transfers import Transfer
from wattload.results.kv_cache.facts import Admission
from wattload.workloads.kv_cache.cache import Admitted, BlockCache
from wattload.workloads.kv_cache.geometry import Geometry
from wattload.workloads.kv_cache.requests import BLOCK_ID_LIMIT, Request, Requests
from wattload.workloads.kv_cache.tally import LoopTally, Tally, TimesTally
from wattload.workloads.kv_cache.tier import Placed, Tier

PROGRESS_S = 0.05
"""The longest time without a look at transfers: bytes are counted as they move."""
_DRAIN_S = 10.0
_FULL = (errno.ENOSPC, errno.EDQUOT)
_REMEMBERED_BLOCKS = 1 << 18
"""Blocks of the latest restores, which are restored again alone."""


class Moved(Protocol):
    """Counts bytes as they move; ``Phase.moved`` is one."""

    def __call__(
        self, *, read_bytes: int = 0, written_bytes: int = 0, operations: int = 1
    ) -> None: ...


class Clock(Protocol):
    """Tells the time in seconds, and waits."""

    def now(self) -> float: ...

    def wait(self, seconds: float, signal: int | None) -> None:
        """Wait for so long, or until the descriptor has a signal, which is then reset."""
        ...


class MonotonicClock:
    """CLOCK_MONOTONIC."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float, signal: int | None) -> None:
        ready, _, _ = select.select([] if signal is None else [signal], [], [], max(seconds, 0.0))
        if ready and signal is not None:
            with suppress(BlockingIOError):
                os.eventfd_read(signal)


@dataclass(slots=True)
class _Served:
    """A request in the system."""

    request: Request
    arrived_s: float
    admitted: Admitted
    unstored: dict[int, int]
    is_decoded: bool = False
    had_stores: int = 0
    is_storing: bool = False


@dataclass(slots=True)
class _Moving:
    """A transfer under way, with what has been counted of it."""

    transfer: Transfer
    size_bytes: int
    done: Callable[[IOResult], None]
    failed: Callable[[OSError], None] | None = None
    counted_bytes: int = 0
    counted_operations: int = 0


def count_nothing(*, read_bytes: int = 0, written_bytes: int = 0, operations: int = 1) -> None:
    """Count no bytes, where none move."""


class Server:
    """Serves requests from a cache; each of its methods is one phase, or the end of one.

    ``window_bytes`` is what the drive has in flight of each kind: a restore of which more is left
    waits for the drive, and stores wait behind it.
    """

    def __init__(
        self,
        requests: Requests,
        cache: BlockCache,
        tier: Tier,
        geometry: Geometry,
        clock: Clock,
        *,
        admission: Admission,
        window_bytes: int,
        max_backlog: int,
        prefill_tokens_per_s: float | None = None,
        decode_s_per_token: float | None = None,
    ) -> None:
        self._requests, self._cache, self._tier, self._clock = requests, cache, tier, clock
        self._geometry, self._admission = geometry, admission
        self._window_bytes, self._max_backlog = window_bytes, max_backlog
        self._prefill_s = 1 / prefill_tokens_per_s if prefill_tokens_per_s else 0.0
        self._decode_s = decode_s_per_token or 0.0
        self._numbers = count()
        self._arrivals: list[tuple[float, int, Request]] = []
        self._timers: list[tuple[float, int, Callable[[_Served], None], _Served]] = []
        for request in requests.first():
            self._expect(request)
        self._source_s = 0.0
        self._origin_s: float | None = None
        self._left_s: dict[int, float] = {}
        self._served: dict[int, _Served] = {}
        self._reads: deque[_Moving] = deque()
        self._writes: deque[_Moving] = deque()
        self._waiting: deque[tuple[_Served, Placed]] = deque()
        self._stores_begun = 0
        self._moved: Moved = count_nothing
        self._latest: deque[list[Placed]] = deque()
        self._latest_blocks = 0
        self.tally, self.times = Tally(), TimesTally()
        self.loop = LoopTally(clock.now())
        self._taken = 0

    # Phases

    def fill(self, evicted_share: float, moved: Moved, most_requests: int) -> Tally:
        """Store the blocks of requests, one after another, until blocks have been evicted.

        Nothing is restored, and no time passes for the source: its next request is that of the mix.
        All misses are stored, whatever the policy of the mix. It ends when this share of the
        capacity was evicted, or after so many requests.
        """
        self._begin(moved)
        until = self._cache.evicted + round(evicted_share * self._cache.capacity)
        while self._arrivals and self._cache.evicted < until:
            if self.tally.requests >= most_requests:
                break
            request = self._take()
            served = self._admit(request, self._clock.now(), Admission.all)
            self._tier.delete(served.admitted.evicted)
            self._cache.release(served.admitted)
            self._queue_stores(served)
            self._count_request(request)
            self._follow(request, self._source_s)
            while self._waiting:
                self._step(PROGRESS_S)
        while self._writes:
            self._step(PROGRESS_S)
        self.tally.synced_files += self._tier.sync()
        return self.tally

    def mix(self, seconds: float, moved: Moved) -> Tally:
        """Serve requests for a while; those that are in the system at the end stay there."""
        self._begin(moved)
        start_s = self._clock.now()
        if self._origin_s is None:
            self._origin_s = start_s - self._source_s
        backlog = self.loop.in_system
        self.loop = LoopTally(
            start_s, self._taken, backlog_start=backlog, in_system=backlog, changed_s=start_s
        )
        self.times = TimesTally()
        self._latest.clear()
        self._latest_blocks = 0
        end_s = start_s + seconds
        while (now_s := self._clock.now()) < end_s:
            if not self._arrivals and not self._served:
                break
            if self.loop.in_system > self._max_backlog:
                self.loop.ended_early = True
                break
            next_s = min(end_s, now_s + PROGRESS_S if self._reads or self._writes else end_s)
            if self._arrivals:
                next_s = min(next_s, self._due_s(self._arrivals[0][0]))
            if self._timers:
                next_s = min(next_s, self._timers[0][0])
            self._step(next_s - now_s)
            self._serve_due()
        self._close_loop()
        return self.tally

    def cut(self) -> None:
        """End the mix: finish restores, give up the rest, and make what is stored durable.

        Without the restores in flight, which are longer than others, latencies would be too short.
        What is not there after a while, in an overloaded server, is given up too.
        """
        overloaded, self.loop = self.loop.ended_early, LoopTally(self._clock.now())
        end_s = self._clock.now() + _DRAIN_S
        while self._reads and not overloaded and self._clock.now() < end_s:
            self._step(PROGRESS_S)
        for moving in (*self._reads, *self._writes):
            moving.transfer.discard()
            self._count(moving)
        self._reads.clear()
        self._writes.clear()
        for served in self._served.values():
            self._cache.release(served.admitted)
            self._tier.delete(served.unstored.items(), unfinished=True)
            for block in served.unstored:
                self._cache.drop(block)
        self.tally.cut_requests += len(self._served)
        self.tally.synced_files += self._tier.sync()
        self._served.clear()
        self._waiting.clear()
        self._timers.clear()

    def restorable(self, *, each_once: bool = False) -> list[list[Placed]]:
        """Return the blocks of the latest restores of the mix that are still where they were.

        ``each_once`` leaves out repetitions: with a page cache before the drive, two reads of a
        block at a time would be one for the drive.
        """
        seen: set[Placed] = set()
        lists = []
        for blocks in self._latest:
            lists.append([each for each in blocks if each not in seen and self._is_kept(each)])
            if each_once:
                seen.update(blocks)
        return [blocks for blocks in lists if blocks]

    def restore_again(
        self,
        seconds: float,
        moved: Moved,
        order: Sequence[list[Placed]],
        forget: Callable[[Sequence[Placed]], None],
    ) -> Tally:
        """Restore lists of blocks again and again, in their order, as fast as the drive can.

        ``forget`` is called with blocks that were restored.
        """
        self._begin(moved)
        end_s = self._clock.now() + seconds
        lists = cycle(order)
        while (is_on := self._clock.now() < end_s) or self._reads:
            while is_on and self._left(self._reads) < 2 * self._window_bytes:
                self._restore_alone(next(lists), forget)
            self._step(PROGRESS_S)
        return self.tally

    def store_new(self, seconds: float, moved: Moved, most_blocks: int) -> Tally:
        """Store blocks that nobody has, as fast as the drive can, and make them durable."""
        self._begin(moved)
        end_s = self._clock.now() + seconds
        ids = iter(range(BLOCK_ID_LIMIT - 1, BLOCK_ID_LIMIT - 1 - most_blocks, -1))
        while (is_on := self._clock.now() < end_s) or self._writes:
            while is_on and self._left(self._writes) < 2 * self._window_bytes:
                block = next(ids, None)
                if block is None:
                    end_s = 0.0
                    break
                served = self._admit(Request(0.0, (block,), 0, 0), 0.0, Admission.all)
                self._tier.delete(served.admitted.evicted)
                if not served.unstored:
                    break  # all others are being stored
                self._store(served, served.admitted.stores[0])
            self._step(PROGRESS_S)
        self.tally.synced_files += self._tier.sync()
        return self.tally

    # The life of a request

    def _serve_due(self) -> None:
        """Call what is due by now: arrivals, and ends of computing and decoding."""
        now_s = self._clock.now()
        while self._timers and self._timers[0][0] <= now_s:
            _, _, due, served = heapq.heappop(self._timers)
            due(served)
        while self._arrivals and self._due_s(self._arrivals[0][0]) <= now_s:
            self._arrive(self._take())

    def _take(self) -> Request:
        """Return the next request of the source, which is then at its time."""
        self._source_s, _, request = heapq.heappop(self._arrivals)
        self._taken += 1
        return request

    def _arrive(self, request: Request) -> None:
        now_s, loop = self._clock.now(), self.loop
        arrived_s = self._due_s(request.arrival_s)
        loop.arrived += 1
        loop.change(now_s, 1)
        loop.latest_s = max(loop.latest_s, now_s - arrived_s)
        loop.in_system_s += loop.since_start_s(arrived_s, now_s)  # since it was due
        if self._requests.is_closed:
            loop.think_s += loop.since_start_s(self._left_s.pop(request.user, 0.0), arrived_s)
        served = self._admit(request, arrived_s, self._admission)
        self._served[id(served)] = served
        loop.schedule_s += served.arrived_s - self._due_s(0.0)
        if not self._requests.is_closed:
            self._follow(request, 0.0)
        served.had_stores = self._stores_begun
        served.is_storing = bool(self._writes)
        blocks = served.admitted.restores
        if blocks:
            self._begin_restore(blocks, lambda results: self._arrived_data(served, results))
        self._tier.delete(served.admitted.evicted)  # behind the reads, which would wait for it
        if not blocks:
            self._restored(served)

    def _admit(self, request: Request, arrived_s: float, policy: Admission) -> _Served:
        """Decide on a request, and count it; the caller deletes what is evicted for it."""
        found = self._cache.admit(request.blocks, self._clock.now(), policy)
        tally, blocks = self.tally, len(request.blocks)
        tally.input_tokens += request.input_tokens
        tally.memory_blocks += found.memory_hits
        tally.drive_blocks += len(found.restores)
        tally.pending_blocks += found.pending
        tally.missed_blocks += blocks - found.hits - found.pending
        tally.unadmitted_blocks += found.unadmitted
        tally.no_room_blocks += found.no_room
        tally.evicted_blocks += len(found.evicted)
        tally.hit(found.hits, blocks)
        return _Served(request, arrived_s, found, dict(found.stores))

    def _begin_restore(
        self, blocks: Sequence[Placed], done: Callable[[list[IOResult]], None]
    ) -> None:
        results: list[IOResult] = []
        transfers = self._tier.restore(blocks)

        def ended(result: IOResult) -> None:
            results.append(result)
            if len(results) == len(transfers):  # all of them count in one phase, as their blocks
                for each in results:
                    self._add(each)
                self.tally.restored_blocks += len(blocks)
                done(results)

        for transfer, size_bytes in transfers:
            self._reads.append(_Moving(transfer, size_bytes, ended))
        if not transfers:
            self.tally.restored_blocks += len(blocks)
            done([])

    def _arrived_data(self, served: _Served, results: Sequence[IOResult]) -> None:
        """Note the times of a restore, and what its blocks prove."""
        blocks = served.admitted.restores
        self.tally.old_blocks += served.admitted.old
        self._remember(blocks)
        if results:
            ended_s = max(result.end_ns for result in results) / NS_PER_S
            first_s = results[0].end_ns / NS_PER_S if len(results) > 1 else None
            self.times.add(
                len(blocks) * self._geometry.tokens,
                response_s=ended_s - served.arrived_s,
                service_s=ended_s - results[0].start_ns / NS_PER_S,
                first_layer_s=None if first_s is None else first_s - served.arrived_s,
                storing=served.is_storing or self._stores_begun > served.had_stores,
            )
        self._restored(served)

    def _restored(self, served: _Served) -> None:
        self._cache.release(served.admitted)
        served.admitted.held.clear()
        hit_tokens = served.admitted.hits * self._geometry.tokens
        missed_tokens = served.request.input_tokens - hit_tokens
        self._after(missed_tokens * self._prefill_s, self._computed, served)

    def _computed(self, served: _Served) -> None:
        self._queue_stores(served)
        self._after(served.request.output_tokens * self._decode_s, self._decoded, served)

    def _decoded(self, served: _Served) -> None:
        served.is_decoded = True
        self._leave_if_done(served)

    def _leave_if_done(self, served: _Served) -> None:
        if not served.is_decoded or served.unstored:
            return
        del self._served[id(served)]
        now_s, loop = self._clock.now(), self.loop
        loop.change(now_s, -1)
        loop.residence_s += loop.since_start_s(served.arrived_s, now_s)
        self._count_request(served.request)
        if self._requests.is_closed:
            self._left_s[served.request.user] = now_s
            self._follow(served.request, now_s - self._due_s(0.0))

    def _count_request(self, request: Request) -> None:
        self.tally.requests += 1
        self.tally.output_tokens += request.output_tokens

    def _follow(self, request: Request, source_s: float) -> None:
        """Expect the request after this one."""
        following = self._requests.following(request, source_s)
        if following is not None:
            self._expect(following)

    def _due_s(self, source_s: float) -> float:
        """Return a time of the source on the clock; the first mix has set how far they differ."""
        return source_s + (self._origin_s or 0.0)

    def _expect(self, request: Request) -> None:
        heapq.heappush(self._arrivals, (request.arrival_s, next(self._numbers), request))

    def _after(self, seconds: float, due: Callable[[_Served], None], served: _Served) -> None:
        if seconds > 0:
            at_s = self._clock.now() + seconds
            heapq.heappush(self._timers, (at_s, next(self._numbers), due, served))
        else:
            due(served)

    def _close_loop(self) -> None:
        """Add the requests that are in the system at the end, and the pauses under way."""
        now_s, loop = self._clock.now(), self.loop
        for moving in (*self._reads, *self._writes):
            self._count(moving)  # in this phase, whenever it ends
        loop.change(now_s, 0)
        for served in self._served.values():
            loop.residence_s += loop.since_start_s(served.arrived_s, now_s)
        if self._requests.is_closed:
            for _, _, request in self._arrivals:
                loop.think_s += loop.since_start_s(self._left_s.get(request.user, 0.0), now_s)

    # Stores

    def _queue_stores(self, served: _Served) -> None:
        self._waiting.extend((served, block) for block in served.admitted.stores)
        self._begin_stores()

    def _begin_stores(self) -> None:
        """Begin to store what waits, unless reads wait for the drive."""
        while (
            self._waiting
            and self._left(self._writes) < self._window_bytes
            and self._left(self._reads) <= self._window_bytes
        ):
            self._store(*self._waiting.popleft())

    def _store(self, served: _Served, block: Placed) -> None:
        transfer = self._tier.store(block)
        self._stores_begun += 1
        if transfer is None:
            self._stored(served, block)
            return

        def ended(result: IOResult) -> None:
            self.tally.synced_files += result.synced_files
            self._add(result)
            self._stored(served, block)

        self._writes.append(
            _Moving(
                transfer,
                self._geometry.moved_block_bytes,
                ended,
                lambda error: self._make_space(served, block, error),
            )
        )

    def _stored(self, served: _Served, block: Placed) -> None:
        try:
            self.tally.renamed_files += self._tier.commit(block)
        except OSError as error:  # a name may need another block of its folder
            self._make_space(served, block, error)
            return
        self.tally.stored_blocks += 1
        self._cache.finish(block[0], self._clock.now())
        del served.unstored[block[0]]
        if served.is_decoded:
            self._leave_if_done(served)

    def _make_space(self, served: _Served, block: Placed, error: OSError) -> None:
        """Evict a block because the file system is full, and store again; else raise the error."""
        if error.errno not in _FULL:
            raise error
        self._tier.delete([block], unfinished=True)
        evicted = self._cache.evict_one(lambda slot: self._tier.share_target(slot, block[1]))
        if evicted is None:
            raise error
        self._tier.delete([evicted])
        self.tally.evicted_blocks += 1
        self.tally.full_disk_evictions += 1
        self._waiting.appendleft((served, block))

    # Transfers

    def _step(self, seconds: float) -> None:
        """Wait for transfers, at most so long, count what moved, and go on with what ended."""
        if seconds > 0:
            self._clock.wait(seconds, self._tier.signal)
        for queue in (self._reads, self._writes):
            for moving in self._ended(queue):
                try:
                    result = moving.transfer.result()
                except OSError as error:
                    if moving.failed is None:
                        raise
                    moving.failed(error)
                else:
                    moving.done(result)
        self._begin_stores()

    def _ended(self, queue: deque[_Moving]) -> Sequence[_Moving]:
        """Remove and return transfers that have ended; those beyond the window have not begun."""
        ended, left_bytes = [], 0
        for moving in queue:
            is_done = moving.transfer.wait(0)
            self._count(moving)
            if is_done:
                ended.append(moving)
                continue
            left_bytes += moving.size_bytes - moving.counted_bytes
            if left_bytes > self._window_bytes and not moving.counted_bytes:
                break
        for moving in ended:
            queue.remove(moving)
        return ended

    def _add(self, result: IOResult) -> None:
        self.tally.compared_bytes += result.compared_bytes
        self.tally.bad_blocks += result.bad_blocks

    def _count(self, moving: _Moving) -> None:
        moved_bytes, operations = moving.transfer.progress()
        more_bytes, more = (
            moved_bytes - moving.counted_bytes,
            operations - moving.counted_operations,
        )
        moving.counted_bytes, moving.counted_operations = moved_bytes, operations
        if more or more_bytes:  # the two are not read at one moment
            is_write = moving.failed is not None
            self._moved(
                read_bytes=0 if is_write else more_bytes,
                written_bytes=more_bytes if is_write else 0,
                operations=more,
            )

    def _restore_alone(
        self, blocks: Sequence[Placed], forget: Callable[[Sequence[Placed]], None]
    ) -> None:
        self._begin_restore(blocks, lambda _: forget(blocks))

    def _remember(self, blocks: list[Placed]) -> None:
        self._latest.append(blocks)
        self._latest_blocks += len(blocks)
        while self._latest_blocks > _REMEMBERED_BLOCKS and len(self._latest) > 1:
            self._latest_blocks -= len(self._latest.popleft())

    def _is_kept(self, placed: Placed) -> bool:
        block, slot = placed
        return block in self._cache and self._cache.slot(block) == slot

    def _begin(self, moved: Moved) -> None:
        self._moved, self.tally = moved, Tally()

    def _left(self, queue: deque[_Moving]) -> int:
        return sum(moving.size_bytes - moving.counted_bytes for moving in queue)
