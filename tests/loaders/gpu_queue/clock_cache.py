"""The cache in the GPU's memory as a plain model, for one warp at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

WAYS = 16
MASK = (1 << 64) - 1


def draw(seed: int, number: int) -> int:
    """Return the output ``number`` of splitmix64 from ``seed``."""
    x = (seed + (number + 1) * 0x9E3779B97F4A7C15) & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def zipf_block(drawn: int, count: int) -> int:
    """Return a block of [0, count): octaves of its number plus one are equally likely."""
    first = 1 << (drawn >> 56) % count.bit_length()
    return first + drawn % (min(2 * first, count + 1) - first) - 1


def zipf_rounds(seed: int, warp: int, rounds: int, count: int) -> list[list[int]]:
    """Return the blocks that the lanes of a warp ask for in each round."""
    streams = [draw(seed, 32 * warp + lane) for lane in range(32)]
    return [
        [zipf_block(draw(stream, number), count) for stream in streams] for number in range(rounds)
    ]


@dataclass
class Page:
    """What a page holds, whether it was hit since the clock passed it, and its users."""

    key: int | None = None
    was_hit: bool = False
    users: int = 0


@dataclass
class ClockSet:
    """The pages of a set and its hand."""

    pages: list[Page] = field(default_factory=lambda: [Page() for _ in range(WAYS)])
    hand: int = 0

    def find(self, key: int) -> Page | None:
        """Return the page that holds a key."""
        return next((page for page in self.pages if page.key == key), None)

    def take(self, key: int, kept: Collection[int] = ()) -> Page | None:
        """Return the page that takes a key, if one is neither in use nor holds a ``kept`` key."""
        order = [(self.hand + step) % WAYS for step in range(WAYS)]
        idle = [
            way for way in order if not self.pages[way].users and self.pages[way].key not in kept
        ]
        if not idle:
            return None
        fresh = [way for way in idle if not self.pages[way].was_hit]
        way = fresh[0] if fresh else idle[0]
        for passed in idle[: idle.index(way)] if fresh else idle:
            self.pages[passed].was_hit = False
        self.pages[way] = Page(key)
        self.hand = (way + 1) % WAYS
        return self.pages[way]


class ClockCache:
    """Counts what becomes of the requests of a warp."""

    def __init__(self, sets: int) -> None:
        self.sets = [ClockSet() for _ in range(sets)]
        self.counts: Counter[str] = Counter()

    def ask(self, target: int, blocks: Sequence[int]) -> None:
        """Ask for the blocks of all lanes at once."""
        in_use = []
        for block in dict.fromkeys(blocks):
            key = block * 64 + target + 1
            of = self.sets[draw(0, key) % len(self.sets)]
            page = of.find(key)
            if page is not None:
                page.was_hit = True
                self.counts["hits"] += 1
            else:
                page = of.take(key)
                self.counts["misses" if page is not None else "bypassed"] += 1
            if page is not None:
                page.users += 1
                in_use.append(page)
        self.counts["coalesced"] += len(blocks) - len(set(blocks))
        for page in in_use:
            page.users -= 1


class RowCache:
    """The same for rows of features, one at a time: pages of ``expected`` rows are kept."""

    def __init__(self, sets: int) -> None:
        self.sets = [ClockSet() for _ in range(sets)]
        self.expected: Counter[int] = Counter()

    def gather(self, row: int, *, was_expected: bool) -> bool:
        """Gather a row; return whether the cache holds it."""
        if was_expected:
            self.expected[row] -= 1
        of = self.sets[draw(0, row + 1) % len(self.sets)]
        page = of.find(row + 1)
        if page is not None:
            page.was_hit = True
            return True
        of.take(row + 1, {each + 1 for each, count in self.expected.items() if count > 0})
        return False
