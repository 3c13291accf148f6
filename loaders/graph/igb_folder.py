"""Real IGB graphs, in the folders that IGB's downloads make; nothing in them is changed.

The layout is that of ``igb/dataloader.py`` (github.com/IllinoisGraphBenchmark/IGB-Datasets). Under
``<size>/processed`` there are

* ``<type>/node_feat.npy``: rows of 1024 float32. Those of the sizes large and full have no header;
* ``paper/node_label_19.npy``: a class per paper, 0 to 18, as integers or floats. Without a header
  they are float32;
* ``<type>__<relation>__<type>/edge_index.npy``: pairs of int64, an edge from the first to the
  second node, in no order.

As in IGB's loader, edges of a paper with itself are left out of ``cites``, and each paper gets one
such edge, after its others. A folder with authors is heterogeneous: it has papers, authors, fields
of study and institutes. IGB's loader has its relations one way, ours adds the other one, so that
edges lead to every type; ``rev_cites`` gets no edges of a paper with itself. Conferences and
journals are left out, as IGB's loader does.
"""

from __future__ import annotations

import ctypes
import math
import os
import stat
from collections.abc import Callable, Iterator
from ctypes import c_uint64
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.loaders.engine import library
from wattload.loaders.engine.header import struct
from wattload.loaders.feature_rows import FeatureFile
from wattload.loaders.graph.files import ROW_BYTES, Topology
from wattload.loaders.graph.synthetic import CLASSES, WIDTH, GraphShape, NodeType, Relation

_TYPES = ("paper", "author", "fos", "institute")
_RELATIONS = (
    ("cites", 0, 0),
    ("written_by", 0, 1),
    ("topic", 0, 2),
    ("affiliated_to", 1, 3),
)
_REMEDY = "download it again, or check the drive"
_FULL_PAPERS, _FULL_LABELLED = 269_346_174, 227_130_858
"""Of the papers of the size full, only the first ones have a class."""
_SAMPLED_ROWS = 4096
_CHUNK = 1 << 20
"""Edges or labels that are read at once."""


