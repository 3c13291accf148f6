"""Little-endian fields of a structure that a controller returned."""

from __future__ import annotations

from wattload.core.errors import PowerError


def u16(data: bytes, offset: int) -> int:
    """Return the word at ``offset``."""
    return int.from_bytes(data[offset : offset + 2], "little")


def u32(data: bytes, offset: int) -> int:
    """Return the double word at ``offset``."""
    return int.from_bytes(data[offset : offset + 4], "little")


def u64(data: bytes, offset: int) -> int:
    """Return the quadruple word at ``offset``."""
    return int.from_bytes(data[offset : offset + 8], "little")


def u128(data: bytes, offset: int) -> int:
    """Return the counter of 16 bytes at ``offset``."""
    return int.from_bytes(data[offset : offset + 16], "little")


def text(data: bytes, offset: int, length: int) -> str:
    """Return an ASCII field without its padding; what is not printable ASCII becomes U+FFFD.

    A name ends up on terminals and in file names: no drive may send them control characters.
    """
    raw = data[offset : offset + length].decode("ascii", "replace").strip(" \0")
    return "".join(each if " " <= each <= "~" else "\ufffd" for each in raw)


def require_bytes(data: bytes, size_bytes: int, name: str) -> None:
    """Check the length of a structure of fixed size.

    Raises:
        PowerError: ``data`` is shorter or longer; ``name`` is how the message calls it.
    """
    if len(data) != size_bytes:
        raise PowerError(f"{name} has {size_bytes} bytes, got {len(data)}")
