r"""The ``.npy`` format (NEP 1): one uint8 array in C order after a short text header.

Layout: ``\x93NUMPY``, major and minor version, the header's length (two bytes little-endian in
version 1, four in 2 and 3), the header, a Python dict literal padded to a multiple of 64 bytes, and
the array's bytes. Source: numpy's ``numpy/lib/format.py``.
"""

from __future__ import annotations

import ast
import io
import math
import threading

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError

HAS_CRC = False

_MAGIC = b"\x93NUMPY"
_KEYS = frozenset({"descr", "fortran_order", "shape"})
_LENGTH_BYTES = {1: 2, 2: 4, 3: 4}
_HEADER_LIMIT_BYTES = 10_000
"""The longest header that is parsed; numpy's own limit for untrusted files."""

_parser = threading.Lock()
"""One thread at a time parses: CPython up to 3.12 counts the depth of all syntax trees under way in
one place, and raises ``SystemError`` when threads take turns (python/cpython issue 106905).
"""


def head(shape: tuple[int, ...], crc32: int = 0) -> bytes:
    """Return the header of a uint8 array of that shape, as ``np.save`` writes it."""
    return checked_head(shape)


def checked_head(shape: tuple[int, ...]) -> bytes:
    """Return the same header: where a container has a CRC-32, it runs over all of it."""
    header = io.BytesIO()
    fields = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, fields)
    return header.getvalue()


def tail(shape: tuple[int, ...], crc32: int = 0) -> bytes:
    """Return nothing: the file ends with the array."""
    return b""


def payload(raw: NDArray[np.uint8], name: str, *, check_crc: bool = False) -> NDArray[np.uint8]:
    """Return the array's bytes, shape ``(n,)``, as a view of ``raw``; nothing is copied.

    ``raw`` holds the whole file, shape ``(file bytes,)``. The format has no CRC to check.

    Raises:
        DataError: no npy file, cut short, bytes left over, not uint8, or not in C order.
    """
    start, shape = _header(raw, name)
    expected_bytes = math.prod(shape)
    found_bytes = len(raw) - start
    if found_bytes != expected_bytes:
        what = "cut short" if found_bytes < expected_bytes else "followed by other bytes"
        raise DataError(
            f"{name} is {what}: its header promises {expected_bytes} bytes of array "
            f"and {found_bytes} follow; generate the data again"
        )
    return raw[start:]


def _header(raw: NDArray[np.uint8], name: str) -> tuple[int, tuple[int, ...]]:
    """Return where the array starts and its shape."""
    preamble = raw[:12].tobytes()
    if not preamble.startswith(_MAGIC):
        raise DataError(f"{name} is no npy array: it starts with {preamble[:6]!r}, not {_MAGIC!r}")
    length_bytes = _LENGTH_BYTES.get(preamble[6] if len(preamble) > 6 else 0)  # noqa: PLR2004
    if length_bytes is None or len(preamble) < 8 + length_bytes:
        raise DataError(f"{name} is cut short or of an unknown npy version, {preamble[6:8]!r}")
    start = 8 + length_bytes
    length = int.from_bytes(preamble[8:start], "little")
    if length > min(_HEADER_LIMIT_BYTES, len(raw) - start):
        raise DataError(
            f"{name} is corrupt: its npy header claims {length} bytes, "
            f"at most {min(_HEADER_LIMIT_BYTES, len(raw) - start)} are possible"
        )
    return start + length, _shape(raw[start : start + length].tobytes(), name)


def _shape(text: bytes, name: str) -> tuple[int, ...]:
    try:
        with _parser:
            fields = ast.literal_eval(text.decode("latin1").strip())
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise DataError(f"{name} is corrupt: its npy header is no dict: {text[:60]!r}") from error
    if not isinstance(fields, dict) or fields.keys() != _KEYS:
        raise DataError(f"{name} is corrupt: its npy header is not {sorted(_KEYS)}: {text[:60]!r}")
    if fields["descr"] != "|u1" or fields["fortran_order"] is not False:
        raise DataError(
            f"{name} holds {fields['descr']!r} with fortran_order={fields['fortran_order']!r}; "
            "records are '|u1' (uint8) in C order"
        )
    shape = fields["shape"]
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise DataError(f"{name} is corrupt: the shape in its npy header is {shape!r}")
    return shape
