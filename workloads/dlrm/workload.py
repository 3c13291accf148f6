"""The dlrm workload: plan, data, timed phases, verification."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from wattload import __version__
from wattload.core.errors import ConfigError, RunError
from wattload.core.record.results import Check
from wattload.core.record.run import DataRecord
from wattload.core.units import NS_PER_S
from wattload.core.workload import (
    Accelerator,
    Outcome,
    OverHosts,
    RunContext,
    WorkloadPlan,
)
from wattload.loaders.converters import (
    FIRST_NUMBER,
    ID_ENTRY_BYTES,
    ROW_ENTRY_BYTES,
    ConversionSettings,
    ConverterConfig,
    IdNumberer,
    RowShuffler,
)
from wattload.loaders.data.cold_cache import worst_of_each
from wattload.loaders.data.criteo_day_files import (
    BYTE_ORDER_MARK,
    CATEGORICALS,
    ID_MODULUS,
    ROW_BYTES,
    SPLIT_ROW_BYTES,
    BadLineError,
    Part,
    balanced_count,
    cut_parts,
    find_fault,
    first_lines,
)
from wattload.loaders.data.data_folder import noting_what_remains
from wattload.loaders.data.gz_text import first_text, is_gz
from wattload.loaders.data.verification import digests_check
from wattload.results.dlrm import DlrmFacts, DlrmSettings
from wattload.workloads.dlrm import checks
from wattload.workloads.dlrm.config import BadRows, Config, Dense, Ids, Pack
from wattload.workloads.dlrm.conversion import (
    Conversion,
    ConversionResult,
    Numbering,
    Outputs,
    Shuffling,
    Step,
    phases_of,
    total,
)
from wattload.workloads.dlrm.dataset import (
    WORKLOAD,
    DayFiles,
    ExpectedData,
    RealDays,
    SyntheticDays,
)
from wattload.workloads.dlrm.tasks import CeilingTask, against_memory
from wattload.workloads.dlrm.workers import WorkerPool

PARQUET_SHARE = 0.75
"""Upper bound of Parquet bytes per TSV byte; measured 0.26 (zstd) to 0.63 (none, 6000 rows)."""

TABLE_BYTES = 16_000_000
"""Least memory of a worker for the ids of a column, or for rows that are shuffled."""
STEP_BYTES = 16_000_000
"""Memory for ids or rows that are on their way."""
BUCKET_SHARE = 0.9
"""Rows in a bucket on average, of those that there is memory for: the draw varies far less."""
ID_BYTES = 4
SPILLED_ID_BYTES = 2 * ID_BYTES
"""Space of an id that memory has no room for, and of its number."""
CEILING_NS = NS_PER_S // 2
"""How long each worker converts from memory."""
GZ_CEILING_BLOCKS = 4
"""Blocks of gz that the harness ceiling is measured with: one is converted while the next is
unpacked, as in the phases."""


class Dlrm:
    """Criteo TSV to Parquet to packed binary with worker processes, as DLRM's users prepare data.

    With ``columnar=false`` there is no Parquet between. The loader converts. Input is evicted from
    the page cache before each phase, and output is durable when the phase ends.
    """

    name: ClassVar[str] = WORKLOAD
    needs: ClassVar[tuple[type, ...]] = (ConverterConfig,)
    over_hosts: ClassVar[OverHosts] = "one"
    """Its processes read each other's files, and each verifies files by their state on its host."""

    def __init__(self, config: Config, loader: ConverterConfig, accelerator: Accelerator) -> None:
        del accelerator  # nothing is trained here
        self._config = config
        self._loader = loader
        self._days: DayFiles | None = None
        self._parts: Sequence[Part] = ()
        self._all_parts: Sequence[Part] = ()
        self._outputs: Outputs | None = None
        self._converted = ConversionResult()
        self._phases: Sequence[Step] = ()
        self._table_rows: Sequence[int] = (ID_MODULUS,) * len(CATEGORICALS)

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return what the run will write; raises ``ConfigError`` or ``DataError`` on bad input."""
        self._config.check(context.scale)
        self._require_memory()
        numbering = self._numbering()
        shuffler = self._shuffler()
        source = self._source(context)
        expected = source.expected()
        if shuffler and expected.day_count == 1:
            raise ConfigError(
                "workload.shuffle=true shuffles all days but the last, which is for validation; "
                "it needs at least 2 day files, got 1"
            )
        parquet_bytes = round(expected.text_bytes * PARQUET_SHARE) if self._config.columnar else 0
        row_bytes = self._row_bytes
        output_bytes = parquet_bytes + expected.row_count * row_bytes
        read_bytes = expected.size_bytes + parquet_bytes
        spill_bytes = 0
        if numbering:
            id_bytes = expected.row_count * len(CATEGORICALS) * ID_BYTES
            output_bytes += id_bytes
            read_bytes += 2 * id_bytes
            if self._is_spilled(expected.row_count):
                workers = self._workers(context) * context.communicator.world_size
                columns = min(workers, len(CATEGORICALS))
                spill_bytes = columns * expected.row_count * SPILLED_ID_BYTES
        if self._config.shuffle:
            output_bytes += 2 * expected.row_count * row_bytes
            read_bytes += 2 * expected.row_count * row_bytes
        data_bytes = 0 if self._config.source else expected.size_bytes
        return WorkloadPlan(
            data_bytes=data_bytes,
            prepare_bytes=expected.missing_bytes,
            run_bytes=(output_bytes + spill_bytes) * self._config.rounds,
            peak_bytes=data_bytes + output_bytes + spill_bytes,
            present_bytes=Outputs.present_bytes(context.targets, self._output_parameters(source)),
            memory_bytes_per_rank=self._workers(context) * self._worker_memory_bytes(expected),
            needs_direct_io=self._loader.conversion_is_direct,
            read_bytes=read_bytes * self._config.rounds,
        )

    def prepare(self, context: RunContext) -> DataRecord:
        """Find or generate the day files, and divide them into parts."""
        self._days, facts = self._source(context).prepare(context)
        world = context.communicator
        count = balanced_count(
            file_count=len(self._days.paths),
            worker_count=self._workers(context) * world.world_size,
            size_bytes=self._days.text_bytes,
            part_bytes=self._config.part_bytes,
        )
        unpacked = {file.path: file.content.text_bytes for file in self._days.gz_files}
        self._all_parts = cut_parts(self._days.paths, count, unpacked)
        self._parts = self._all_parts[world.rank :: world.world_size]
        world.barrier()
        return facts

    def run(self, context: RunContext) -> Outcome:
        """Convert in rounds; after a failure or an interrupt, keep only what can be resumed."""
        days = self._prepared()
        settings = self._settings()
        outputs = Outputs.claim(
            context,
            self._output_parameters(self._source(context)),
            self._all_parts,
            settings=settings,
            resume_key=self._resume_key(context, days),
            is_spilled=self._is_spilled(days.line_count),
            shuffling=(shuffling := self._shuffling(context, days)),
        )
        self._outputs = outputs
        try:
            with WorkerPool(self._workers(context)) as pool:
                with context.phase("harness_ceiling", timed=False):
                    ceiling = self._ceiling(pool, settings)
                conversion = Conversion(
                    context,
                    pool,
                    self._parts,
                    outputs,
                    settings=settings,
                    converter=self._loader.converter(),
                    numbering=self._numbering(),
                    shuffling=shuffling,
                )
                self._converted = conversion.run(self._config.rounds)
                context.end_job()
        except BaseException as error:
            if isinstance(error, BadLineError):
                error.add_note(
                    "  fix         correct the line, or set workload.bad_rows=drop to skip and "
                    "count such lines"
                )
            with noting_what_remains(error, [folder.path for folder in outputs.folders]):
                outputs.abandon()
                outputs.close()
            if outputs.kept_count:
                error.add_note(
                    f"  kept        {outputs.kept_count} finished files in "
                    f"{outputs.folders[0].path}; the same run goes on with them, `wattload clean` "
                    "deletes them"
                )
            raise
        return self._outcome(context, days, ceiling)

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Compare files and outputs with what moved and with a reference; remove the output."""
        days, outputs, world = self._prepared(), self._outputs, context.communicator
        if outputs is None:
            raise RunError("dlrm: run() has to be called before verify()")
        draw = world.broadcast(secrets.randbits(64))
        try:
            files = (outputs.parquet, outputs.binary)
            moved = checks.compare_moved(self._parts, self._converted, *files, outputs.columns)
            counts = checks.count_rows(self._converted, *files, settings=self._settings())
            found = checks.compare_sample(
                self._parts,
                self._converted.last,
                *files,
                settings=self._settings(),
                group_count=-(-self._config.sample_row_groups // world.world_size),
                draw=draw + world.rank,
            )
            threshold = self._config.frequency_threshold
            numbers = (
                checks.compare_numbers(
                    outputs.columns,
                    self._converted.numbered[-1],
                    threshold=threshold,
                    draw=draw + world.rank,
                )
                if threshold
                else None
            )
            rows = (
                checks.compare_rows(self._converted.scattered[-1], self._converted.shuffled[-1])
                if self._config.shuffle
                else None
            )
        finally:
            self._finish(context, outputs)
        by_rank = world.gather((counts, moved, found, numbers, rows))
        if world.rank:
            return ()
        line_counts, moves, samples, numbered, shuffled = zip(*by_rank, strict=True)
        return [
            digests_check(days.files),
            checks.content_check(days, moves, self._phases, self._config.rounds),
            checks.rows_check(days.line_count, line_counts),
            checks.sample_check(samples, draw),
            checks.bytes_check(moves, days.size_bytes, self._config.rounds, self._phases[0]),
            *([checks.numbers_check(numbered, threshold, draw)] if threshold else ()),
            *([checks.shuffle_check(shuffled)] if self._config.shuffle else ()),
        ]

    def _finish(self, context: RunContext, outputs: Outputs) -> None:
        """Keep or remove the output; after all ranks, rank 0 seals or removes the folders."""
        context.communicator.barrier()  # ranks compare each other's files
        if self._config.keep_output:
            outputs.keep()
        else:
            outputs.remove()
        context.communicator.barrier()
        if context.communicator.rank == 0:
            if self._config.keep_output:
                outputs.keep_sizes(self._table_rows)
            for folder in outputs.folders:
                if self._config.keep_output:
                    folder.seal()
                else:
                    folder.remove()
        outputs.close()

    def _source(self, context: RunContext) -> RealDays | SyntheticDays:
        if self._config.source:
            return RealDays(Path(self._config.source), context.targets)
        return SyntheticDays(self._config, context.targets)

    def _prepared(self) -> DayFiles:
        if self._days is None:
            raise RunError("dlrm: prepare() has to be called before run()")
        return self._days

    def _resume_key(self, context: RunContext, days: DayFiles) -> str | None:
        """Return what identifies the files of the conversion, ``None`` if none are to be kept.

        Rounds are repeated for their figures, which those of a resumed conversion are not.
        """
        if not self._config.keep_output or self._config.rounds > 1:
            return None
        made_from = [
            __version__,
            self._loader.name,
            self._config.block_bytes,
            days.sha256,
            context.communicator.world_size,
            *((context.seed, self._spare_bytes) if self._config.shuffle else ()),
            [(str(part.source), part.start_bytes, part.end_bytes) for part in self._all_parts],
        ]
        return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()

    def _require_memory(self) -> None:
        """Raise ``ConfigError`` for blocks whose conversion may need more than a worker may use."""
        block_bytes, most = self._config.block_bytes, self._config.worker_memory_bytes
        needed = self._loader.conversion_memory_bytes(block_bytes)
        if self._config.frequency_threshold or self._config.shuffle:
            needed += STEP_BYTES + TABLE_BYTES
        if needed > most:
            raise ConfigError(
                f"workload.block_bytes={block_bytes} needs up to {needed} bytes per worker, more "
                f"than workload.worker_memory_bytes={most}; use smaller blocks or allow more memory"
            )

    def _numbering(self) -> Numbering | None:
        """Return how ids are numbered; raises ``ConfigError`` for a loader that can't."""
        if self._config.frequency_threshold is None:
            return None
        numberer = self._loader.converter()
        if not isinstance(numberer, IdNumberer):
            raise ConfigError(
                "workload.frequency_threshold needs loader=native; "
                f"loader={self._loader.name} can't number ids"
            )
        return Numbering(
            threshold=self._config.frequency_threshold,
            table_limit=self._table_limit,
            numberer=numberer,
        )

    @property
    def _table_limit(self) -> int:
        """The ids of a column that fit into the memory that a worker does not need otherwise."""
        return self._spare_bytes // ID_ENTRY_BYTES

    @property
    def _spare_bytes(self) -> int:
        """The memory of a worker that a conversion does not need."""
        used = self._loader.conversion_memory_bytes(self._config.block_bytes) + STEP_BYTES
        return self._config.worker_memory_bytes - used

    @property
    def _row_bytes(self) -> int:
        return SPLIT_ROW_BYTES if self._settings().splits_columns else ROW_BYTES

    def _shuffler(self) -> RowShuffler | None:
        """Return what shuffles rows, if any; raises ``ConfigError`` for a loader that can't."""
        if not self._config.shuffle:
            return None
        shuffler = self._loader.converter()
        if not isinstance(shuffler, RowShuffler):
            raise ConfigError(
                "workload.shuffle=true needs loader=native; "
                f"loader={self._loader.name} can't shuffle rows"
            )
        return shuffler

    def _shuffling(self, context: RunContext, days: DayFiles) -> Shuffling | None:
        """Return how rows are shuffled; the number of buckets depends on lines and memory."""
        shuffler = self._shuffler()
        if not shuffler:
            return None
        row_limit = self._spare_bytes // (self._row_bytes + ROW_ENTRY_BYTES)
        row_count = sum(file.content.line_count for file in days.files[:-1])
        return Shuffling(
            seed=context.seed,
            last_day=days.paths[-1],
            row_limit=row_limit,
            bucket_count=max(math.ceil(row_count / (BUCKET_SHARE * row_limit)), 1),
            shuffler=shuffler,
        )

    def _is_spilled(self, row_count: int) -> bool:
        """Return whether ids of a column may not fit into memory."""
        return self._config.frequency_threshold is not None and row_count > self._table_limit

    def _worker_memory_bytes(self, expected: ExpectedData) -> int:
        needed = self._loader.conversion_memory_bytes(self._config.block_bytes)
        entry_bytes = 0
        if self._config.frequency_threshold:
            entry_bytes = ID_ENTRY_BYTES
        if self._config.shuffle:
            entry_bytes = self._row_bytes + ROW_ENTRY_BYTES
        if not entry_bytes:
            return needed
        return needed + STEP_BYTES + min(expected.row_count * entry_bytes, self._spare_bytes)

    def _workers(self, context: RunContext) -> int:
        return self._config.workers_per_rank(context.communicator.world_size)

    def _output_parameters(self, source: RealDays | SyntheticDays) -> dict[str, Any]:
        """Return what names the output folder. What is in it is identified by the resume key."""
        return {
            "data": source.key,
            "columnar": self._config.columnar,
            "compression": self._config.compression.value,
            "ids": self._config.ids.value,
            "dense": self._config.dense.value,
            "pack": self._config.pack.value,
            "bad_rows": self._config.bad_rows.value,
            "frequency_threshold": self._config.frequency_threshold,
            "shuffle": self._config.shuffle,
        }

    def _settings(self) -> ConversionSettings:
        return ConversionSettings(
            compression=self._config.compression.value,
            block_bytes=self._config.block_bytes,
            columnar=self._config.columnar,
            numeric_ids=self._config.ids is Ids.int32,
            logarithms=self._config.dense is Dense.log,
            splits_columns=self._config.pack is Pack.split_binary,
            whole_ids=self._config.frequency_threshold is not None,
            drops_bad_rows=self._config.bad_rows is BadRows.drop,
        )

    def _ceiling(self, pool: WorkerPool, settings: ConversionSettings) -> float:
        """Return the TSV bytes per second of all workers of this rank from memory."""
        if not self._parts:
            return 0.0
        part = self._parts[0]
        block_count = GZ_CEILING_BLOCKS if is_gz(part.source) else 1
        lines = first_lines(part, settings.block_bytes * block_count)
        task = CeilingTask(lines, settings, self._loader.converter(), CEILING_NS)
        tasks = [task] * pool.count
        return sum(done.result for done in pool.run(against_memory, tasks, lambda *_: None))

    def _outcome(self, context: RunContext, days: DayFiles, ceiling_bytes_per_s: float) -> Outcome:
        """Return the outcome of all ranks on rank 0, an empty one on the others."""
        world, converted = context.communicator, self._converted
        by_rank = world.gather(
            (
                converted.steps,
                converted.cold,
                sum(found.row_count for found in converted.last),
                ceiling_bytes_per_s,
                self._dropped(),
                converted.numbered[-1] if converted.numbered else (),
            )
        )
        if world.rank:
            return Outcome()
        steps, cold, rows, ceilings, dropped, numbered = zip(*by_rank, strict=True)
        columns = [
            numbered[number % world.world_size][number // world.world_size]
            for number in range(len(CATEGORICALS) if self._config.frequency_threshold else 0)
        ]
        category_sizes = tuple(FIRST_NUMBER + column.known_count for column in columns)
        self._table_rows = category_sizes or self._table_rows
        all_steps = list(chain.from_iterable(steps))
        self._phases = [total(name, all_steps) for name in self._phase_names]
        return Outcome(
            facts=DlrmFacts(
                settings=DlrmSettings.model_validate(self._config),
                workers=self._workers(context) * world.world_size,
                tsv_bytes=days.text_bytes,
                gz_bytes=sum(file.content.size_bytes for file in days.gz_files),
                row_count=sum(rows),
                dropped_count=sum(count for count, _ in dropped),
                category_sizes=category_sizes,
                rare_id_counts=tuple(column.rare_count for column in columns),
                spilled_bytes=sum(column.spilled_bytes for column in columns),
                ceiling_bytes_per_s=sum(ceilings),
                phases={step.name: step.work for step in self._phases},
            ),
            paths=[self._loader.conversion_path],
            checks=worst_of_each(list(chain.from_iterable(cold))),
            remarks=list(self._remarks(context, days, dropped)),
        )

    def _dropped(self) -> tuple[int, str | None]:
        """Return how many lines of this rank's parts were left out, and what the first was."""
        found = self._converted.last
        places = [
            Part(part.source, each.dropped_offset, part.end_bytes, part.name)
            for part, each in zip(self._parts, found, strict=True)
            if each.dropped_offset is not None
        ]
        first = find_fault(places[0]) if places else None
        return sum(each.dropped_count for each in found), str(first) if first else None

    def _remarks(
        self, context: RunContext, days: DayFiles, dropped: Sequence[tuple[int, str | None]]
    ) -> Iterator[str]:
        count = sum(each for each, _ in dropped)
        if count:
            first = next((each for _, each in dropped if each), "unknown")
            rows = (
                "1 line was not a row and was"
                if count == 1
                else f"{count} lines were not rows and were"
            )
            yield f"{rows} dropped, as workload.bad_rows=drop requests; the first: {first}."
        marked = [path for path in days.paths if first_text(path, 3) == BYTE_ORDER_MARK]
        if marked:
            files = f"{marked[0]} begins" if len(marked) == 1 else f"{len(marked)} day files begin"
            yield f"{files} with a UTF-8 byte order mark, which belongs to no row and was skipped."
        padded = [file for file in days.gz_files if file.content.padding_bytes]
        if padded:
            count = sum(file.content.padding_bytes for file in padded)
            files = (
                f"{padded[0].path} has {count} zero bytes after its"
                if len(padded) == 1
                else f"{len(padded)} day files have {count} zero bytes after their"
            )
            yield f"{files} gz data, which were ignored."
        workers = self._workers(context) * context.communicator.world_size
        gz_count = len(days.gz_files)
        if gz_count % workers:
            files = "1 gz file" if gz_count == 1 else f"{gz_count} gz files"
            yield (
                f"{files} can't be shared evenly by {workers} workers, because one worker converts "
                "all of a file; unpacked files are divided by bytes."
            )
        if not self._config.source:
            yield (
                "The rows are synthetic and only resemble Criteo's, which compress differently; "
                "set workload.source= to use real ones."
            )
        elif not self._on_target(context, days):
            yield (
                f"{self._config.source} is not on the target's file system, so the reads of "
                f"{self._phase_names[0]} did not come from the target."
            )

    @property
    def _phase_names(self) -> tuple[str, ...]:
        return phases_of(
            columnar=self._config.columnar,
            numbers_ids=self._config.frequency_threshold is not None,
            shuffles=self._config.shuffle,
        )

    def _on_target(self, context: RunContext, days: DayFiles) -> bool:
        paths = [target.data_folder.parent for target in context.targets]
        devices = {path.stat().st_dev for path in paths}
        return all(path.stat().st_dev in devices for path in days.paths)
