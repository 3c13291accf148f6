"""A run context for tests: real phases, clocks and threads, without a spine around it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any, TypeVar

from wattload.core.record.target import TargetFacts
from wattload.core.storage.file_system import DirectIo
from wattload.core.storage.targets import Target, TargetKind
from wattload.core.sysfs import host_memory_bytes
from wattload.core.workload import Communicator, Mark, RawDrive
from wattload.run.power_session import Sampling
from wattload.run.process import Peers, ProcessContext
from wattload.run.ranks import LocalCommunicator

if TYPE_CHECKING:
    from wattload.run.progress import Board
    from wattload.session.schedule import SessionPosition
    from wattload.session.search_result import Measurement, SearchOutcome

T = TypeVar("T")
C = TypeVar("C")


class NoReporter:
    """Takes what a session reports, and keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.positions: list[SessionPosition] = []
        self.compared: list[Sequence[Path]] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def live(self, board: Board) -> AbstractContextManager[None]:
        return nullcontext()

    def session_resumed(self, finished: int, planned: int, journal: Path) -> None:
        self.notes.append(f"{finished} of {planned} runs are not repeated")

    def run_begins(self, position: SessionPosition) -> None:
        self.positions.append(position)

    def run_finished(self, folder: Path) -> None:
        pass

    def session_finished(self, runs: Sequence[Path], journal: Path) -> None:
        self.compared.append(runs)

    def trial_finished(self, run: Measurement, threshold: float, *, reused: bool) -> None:
        pass

    def search_finished(self, result: SearchOutcome, path: Path, journal: Path, host: str) -> None:
        pass


def process_of(
    communicator: Peers, reporter: NoReporter | None = None, *, samples: bool = True
) -> ProcessContext:
    """Return the process of a rank on the host "box"."""
    return ProcessContext(
        communicator=communicator,
        local=communicator,
        leaders=LocalCommunicator() if communicator.rank == 0 else None,
        hosts=("box",),
        hosts_memory_bytes=host_memory_bytes(),
        sampling=Sampling(Path("runs"), service=None) if samples else None,
        host="box",
        reporter=reporter or NoReporter(),
    )


class ThreadCommunicator:
    """One rank of a world of threads; make all with ``world``, run them with ``run_ranks``."""

    def __init__(
        self,
        rank: int,
        barrier: threading.Barrier,
        values: list[Any],
        queues: Mapping[tuple[int, int], Queue[Any]],
        members: Sequence[int],
    ) -> None:
        self.rank = rank
        self.members = members
        self._queues = queues
        self.world_size = len(values)
        self._barrier = barrier
        self._values = values

    @staticmethod
    def world(size: int, first: int = 0) -> list[ThreadCommunicator]:
        """Return the ranks from ``first`` on of a run, as a communicator of their own."""
        barrier, values = threading.Barrier(size, timeout=60), [None] * size
        queues = {(a, b): Queue[Any]() for a, b in product(range(size), repeat=2)}
        members = range(first, first + size)
        return [ThreadCommunicator(rank, barrier, values, queues, members) for rank in range(size)]

    def barrier(self) -> None:
        self._barrier.wait()

    def gather(self, value: T) -> list[T]:
        gathered = self.all_gather(value)
        return [] if self.rank else gathered

    def all_gather(self, value: T) -> list[T]:
        self._values[self.rank] = value
        self.barrier()
        gathered = list(self._values)
        self.barrier()
        return gathered

    def broadcast(self, value: T) -> T:
        return self.all_gather(value)[0]

    def send(self, value: object, rank: int) -> None:
        self._queues[self.rank, rank].put(value)

    def wait(self, rank: int) -> None:
        pass

    def receive(self, rank: int) -> Any:
        return self._queues[rank, self.rank].get(timeout=60)

    def abort(self) -> None:
        """Let the other ranks fail instead of waiting for one that has failed."""
        self._barrier.abort()


