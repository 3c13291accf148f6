"""Users who talk to a server in turns, so that each prompt begins with the one before it.

A prompt is a system prompt, all earlier prompts and outputs of its conversation, and new text.
A conversation has a geometric number of turns, or fewer: where the next input would be longer than
``most_input_tokens``, the user begins another one.
"""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import bisect
from collections.abc import Iterable, Iterator
from random import Random

from wattload.workloads.kv_cache.config import Config, Spread, UserType
from wattload.workloads.kv_cache.requests import Request

_INDEX_BITS = 13
"""A block id is its owner, then its index in the prompt: 131,072 tokens are 8192 blocks of 16."""
_PAUSE_FACTOR = Spread(low=0.8, high=1.2)


class _User:
    """A user, and the state of the present conversation.

    ``conversations`` has the numbers of those to come. With ``is_biased``, the user is one found in
    a pause. ``context_tokens`` are those of the conversation so far, after its last turn
    ``is_done``.
    """

    def __init__(
        self,
        number: int,
        kind: UserType,
        rng: Random,
        conversations: Iterator[int],
        *,
        is_biased: bool = False,
    ) -> None:
        self.number = number
        self.kind = kind
        self.rng = rng
        self.conversations = conversations
        self.most_new = _draw(kind.new_tokens, rng)
        self.most_output = _draw(kind.output_tokens, rng)
        self._think_s = _draw(kind.think_s, rng, is_biased=is_biased)
        self.prompt = 0
        self.owner = 0
        self.context_tokens = 0
        self.is_done = True

    def pause_s(self, *, is_biased: bool = False) -> float:
        if self.kind.is_drawn_once:
            return self._think_s * _draw(_PAUSE_FACTOR, self.rng, is_biased=is_biased)
        return _draw(self.kind.think_s, self.rng, is_biased=is_biased)

    def tokens(self, spread: Spread, most: float, factor: float) -> int:
        """Return the length of a text, of which ``most`` was drawn once."""
        once = self.kind.is_drawn_once
        tokens = self.rng.uniform(most / 4, most) if once else _draw(spread, self.rng)
        return max(1, round(tokens * factor))


