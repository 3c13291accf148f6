"""The index of the cache: which blocks the drive has, what is stored, and what is evicted.

It moves no bytes. Lookup, store and eviction are decided when a request is admitted. A request
touches its blocks tail first and head last, so that the ends of prefixes are evicted before what
others share, as in LMCache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from wattload.results.kv_cache.facts import OLD_S, Admission

_NEVER = float("inf")


@dataclass(slots=True)
class Entry:
    """A block on the drive, in a slot of its own.

    ``stored_s`` is when its store was finished, infinite before. Blocks with ``references`` (reads
    or a store under way) or ``children`` (cached blocks that follow it) are not evicted.
    """

    slot: int
    parent: Entry | None
    stored_s: float = _NEVER
    references: int = 0
    children: int = 0


@dataclass(slots=True)
class Admitted:
    """What was decided for a request.

    Its first ``hits`` blocks are cached: ``memory_hits`` in the memory tier, the others are those
    of ``restores``. ``stores`` and ``evicted`` are, as ``restores``, blocks with their slots.
    ``old`` restores were stored at least ``OLD_S`` before, so by an earlier request. Of the misses
    ``pending`` are being stored or are behind one that is, ``unadmitted`` were refused by the
    policy, and ``no_room`` found no slot. The ``held`` entries are referenced until ``release``.
    """

    hits: int = 0
    memory_hits: int = 0
    old: int = 0
    pending: int = 0
    unadmitted: int = 0
    no_room: int = 0
    restores: list[tuple[int, int]] = field(default_factory=list)
    stores: list[tuple[int, int]] = field(default_factory=list)
    evicted: list[tuple[int, int]] = field(default_factory=list)
    held: list[Entry] = field(default_factory=list)


class BlockCache:
    """An LRU cache of ``capacity`` blocks on a drive, behind one of ``memory_capacity`` in memory.

    For admission at the second use, as many missed blocks as it has are remembered.
    """

    def __init__(self, capacity: int, *, memory_capacity: int = 0) -> None:
        self.capacity = capacity
        self.evicted = 0
        self._memory_capacity = memory_capacity
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._memory: OrderedDict[int, None] = OrderedDict()
        self._missed: OrderedDict[int, None] = OrderedDict()
        self._free: list[int] = []
        self._unused = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, block: int) -> bool:
        """Return whether a block is stored, and may be restored."""
        entry = self._entries.get(block)
        return entry is not None and entry.stored_s != _NEVER

    def stored(self) -> list[tuple[int, int]]:
        """Return all blocks that are stored, with their slots."""
        return [(b, e.slot) for b, e in self._entries.items() if e.stored_s != _NEVER]

    def slot(self, block: int) -> int:
        return self._entries[block].slot

    def admit(self, blocks: Sequence[int], time_s: float, policy: Admission) -> Admitted:
        """Decide on a request: what is restored, stored and evicted.

        Hits are referenced until ``release``, stored blocks until ``finish`` or ``drop``.
        """
        found = self._look_up(blocks, time_s)
        missing = self._missing(blocks, found, policy)
        self._touch(blocks)
        self._make_room(len(missing), found)
        room = self.capacity - len(self._entries)
        found.no_room = max(len(missing) - room, 0)
        self._enter(blocks, missing[:room], found)
        if self._memory_capacity:
            self._keep_in_memory(blocks)
        return found

    def release(self, admitted: Admitted) -> None:
        """Let go of the hits of a request."""
        for entry in admitted.held:
            entry.references -= 1

    def finish(self, block: int, time_s: float) -> None:
        """Note that a block is stored: from now on it is a hit."""
        entry = self._entries[block]
        entry.stored_s = time_s
        entry.references -= 1

    def drop(self, block: int) -> None:
        """Give up a block whose store failed."""
        self._entries[block].references -= 1
        self._remove(block)

    def evict_one(self, fits: Callable[[int], bool] | None = None) -> tuple[int, int] | None:
        """Evict the least recently used block that may go, in a slot that ``fits``.

        Returns it with its slot, ``None`` without one.
        """
        for block, entry in self._entries.items():
            is_free = not entry.references and not entry.children
            if is_free and (fits is None or fits(entry.slot)):
                self._remove(block)
                self.evicted += 1
                self._remember(block)
                return block, entry.slot
        return None

    def _look_up(self, blocks: Sequence[int], time_s: float) -> Admitted:
        """Find the longest cached prefix, in order, to the first miss; reference its blocks."""
        found = Admitted()
        entries, memory, old_s = self._entries, self._memory, time_s - OLD_S
        for block in blocks:
            entry = entries.get(block)
            if block in memory:
                found.memory_hits += 1
            elif entry is not None and entry.stored_s != _NEVER:
                found.restores.append((block, entry.slot))
                found.old += entry.stored_s <= old_s
            else:
                break
            if entry is not None:
                entry.references += 1
                found.held.append(entry)
        found.hits = found.memory_hits + len(found.restores)
        return found

    def _missing(self, blocks: Sequence[int], found: Admitted, policy: Admission) -> list[int]:
        """Return the places of the misses to store; behind one that is not stored, none is.

        A block without the one before it would never be found.
        """
        entries = self._entries
        places: list[int] = []
        for place in range(found.hits, len(blocks)):
            block = blocks[place]
            if block in entries:  # it is being stored, or is behind one that is
                found.pending += 1
            elif found.unadmitted or not self._is_admitted(block, policy):
                found.unadmitted += 1
                self._remember(block)
            else:
                places.append(place)
        return places

    def _is_admitted(self, block: int, policy: Admission) -> bool:
        if policy is Admission.second_use:
            return block in self._missed
        return policy is Admission.all

    def _touch(self, blocks: Sequence[int]) -> None:
        entries = self._entries
        for block in reversed(blocks):
            if block in entries:
                entries.move_to_end(block)

    def _make_room(self, count: int, found: Admitted) -> None:
        for _ in range(len(self._entries) + count - self.capacity):
            evicted = self.evict_one()
            if evicted is None:
                return
            found.evicted.append(evicted)

    def _enter(self, blocks: Sequence[int], places: Sequence[int], found: Admitted) -> None:
        """Add the blocks at these places, and put them behind the head of the request."""
        for place in places:
            parent = self._entries.get(blocks[place - 1]) if place else None
            if parent is not None:
                parent.children += 1
            entry = Entry(self._take_slot(), parent, references=1)
            self._entries[blocks[place]] = entry
            found.stores.append((blocks[place], entry.slot))
            self._missed.pop(blocks[place], None)
        if places:
            self._touch(blocks)

    def _take_slot(self) -> int:
        if self._free:
            return self._free.pop()
        self._unused += 1
        return self._unused - 1

    def _remove(self, block: int) -> None:
        entry = self._entries.pop(block)
        self._free.append(entry.slot)
        if entry.parent is not None:
            entry.parent.children -= 1

    def _remember(self, block: int) -> None:
        self._missed[block] = None
        self._missed.move_to_end(block)
        if len(self._missed) > self.capacity:
            self._missed.popitem(last=False)

    def _keep_in_memory(self, blocks: Sequence[int]) -> None:
        memory = self._memory
        for block in reversed(blocks):
            memory[block] = None
            memory.move_to_end(block)
        while len(memory) > self._memory_capacity:
            memory.popitem(last=False)
