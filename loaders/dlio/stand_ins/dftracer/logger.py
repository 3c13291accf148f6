"""A tracer that is off: decorators, a context manager and marks, without effect."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable
from typing import Self, TypeVar

from wattload.core.interrupts import wait_for_reader

T = TypeVar("T")

DFTRACER_ENABLE = False
dftracer = None

# mpi4py ends the other ranks at the exit of one that failed, and their launcher ends this one.
atexit.register(wait_for_reader)


def _unchanged(function: Callable[..., T]) -> Callable[..., T]:
    return function


def _batches(batches: Iterable[T], *_: object, **__: object) -> Iterable[T]:
    return batches


class dft_fn:  # noqa: N801 - the tracer's name
    """Makes decorators of a module's functions."""

    log = log_init = staticmethod(_unchanged)
    iter = staticmethod(_batches)

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, **_: object) -> None:
        pass
