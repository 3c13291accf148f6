"""Stripes, the lines of a stream: a block of text to numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import PowerError

_END = "eof"
"""Ends a block that holds all there was; without it there is more already."""

_WHOLE = re.compile(r"[-+0-9 \r\n]*")
_NUMBERS = re.compile(r"[-+0-9.eE \r\n]*")


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One answer to ``stream text all``: stripes of shape (n, columns), and whether it was all."""

    stripes: NDArray[np.float64]
    is_all: bool


def parse_block(text: str, column_count: int) -> Block:
    """Return the stripes in a block.

    Raises:
        PowerError: it holds something else, or a line of another length.
    """
    body = text.rstrip()
    is_all = body.endswith(_END)
    body = body.removesuffix(_END).rstrip()
    line_count = body.count("\n") + 1 if body else 0
    numbers = _numbers(body)
    if numbers.size != line_count * column_count:
        raise PowerError(
            f"QIS sends {line_count} stripes with {numbers.size} numbers; its header has "
            f"{column_count} to a stripe"
        )
    return Block(numbers.reshape(line_count, column_count), is_all or line_count == 0)


def _numbers(body: str) -> NDArray[np.float64]:
    """Return the numbers in a text; whole ones, the rule, are read eight times as fast."""
    if not body:
        return np.empty(0)
    is_whole = _WHOLE.fullmatch(body) is not None
    if not is_whole and _NUMBERS.fullmatch(body) is None:
        raise PowerError(f"QIS answers what are no stripes: {body[:60]!r}")
    try:
        found = np.fromstring(body, dtype=np.int64 if is_whole else np.float64, sep=" ")
    except (DeprecationWarning, ValueError) as error:
        raise PowerError(f"QIS sends a stripe with a number that is none: {error}") from error
    return found.astype(np.float64)
