"""The size of DiskANN's index file; ``loaders/vectors/layout.py`` says where its nodes are."""

from __future__ import annotations

SECTOR_BYTES = 4096


def node_bytes(vector_bytes: int, degree: int) -> int:
    """Return the bytes of a node: its vector, its degree as uint32, and room for neighbours."""
    return vector_bytes + 4 * (degree + 1)


def read_bytes(node: int) -> int:
    """Return the bytes of the read that a node of ``node`` bytes takes, in whole sectors."""
    return -(-node // SECTOR_BYTES) * SECTOR_BYTES


def file_bytes(count: int, node: int) -> int:
    """Return the size of a file of ``count`` nodes of ``node`` bytes, its header included."""
    sharing = SECTOR_BYTES // node
    groups = -(-count // sharing) if sharing else count
    return SECTOR_BYTES + groups * read_bytes(node)
