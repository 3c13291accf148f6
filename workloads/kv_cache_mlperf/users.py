"""The users of MLPerf's loop, and the requests that they draw.

Users do not wait for their requests: each asks again after a pause, however many are unanswered.
Sources: kv_cache/workload.py and kv_cache/benchmark.py of MLPerf Storage v3.0.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from wattload.workloads.kv_cache_mlperf.config import MOST_USERS

PREFILL_ONLY_TOKENS = 10_000
"""A request with so long a context is not decoded."""
DECODE_BATCH = 32
"""Tokens that are generated for one more read of the whole entry."""
PROMPT_TOKENS = (5, 9, 6)
"""Words of the three system prompts, which count as tokens. No entry of one is ever written."""
_KINDS = (
    ((512, 4096), (50, 200), (0.1, 0.5)),  # chatbot
    ((4096, 25000), (100, 500), (0.2, 1.0)),  # coding
    ((4096, 16384), (200, 800), (0.3, 1.5)),  # document
)
"""Tokens of context, tokens generated and seconds of pause, from and to."""
MOST_CONTEXT_TOKENS = max(context[1] for context, _, _ in _KINDS)


@dataclass(slots=True, kw_only=True)
class User:
    """A user as drawn once; higher ``priority`` is served first. ``turns`` are its conversation."""

    priority: int
    context_tokens: int
    generated_tokens: int
    think_s: float
    turns: list[int] = field(default_factory=list)

    def pause_s(self, random: Random) -> float:
        return self.think_s * random.uniform(0.8, 1.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request at a time since the start, which writes an entry of ``entry_tokens``.

    It is read ``own_reads`` times. ``turns`` are the numbers of all requests of the conversation.
    ``prompt`` is the number of the system prompt that it begins with.
    """

    number: int
    time_s: float
    priority: int
    entry_tokens: int
    generated_tokens: int
    own_reads: int
    prompt: int | None
    turns: Sequence[int]


def draw_users(count: int, random: Random) -> list[User]:
    """Return users of three kinds; 15, 35 and 50 % are of high, medium and low priority."""
    users = []
    for _ in range(count):
        context_tokens, generated_tokens, think_s = random.choice(_KINDS)
        users.append(
            User(
                priority=random.choices((3, 2, 1), (0.15, 0.35, 0.5))[0],
                context_tokens=random.randint(*context_tokens),
                generated_tokens=random.randint(*generated_tokens),
                think_s=random.uniform(*think_s),
            )
        )
    return users


def requests(users: Sequence[User], random: Random, *, length_divisor: int) -> Iterator[Request]:
    """Yield requests without end, in order of their times.

    A turn has a quarter of its user's lengths to all of them. One in five begins a conversation,
    which has 50 turns at most. What waits of a conversation that is not among the 1,000 used last
    finds no earlier turns.
    """
    known: OrderedDict[int, list[int]] = OrderedDict()
    pauses = [(user.pause_s(random), index) for index, user in enumerate(users)]
    heapq.heapify(pauses)
    for number in itertools.count():
        time_s, index = pauses[0]
        user = users[index]
        if not user.turns or len(user.turns) >= 50 or random.random() < 0.2:  # noqa: PLR2004
            user.turns = []
        user.turns.append(number)
        known[user.turns[0]] = user.turns
        known.move_to_end(user.turns[0])
        if len(known) > MOST_USERS:
            known.popitem(last=False)[1].clear()
        context_tokens = _part_of(user.context_tokens, random)
        generated_tokens = _part_of(user.generated_tokens, random)
        prompt = random.randrange(len(PROMPT_TOKENS)) if random.random() < 0.2 else None  # noqa: PLR2004
        entry_tokens = context_tokens - (0 if prompt is None else PROMPT_TOKENS[prompt])
        is_decoded = context_tokens < PREFILL_ONLY_TOKENS
        yield Request(
            number=number,
            time_s=time_s,
            priority=user.priority,
            entry_tokens=max(entry_tokens // length_divisor, 1),
            generated_tokens=generated_tokens,
            own_reads=1 + -(-generated_tokens // DECODE_BATCH) if is_decoded else 0,
            prompt=prompt,
            turns=user.turns,
        )
        heapq.heapreplace(pauses, (time_s + user.pause_s(random), index))


def _part_of(length: int, random: Random) -> int:
    return random.randint(max(1, length // 4), length)
