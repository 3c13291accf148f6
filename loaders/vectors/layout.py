"""Where the nodes of an index are in DiskANN's file: a sector of 4096 bytes is its unit.

A node is its vector, its degree as uint32, and room for ``degree`` neighbours. As many nodes as fit
share a sector, and none crosses one; a larger node has sectors of its own. Sector 0 is the header
(``create_disk_layout`` in DiskANN, branch cpp_main, src/disk_utils.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from wattload.core.storage import node_file

SECTOR_BYTES = node_file.SECTOR_BYTES
MAX_DEGREE = 512
MAX_NODE_BYTES = 4 * SECTOR_BYTES
MAX_NODES = (1 << 31) - 1
MAX_NUMBER = 1e15
"""Squares of larger numbers of a vector could add up to more than float32 has."""


class VectorType(Enum):
    """What a vector's numbers are."""

    f32 = "f32"
    u8 = "u8"

    @property
    def dtype(self) -> np.dtype[np.float32] | np.dtype[np.uint8]:
        return np.dtype(np.float32) if self is VectorType.f32 else np.dtype(np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLayout:
    """The nodes of one file: ``count`` vectors of ``dim`` numbers, with up to ``degree`` edges."""

    count: int
    dim: int
    vector_type: VectorType
    degree: int

    @property
    def node(self) -> np.dtype[np.void]:
        """A node as numpy has it; ``neighbours`` beyond ``edges`` have no meaning."""
        vector = ("vector", self.vector_type.dtype, (self.dim,))
        return np.dtype([vector, ("edges", "<u4"), ("neighbours", "<u4", (self.degree,))])

    @property
    def node_bytes(self) -> int:
        return node_file.node_bytes(self.dim * self.vector_type.dtype.itemsize, self.degree)

    @property
    def nodes_per_sector(self) -> int:
        """How many nodes share a sector; 0 for nodes of several sectors."""
        return SECTOR_BYTES // self.node_bytes

    @property
    def read_bytes(self) -> int:
        """The bytes of the one read that a node takes."""
        return node_file.read_bytes(self.node_bytes)

    @property
    def file_bytes(self) -> int:
        """The size of the file, its header included."""
        return node_file.file_bytes(self.count, self.node_bytes)

    def place(self, node: int) -> tuple[int, int]:
        """Return the offset of a node's read in the file, and that of the node in the read."""
        sharing = self.nodes_per_sector
        group, within = divmod(node, sharing) if sharing else (node, 0)
        return SECTOR_BYTES + group * self.read_bytes, within * self.node_bytes
