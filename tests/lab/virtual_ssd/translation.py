"""A flash translation layer: where pages lie on the media, and what garbage collection costs.

The media is a ring of blocks. Collection is first in, first out: the block that was written
longest ago is erased next, and its valid pages are written again. With uniform random writes the
media bytes per host byte approach alpha / (alpha + W(-alpha exp(-alpha))), with alpha = physical
/ logical bytes and W Lambert's function.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK_PAGES = 64
"""Pages that are erased together."""

_UNMAPPED = -1


class TranslationLayer:
    """Maps pages of ``page_bytes``, the indirection unit, to slots of the media.

    A write of part of a page writes the whole page: nothing is merged between commands. Media bytes
    are counted when a page gets its slot.

    Args:
        capacity_bytes: Logical bytes, a multiple of ``page_bytes``.
        spare_share: Spare area / logical bytes; at least one block.
        page_bytes: The indirection unit.

    Raises:
        ValueError: The capacity holds no whole number of pages, or the spare area no block.
    """

    def __init__(self, capacity_bytes: int, *, spare_share: float, page_bytes: int) -> None:
        pages, rest = divmod(capacity_bytes, page_bytes)
        blocks = round(pages * (1 + spare_share) / BLOCK_PAGES)
        if rest or blocks * BLOCK_PAGES < pages + BLOCK_PAGES:
            raise ValueError(
                f"{capacity_bytes} bytes must be whole pages of {page_bytes} and their spare share "
                f"of {spare_share} at least one block of {BLOCK_PAGES} pages"
            )
        self.page_bytes = page_bytes
        self.host_bytes = self.media_bytes = 0
        self._slot_of: NDArray[np.int64] = np.full(pages, _UNMAPPED)
        # Also holds pages that were since written elsewhere: such a slot is invalid.
        self._page_in: NDArray[np.int64] = np.full(blocks * BLOCK_PAGES, _UNMAPPED)
        self._slots = np.arange(self._page_in.size)
        self._next = self._end = 0

    @property
    def pages(self) -> int:
        """How many logical pages there are."""
        return self._slot_of.size

    @property
    def alpha(self) -> float:
        """Physical / logical bytes, with the spare area rounded to blocks."""
        return self._page_in.size / self._slot_of.size

    @property
    def valid_bytes(self) -> int:
        """Bytes of the pages that are mapped."""
        return int(np.count_nonzero(self._slot_of != _UNMAPPED)) * self.page_bytes

    def write(self, start_bytes: int, size_bytes: int) -> int:
        """Write a range and return the media bytes that it costs, collection included."""
        first = start_bytes // self.page_bytes
        end = -(-(start_bytes + size_bytes) // self.page_bytes)
        before_bytes = self.media_bytes
        self.write_pages(np.arange(first, end), size_bytes)
        return self.media_bytes - before_bytes

    def write_pages(self, pages: NDArray[np.int64], host_bytes: int) -> None:
        """Write ``host_bytes`` to these pages, shape (n,), in order; a page may be repeated."""
        self.host_bytes += host_bytes
        self.media_bytes += pages.size * self.page_bytes
        while pages.size:
            if self._next == self._end:
                self._erase_oldest()
            slots = self._slots[self._next : min(self._end, self._next + pages.size)]
            written, pages = pages[: slots.size], pages[slots.size :]
            self._page_in[slots] = written
            self._slot_of[written] = slots  # of a repeated page the last slot stays
            self._next += slots.size

    def deallocate(self, start_bytes: int, size_bytes: int) -> None:
        """Unmap the whole pages of a range."""
        first = -(-start_bytes // self.page_bytes)
        end = (start_bytes + size_bytes) // self.page_bytes
        self._slot_of[first : max(first, end)] = _UNMAPPED

    def _erase_oldest(self) -> None:
        """Make the oldest block the open one; its valid pages come first in it."""
        start = self._end % self._slots.size
        self._end = start + BLOCK_PAGES
        slots = self._slots[start : self._end]
        pages = self._page_in[slots]
        kept = pages[self._slot_of[pages] == slots]
        self._page_in[start : start + kept.size] = kept
        self._slot_of[kept] = slots[: kept.size]
        self._next = start + kept.size
        self.media_bytes += kept.size * self.page_bytes
