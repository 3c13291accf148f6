"""Results that live as long as the object that they were computed from."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import ref

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def cache_by_identity(function: Callable[[Argument], Result]) -> Callable[[Argument], Result]:
    """Return the function with cached results, which live as long as their arguments.

    The key is the identity of the argument, because a record is too large to compare. Arguments and
    results must be immutable.
    """
    results: dict[int, tuple[ref[Argument], Result]] = {}

    @wraps(function)
    def cached(argument: Argument) -> Result:
        key = id(argument)
        if key not in results:
            results[key] = (ref(argument, lambda _: results.pop(key)), function(argument))
        return results[key][1]

    return cached
