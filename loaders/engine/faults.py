"""Reads of mapped files that fail: they would end the process by SIGBUS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from wattload.loaders.engine import library
from wattload.loaders.engine.header import array_of


@dataclass(slots=True)
class Guard:
    """After the block, ``fault`` is the mapping and offset of the first failed read, or ``None``.

    The mapping holds zeros from then on.
    """

    fault: tuple[int, int] | None = None


@contextmanager
def guarded(mappings: Sequence[tuple[int, int]]) -> Iterator[Guard]:
    """Keep failed reads of mapped files from ending this process; see ``wl_guard_begin``.

    Args:
        mappings: address and size in bytes of each mapped file, 64 at most.
    """
    found = Guard()
    library.invoke("wl_guard_begin", array_of("wl_mapping", mappings), len(mappings))
    try:
        yield found
    finally:
        address = library.load().wl_guard_end()
        for number, (start, size_bytes) in enumerate(mappings):
            if start <= address < start + size_bytes:
                found.fault = number, address - start
