"""The files of a synthetic graph on targets, and its topology in memory.

All numbers are little-endian, and no file has a header:

* ``features-<i>.bin`` on target i of n: rows of 1024 float32, 4096 bytes each and so one aligned
  block. Row r is on target r modulo n, at row r ÷ n of its file;
* ``indptr-<source>-<relation>-<destination>.bin`` on the first target: uint64, one more than there
  are destinations. The edges into node v are those from ``indptr[v]`` to before ``indptr[v + 1]``;
* ``indices-<source>-<relation>-<destination>.bin``: uint32, the source of each edge.

A file is written in chunks, by O_DIRECT, under a temporary name. How many of its chunks are durable
is noted beside it in ``<name>.done`` (uint64) with their CRC-32 (uint64), so that the next call
continues from there. Chunks depend on nothing but the graph and their place: any number of workers
writes the same bytes. The CRC-32 of the whole file is listed with it; the topology in memory must
have it.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from wattload.core.checks.io import written_extents_check
from wattload.core.errors import DataError, TargetError, WattloadError, remedy
from wattload.core.record.run import DataRecord
from wattload.core.storage.targets import Target
from wattload.core.units import MIB
from wattload.core.workload import Phase, RunContext
from wattload.loaders.aligned_io import PAGE_BYTES, aligned_buffer, create_direct, round_up
from wattload.loaders.data.crc32 import crc32_of, joined_crc32
from wattload.loaders.data.data_folder import (
    TEMPORARY_SUFFIX,
    DataFolder,
    claim_on_targets,
    existing_on_targets,
    marker_of,
)
from wattload.loaders.data.stamped_files import unfinished_bytes
from wattload.loaders.feature_rows import REMEDY, FeatureFile
from wattload.loaders.graph.synthetic import (
    CLASSES,
    VERSION,
    WIDTH,
    GraphShape,
    SyntheticGraph,
)

ROW_BYTES = WIDTH * 4
CHUNK_BYTES = 8 * MIB
WORKER_LIMIT = 32
"""Each worker needs up to three chunks of memory, so that all stay below 1 GB."""
NOTE_SUFFIX = ".done"
DURABLE_CHUNKS = 64
"""Chunks between two notes of what is durable."""
_NOTE = struct.Struct("<QQ")
_CRC = "crc32"
"""The name of a file's CRC-32 in its entry of the manifest."""

Fill = Callable[[int, NDArray[np.uint8]], None]
"""Fills memory with the chunk of this number; the last chunk of a file may be shorter."""


