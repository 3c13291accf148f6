"""The entries of MLPerf's loop: whole .npy files in a folder, behind a counted cache in memory.

Reads, writes and evictions are those of kv_cache/backends.py and kv_cache/cache.py of MLPerf
Storage v3.0. Its copy of what ``np.load`` returned is left out.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import asdict, dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.core.files import naming
from wattload.core.histogram import Histogram
from wattload.core.io import BlockIdentity
from wattload.core.record.results import LatencyKind, latencies_of
from wattload.core.units import MIB, NS_PER_S
from wattload.core.workload import Phase
from wattload.loaders.aligned_io import PAGE_BYTES
from wattload.loaders.data.data_folder import DataFolder
from wattload.loaders.stamps import bad_samples, seal
from wattload.results.kv_cache_mlperf import PHASE, ClientFacts, Origin
from wattload.workloads.kv_cache.models import Model
from wattload.workloads.kv_cache_mlperf.config import Option

HEADER_BYTES = 128
"""What NumPy writes before the content of an array."""
DTYPE_BYTES = 2
"""Of float16, in which MLPerf keeps the cache of every model."""
NOISE_BYTES = 256 * MIB
"""As much random content is drawn; longer entries repeat it, with other stamps."""
_RESERVED = 64
"""Names that are noted at once in the folder's manifest, before their files exist."""


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """An entry; ``name`` is that of its file, empty in memory. Who moves it holds ``lock``."""

    number: int
    tokens: int
    size_bytes: int
    name: str = ""
    is_leaving: bool = False
    is_gone: bool = False
    is_in_use: bool = True
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(slots=True)
class ReadCounts:
    """See ``Lookups`` of the results."""

    lookups: int = 0
    misses: int = 0
    drive_bytes: int = 0
    memory_bytes: int = 0


@dataclass(slots=True)
class Counts:
    """See ``ClientFacts`` of the results; whoever changes them holds the lock of the entries."""

    reads: dict[Origin, ReadCounts] = field(
        default_factory=lambda: {origin: ReadCounts() for origin in Origin}
    )
    drawn: int = 0
    answered: int = 0
    decoded: int = 0
    generated_tokens: int = 0
    own_drawn_bytes: int = 0
    io_s: float = 0.0
    written_bytes: int = 0
    demoted_bytes: int = 0
    evicted: int = 0
    file_reads: int = 0
    compared_blocks: int = 0
    bad_blocks: int = 0