class Users:
    """Requests of users, in a closed loop or at a rate.

    In a closed loop ``users`` users ask again after a pause. In an open one, users arrive as a
    Poisson process, have one geometric number of turns and leave; a turn is scheduled a pause after
    the turn before it was. It begins in the stationary state, with users who came before time 0.
    Memory grows with the users who are present, never with the requests.
    """

    def __init__(self, config: Config, *, seed: int) -> None:
        self._config = config
        self._seed = seed
        self._kinds = [kind for kind in config.user_types.values() if kind.share]
        self._shares = [kind.share for kind in self._kinds]
        popularity = ((n + 1.0) ** -config.zipf for n in range(config.system_prompts))
        self._popularity = list(itertools.accumulate(popularity))
        self._system_tokens = config.system_prompt_tokens if config.system_prompts else 0
        self._users: list[_User] = []
        self._rng = Random(f"{seed}")
        self._numbers = itertools.count()
        self._conversations = itertools.count()
        self._waiting: list[tuple[float, int, _User]] = []
        self._users_per_s = (config.request_rate or 0.0) / config.turns
        self._next_user_s = 0.0

    @property
    def is_closed(self) -> bool:
        return self._config.is_closed

    def first(self) -> Iterable[Request]:
        """Return the first request; in a closed loop those of all users, each within a pause."""
        if not self.is_closed:
            self._begin_stationary()
            return [self._next()]
        count = self._config.users
        sums = list(itertools.accumulate(self._shares))
        for number in range(count):
            kind = self._kinds[bisect(sums, sums[-1] * (number + 0.5) / count)]
            # Each user has random numbers of its own: the order of answers must not change them.
            rng = Random(f"{self._seed} {number}")
            self._users.append(_User(number, kind, rng, itertools.count(number, count)))
        requests = [self._ask(user, user.rng.uniform(0, user.pause_s())) for user in self._users]
        return sorted(requests, key=lambda request: request.arrival_s)

    def following(self, request: Request, time_s: float) -> Request:
        """Return the next request: in a closed loop that of the same user, after its pause."""
        if not self.is_closed:
            return self._next()
        return self._ask(self._users[request.user], time_s + request.think_s)

    def _begin_stationary(self) -> None:
        """Draw the users who are present at time 0, all of them in a pause.

        By Little's law their mean number is that of pauses a second times the mean pause, and it
        has a Poisson distribution. A pause that is under way at a given time has a density in
        proportion to its length, and ends at a uniform time within it.
        """
        turns, rng = self._config.turns, self._rng
        weights = [kind.share * _mean(kind.think_s) for kind in self._kinds]
        present = self._users_per_s * (turns - 1) * sum(weights) / sum(self._shares)
        drawn = rng.expovariate(1)
        while drawn < present:
            user = self._arrived(weights, is_biased=True)
            self._ask(user, 0.0)
            while not user.is_done:
                self._ask(user, 0.0)
            user.is_done = False
            self._wait(rng.uniform(0, user.pause_s(is_biased=True)), user)
            drawn += rng.expovariate(1)
        self._next_user_s = rng.expovariate(self._users_per_s)

    def _next(self) -> Request:
        """Return the next request of an open loop by its time."""
        if self._waiting and self._waiting[0][0] < self._next_user_s:
            arrival_s, _, user = heapq.heappop(self._waiting)
        else:
            arrival_s, user = self._next_user_s, self._arrived(self._shares)
            self._next_user_s += self._rng.expovariate(self._users_per_s)
        request = self._ask(user, arrival_s)
        if not user.is_done:
            self._wait(arrival_s + request.think_s, user)
        return request

    def _arrived(self, weights: list[float], *, is_biased: bool = False) -> _User:
        (kind,) = self._rng.choices(self._kinds, weights)
        number = next(self._numbers)
        return _User(number, kind, self._rng, self._conversations, is_biased=is_biased)

    def _wait(self, until_s: float, user: _User) -> None:
        heapq.heappush(self._waiting, (until_s, user.number, user))

    def _ask(self, user: _User, arrival_s: float) -> Request:
        """Return the next turn of a user, and draw whether it is the last one."""
        config, rng = self._config, user.rng
        factor = config.length_factor
        new_tokens = user.tokens(user.kind.new_tokens, user.most_new, factor)
        if user.is_done or user.context_tokens + new_tokens > config.most_input_tokens:
            if self._popularity:
                numbers = range(config.system_prompts)
                (user.prompt,) = rng.choices(numbers, cum_weights=self._popularity)
            user.owner = config.system_prompts + next(user.conversations)
            user.context_tokens = self._system_tokens
        input_tokens = min(user.context_tokens + new_tokens, config.most_input_tokens)
        output_tokens = user.tokens(user.kind.output_tokens, user.most_output, factor)
        user.context_tokens = input_tokens + output_tokens
        user.is_done = rng.random() * config.turns < 1
        shared = self._system_tokens // config.block_tokens
        prompt, own = user.prompt << _INDEX_BITS, user.owner << _INDEX_BITS
        return Request(
            arrival_s=arrival_s,
            blocks=[
                *range(prompt, prompt + shared),
                *range(own + shared, own + input_tokens // config.block_tokens),
            ],
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            user=user.number,
            think_s=user.pause_s(),
        )


def _draw(spread: Spread, rng: Random, *, is_biased: bool = False) -> float:
    """Return a value; ``is_biased`` weighs each value by its size.

    Weighed so, a log-normal variable has a logarithm with a mean larger by ``sigma`` squared.
    """
    if spread.median is not None:
        return spread.median * math.exp(rng.gauss(is_biased * spread.sigma**2, spread.sigma))
    if is_biased:
        return math.sqrt(rng.uniform(spread.low**2, spread.high**2))
    return rng.uniform(spread.low, spread.high)


def _mean(spread: Spread) -> float:
    if spread.median is not None:
        return spread.median * math.exp(spread.sigma**2 / 2)
    return (spread.low + spread.high) / 2