@dataclass(frozen=True, eq=False)
class _File:
    """A file of the graph: ``place`` is the index of its target."""

    place: int
    name: str
    size_bytes: int
    fill: Fill

    @property
    def chunk_count(self) -> int:
        return -(-self.size_bytes // CHUNK_BYTES)

    def chunk_bytes(self, chunk: int) -> int:
        return min(CHUNK_BYTES, self.size_bytes - chunk * CHUNK_BYTES)


class GraphFiles:
    """The files of one graph on targets, whether they exist or not."""

    remedy: ClassVar[str] = REMEDY
    """What to do about a damaged file."""

    def __init__(
        self, workload: str, shape: GraphShape, seed: int, targets: Sequence[Target]
    ) -> None:
        self.shape = shape
        self.seed = seed
        self._workload = workload
        self._targets = tuple(targets)

    @cached_property
    def graph(self) -> SyntheticGraph:
        return SyntheticGraph(self.shape, self.seed)

    @property
    def classes(self) -> int:
        return CLASSES

    @property
    def labelled_nodes(self) -> int:
        """The nodes of the first type that have a class: all of them."""
        return self.shape.node_types[0].count

    def labels(self, nodes: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Return the classes of nodes of the first type, computed from their numbers."""
        return self.graph.classes(nodes.astype(np.uint64))

    @property
    def parameters(self) -> dict[str, Any]:
        """What determines the bytes of the files, besides the seed."""
        return {
            "graph": self.shape.name,
            "nodes": {each.name: each.count for each in self.shape.node_types},
            "edges": {self.shape.title(each): each.edge_count for each in self.shape.relations},
            "target_count": len(self._targets),
            "generator": VERSION,
            "digest": _CRC,
        }

    @cached_property
    def key(self) -> str:
        return str(marker_of(self._workload, self.parameters, self.seed)["key"])

    @cached_property
    def feature_files(self) -> tuple[FeatureFile, ...]:
        """The files of rows, in the order of the targets."""
        count = len(self._targets)
        return tuple(
            FeatureFile(
                path=self._path(file),
                row_count=file.size_bytes // ROW_BYTES,
                first_row=file.place,
                step=count,
            )
            for file in self._files
            if file.name.startswith("features")
        )

    @property
    def data_bytes(self) -> int:
        return sum(file.size_bytes for file in self._files)

    @property
    def topology_bytes(self) -> int:
        """The size of the topology, on the first target and in memory."""
        return self.data_bytes - self.shape.row_count * ROW_BYTES

    def target_bytes(self) -> tuple[int, ...]:
        sizes = [0] * len(self._targets)
        for file in self._files:
            sizes[file.place] += file.size_bytes
        return tuple(sizes)

    def missing_bytes(self) -> int:
        """Return the size of the files that still have to be written or completed.

        Some of their space is taken already: see ``present_bytes``.

        Raises:
            DataError: a finished file has another size now.
        """
        folders = existing_on_targets(self._targets, self.key)
        return sum(file.size_bytes for file in self._not_in(folders))

    def present_bytes(self) -> int:
        """Return the space that an interrupted call has reserved, which the next one takes over."""
        return sum(map(unfinished_bytes, existing_on_targets(self._targets, self.key)))

    def prepare(self, context: RunContext, workers: int) -> DataRecord:
        """Write what is missing with up to ``workers`` threads, and return the facts of the data.

        One process at a time. An interrupted call is continued by the next one.

        Raises:
            DataError: a folder is not wattload's, or a file has holes or another size.
            TargetError: a target is full or not writable.
        """
        folders = claim_on_targets(
            self._targets, self._workload, self.parameters, seed=self.seed, part=0
        )
        missing = self._not_in(folders)
        kept = [self._path(file) for file in self._files if file not in missing]
        written_extents_check(kept, remedy=REMEDY)
        if missing:
            whole_bytes = sum(file.size_bytes for file in missing)
            context.progress.begin("making the graph", written_bytes=whole_bytes)
            with (
                _Workers(min(max(workers, 1), WORKER_LIMIT)) as pool,
                context.phase("generate", timed=False) as phase,
            ):
                for file in missing:
                    _write(folders[file.place], file, pool, phase)
            context.progress.end()
        for folder in folders:
            # What a call leaves that is killed just after it has listed a file.
            for name in folder.reserved & self._beside_files:
                folder.discard(name)
            folder.seal()
            folder.close()
        return DataRecord(
            key=self.key,
            folder=str(self._targets[0].data_folder / self.key),
            file_count=len(self._files),
            data_bytes=self.data_bytes,
            reused=not missing,
            parameters=self.parameters | {"seed": self.seed},
        )

    def load_topology(self) -> Topology:
        """Read all relations into memory.

        Raises:
            DataError: a file is short, or is not what was written, by its CRC-32.
        """
        path = self._targets[0].data_folder / self.key
        entries = DataFolder(path, self.key).entries

        def read(name: str, dtype: str, count: int) -> NDArray[Any]:
            entry = entries.get(name)
            written = (entry.result or {}).get(_CRC) if entry else None
            return _read(path / name, dtype, count, written)

        indptr, indices = [], []
        for relation in self.shape.relations:
            title = self.shape.title(relation)
            node_count = self.shape.node_types[relation.destination].count
            indptr.append(read(f"indptr-{title}.bin", "<u8", node_count + 1))
            indices.append(read(f"indices-{title}.bin", "<u4", relation.edge_count))
        return Topology(self.shape, tuple(indptr), tuple(indices))

    @cached_property
    def _files(self) -> tuple[_File, ...]:
        files = []
        for number, relation in enumerate(self.shape.relations):
            title = self.shape.title(relation)
            node_count = self.shape.node_types[relation.destination].count
            files += [
                _File(0, f"indptr-{title}.bin", 8 * (node_count + 1), _Indptr(self, number)),
                _File(0, f"indices-{title}.bin", 4 * relation.edge_count, self._indices(number)),
            ]
        count, rows = len(self._targets), self.shape.row_count
        for place in range(count):
            size_bytes = len(range(place, rows, count)) * ROW_BYTES
            files.append(
                _File(place, f"features-{place}.bin", size_bytes, self._features(place, count))
            )
        return tuple(files)

    @property
    def _beside_files(self) -> set[str]:
        return {file.name + end for file in self._files for end in (TEMPORARY_SUFFIX, NOTE_SUFFIX)}

    def _indices(self, relation: int) -> Fill:
        def fill(chunk: int, memory: NDArray[np.uint8]) -> None:
            into = memory.view("<u4")
            self.graph.neighbours(relation, chunk * (CHUNK_BYTES // 4), len(into), into=into)

        return fill

    def _features(self, place: int, count: int) -> Fill:
        def fill(chunk: int, memory: NDArray[np.uint8]) -> None:
            into = memory.view("<f4").reshape(-1, WIDTH)
            first = chunk * (CHUNK_BYTES // ROW_BYTES)
            numbers = np.arange(first, first + len(into), dtype=np.uint64)
            self.graph.rows(numbers * np.uint64(count) + np.uint64(place), into=into)

        return fill

    def _path(self, file: _File) -> Path:
        return self._targets[file.place].data_folder / self.key / file.name

    def _not_in(self, folders: Sequence[DataFolder | None]) -> list[_File]:
        missing = []
        for file in self._files:
            folder = folders[file.place]
            if folder is None or file.name not in folder.entries:
                missing.append(file)
                continue
            path = self._path(file)
            if path.is_file() and not path.is_symlink() and path.stat().st_size != file.size_bytes:
                raise _other_size(path, path.stat().st_size, file.size_bytes)
            if not folder.is_valid(file.name):
                missing.append(file)
        return missing


class _Indptr:
    """Fills the chunks of a relation's indptr; each starts with the edges of all chunks before."""

    def __init__(self, files: GraphFiles, relation: int) -> None:
        self._files = files
        self._relation = relation
        self._starts: NDArray[np.uint64] | None = None
        self._lock = threading.Lock()

    def __call__(self, chunk: int, memory: NDArray[np.uint8]) -> None:
        into = memory.view("<u8")
        into[0] = self._start(chunk)
        degrees = self._files.graph.degrees(
            self._relation, chunk * (CHUNK_BYTES // 8), len(into) - 1
        )
        np.cumsum(degrees, out=into[1:], dtype=np.uint64)
        into[1:] += into[0]

    def _start(self, chunk: int) -> np.uint64:
        with self._lock:
            if self._starts is None:
                self._starts = self._find_starts()
        found: np.uint64 = self._starts[chunk]
        return found

    def _find_starts(self) -> NDArray[np.uint64]:
        shape = self._files.shape
        node_count = shape.node_types[shape.relations[self._relation].destination].count
        sums, step = [0], CHUNK_BYTES // 8
        for first in range(0, node_count, step):
            count = min(step, node_count - first)
            degrees = self._files.graph.degrees(self._relation, first, count)
            sums.append(int(degrees.sum(dtype=np.uint64)))
        return np.cumsum(np.array(sums, dtype=np.uint64))


class _Workers:
    """Threads that fill chunks and write them, each with memory of its own."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="graph")
        self._own = threading.local()

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def write(self, descriptor: int, file: _File, chunks: range, phase: Phase) -> list[int]:
        """Fill and write chunks of a file that is open for O_DIRECT; return the CRC-32 of each."""

        def write_one(chunk: int) -> int:
            if not hasattr(self._own, "buffer"):
                self._own.buffer = aligned_buffer(CHUNK_BYTES)
            start = chunk * CHUNK_BYTES
            size_bytes = file.chunk_bytes(chunk)
            memory = self._own.buffer[: round_up(size_bytes, PAGE_BYTES)]
            file.fill(chunk, memory[:size_bytes])
            memory[size_bytes:] = 0
            done = 0
            while done < len(memory):
                done += os.pwrite(descriptor, memory[done:], start + done)
            phase.count_written(size_bytes)
            return crc32_of(memory[:size_bytes])

        futures = [self._pool.submit(write_one, chunk) for chunk in chunks]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()


def _write(folder: DataFolder, file: _File, pool: _Workers, phase: Phase) -> None:
    """Write one file durably, or what an interrupted call has left of it."""
    temporary, noted = file.name + TEMPORARY_SUFFIX, file.name + NOTE_SUFFIX
    try:
        with ExitStack() as opened:
            descriptor, note, done, crc32 = _open(folder, file, temporary, noted)
            opened.callback(os.close, descriptor)
            opened.callback(os.close, note)
            for first in range(done, file.chunk_count, DURABLE_CHUNKS):
                end = min(first + DURABLE_CHUNKS, file.chunk_count)
                chunks = range(first, end)
                for chunk, own in zip(
                    chunks, pool.write(descriptor, file, chunks, phase), strict=True
                ):
                    crc32 = joined_crc32(crc32, own, file.chunk_bytes(chunk))
                os.fdatasync(descriptor)
                os.pwrite(note, _NOTE.pack(end, crc32), 0)
                os.fdatasync(note)
            os.ftruncate(descriptor, file.size_bytes)
            os.fsync(descriptor)
        folder.publish(file.name, file.size_bytes, None, result={_CRC: crc32})
        folder.discard(noted)
    except WattloadError:
        raise
    except OSError as error:
        raise TargetError(
            f"writing {folder.path / file.name} failed: {error.strerror or error}; "
            f"{remedy(error.errno)}; what is finished is kept, and the next run continues from "
            "there"
        ) from error


def _open(folder: DataFolder, file: _File, temporary: str, noted: str) -> tuple[int, int, int, int]:
    """Return the file and its note, open, with the number of durable chunks and their CRC-32.

    The space of a new file is reserved first, so that a full target shows at once.
    """
    whole_bytes = round_up(file.size_bytes, PAGE_BYTES)
    is_there = all((folder.path / name).exists() for name in (temporary, noted))
    if {file.name, temporary, noted} <= folder.reserved and is_there:
        with folder.open() as opened:
            note = opened.update(noted)
            descriptor = opened.update(temporary, os.O_WRONLY | os.O_DIRECT)
        if os.fstat(descriptor).st_size in {whole_bytes, file.size_bytes}:
            done, crc32 = _NOTE.unpack(os.pread(note, _NOTE.size, 0).ljust(_NOTE.size, b"\0"))
            return descriptor, note, done, crc32
        os.close(note)
        os.close(descriptor)
    folder.announce(file.name)
    folder.reserve(noted)
    folder.discard(noted)
    folder.reserve(noted)
    with folder.open() as opened:
        descriptor = create_direct(opened, temporary)
        try:
            os.posix_fallocate(descriptor, 0, whole_bytes)
            note = opened.create(noted, os.O_RDWR)
            os.fsync(descriptor)
            opened.sync()
        except OSError:
            os.close(descriptor)
            folder.discard(temporary)  # a full target stays usable
            raise
    return descriptor, note, 0, 0


@dataclass(frozen=True, eq=False)
class Topology:
    """All relations in memory: ``indptr`` and ``indices`` in the order of the shape's relations."""

    shape: GraphShape
    indptr: tuple[NDArray[np.uint64], ...]
    indices: tuple[NDArray[np.uint32], ...]

    @property
    def crc32(self) -> int:
        """The CRC-32 of each relation's ``indptr`` and ``indices``, one after another."""
        found = 0
        for pair in zip(self.indptr, self.indices, strict=True):
            for numbers in pair:
                found = crc32_of(numbers.view(np.uint8), found)
        return found


def _read(path: Path, dtype: str, count: int, written: int | None) -> NDArray[Any]:
    """Return the numbers of a file with the CRC-32 ``written``."""
    planned_bytes = count * np.dtype(dtype).itemsize
    try:
        found = np.fromfile(path, dtype=dtype)
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}; {REMEDY}") from error
    if len(found) != count:
        raise _other_size(path, path.stat().st_size, planned_bytes)
    crc32 = crc32_of(found.view(np.uint8))
    if crc32 != written:
        recorded = "none" if written is None else f"{written:08x}"
        raise DataError(
            f"{path} is not what was written: its CRC-32 is {crc32:08x} where {recorded} was "
            f"recorded; {REMEDY}"
        )
    return found


def _other_size(path: Path, found_bytes: int, planned_bytes: int) -> DataError:
    return DataError(
        f"{path} is a file of {found_bytes} bytes, {planned_bytes} are planned; {REMEDY}"
    )