@dataclass
class RecordedPhase:
    """A phase that was opened: its times (CLOCK_MONOTONIC) and what was counted in it."""

    name: str
    timed: bool
    parent: str | None = None
    start_ns: int = 0
    end_ns: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    operations: int = 0
    progress: RecordedProgress | None = field(default=None, repr=False)
    parts: list[tuple[str, Mark, Mark]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def set_edges(self, start_ns: int, end_ns: int) -> None:
        self.edges_ns = start_ns, end_ns

    def mark(self) -> Mark:
        return Mark(
            time_ns=time.monotonic_ns(),
            read_bytes=self.read_bytes,
            written_bytes=self.written_bytes,
            operations=self.operations,
            cpu_s=time.process_time(),
            devices={},
        )

    def add_part(self, name: str, start: Mark, end: Mark) -> None:
        self.parts.append((name, start, end))

    def count_read(self, moved_bytes: int) -> None:
        self.moved(read_bytes=moved_bytes)

    def count_written(self, moved_bytes: int) -> None:
        self.moved(written_bytes=moved_bytes)

    def moved(self, *, read_bytes: int = 0, written_bytes: int = 0, operations: int = 1) -> None:
        with self._lock:
            self.read_bytes += read_bytes
            self.written_bytes += written_bytes
            self.operations += operations
        if self.progress is not None:
            self.progress.advance(read_bytes=read_bytes, written_bytes=written_bytes)

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


@dataclass
class RecordedProgress:
    """Progress that remembers: each task with its size, and the bytes that moved in it."""

    tasks: list[tuple[str, int | None]] = field(default_factory=list)
    moved_bytes: list[int] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(
        self, task: str, *, read_bytes: int | None = None, written_bytes: int | None = None
    ) -> None:
        known = [size for size in (read_bytes, written_bytes) if size is not None]
        self.tasks.append((task, sum(known) if known else None))
        self.moved_bytes.append(0)

    def advance(self, *, read_bytes: int = 0, written_bytes: int = 0) -> None:
        with self._lock:
            if self.moved_bytes:
                self.moved_bytes[-1] += read_bytes + written_bytes

    def end(self) -> None:
        pass


@dataclass
class Context:
    """A ``RunContext`` over directories, for one rank; ``phases`` holds what was opened."""

    targets: tuple[Target, ...]
    communicator: Communicator = field(default_factory=LocalCommunicator)
    progress: RecordedProgress = field(default_factory=RecordedProgress)
    seed: int = 1
    scale: str = "demo"
    hosts_memory_bytes: int = field(default_factory=host_memory_bytes)
    phases: list[RecordedPhase] = field(default_factory=list)
    drives: dict[int, RawDrive] = field(default_factory=dict)
    has_ended: bool = False
    pauses: int = 0
    on_host: Communicator | None = None
    """The ranks on this host, ``None`` for all of them."""
    shares_targets: bool = False
    """Whether all hosts see the same targets."""
    _open: list[str] = field(default_factory=list)

    @property
    def local(self) -> Communicator:
        return self.on_host or self.communicator

    @property
    def sharers(self) -> Communicator:
        return self.communicator if self.shares_targets else self.local

    def end_job(self) -> None:
        self.has_ended = True

    def end_pause(self, phase: str) -> None:
        self.pauses += 1

    def raw_drive(self, target: Target) -> RawDrive | None:
        return self.drives.get(target.index)

    @contextmanager
    def phase(self, name: str, *, timed: bool = True) -> Iterator[RecordedPhase]:
        parent = self._open[-1] if self._open else None
        phase = RecordedPhase(name, timed, parent=parent, progress=self.progress)
        self.phases.append(phase)
        self._open.append(name)
        phase.start_ns = time.monotonic_ns()
        try:
            yield phase
        finally:
            phase.end_ns = time.monotonic_ns()
            self._open.pop()

    def output_folder(self, name: str) -> Path:
        """Return a place beside the first target."""
        return self.targets[0].path.parent / name

    def timed(self, name: str) -> list[RecordedPhase]:
        """Return the timed phases of a name, in order."""
        return [phase for phase in self.phases if phase.timed and phase.name == name]


def directory_target(path: Path, *, index: int = 0) -> Target:
    """Return a target on a directory with direct I/O at 4096 bytes, its facts left unknown."""
    unknown = "the test did not look"
    facts = TargetFacts(
        index=index,
        host="test",
        kind="directory",
        path=str(path),
        file_system=None,
        direct_io_memory_align_bytes=4096,
        direct_io_offset_align_bytes=4096,
        stack=None,
        devices=(),
        controllers=(),
        virtual=None,
        missing=dict.fromkeys(("file_system", "stack", "virtual"), unknown),
    )
    return Target(
        index=index,
        kind=TargetKind.DIRECTORY,
        path=path,
        direct_io=DirectIo(memory_align_bytes=4096, offset_align_bytes=4096, found_by="test"),
        direct_io_missing=None,
        facts=facts,
    )


def context_at(path: Path, **changed: Any) -> Context:
    """Return a context of one process with one directory as its target."""
    return Context(targets=(directory_target(path),), **changed)


def contexts_on_hosts(folders: Sequence[Path], ranks: int) -> list[Context]:
    """Return the contexts of ``ranks`` on a host for each folder, which is its only target."""
    world = iter(ThreadCommunicator.world(len(folders) * ranks))
    return [
        Context(targets=(directory_target(folder),), communicator=next(world), on_host=local)
        for number, folder in enumerate(folders)
        for local in ThreadCommunicator.world(ranks, number * ranks)
    ]


def run_ranks(contexts: Sequence[C], work: Callable[[C], T]) -> list[T]:
    """Run ``work`` on each context in a thread of its own, as ranks; returns results by rank.

    The first failure is raised; the other ranks' barriers are broken so that nothing hangs.
    """
    results: list[Any] = [None] * len(contexts)
    failures: list[BaseException] = []

    def rank(number: int) -> None:
        try:
            results[number] = work(contexts[number])
        except BaseException as error:
            failures.append(error)
            for context in contexts:
                for name in ("communicator", "local"):
                    communicator = getattr(context, name, None)
                    if isinstance(communicator, ThreadCommunicator):
                        communicator.abort()

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(len(contexts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results
