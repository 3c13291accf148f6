"""The 40 columns of a Criteo row in its three forms, and the transform that packs them.

TSV: no header, tab-separated, one line per click: a label (0 or 1), 13 integers that may be empty
or negative, 26 categorical ids of 8 hex digits that may be empty. Packed: 40 little-endian int32,
160 B a row, in the same order, which is the layout of facebookresearch/dlrm's ``numpy_to_binary``
(label, integers, categoricals). The transform is that project's ``data_utils.py``: an empty integer
and a negative one become 0, an empty id becomes 0, an id is its uint32 modulo 40,000,000 (MLPerf's
``max_ind_range``). ``log(x + 1)`` is taken when packed rows are loaded, so it has no place here.
Ids are not renumbered by frequency and days are not shuffled.
"""

from __future__ import annotations

import re
import struct

LABEL = "label"
INTEGERS = tuple(f"i{number}" for number in range(1, 14))
CATEGORICALS = tuple(f"c{number}" for number in range(1, 27))
COLUMNS = (LABEL, *INTEGERS, *CATEGORICALS)

ID_MODULUS = 40_000_000
ROW_BYTES = 4 * len(COLUMNS)

_ROW = struct.Struct(f"<{len(COLUMNS)}i")
_INTEGER = re.compile(rb"-?[0-9]+\Z")
_HEX_ID = re.compile(rb"[0-9a-fA-F]{8}\Z")
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


def parse_line(line: bytes) -> tuple[int, ...]:
    """Return the 40 packed values of one TSV line, with or without its line end.

    This is the definition that the fast path is compared with. Raises ``ValueError`` with a clause
    that says what is wrong.
    """
    fields = line.removesuffix(b"\n").removesuffix(b"\r").split(b"\t")
    if len(fields) != len(COLUMNS):
        raise ValueError(f"{len(fields)} columns where {len(COLUMNS)} are needed")
    first, end = 1, 1 + len(INTEGERS)
    return (
        _label(fields[0]),
        *map(_count, INTEGERS, fields[first:end]),
        *map(_id, CATEGORICALS, fields[end:]),
    )


def pack_row(values: tuple[int, ...]) -> bytes:
    """Return the 160 bytes of one row."""
    return _ROW.pack(*values)


def _label(text: bytes) -> int:
    if text not in {b"0", b"1"}:
        raise ValueError(f"{LABEL} is {text!r}; it must be 0 or 1")
    return int(text)


def _count(name: str, text: bytes) -> int:
    if not text:
        return 0
    if not _INTEGER.match(text) or not _INT32_MIN <= int(text) <= _INT32_MAX:
        raise ValueError(f"{name} is {text!r}; it must be empty or a 32-bit whole number")
    return max(int(text), 0)


def _id(name: str, text: bytes) -> int:
    if not text:
        return 0
    if not _HEX_ID.match(text):
        raise ValueError(f"{name} is {text!r}; it must be empty or 8 hex digits")
    return int(text, 16) % ID_MODULUS
