"""The index of the cache against a model of it that is as simple as possible."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattload.results.kv_cache.facts import OLD_S, Admission
from wattload.workloads.kv_cache.cache import Admitted, BlockCache

Block = tuple[int, ...]
"""A block of the model: the whole prefix that ends with it."""


@dataclass
class Model:
    """The same cache by lists: blocks from the least to the most recently used."""

    capacity: int
    memory_capacity: int
    used: list[Block] = field(default_factory=list)
    storing: set[Block] = field(default_factory=set)
    held: list[Block] = field(default_factory=list)
    memory: list[Block] = field(default_factory=list)
    missed: list[Block] = field(default_factory=list)

    def admit(self, blocks: list[Block], policy: Admission) -> dict[str, list[Block]]:
        hits = []
        for block in blocks:
            on_drive = block in self.used and block not in self.storing
            if block not in self.memory and not on_drive:
                break
            hits.append(block)
        restored = [block for block in hits if block not in self.memory]
        self.held += [block for block in hits if block in self.used]
        rest = blocks[len(hits) :]
        pending = [block for block in rest if block in self.used]
        wanted: list[Block] = []
        refused: list[Block] = []
        for block in rest:
            if block in self.used:
                continue
            second = policy is Admission.second_use and block in self.missed
            if refused or not (policy is Admission.all or second):
                refused.append(block)
                self.remember(block)
            else:
                wanted.append(block)
        self.touch(blocks)
        evicted: list[Block] = []
        while len(self.used) + len(wanted) > self.capacity:
            victim = self.evictable()
            if victim is None:
                break
            self.used.remove(victim)
            self.remember(victim)
            evicted.append(victim)
        stores = wanted[: max(self.capacity - len(self.used), 0)]
        self.used += stores
        self.storing |= set(stores)
        self.missed = [block for block in self.missed if block not in stores]
        if stores:
            self.touch(blocks)
        for block in reversed(blocks):
            if block in self.memory:
                self.memory.remove(block)
            self.memory.append(block)
        self.memory = self.memory[max(len(self.memory) - self.memory_capacity, 0) :]
        return {
            "hits": hits,
            "restored": restored,
            "pending": pending,
            "refused": refused,
            "stores": stores,
            "evicted": evicted,
            "no_room": wanted[len(stores) :],
        }

    def touch(self, blocks: list[Block]) -> None:
        for block in reversed(blocks):
            if block in self.used:
                self.used.remove(block)
                self.used.append(block)

    def evictable(self) -> Block | None:
        for block in self.used:
            has_child = any(len(o) == len(block) + 1 and o[:-1] == block for o in self.used)
            if not has_child and block not in self.held and block not in self.storing:
                return block
        return None

    def remember(self, block: Block) -> None:
        if block in self.missed:
            self.missed.remove(block)
        self.missed = [*self.missed, block][-self.capacity :]


@dataclass
class Pair:
    """The cache and its model, driven by the same steps."""

    cache: BlockCache
    model: Model
    numbers: dict[Block, int] = field(default_factory=dict)
    under_way: list[tuple[Admitted, list[Block], list[Block]]] = field(default_factory=list)

    def number(self, block: Block) -> int:
        return self.numbers.setdefault(block, len(self.numbers))

    def admit(self, path: list[int], policy: Admission) -> None:
        blocks = [tuple(path[: end + 1]) for end in range(len(path))]
        held_before = len(self.model.held)
        expected = self.model.admit(blocks, policy)
        found = self.cache.admit([self.number(block) for block in blocks], 0.0, policy)
        names = {number: block for block, number in self.numbers.items()}
        assert found.hits == len(expected["hits"])
        assert [names[b] for b, _ in found.restores] == expected["restored"]
        assert [names[b] for b, _ in found.stores] == expected["stores"]
        assert [names[b] for b, _ in found.evicted] == expected["evicted"]
        assert (found.pending, found.unadmitted, found.no_room) == tuple(
            len(expected[name]) for name in ("pending", "refused", "no_room")
        )
        held = self.model.held[held_before:]
        self.under_way.append((found, held, expected["stores"]))

    def release(self, which: int) -> None:
        found, held, _ = self.under_way[which]
        self.cache.release(found)
        found.held.clear()
        for block in held:
            self.model.held.remove(block)
        held.clear()

    def end_store(self, which: int, *, fails: bool) -> None:
        _, _, stores = self.under_way[which]
        if not stores:
            return
        block = stores.pop()  # tail first, so that a block that fails has no children
        self.model.storing.remove(block)
        if fails:
            self.model.used.remove(block)
            self.cache.drop(self.number(block))
        else:
            self.cache.finish(self.number(block), 0.0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "admit", "release", "store", "store", "fail"]),
        st.lists(st.integers(0, 2), min_size=1, max_size=6),
        st.integers(0, 7),
        st.sampled_from(list(Admission)),
    ),
    max_size=60,
)


@given(capacity=st.integers(1, 12), memory_capacity=st.integers(0, 5), steps=STEPS)
def test_prefixes_evictions_and_references_are_those_of_a_simple_model(
    capacity: int, memory_capacity: int, steps: list[tuple[str, list[int], int, Admission]]
) -> None:
    pair = Pair(
        BlockCache(capacity, memory_capacity=memory_capacity), Model(capacity, memory_capacity)
    )
    for what, path, which, policy in steps:
        if what == "admit":
            pair.admit(path, policy)
        elif pair.under_way:
            place = which % len(pair.under_way)
            if what == "release":
                pair.release(place)
            else:
                pair.end_store(place, fails=what == "fail")
        assert len(pair.cache) == len(pair.model.used) <= capacity
        stored = {pair.number(b) for b in pair.model.used if b not in pair.model.storing}
        assert {block for block, _ in pair.cache.stored()} == stored
    slots = [pair.cache.slot(pair.number(block)) for block in pair.model.used]
    assert len(set(slots)) == len(slots), "two blocks share a slot"
    assert all(slot < capacity for slot in slots)


def stored_at(time_s: float, *blocks: int) -> BlockCache:
    cache = BlockCache(10)
    for block, _ in cache.admit(blocks, time_s, Admission.all).stores:
        cache.finish(block, time_s)
    return cache


@pytest.mark.parametrize(("age_s", "old"), [(OLD_S - 1, 0), (OLD_S, 2)])
def test_a_restored_block_is_old_ten_seconds_after_its_store(age_s: float, old: int) -> None:
    cache = stored_at(100.0, 1, 2)
    assert cache.admit((1, 2), 100.0 + age_s, Admission.all).old == old


def test_the_second_miss_of_a_block_is_stored() -> None:
    cache = BlockCache(10)
    first = cache.admit((1, 2), 0.0, Admission.second_use)
    assert (first.unadmitted, first.stores) == (2, [])
    again = cache.admit((1, 2, 3), 0.0, Admission.second_use)
    assert ([block for block, _ in again.stores], again.unadmitted) == ([1, 2], 1)


def test_no_more_misses_are_remembered_than_there_are_blocks() -> None:
    cache = BlockCache(2)
    for block in (1, 2, 3):
        cache.admit((block,), 0.0, Admission.second_use)
    assert cache.admit((1,), 0.0, Admission.second_use).unadmitted == 1
    assert cache.admit((3,), 0.0, Admission.second_use).stores