@dataclass(frozen=True, slots=True)
class _Array:
    """An array in a file, behind ``offset_bytes`` of a header.

    One that ``is_by_columns`` (Fortran order) has the first element of each row before any second.
    """

    path: Path
    offset_bytes: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_by_columns: bool = False

    def chunks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the number of the first element and the elements, some at a time."""
        width = math.prod(self.shape[1:])
        with _open(self.path) as file:
            file.seek(self.offset_bytes)
            for first in range(0, self.shape[0], _CHUNK):
                count = min(_CHUNK, self.shape[0] - first)
                found = np.fromfile(file, dtype=self.dtype, count=count * width)
                if len(found) != count * width:
                    raise DataError(f"{self.path} became shorter while it was read; {_REMEDY}")
                yield first, found.reshape(count, *self.shape[1:])


class IgbFolder:
    """The graph in one folder, as ``<root>/small``.

    Its files are opened and their sizes compared at once. ``load_topology`` reads edges and labels,
    and ``_SAMPLED_ROWS`` rows of each type in equal steps, which must be finite. Until then
    ``shape`` has the edges of the files and largest degrees of 0; afterwards those of the graph.
    """

    remedy: ClassVar[str] = _REMEDY
    """What to do about a damaged file."""

    def __init__(self, path: Path | str) -> None:
        """Read the headers.

        Raises:
            DataError: a file is missing, has another size than its header says, or another type of
                values. Its notes are the faults of further files.
        """
        self.path = Path(path)
        self._folder = self.path / "processed"
        is_heterogeneous = (self._folder / "author").is_dir()
        types = _TYPES if is_heterogeneous else _TYPES[:1]
        given = _RELATIONS if is_heterogeneous else _RELATIONS[:1]
        titles = [f"{_TYPES[start]}__{name}__{_TYPES[end]}" for name, start, end in given]
        labels_path = self._folder / "paper" / "node_label_19.npy"
        *found, labels = _read_all(
            *(partial(_features, self._folder / name / "node_feat.npy") for name in types),
            *(partial(_edge_list, self._folder / title / "edge_index.npy") for title in titles),
            partial(_read_header, labels_path, np.dtype("<f4")),
        )
        self._features, self._edges = found[: len(types)], found[len(types) :]
        counts = [each.shape[0] for each in self._features]
        node_types = tuple(NodeType(*each) for each in zip(types, counts, strict=True))
        relations: list[Relation] = []
        for edges, (name, source, destination) in zip(self._edges, given, strict=True):
            loops = counts[source] if source == destination else 0
            count = edges.shape[0]
            relations.append(Relation(source, name, destination, count + loops, 0, 0))
            if is_heterogeneous:
                relations.append(Relation(destination, f"rev_{name}", source, count, 0, 0))
        self.shape = GraphShape("igbh" if is_heterogeneous else "igb", node_types, tuple(relations))
        has_numbers = labels.dtype.kind in "iuf" and not labels.is_by_columns
        if not has_numbers or math.prod(labels.shape) != counts[0]:
            raise DataError(
                f"{labels.path} has {labels.dtype} of shape {labels.shape}, a number for each of "
                f"{counts[0]} papers is needed; {_REMEDY}"
            )
        self._label_file = labels

    @property
    def classes(self) -> int:
        return CLASSES

    @property
    def labelled_nodes(self) -> int:
        """The papers that have a class: the first ones of the size full, else all."""
        papers = self.shape.node_types[0].count
        return _FULL_LABELLED if papers == _FULL_PAPERS else papers

    @property
    def feature_files(self) -> tuple[FeatureFile, ...]:
        return tuple(
            FeatureFile(
                path=each.path,
                row_count=each.shape[0],
                first_row=self.shape.first_row(number),
                offset_bytes=each.offset_bytes,
            )
            for number, each in enumerate(self._features)
        )

    @property
    def topology_bytes(self) -> int:
        """The size of topology and labels in memory; loading needs 8 bytes a node more."""
        pointers = sum(
            8 * (self.shape.node_types[each.destination].count + 1) for each in self.shape.relations
        )
        return pointers + 4 * self.shape.edge_count + self.labelled_nodes

    def labels(self, nodes: NDArray[np.uint32]) -> NDArray[np.int64]:
        return self._labels[nodes].astype(np.int64)

    def load_topology(self) -> Topology:
        """Sort all edges by destination in memory, read the labels, and check a sample of rows.

        Raises:
            DataError: a node does not exist, a label is no class, or a sampled row is not finite.
            OSError: reading failed.
        """
        for features in self._features:
            _check_sample(features)
        _ = self._labels
        relations: list[Relation] = []
        indptr: list[NDArray[np.uint64]] = []
        indices: list[NDArray[np.uint32]] = []
        has_back = len(self._edges) < len(self.shape.relations)
        given = self.shape.relations[:: 2 if has_back else 1]
        for relation, edges in zip(given, self._edges, strict=True):
            forward, back = self._sorted(edges, relation, has_back=has_back)
            largest, largest_source = forward.largest_degree, back.largest_degree if back else 0
            ways = [(relation, forward, largest, largest_source or largest)]
            if back:
                returning = self.shape.relations[len(relations) + 1]
                ways.append((returning, back, largest_source, largest))
            for each, way, own, other in ways:
                relations.append(
                    Relation(each.source, each.name, each.destination, len(way.indices), own, other)
                )
                indptr.append(way.indptr)
                indices.append(way.indices)
        self.shape = GraphShape(self.shape.name, self.shape.node_types, tuple(relations))
        return Topology(self.shape, tuple(indptr), tuple(indices))

    @cached_property
    def _labels(self) -> NDArray[np.uint8]:
        found = np.empty(self.labelled_nodes, dtype=np.uint8)
        for first, chunk in self._label_file.chunks():
            values = chunk.reshape(-1)[: max(len(found) - first, 0)]
            is_class = (values >= 0) & (values < CLASSES) & (values == np.floor(values))
            if not is_class.all():
                place = int(np.argmin(is_class))
                raise DataError(
                    f"{self._label_file.path}: the label of paper {first + place} is "
                    f"{values[place]}, not a class from 0 to {CLASSES - 1}; {_REMEDY}"
                )
            found[first : first + len(values)] = values
        return found

    def _sorted(
        self, edges: _Array, relation: Relation, *, has_back: bool
    ) -> tuple[_Lists, _Lists | None]:
        """Count the edges of a file, and read it once more to put them into lists."""
        types = self.shape.node_types
        counts = types[relation.source].count, types[relation.destination].count
        drops_loops = relation.source == relation.destination
        forward, back = _Lists(counts[1]), _Lists(counts[0]) if has_back else None
        for allocates in (False, True):
            if allocates:
                forward.allocate(loops=int(drops_loops))
                if back:
                    back.allocate(loops=0)
            for first, chunk in edges.chunks():
                wrong = library.load().wl_graph_sort_edges(
                    chunk.ctypes.data,
                    len(chunk),
                    (c_uint64 * 2)(*counts),
                    drops_loops,
                    ctypes.byref(forward.way),
                    ctypes.byref(back.way) if back else None,
                )
                if wrong != len(chunk):
                    raise _wrong_edge(edges.path, first + wrong, chunk[wrong], counts)
        if drops_loops:
            forward.add_loops()
        return forward, back


class _Lists:
    """Sources by destination: first their counts, then themselves."""

    def __init__(self, count: int) -> None:
        self._next = np.zeros(count, dtype=np.uint64)
        self.indptr = np.zeros(count + 1, dtype=np.uint64)
        self.indices = np.empty(0, dtype=np.uint32)
        self.largest_degree = 0
        self.way = struct("wl_edge_way")(self._next.ctypes.data, None, None)

    def allocate(self, *, loops: int) -> None:
        """Make room for the edges that were counted and ``loops`` more for each destination."""
        self._next += np.uint64(loops)
        self.largest_degree = int(self._next.max(initial=0))
        np.cumsum(self._next, out=self.indptr[1:])
        self._next[:] = self.indptr[:-1]
        self.indices = np.empty(int(self.indptr[-1]), dtype=np.uint32)
        ends = self.indptr[1:].ctypes.data
        self.way = struct("wl_edge_way")(self._next.ctypes.data, ends, self.indices.ctypes.data)

    def add_loops(self) -> None:
        self.indices[self.indptr[1:] - np.uint64(1)] = np.arange(len(self._next), dtype=np.uint32)


def _read_all(*readers: Callable[[], _Array]) -> list[_Array]:
    """Return all arrays; raises the first ``DataError``, with the others as its notes."""
    found: list[_Array] = []
    wrong: list[DataError] = []
    for read in readers:
        try:
            found.append(read())
        except DataError as error:
            wrong.append(error)
    if wrong:
        for other in wrong[1:]:
            wrong[0].add_note(f"  also        {other}")
        raise wrong[0]
    return found


def _features(path: Path) -> _Array:
    """Return where the rows of a type are; a symbolic link is resolved: its file is measured."""
    measured = Path(os.path.realpath(path))  # Path.resolve() raises for a loop of links
    found = _read_header(measured, np.dtype("<f4"), width=WIDTH)
    is_convertible = found.dtype.kind in "iuf" and found.shape[1:] == (WIDTH,)
    _require_form(found, "<f4", (WIDTH,), f"rows of {WIDTH} float32", is_convertible=is_convertible)
    if not found.shape[0]:
        raise DataError(f"{found.path} has no rows; {_REMEDY}")
    return found


def _edge_list(path: Path) -> _Array:
    found = _read_header(path, None)
    is_flat = len(found.shape) == 2 and 2 in found.shape  # noqa: PLR2004 - pairs, by rows or columns
    _require_form(
        found, "<i8", (2,), "pairs of int64", is_convertible=found.dtype.kind in "iu" and is_flat
    )
    return found


def _require_form(
    found: _Array, dtype: str, row: tuple[int, ...], needed: str, *, is_convertible: bool
) -> None:
    """Raise for an array of another form, with the line of Python that writes the needed one.

    The line leaves the file alone, so that no interruption loses it, and maps both files into
    memory: one of the size full has over 1 TB.
    """
    is_turned = found.shape[1:] != row
    if found.dtype == np.dtype(dtype) and not is_turned and not found.is_by_columns:
        return
    turned = ".T" if is_turned else ""
    fix = (
        "write a converted copy, which ends in .new, and rename it to the old name; in Python: "
        f"import numpy; p = {str(found.path)!r}; a = numpy.load(p, mmap_mode='r'){turned}; "
        f"b = numpy.lib.format.open_memmap(p + '.new', 'w+', '{dtype}', a.shape); "
        "b[:] = a; b.flush()"
        if is_convertible
        else _REMEDY
    )
    order = ", stored by columns (Fortran order)" if found.is_by_columns else ""
    raise DataError(
        f"{found.path} has {found.dtype} of shape {found.shape}{order}, {needed} are needed, one "
        f"row after another; {fix}"
    )


def _read_header(
    path: Path, raw_dtype: np.dtype[Any] | None, *, width: int | None = None
) -> _Array:
    """Return where the array of a file is; without a header it is of ``raw_dtype``, if given."""
    with _open(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        is_npy = file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX
        file.seek(0)
        if is_npy:
            try:
                version = npy.read_magic(file)
                read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, is_fortran, dtype = read(file)
            except ValueError as error:
                raise DataError(
                    f"{path} has a damaged header of numpy ({error}); {_REMEDY}"
                ) from error
            if dtype.hasobject:
                raise DataError(f"{path} has pickled objects, which are never read, not numbers")
            by_columns = is_fortran and len(shape) > 1
            found = _Array(path, file.tell(), dtype, shape, by_columns)
        elif raw_dtype is None:
            raise DataError(
                f"{path} is not a file of numpy: it does not start with its magic word; {_REMEDY}"
            )
        else:
            row_bytes = raw_dtype.itemsize * (width or 1)
            shape = (size_bytes // row_bytes, *((width,) if width else ()))
            found = _Array(path, 0, raw_dtype, shape)
    planned_bytes = found.offset_bytes + math.prod(found.shape) * found.dtype.itemsize
    if size_bytes != planned_bytes:
        raise DataError(
            f"{path} has {size_bytes} bytes instead of the {planned_bytes} of {found.dtype} of "
            f"shape {found.shape}; {_REMEDY}"
        )
    return found


def _check_sample(features: _Array) -> None:
    """Raise for a row with NaN or infinity among some that are spread over the file."""
    count = features.shape[0]
    with _open(features.path) as file:
        for row in np.unique(
            np.linspace(0, max(count - 1, 0), min(count, _SAMPLED_ROWS)).astype(int)
        ):
            content = os.pread(
                file.fileno(), ROW_BYTES, features.offset_bytes + int(row) * ROW_BYTES
            )
            values = np.frombuffer(content, dtype="<f4")
            is_finite = np.isfinite(values)
            if not is_finite.all():
                place = int(np.argmin(is_finite))
                raise DataError(
                    f"{features.path}: value {place} of row {row} is {values[place]}, not a finite "
                    f"number to train on; {_REMEDY}"
                )


def _wrong_edge(
    path: Path, edge: int, nodes: NDArray[np.int64], counts: tuple[int, int]
) -> DataError:
    for node, count in zip(nodes.tolist(), counts, strict=True):
        if not 0 <= node < count:
            return DataError(
                f"{path}: edge {edge} has node {node}, but there are only {count} nodes; {_REMEDY}"
            )
    return DataError(f"{path} changed while it was read, at edge {edge}")


def _open(path: Path) -> BinaryIO:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DataError(f"{path} is not a regular file; a file of IGB is needed there")
        return path.open("rb")
    except FileNotFoundError as error:
        raise DataError(
            f"{path} is missing; a folder of IGB has it, as <root>/small for workload.source"
        ) from error
    except OSError as error:
        raise DataError(
            f"{path} can't be read ({error.strerror}); a file of IGB is needed there"
        ) from error
