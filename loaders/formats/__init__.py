"""File formats of one record per file: what lies around the payload, and where the payload lies.

A format is a module with the functions of ``RecordFormat``; ``FORMATS`` has them by name, which
is also the suffix of the files.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.loaders.formats import npy, npz


class RecordFormat(Protocol):
    """How one uint8 array is laid out in a file: ``head``, payload, ``tail``."""

    HAS_CRC: bool
    """Whether the file stores a CRC-32 over ``checked_head`` and payload."""

    def head(self, shape: tuple[int, ...], crc32: int = 0, /) -> bytes:
        """Return the bytes before the payload; their count does not depend on ``crc32``."""
        ...

    def checked_head(self, shape: tuple[int, ...], /) -> bytes:
        """Return the end of ``head`` over which the CRC-32 runs before the payload."""
        ...

    def tail(self, shape: tuple[int, ...], crc32: int = 0, /) -> bytes:
        """Return the bytes after the payload; their count does not depend on ``crc32``."""
        ...

    def payload(
        self, raw: NDArray[np.uint8], name: str, /, *, check_crc: bool = False
    ) -> NDArray[np.uint8]:
        """Return the payload as a view of a file's bytes; ``name`` is for the ``DataError``."""
        ...


FORMATS: Final[dict[str, RecordFormat]] = {"npy": npy, "npz": npz}


def record_format(name: str) -> RecordFormat:
    """Return the format of that name; raises ``ConfigError`` for one that is not known."""
    try:
        return FORMATS[name]
    except KeyError as error:
        raise ConfigError(
            f"format must be one of {', '.join(sorted(FORMATS))}, got {name!r}"
        ) from error


def file_bytes(layout: RecordFormat, shape: tuple[int, ...]) -> int:
    """Return the size in bytes of a file that holds an array of that shape."""
    payload_bytes = int(np.prod(shape, dtype=np.int64))
    return len(layout.head(shape)) + payload_bytes + len(layout.tail(shape))
