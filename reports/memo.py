"""Functions of one record or one group, computed once for each: many sections ask the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import ref

Subject = TypeVar("Subject")
Answer = TypeVar("Answer")


def once_each(function: Callable[[Subject], Answer]) -> Callable[[Subject], Answer]:
    """Return the function with its answers kept as long as what they are of.

    The key is the object itself and not what it is equal to: a record is too large to compare. Both
    it and the answer must not change.
    """
    known: dict[int, tuple[ref[Subject], Answer]] = {}

    @wraps(function)
    def answer(subject: Subject) -> Answer:
        key = id(subject)
        if key not in known:
            known[key] = (ref(subject, lambda _: known.pop(key)), function(subject))
        return known[key][1]

    return answer
