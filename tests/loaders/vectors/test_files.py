"""DiskANN's files against a reader of plain ``struct``, other builders' headers, and damage."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from wattload.core.errors import DataError
from wattload.core.files import open_folder
from wattload.loaders.data.media import DirectMedium
from wattload.loaders.vectors import files
from wattload.loaders.vectors.files import (
    CENTROIDS,
    CODES,
    MEDOIDS,
    NODES,
    PIVOTS,
    array_bytes,
    load_index,
    node_blocks,
    pivot_bytes,
    read_layout,
    read_nodes,
    write_nodes,
)
from wattload.loaders.vectors.layout import NodeLayout, VectorType

CHUNKS = 5


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", 5 * 4096)


def layout_of(count: int, dim: int, kind: str = "f32", degree: int = 8) -> NodeLayout:
    return NodeLayout(count=count, dim=dim, vector_type=VectorType(kind), degree=degree)


class Made:
    """An index of random numbers in files, and what they were made from."""

    def __init__(
        self, folder: Path, layout: NodeLayout, medoid: int = 1, most: int | None = None
    ) -> None:
        self.prefix, self.layout, self.moved = folder / "index", layout, 0
        self.draw = draw = np.random.default_rng(3)
        count, dim, degree = layout.count, layout.dim, layout.degree
        vectors = draw.normal(100, 30, (count, dim))
        self.vectors = vectors.astype(layout.vector_type.dtype)
        self.graph = draw.integers(0, count, (count, degree + 1), dtype=np.uint32)
        self.graph[:, 0] = draw.integers(1, (most or degree) + 1, count)
        self.graph[:, 1:][np.arange(degree) >= self.graph[:, :1]] = 0  # unused room
        self.centroid = draw.random(dim, dtype=np.float32)
        self.pivots = draw.random((256, dim), dtype=np.float32)
        self.offsets = np.linspace(0, dim, CHUNKS + 1).astype(np.uint32)
        self.codes = draw.integers(0, 256, (count, CHUNKS), dtype=np.uint8)
        medium = DirectMedium()
        with open_folder(folder) as opened:
            handle = medium.create(opened, f"index{NODES}", layout.file_bytes)
        try:
            write_nodes(
                handle,
                self.path(NODES),
                layout,
                medoid,
                vectors=self.vectors,
                graph=self.graph,
                moved=self._count,
            )
            medium.finish(handle, self.path(NODES), layout.file_bytes)
        finally:
            os.close(handle)
        pivots = pivot_bytes(self.centroid, self.pivots, self.offsets)
        self.path(PIVOTS).write_bytes(pivots.tobytes())
        self.path(CODES).write_bytes(array_bytes(self.codes).tobytes())

    def path(self, suffix: str) -> Path:
        return Path(f"{self.prefix}{suffix}")

    def put(self, suffix: str, offset: int, form: str, *values: float) -> None:
        with self.path(suffix).open("r+b") as file:
            file.seek(offset)
            file.write(struct.pack("<" + form, *values))

    def _count(self, size_bytes: int) -> None:
        self.moved += size_bytes


SHAPES = {
    "several-nodes-a-sector": layout_of(103, 32),
    "one-node-a-sector": layout_of(11, 900),
    "several-sectors-a-node": layout_of(13, 1536, degree=64),
    "bytes": layout_of(95, 33, "u8"),
    "bytes-with-room-for-floats": layout_of(200, 32, "u8", degree=100),
    "two-nodes": layout_of(2, 7, degree=512),
}


@pytest.mark.parametrize("layout", SHAPES.values(), ids=SHAPES)
def test_the_file_of_nodes_has_diskanns_layout(tmp_path: Path, layout: NodeLayout) -> None:
    made = Made(tmp_path, layout)
    data = made.path(NODES).read_bytes()
    item = {"f32": 4, "u8": 1}[layout.vector_type.value]
    node_bytes = (layout.degree + 1) * 4 + layout.dim * item
    sharing = 4096 // node_bytes
    header = (9, 1, layout.count, layout.dim, 1, node_bytes, sharing, 0, 0, 0, len(data))
    assert struct.unpack_from("<2i9Q", data) == header
    assert not any(data[80:4096])
    unused = bytearray(data[4096:])
    for node in range(layout.count):
        if sharing:
            offset = (node // sharing + 1) * 4096 + node % sharing * node_bytes
        else:
            offset = (1 + node * -(-node_bytes // 4096)) * 4096
        vector = struct.unpack_from(f"<{layout.dim}{'f' if item == 4 else 'B'}", data, offset)
        assert vector == tuple(made.vectors[node].tolist())
        graph = struct.unpack_from(f"<{layout.degree + 1}I", data, offset + layout.dim * item)
        assert graph == tuple(made.graph[node].tolist())
        unused[offset - 4096 : offset - 4096 + node_bytes] = bytes(node_bytes)
    assert not any(unused)
    assert made.moved == len(data)


def test_the_files_of_codes_have_diskanns_layout(tmp_path: Path) -> None:
    made = Made(tmp_path, layout_of(20, 12))
    data = made.path(PIVOTS).read_bytes()
    assert struct.unpack_from("<2i", data) == (4, 1)
    offsets = struct.unpack_from("<4Q", data, 8)
    assert offsets[0] == 4096
    assert offsets[3] == len(data)
    assert not any(data[40:4096])
    for offset, form, array in zip(
        offsets, "ffI", (made.pivots, made.centroid, made.offsets), strict=False
    ):
        rows, columns = struct.unpack_from("<2i", data, offset)
        assert (rows, columns) == (*array.shape, 1)[:2]
        found = struct.unpack_from(f"<{rows * columns}{form}", data, offset + 8)
        assert found == tuple(array.reshape(-1).tolist())
    codes = made.path(CODES).read_bytes()
    assert codes == struct.pack("<2i", 20, CHUNKS) + made.codes.tobytes()


@pytest.mark.parametrize("layout", SHAPES.values(), ids=SHAPES)
def test_an_index_is_read_as_it_was_written(tmp_path: Path, layout: NodeLayout) -> None:
    made = Made(tmp_path, layout)
    assert read_layout(made.prefix) == (layout, 1)
    index = load_index(made.prefix, np.arange(layout.count, dtype=np.uint64))
    assert index.layout == layout
    for name in ("centroid", "pivots", "offsets", "codes"):
        assert np.array_equal(getattr(index, name), getattr(made, name))
        assert getattr(index, name).dtype == getattr(made, name).dtype
    assert index.medoids.tolist() == [1]
    assert np.array_equal(index.medoid_vectors, made.vectors[1:2].astype(np.float32))
    assert index.digests is not None
    blocks = list(node_blocks(index.path, layout))
    nodes = np.concatenate(blocks)
    assert np.array_equal(nodes["vector"], made.vectors)
    assert np.array_equal(nodes["edges"], made.graph[:, 0])
    assert np.array_equal(nodes["neighbours"], made.graph[:, 1:])
    some = np.array([layout.count - 1, 0])
    assert np.array_equal(read_nodes(index.path, layout, some), nodes[some])


def test_bytes_with_few_of_many_neighbours_are_not_taken_for_floats(tmp_path: Path) -> None:
    made = Made(tmp_path, SHAPES["bytes-with-room-for-floats"], most=3)
    assert read_layout(made.prefix) == (made.layout, 1)


def test_the_header_of_diskann_in_rust_is_read(tmp_path: Path) -> None:
    made = Made(tmp_path, layout_of(103, 32))
    made.put(NODES, 0, "2i", 96, 1)
    made.put(NODES, 80, "3Q", 0, 4096, 1)
    assert read_layout(made.prefix) == (made.layout, 1)


def test_the_header_of_knowhere_is_read(tmp_path: Path) -> None:
    made = Made(tmp_path, layout_of(103, 32), medoid=102)
    layout = made.layout
    facts = (layout.file_bytes, 103, 102, layout.node_bytes, layout.nodes_per_sector, 0, 0, 0)
    made.put(NODES, 0, "11Q", *facts, 0, 0, 0)
    assert read_layout(made.prefix) == (layout, 102)
    assert load_index(made.prefix).medoids.tolist() == [102]


def old_pivots(made: Made, order: np.ndarray) -> None:
    data = made.path(PIVOTS).read_bytes()
    *starts, end = struct.unpack_from("<4Q", data, 8)
    added = array_bytes(order.astype(np.uint32)).tobytes()
    made.path(PIVOTS).write_bytes(data[: starts[2]] + added + data[starts[2] :])
    ends = (*starts, starts[2] + len(added), end + len(added))
    made.put(PIVOTS, 0, "2i5Q", 5, 1, *ends)


def test_pivots_with_five_offsets_are_read(tmp_path: Path) -> None:
    made = Made(tmp_path, layout_of(103, 32))
    old_pivots(made, np.arange(32))
    index = load_index(made.prefix)
    assert np.array_equal(index.offsets, made.offsets)
    assert np.array_equal(index.centroid, made.centroid)


def test_medoids_and_what_decides_among_them_are_read(tmp_path: Path) -> None:
    made = Made(tmp_path, layout_of(103, 32))
    made.path(MEDOIDS).write_bytes(array_bytes(np.array([7, 100], np.uint32)).tobytes())
    index = load_index(made.prefix)
    assert index.medoids.tolist() == [7, 100]
    assert np.array_equal(index.medoid_vectors, made.vectors[[7, 100]])
    centres = np.ones((2, 32), np.float32)
    made.path(CENTROIDS).write_bytes(array_bytes(centres).tobytes())
    assert np.array_equal(load_index(made.prefix).medoid_vectors, centres)


def at(suffix: str, offset: int, form: str, *values: float) -> Callable[[Made], object]:
    return lambda made: made.put(suffix, offset, form, *values)


def cut(suffix: str, size_bytes: int) -> Callable[[Made], object]:
    return lambda made: os.truncate(made.path(suffix), size_bytes)


def files_with(suffix: str, array: np.ndarray) -> Callable[[Made], object]:
    return lambda made: made.path(suffix).write_bytes(array_bytes(array).tobytes())


CENTROID_AT = 4096 + 8 + 256 * 32 * 4
OFFSETS_AT = CENTROID_AT + 8 + 32 * 4
DAMAGE = {
    "no-file": (lambda made: made.path(NODES).unlink(), "does not exist"),
    "an-empty-file": (cut(NODES, 0), "0 bytes, and no node"),
    "a-header-only": (cut(NODES, 4096), "4096 bytes, and no node"),
    "cut-short": (cut(NODES, 9 * 4096), "36864 bytes and a header that does not fit"),
    "another-header": (at(NODES, 0, "2i", 8, 2), "does not fit"),
    "another-count": (at(NODES, 8, "Q", 500), "500 nodes"),
    "another-dim": (at(NODES, 16, "Q", 31), "not (103, 5, 31)"),
    "no-dim": (at(NODES, 16, "Q", 0), "0 numbers"),
    "no-medoid": (at(NODES, 24, "Q", 103), "medoid 103"),
    "a-node-over-16-KiB": (at(NODES, 32, "Q", 16385), "16385 bytes"),
    "another-share": (at(NODES, 40, "Q", 3), "3 in a sector"),
    "a-frozen-point": (at(NODES, 48, "Q", 1), "1 frozen"),
    "reordered-vectors": (at(NODES, 64, "Q", 1), "1 reordered"),
    "no-pivots": (lambda made: made.path(PIVOTS).unlink(), "does not exist"),
    "pivots-cut-short": (cut(PIVOTS, 9000), "bytes for an array of 256 x 32"),
    "no-offsets": (cut(PIVOTS, 0), "0 bytes for an array"),
    "pivots-alone": (at(PIVOTS, 0, "2i", 256, 32), "array of 256 x 32"),
    "two-offsets": (files_with(PIVOTS, np.zeros(2, np.uint64)), "2 offsets, not 4 or 5"),
    "pivots-of-another-dim": (at(PIVOTS, 4096, "2i", 128, 64), "256 x 32"),
    "a-pivot-of-nan": (at(PIVOTS, 4104, "f", np.nan), "finite pivots"),
    "a-centroid-of-nan": (at(PIVOTS, CENTROID_AT + 8, "f", np.inf), "finite pivots"),
    "chunks-that-begin-late": (at(PIVOTS, OFFSETS_AT + 8, "I", 1), "rise from 0 to 32, not [ 1 "),
    "chunks-that-fall": (at(PIVOTS, OFFSETS_AT + 12, "2I", 12, 6), "rise from 0 to 32, not [ 0 12"),
    "chunks-that-end-early": (at(PIVOTS, OFFSETS_AT + 28, "I", 31), "rise from 0 to 32, not ["),
    "no-chunks": (
        lambda made: made.path(PIVOTS).write_bytes(
            pivot_bytes(made.centroid, made.pivots, made.offsets[:1])
        ),
        "rise from 0 to 32, not [0]",
    ),
    "chunks-that-end-late": (at(PIVOTS, OFFSETS_AT + 24, "2I", 32, 40), "32 40]"),
    "a-chunk-of-nothing": (at(PIVOTS, OFFSETS_AT + 12, "I", 0), "rise from 0 to 32, not [ 0  0"),
    "another-order": (lambda made: old_pivots(made, np.arange(32)[::-1]), "reorders dimensions"),
    "a-rotation": (
        lambda made: made.path(f"{PIVOTS}_rotation_matrix.bin").touch(),
        "turns or reorders",
    ),
    "codes-of-another-n": (files_with(CODES, np.zeros((102, CHUNKS), np.uint8)), "(102, 5, 32)"),
    "codes-of-other-chunks": (files_with(CODES, np.zeros((103, 4), np.uint8)), "(103, 4, 32)"),
    "codes-cut-short": (cut(CODES, 103 * CHUNKS), "array of 103 x 5"),
    "no-medoids": (lambda made: made.path(MEDOIDS).write_bytes(bytes(8)), "medoids below 103"),
    "a-medoid-outside": (files_with(MEDOIDS, np.array([3, 103], np.uint32)), "not [  3 103]"),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_one_sentence(
    tmp_path: Path, damage: Callable[[Made], object], words: str
) -> None:
    made = Made(tmp_path, layout_of(103, 32))
    damage(made)
    with pytest.raises(DataError) as caught:
        load_index(made.prefix)
    sentence = str(caught.value)
    assert words in sentence
    assert "\n" not in sentence
    assert sentence.startswith(str(made.prefix))


def test_centroids_of_another_dim_are_refused(tmp_path: Path) -> None:
    made = Made(tmp_path, layout_of(103, 32))
    made.path(MEDOIDS).write_bytes(array_bytes(np.array([7], np.uint32)).tobytes())
    made.path(CENTROIDS).write_bytes(array_bytes(np.ones((1, 31), np.float32)).tobytes())
    with pytest.raises(DataError, match=r"must have \(1, 32\) numbers, not \(1, 31\)"):
        load_index(made.prefix)


NODE = 100
BAD_NODES = {
    "too-many-neighbours": (32 * 4, "I", 9, "9 neighbours"),
    "a-neighbour-outside": (32 * 4 + 4, "I", 103, r"\[103"),
    "a-number-of-nan": (4, "f", np.nan, "numbers not finite"),
}


@pytest.mark.parametrize("damage", BAD_NODES.values(), ids=BAD_NODES)
def test_a_node_of_no_index_is_found(tmp_path: Path, damage: tuple[int, str, float, str]) -> None:
    made = Made(tmp_path, layout_of(103, 32))
    offset, form, value, words = damage
    made.put(NODES, sum(made.layout.place(NODE)) + offset, form, value)
    with pytest.raises(DataError, match=f"has node {NODE} with .*{words}"):
        list(node_blocks(made.path(NODES), made.layout))


def test_what_is_beyond_a_nodes_neighbours_has_no_meaning(tmp_path: Path) -> None:
    made = Made(tmp_path, layout_of(103, 32))
    place = sum(made.layout.place(NODE)) + 32 * 4
    made.put(NODES, place, "I", 7)
    made.put(NODES, place + 4 + 7 * 4, "I", 0xFFFFFFFF)
    assert sum(map(len, node_blocks(made.path(NODES), made.layout))) == 103


def test_a_file_that_became_shorter_is_found(tmp_path: Path) -> None:
    made = Made(tmp_path, layout_of(103, 32))
    os.truncate(made.path(NODES), made.layout.file_bytes - 4096)
    with pytest.raises(DataError, match="ends in the"):
        list(node_blocks(made.path(NODES), made.layout))
    with pytest.raises(DataError, match="ends before node 102"):
        read_nodes(made.path(NODES), made.layout, np.array([0, 102]))
