"""The timed phases of a conversion on one rank, repeated in rounds, and their output files.

With a ``resume_key``, each finished output is listed durably with what became of its part. The next
conversion with the same key keeps it, and counts it apart from its own work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from wattload.core.checks.io import written_extents_check
from wattload.core.errors import DataError
from wattload.core.files import sync_folder
from wattload.core.io import Extent
from wattload.core.record.results import Check
from wattload.core.storage.targets import Target
from wattload.core.workload import Communicator, RunContext
from wattload.loaders.converters import (
    SPILL_COUNT,
    ConversionSettings,
    Converted,
    Converter,
    IdNumberer,
    NumberedColumn,
    Packed,
    RowFiles,
    RowShuffler,
    Scattered,
    Shuffled,
)
from wattload.loaders.data.cold_cache import cold_cache_check, evict
from wattload.loaders.data.criteo_day_files import (
    CATEGORICALS,
    INTEGERS,
    ROW_BYTES,
    Part,
    Span,
    category_paths,
    id_paths,
    packed_paths,
    size_files,
)
from wattload.loaders.data.data_folder import (
    DataFolder,
    claim_on_targets,
    existing_on_targets,
    marker_of,
)
from wattload.results.dlrm import (
    NUMBER_IDS,
    SCATTER_ROWS,
    SHUFFLE_ROWS,
    TO_BINARY,
    TO_PARQUET,
    TO_ROWS,
    PhaseWork,
)
from wattload.results.quantity import counted
from wattload.workloads.dlrm.dataset import HOLES_REMEDY
from wattload.workloads.dlrm.tasks import (
    ColumnTask,
    PackTask,
    PartTask,
    ScatterTask,
    ShuffleTask,
    number_ids,
    scatter_rows,
    shuffle_rows,
    to_binary,
    to_parquet,
    to_rows,
)
from wattload.workloads.dlrm.workers import Cost, MovedCallback, WorkerPool

OUTPUT = "dlrm-output"
SHUFFLED = "shuffled."
COUNT_BYTES = 4
"""A count at the end of a file of buckets."""
STAT_BLOCK_BYTES = 512
"""The unit of ``st_blocks`` in inode(7)."""
Made = Converted | Packed | NumberedColumn | Scattered | Shuffled
T = TypeVar("T", PartTask, PackTask, ColumnTask, ScatterTask, ShuffleTask)
R = TypeVar("R", Converted, Packed, NumberedColumn, Scattered, Shuffled)


def phases_of(*, columnar: bool, numbers_ids: bool, shuffles: bool) -> tuple[str, ...]:
    """Return the phases of a round, in their order."""
    conversion = (TO_PARQUET, TO_BINARY) if columnar else (TO_ROWS,)
    numbering = (NUMBER_IDS,) if numbers_ids else ()
    shuffle = (SCATTER_ROWS, SHUFFLE_ROWS) if shuffles else ()
    return conversion + numbering + shuffle


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """How ids are numbered: see ``IdNumberer``."""

    threshold: int
    table_limit: int
    numberer: IdNumberer


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffling:
    """How rows are shuffled: all but those of the last day file, ``last_day``.

    At most ``row_limit`` rows are in memory at a time, and a bucket has fewer.
    """

    seed: int
    last_day: Path
    row_limit: int
    bucket_count: int
    shuffler: RowShuffler


class Conversion:
    """Converts a rank's parts with its workers; every rank takes part in every phase."""

    def __init__(
        self,
        context: RunContext,
        pool: WorkerPool,
        parts: Sequence[Part],
        outputs: Outputs,
        *,
        settings: ConversionSettings,
        converter: Converter,
        numbering: Numbering | None,
        shuffling: Shuffling | None,
    ) -> None:
        self._context = context
        self._pool = pool
        self._parts = parts
        self._outputs = outputs
        self._settings = settings
        self._converter = converter
        self._numbering = numbering
        self._shuffling = shuffling

    def run(self, rounds: int) -> ConversionResult:
        """Repeat the conversion ``rounds`` times; the output of the last round stays."""
        found = ConversionResult()
        for number in range(1, rounds + 1):
            self._outputs.begin()
            of_round = f"round {number} of {rounds}"
            if self._settings.columnar:
                self._convert(found, TO_PARQUET, f"TSV to Parquet, {of_round}")
                self._pack(found, f"Parquet to binary, {of_round}")
            else:
                self._convert(found, TO_ROWS, f"TSV to binary, {of_round}")
            if self._numbering:
                self._number(found, self._numbering, f"numbers of ids, {of_round}")
            if self._shuffling:
                self._scatter(found, self._shuffling, f"rows to buckets, {of_round}")
                self._shuffle(found, self._shuffling, f"shuffle in buckets, {of_round}")
        return found

    def _convert(self, found: ConversionResult, name: str, label: str) -> None:
        """Convert the TSV, to Parquet or to packed rows."""
        is_columnar = self._settings.columnar
        paths = self._outputs.parquet if is_columnar else self._outputs.rows
        done = self._step(
            found,
            to_parquet if is_columnar else to_rows,
            [
                PartTask(part, path, self._settings, self._converter)
                for part, path in zip(self._parts, paths, strict=True)
            ],
            Converted,
            name=name,
            label=label,
        )
        self._require_rows(done)
        found.converted.append(done)

    def _require_rows(self, done: Sequence[Converted]) -> None:
        """Raise ``DataError`` on all ranks for a day file of which no line is a row."""
        counts = [
            (part.source, each.row_count, each.dropped_count)
            for part, each in zip(self._parts, done, strict=True)
        ]
        rows: Counter[Path] = Counter()
        dropped: Counter[Path] = Counter()
        for source, row_count, dropped_count in chain.from_iterable(
            self._context.communicator.all_gather(counts)
        ):
            rows[source] += row_count
            dropped[source] += dropped_count
        for source, count in dropped.items():
            if not rows[source]:
                raise DataError(
                    f"{source} has no row in {counted(count, 'line')}, so "
                    "workload.bad_rows=drop would leave nothing of it; a row is a label, "
                    f"{len(INTEGERS)} integers and {len(CATEGORICALS)} hex ids in ASCII, separated "
                    "by tabs; convert the file, or take it out of workload.source"
                )

    def _pack(self, found: ConversionResult, label: str) -> None:
        done = self._step(
            found,
            to_binary,
            [
                PackTask(part, source, path, self._settings, self._converter)
                for part, source, path in zip(
                    self._parts, self._outputs.parquet, self._outputs.rows, strict=True
                )
            ],
            Packed,
            name=TO_BINARY,
            label=label,
        )
        found.packed.append(done)

    def _number(self, found: ConversionResult, numbering: Numbering, label: str) -> None:
        done = self._step(
            found,
            number_ids,
            [
                ColumnTask(
                    sources=column.ids,
                    targets=column.categories,
                    spills=column.spills,
                    settings=self._settings,
                    threshold=numbering.threshold,
                    table_limit=numbering.table_limit,
                    numberer=numbering.numberer,
                )
                for column in self._outputs.columns
            ],
            NumberedColumn,
            name=NUMBER_IDS,
            label=label,
        )
        found.numbered.append(done)

    def _scatter(self, found: ConversionResult, shuffling: Shuffling, label: str) -> None:
        self._context.communicator.barrier()  # files of all ranks are counted
        first_row, tasks = 0, []
        for unshuffled in self._outputs.unshuffled:
            source = row_files(unshuffled.packed)
            if unshuffled.is_own and source.row_count:
                tasks.append(
                    ScatterTask(
                        source=source,
                        path=unshuffled.scattered,
                        settings=self._settings,
                        seed=shuffling.seed,
                        first_row=first_row,
                        bucket_count=shuffling.bucket_count,
                        row_limit=shuffling.row_limit,
                        shuffler=shuffling.shuffler,
                    )
                )
            first_row += source.row_count
        done = self._step(found, scatter_rows, tasks, Scattered, name=SCATTER_ROWS, label=label)
        found.scattered.append(
            [(task.source, each) for task, each in zip(tasks, done, strict=True)]
        )

    def _shuffle(self, found: ConversionResult, shuffling: Shuffling, label: str) -> None:
        self._context.communicator.barrier()  # files of all ranks are read
        widths: tuple[int, ...] = ()
        sources: list[list[Extent]] = [[] for _ in range(shuffling.bucket_count)]
        for unshuffled in self._outputs.unshuffled:
            rows = row_files(unshuffled.packed)
            if not rows.row_count:
                continue
            widths = rows.widths
            times = -(-rows.row_count // shuffling.row_limit)
            counts = self._bucket_counts(unshuffled.scattered, times, shuffling.bucket_count)
            offset = 0
            for bucket, count in enumerate(counts):
                size_bytes = int(count) * sum(widths)
                if size_bytes:
                    place = bucket % shuffling.bucket_count
                    sources[place].append(Extent(unshuffled.scattered, offset, size_bytes))
                offset += size_bytes
        tasks = [
            ShuffleTask(
                sources=sources[bucket],
                path=path,
                targets=targets,
                widths=widths,
                settings=self._settings,
                seed=shuffling.seed,
                bucket=bucket,
                shuffler=shuffling.shuffler,
            )
            for bucket, (path, targets) in self._outputs.buckets.items()
        ]
        done = self._step(found, shuffle_rows, tasks, Shuffled, name=SHUFFLE_ROWS, label=label)
        found.shuffled.append(
            [
                (RowFiles(tuple(task.targets), widths, each.row_count), each)
                for task, each in zip(tasks, done, strict=True)
            ]
        )

    @staticmethod
    def _bucket_counts(path: Path, times: int, bucket_count: int) -> NDArray[np.uint32]:
        """Return how many rows of each bucket a file has, in the order of the file."""
        offset = path.stat().st_size - times * bucket_count * COUNT_BYTES
        return np.fromfile(path, "<u4", offset=offset)

    def _cold(self, name: str, paths: Sequence[Path]) -> tuple[Check, Check]:
        """Evict the next phase's input from the page cache on all ranks, then check that.

        Raises ``DataError`` if a part of the input is on no device.
        """
        evict(paths)
        self._context.communicator.barrier()
        cold = cold_cache_check(paths, name=f"cold_cache_{name}")
        written = written_extents_check(paths, remedy=HOLES_REMEDY)
        self._context.communicator.barrier()
        return cold, written

    def _step(
        self,
        found: ConversionResult,
        function: Callable[[T, MovedCallback], R],
        tasks: Sequence[T],
        kind: type[R],
        *,
        name: str,
        label: str,
    ) -> list[R]:
        """Run one phase, which ends when this rank's files and their names are durable.

        Returns what became of every part; those that are finished already are not converted.
        """
        kept = self._outputs.kept([task.path for task in tasks], kind)
        due = [index for index in range(len(tasks)) if index not in kept]
        self._context.communicator.barrier()  # the input may be other ranks' output
        inputs = [each for index in due for each in tasks[index].inputs]
        found.cold += self._cold(name, sorted({path for path, _ in inputs}))
        progress = self._context.progress
        progress.begin(label, read_bytes=sum(size_bytes for _, size_bytes in inputs))
        with self._context.phase(name) as phase:

            def moved(read_bytes: int, written_bytes: int, operations: int) -> None:
                phase.moved(
                    read_bytes=read_bytes, written_bytes=written_bytes, operations=operations
                )

            costs, made = [], {}
            own = [tasks[index] for index in due]
            for place, done in self._pool.as_completed(function, own, moved):
                costs.append(done.cost)
                made[due[place]] = done.result
                self._outputs.finish(own[place].path, done.result)
            self._outputs.sync()
        progress.end()
        found.steps.append(
            Step(
                name=name,
                costs=costs,
                unpack_cpu_s=_unpack_cpu_s(list(made.values())),
                kept_count=len(kept),
                kept_read_bytes=sum(_read_bytes(each) for each in kept.values()),
            )
        )
        return [kept[index] if index in kept else made[index] for index in range(len(tasks))]


def row_files(paths: Sequence[Path]) -> RowFiles:
    """Return packed files with their widths, 0 for no rows; a split row has one byte of label."""
    sizes = [path.stat().st_size for path in paths]
    row_count = sizes[0] if len(sizes) > 1 else sizes[0] // ROW_BYTES
    return RowFiles(tuple(paths), tuple(size // max(row_count, 1) for size in sizes), row_count)


def _read_bytes(made: Made) -> int:
    if isinstance(made, Shuffled):
        return made.size_bytes
    if isinstance(made, NumberedColumn):
        return _size_bytes(list(chain.from_iterable(made.read)))
    return _size_bytes(made.read)


def _unpack_cpu_s(made: Sequence[Made]) -> float:
    return sum(each.unpack_cpu_s for each in made if isinstance(each, Converted))


def _size_bytes(spans: Sequence[Span]) -> int:
    return sum(span.size_bytes for span in spans)


@dataclass(slots=True)
class ConversionResult:
    """The phases of all rounds on a rank, and what its parts became in each round.

    ``packed`` has what became of the Parquet files, if there are any, and ``numbered`` what became
    of this rank's columns of ids, if they are numbered. ``scattered`` and ``shuffled`` have the
    rows that were read and written, if they are shuffled.
    """

    steps: list[Step] = field(default_factory=list)
    cold: list[Check] = field(default_factory=list)
    converted: list[Sequence[Converted]] = field(default_factory=list)
    packed: list[Sequence[Packed]] = field(default_factory=list)
    numbered: list[Sequence[NumberedColumn]] = field(default_factory=list)
    scattered: list[Sequence[tuple[RowFiles, Scattered]]] = field(default_factory=list)
    shuffled: list[Sequence[tuple[RowFiles, Shuffled]]] = field(default_factory=list)

    @property
    def last(self) -> Sequence[Converted]:
        """What the parts became in the last round, whose output is still there."""
        return self.converted[-1]

    @property
    def written_rows(self) -> Sequence[Sequence[Converted | Packed]]:
        return self.packed or self.converted


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One phase: of one round on one rank, or over all of them, with the costs of its tasks.

    ``unpack_cpu_s`` is the CPU time of the threads that unpacked gz, which is in the tasks' too.
    ``kept_count`` parts were finished by an earlier start, with their bytes; nothing else here
    counts them.
    """

    name: str
    costs: Sequence[Cost]
    unpack_cpu_s: float
    kept_count: int
    kept_read_bytes: int

    @property
    def work(self) -> PhaseWork:
        """What the workers did, as a fact of the run."""
        queued = [cost.run_queue_s for cost in self.costs if cost.run_queue_s is not None]
        return PhaseWork(
            cpu_s=sum(cost.cpu_s for cost in self.costs),
            unpack_cpu_s=self.unpack_cpu_s,
            task_s=sum(cost.wall_s for cost in self.costs),
            run_queue_s=sum(queued) if len(queued) == len(self.costs) else None,
            peak_bytes=max((cost.peak_bytes for cost in self.costs), default=0),
            part_count=len(self.costs) + self.kept_count,
            kept_count=self.kept_count,
        )


def total(name: str, steps: Sequence[Step]) -> Step:
    """Return a phase over all of its steps."""
    own = [step for step in steps if step.name == name]
    return Step(
        name=name,
        costs=[cost for step in own for cost in step.costs],
        unpack_cpu_s=sum(step.unpack_cpu_s for step in own),
        kept_count=sum(step.kept_count for step in own),
        kept_read_bytes=sum(step.kept_read_bytes for step in own),
    )


@dataclass(frozen=True, slots=True)
class ColumnFiles:
    """The files of one categorical column: of all parts in the order of the rows, and spills."""

    name: str
    ids: Sequence[Path]
    categories: Sequence[Path]
    spills: Sequence[Path]


@dataclass(frozen=True, slots=True)
class UnshuffledFiles:
    """The packed files of a part that is shuffled, of any rank, and the file of its buckets."""

    packed: tuple[Path, ...]
    scattered: Path
    is_own: bool


class Outputs:
    """The output files of a rank's parts; its part i is on target i modulo the number of targets.

    If ids are numbered, a rank also has the files of every ``world_size``-th column, of all parts,
    and if rows are shuffled, every ``world_size``-th bucket.

    Every name is in the manifest before the file is created, so ``wattload clean`` finds the files
    of a killed run. ``resume_key`` identifies what the conversion would write; without one, nothing
    of an earlier start is kept.
    """

    def __init__(
        self,
        folders: Sequence[DataFolder],
        all_parts: Sequence[Part],
        communicator: Communicator,
        *,
        settings: ConversionSettings,
        resume_key: str | None,
        is_spilled: bool,
        shuffling: Shuffling | None,
    ) -> None:
        self.folders = folders
        self._settings = settings
        self._resume_key = resume_key
        rank, world_size = communicator.rank, communicator.world_size
        places = [
            folders[index // world_size % len(folders)].path / part.name
            for index, part in enumerate(all_parts)
        ]
        self._places = places[rank::world_size]
        self.columns: list[ColumnFiles] = []
        if settings.whole_ids:
            by_part = [_with_suffix(place, ".bin") for place in places]
            by_column = zip(
                zip(*map(id_paths, by_part), strict=True),
                zip(*map(category_paths, by_part), strict=True),
                strict=True,
            )
            columns = []
            for number, (ids, categories) in enumerate(by_column):
                folder = folders[number % len(folders)].path
                spills = [folder / f"ids_{number}.spill_{index}" for index in range(SPILL_COUNT)]
                name = CATEGORICALS[number]
                columns.append(ColumnFiles(name, ids, categories, spills if is_spilled else ()))
            self.columns = columns[rank::world_size]
        self.unshuffled: list[UnshuffledFiles] = []
        self.buckets: dict[int, tuple[Path, Sequence[Path]]] = {}
        if shuffling:
            for index, (place, part) in enumerate(zip(places, all_parts, strict=True)):
                if part.source != shuffling.last_day:
                    packed = self._packed(_with_suffix(place, ".bin"))
                    scattered = _with_suffix(place, ".scattered")
                    is_own = index % world_size == rank
                    self.unshuffled.append(UnshuffledFiles(packed, scattered, is_own))
            for bucket in range(rank, shuffling.bucket_count, world_size):
                folder = folders[bucket // world_size % len(folders)].path
                path = folder / f"{SHUFFLED}{bucket:05d}.bin"
                self.buckets[bucket] = (path, self._packed(path))

    @classmethod
    def claim(
        cls,
        context: RunContext,
        parameters: Mapping[str, Any],
        all_parts: Sequence[Part],
        *,
        settings: ConversionSettings,
        resume_key: str | None,
        is_spilled: bool,
        shuffling: Shuffling | None,
    ) -> Outputs:
        """Claim the output folders on all targets; every rank has to call this.

        They are emptied, unless they have files of a conversion with the same ``resume_key`` that
        was not completed. ``settings`` decide which files there are; ``is_spilled`` is whether
        columns may need more memory than a worker has.

        Raises:
            DataError: a folder is not wattload's.
            TargetError: a target is not writable.
        """
        rank = context.communicator.rank
        if rank == 0:
            folders = _folders(context, parameters)
            for folder in folders:
                if resume_key is None or not _is_unfinished(folder, resume_key):
                    folder.empty()
        context.communicator.barrier()
        if rank:
            folders = _folders(context, parameters)
        return cls(
            folders,
            all_parts,
            context.communicator,
            settings=settings,
            resume_key=resume_key,
            is_spilled=is_spilled,
            shuffling=shuffling,
        )

    @staticmethod
    def present_bytes(targets: Sequence[Target], parameters: Mapping[str, Any]) -> int:
        """Return the space of what an earlier conversion left in the folders, in bytes.

        ``claim`` keeps or removes it.
        """
        key = str(marker_of(OUTPUT, parameters, seed=0)["key"])
        return sum(
            _space_bytes(folder.path / name)
            for folder in existing_on_targets(targets, key)
            if folder is not None
            for name in folder.entries.keys() | folder.reserved
        )

    @property
    def parquet(self) -> list[Path]:
        """The Parquet file of each part, if it becomes one."""
        return self._paths(".parquet") if self._settings.columnar else []

    @property
    def rows(self) -> list[Path]:
        """The file of packed rows of each part; its columns may be in the files of ``binary``."""
        return self._paths(".bin")

    @property
    def binary(self) -> list[Sequence[Path]]:
        """The packed files of each part, with ids as they were converted."""
        return [self._files(path) for path in self.rows]

    @property
    def kept_count(self) -> int:
        """The number of files that the next start with the same key keeps."""
        return sum(len(files) for files in self._all_files() if self._are_kept(files))

    def begin(self) -> None:
        """Remove the files of an earlier round, and list the names of the next."""
        self.abandon()
        for files in [*self._all_files(), *self._spills()]:
            if not self._are_kept(files):
                for path in files:
                    self._folder(path).reserve(path.name)

    def kept(self, paths: Sequence[Path], kind: type[R]) -> dict[int, R]:
        """Return what became of the parts whose files an earlier start finished, by their index."""
        return {
            index: TypeAdapter(kind).validate_python(self._result(files[0])["made"])
            for index, files in enumerate(map(self._files, paths))
            if self._are_kept(files)
        }

    def finish(self, path: Path, made: Made) -> None:
        """List durable files with what became of their part, for the case that the run is killed.

        The first of the files has the result. What a column spilled is removed.
        """
        self._discard(column.spills for column in self.columns if path == column.categories[0])
        if self._resume_key is None:
            return
        first, *others = self._files(path)
        result: dict[str, Any] = {"resume_key": self._resume_key}
        for each in others:
            self._folder(each).record(each.name, each.lstat().st_size, None, result=result)
        result["made"] = asdict(made)
        self._folder(first).record(first.name, first.lstat().st_size, None, result=result)

    def sync(self) -> None:
        for folder in self.folders:
            sync_folder(folder.path)

    def keep(self) -> None:
        """List the files as finished, so that they stay until ``wattload clean``.

        Ids whose numbers are in other files are removed, and rows that are shuffled in others.
        """
        replaced = {path for place in self.rows for path in id_paths(place)}
        for unshuffled in self.unshuffled:
            replaced.update((*unshuffled.packed, unshuffled.scattered))
        own = list(chain.from_iterable(self._all_files()))
        self._discard([[path for path in own if path in replaced]])
        for path in own:
            if path in replaced:
                continue
            folder = self._folder(path)
            try:
                size_bytes = path.lstat().st_size
            except FileNotFoundError:
                folder.discard(path.name)
            else:
                folder.record(path.name, size_bytes, None)

    def keep_sizes(self, table_rows: Sequence[int]) -> None:
        """Write and list what the readers of the rows open to know the embedding tables' sizes."""
        folder = self.folders[0]
        for name, content in size_files(table_rows).items():
            folder.reserve(name)
            with folder.open() as opened:
                opened.write(name, content)
            folder.record(name, len(content), None)

    def abandon(self) -> None:
        """Remove this rank's files, but those that the next start keeps."""
        self._discard(files for files in self._all_files() if not self._are_kept(files))
        self._discard(self._spills())

    def remove(self) -> None:
        self._discard([*self._all_files(), *self._spills()])

    def close(self) -> None:
        for folder in self.folders:
            folder.close()

    def _discard(self, outputs: Iterable[Sequence[Path]]) -> None:
        for path in chain.from_iterable(outputs):
            folder = self._folder(path)
            if path.name in folder.entries or path.name in folder.reserved:
                folder.discard(path.name)

    def _are_kept(self, files: Sequence[Path]) -> bool:
        """Whether all files of an output were finished by an earlier start of this conversion."""
        if self._resume_key is None or not files or "made" not in self._result(files[0]):
            return False
        return all(self._folder(path).is_valid(path.name) for path in files)

    def _result(self, path: Path) -> Mapping[str, Any]:
        entry = self._folder(path).entries.get(path.name)
        return (entry and entry.result) or {}

    def _folder(self, path: Path) -> DataFolder:
        return next(each for each in self.folders if each.path == path.parent)

    def _paths(self, suffix: str) -> list[Path]:
        return [_with_suffix(place, suffix) for place in self._places]

    def _files(self, path: Path) -> Sequence[Path]:
        """Return the files of an output: those of columns for packed rows that are split."""
        for column in self.columns:
            if path == column.categories[0]:
                return column.categories
        if path.suffix != ".bin":
            return (path,)
        if path.name.startswith(SHUFFLED):
            return self._packed(path)
        return packed_paths(
            path,
            is_split=self._settings.splits_columns,
            has_whole_ids=self._settings.whole_ids,
        )

    def _packed(self, path: Path) -> tuple[Path, ...]:
        """Return the packed files of a part or bucket, with ids as they are in the end."""
        return packed_paths(path, is_split=self._settings.splits_columns)

    def _all_files(self) -> list[Sequence[Path]]:
        return [
            *((path,) for path in self.parquet),
            *self.binary,
            *(column.categories for column in self.columns),
            *((each.scattered,) for each in self.unshuffled if each.is_own),
            *(targets for _, targets in self.buckets.values()),
        ]

    def _spills(self) -> list[Sequence[Path]]:
        return [column.spills for column in self.columns]


def _with_suffix(place: Path, suffix: str) -> Path:
    return place.with_name(place.name + suffix)


def _space_bytes(path: Path) -> int:
    """Return the space that a file takes, 0 if it is gone."""
    try:
        return path.lstat().st_blocks * STAT_BLOCK_BYTES
    except FileNotFoundError:
        return 0


def _folders(context: RunContext, parameters: Mapping[str, Any]) -> list[DataFolder]:
    rank = context.communicator.rank
    return claim_on_targets(context.targets, OUTPUT, parameters, seed=0, part=rank)


def _is_unfinished(folder: DataFolder, resume_key: str) -> bool:
    """Return whether it has finished files, all of a conversion with this key that was cut off."""
    keys = {(entry.result or {}).get("resume_key") for entry in folder.entries.values()}
    return not folder.sealed and keys == {resume_key}