class Entries:
    """The entries of one process; any number of threads may use them.

    At most ``capacity_bytes`` are on the drive, unless more are in use, and ``most_written_bytes``
    are written. The cache in memory holds no data: its entries are made when they leave it.
    """

    def __init__(
        self,
        data: DataFolder,
        folder: str,
        phase: Phase,
        model: Model,
        option: Option,
        *,
        largest_bytes: int,
        capacity_bytes: int,
        most_written_bytes: int,
    ) -> None:
        self._data, self._phase, self._model = data, phase, model
        self._memory_bytes, self._capacity_bytes = option.memory_bytes, capacity_bytes
        self._allocations = threading.Semaphore(option.allocations)
        self._largest_bytes, self._left_bytes = largest_bytes, most_written_bytes
        with data.open() as above:
            self._folder = above.make(folder)
        self._nonce = secrets.randbits(64)
        noise = np.random.default_rng(self._nonce)
        self._noise = noise.integers(256, size=min(NOISE_BYTES, largest_bytes), dtype=np.uint8)
        seal(self._noise, BlockIdentity(0, 0))
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._used_bytes = self._used_memory_bytes = self._name_count = 0
        self._names: list[str] = []
        self._naming = threading.Lock()
        self.lock = threading.Lock()
        self.counts = Counts()
        self._times_ns: dict[tuple[str, LatencyKind], list[int]] = {
            ("read", "read"): [],
            ("save", "write"): [],
            ("sync", "write"): [],
        }

    def close(self) -> None:
        """Close the folder; its files stay."""
        self._folder.close()

    def facts(self, *, is_full: bool) -> ClientFacts:
        """Return what was counted, and the latencies."""
        row = partial(latencies_of, phase=PHASE, operation_bytes=self._largest_bytes)
        latencies = {
            f"{name}_latency": next(iter(row(Histogram.of(values_ns), kind=kind)), None)
            for (name, kind), values_ns in self._times_ns.items()
        }
        return ClientFacts(**asdict(self.counts), is_full=is_full, **latencies)

    def write(self, number: int, tokens: int) -> float | None:
        """Store an entry; return the seconds of its own write, ``None`` if it may not be written.

        It is in use, and so is not evicted, until ``release``.
        """
        size_bytes = tokens * self._model.bytes_per_token(DTYPE_BYTES)
        entry = Entry(number=number, tokens=tokens, size_bytes=size_bytes)
        with self._allocations:
            with self.lock:
                if HEADER_BYTES + size_bytes > self._left_bytes:
                    return None
                self._left_bytes -= HEADER_BYTES + size_bytes
                in_memory, leaving = self._place(size_bytes)
                if in_memory:
                    self._entries[number] = entry
            for other in leaving:
                with other.lock:
                    self._save(other)
            if in_memory:
                return 0.0
            save_ns, sync_ns = self._save(entry)
            self._times_ns["save", "write"].append(save_ns)
            self._times_ns["sync", "write"].append(sync_ns)
            return (save_ns + sync_ns) / NS_PER_S

    def release(self, number: int) -> None:
        """Let an entry be evicted from now on."""
        with self.lock:
            self._entries[number].is_in_use = False

    def read(self, number: int, origin: Origin) -> float:
        """Look an entry up and read it in full; return the seconds, 0 for a miss or from memory."""
        counts = self.counts.reads[origin]
        with self.lock:
            counts.lookups += 1
            entry = self._entries.get(number)
            counts.misses += entry is None
        if entry is None:
            return 0.0
        with entry.lock:
            with self.lock:
                is_gone = entry.is_gone
                counts.misses += is_gone
                if not is_gone:
                    self._entries.move_to_end(number)
                    counts.memory_bytes += 0 if entry.name else HEADER_BYTES + entry.size_bytes
            if is_gone or not entry.name:
                return 0.0
            started_ns = time.monotonic_ns()
            content, moved_bytes = self._load(entry)
            elapsed_ns = time.monotonic_ns() - started_ns
        self._phase.count_read(moved_bytes)
        identity = BlockIdentity(self._nonce, number)
        bad_count, compared_bytes = bad_samples(
            content, identity, first_block=0, seed=self.counts.file_reads
        )
        with self.lock:
            self._times_ns["read", "read"].append(elapsed_ns)
            counts.drive_bytes += moved_bytes
            self.counts.file_reads += 1
            self.counts.compared_blocks += compared_bytes // PAGE_BYTES
            self.counts.bad_blocks += bad_count + (content.size != entry.size_bytes)
        return elapsed_ns / NS_PER_S

    def _place(self, size_bytes: int) -> tuple[bool, list[Entry]]:
        """Return whether an entry goes to memory, and those that leave it; needs the lock.

        These are MLPerf's rules. Memory is filled to 80 %, or by one entry if it is almost empty;
        one of over 40 % does not displace the last few.
        """
        limit, used, leaving = self._memory_bytes, self._used_memory_bytes, list[Entry]()
        is_scarce = used + size_bytes > 0.8 * limit and used >= 0.05 * limit
        if size_bytes > (0.4 if is_scarce and used < 0.2 * limit else 0.95) * limit:
            return False, leaving
        for entry in self._entries.values():
            if used + size_bytes <= 0.8 * limit or used < 0.05 * limit:
                break
            if not entry.name and not entry.is_leaving:
                entry.is_leaving = True
                leaving.append(entry)
                used -= entry.size_bytes
        self._used_memory_bytes = used + size_bytes
        return True, leaving

    def _save(self, entry: Entry) -> tuple[int, int]:
        """Write an entry to the drive; return the ns of np.save, and of flush and fsync."""
        self._make_room(HEADER_BYTES + entry.size_bytes)
        content, name = self._content(entry), self._new_name()
        with naming(self._folder.path / name):
            started_ns = time.monotonic_ns()
            with os.fdopen(self._folder.create(name), "wb") as file:
                np.save(file, content, allow_pickle=False)
                saved_ns = time.monotonic_ns()
                file.flush()
                os.fsync(file.fileno())
                synced_ns, moved_bytes = time.monotonic_ns(), file.tell()
        self._phase.count_written(moved_bytes)
        with self.lock:
            entry.name = name
            self._entries[entry.number] = entry
            self.counts.written_bytes += moved_bytes
            self.counts.demoted_bytes += moved_bytes if entry.is_leaving else 0
        return saved_ns - started_ns, synced_ns - saved_ns

    def _make_room(self, size_bytes: int) -> None:
        """Unlink the entries that were used longest ago, until there is room for another."""
        gone = []
        with self.lock:
            self._used_bytes += size_bytes
            for entry in self._entries.values():
                if self._used_bytes <= self._capacity_bytes:
                    break
                if entry.name and not entry.is_in_use:
                    gone.append(entry)
                    self._used_bytes -= HEADER_BYTES + entry.size_bytes
            for entry in gone:
                entry.is_gone = True
                del self._entries[entry.number]
            self.counts.evicted += len(gone)
        for entry in gone:
            with entry.lock:
                self._folder.remove(entry.name)

    def _new_name(self) -> str:
        """Return the name of a new file, which the folder's manifest has already."""
        with self._naming:
            if not self._names:
                first, self._name_count = self._name_count, self._name_count + _RESERVED
                self._names = [f"{number:08d}.npy" for number in range(first, self._name_count)]
                self._data.reserve(*(f"{self._folder.path.name}/{name}" for name in self._names))
            return self._names.pop()

    def _content(self, entry: Entry) -> NDArray[np.float16]:
        """Return noise with the stamps of an entry, in the shape of a cache."""
        content = np.empty(entry.size_bytes, np.uint8)
        for start in range(0, content.size, self._noise.size):
            part = content[start : start + self._noise.size]
            part[:] = self._noise[: part.size]
        # The sums in the stamps are still those of the noise, which has whole blocks.
        stamps = content.view(np.uint64).reshape(-1, PAGE_BYTES // 8)
        stamps[:, 0], stamps[:, 1] = self._nonce, entry.number
        stamps[:, 2] = np.arange(len(stamps))
        model = self._model
        shape = (model.layers, model.vectors, entry.tokens, model.kv_heads, model.head_dim)
        return content.view(np.float16).reshape(shape)

    def _load(self, entry: Entry) -> tuple[NDArray[np.uint8], int]:
        """Return the content of an entry, and up to which byte its file was read."""
        path = self._folder.path / entry.name
        try:
            with naming(path), path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                content = np.load(file, allow_pickle=False)
                return content.reshape(-1).view(np.uint8), file.tell()
        except (ValueError, EOFError) as error:
            raise DataError(f"{path} is not the file that was written: {error}") from error
