"""Requests to a server, and where they come from: users, or a recorded trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

BLOCK_ID_LIMIT = 1 << 44
"""Block ids are below this: a stamp has the id and the number of a piece in one 64-bit word."""


@dataclass(slots=True)
class Request:
    """One request: when it arrives, and the blocks of its input.

    ``arrival_s`` is on the clock of its source, from 0. ``blocks`` are the ids of the full blocks
    of its input, head first; equal ids have equal contents and equal blocks before them.
    ``think_s`` is the pause of the user after it, in a closed loop.
    """

    arrival_s: float
    blocks: Sequence[int]
    input_tokens: int
    output_tokens: int
    user: int = 0
    think_s: float = 0.0


class Requests(Protocol):
    """A source of requests; equal seeds give equal requests.

    In an open loop each request has its own time of arrival, whatever happened to those before it.
    In a closed loop a user asks again some time after the previous request is done.
    """

    @property
    def is_closed(self) -> bool:
        """Whether arrivals follow from when earlier requests are done."""
        ...

    def first(self) -> Iterable[Request]:
        """Return the first request; in a closed loop that of each user."""
        ...

    def following(self, request: Request, time_s: float) -> Request | None:
        """Return the request after this one, ``None`` at the end of a trace.

        It is called once for each request: in a closed loop when it is done, at ``time_s``, and
        else when it arrives.
        """
        ...
