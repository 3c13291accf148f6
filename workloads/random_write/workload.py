"""The random_write workload: which drive sustains more random writes, and for how many joules."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, ClassVar

from wattload.core.record.results import Check, Latency, latencies_of
from wattload.core.record.run import DataRecord
from wattload.core.steady import LARGEST_SPARE_SHARE, SteadyJudge
from wattload.core.storage.targets import TargetKind
from wattload.core.units import compared_bytes, format_bytes, format_rate
from wattload.core.workload import Accelerator, Outcome, OverHosts, RunContext, WorkloadPlan
from wattload.loaders.engine.engine import IOEngine
from wattload.results.random_write.facts import (
    PHASE,
    ROUNDS,
    SECONDS,
    STEADY,
    Condition,
    Draw,
    Until,
    WriteFacts,
    WriteSettings,
)
from wattload.workloads.random_write.checks import written_blocks
from wattload.workloads.random_write.conditioning import BLOCK_BYTES as CONDITION_BLOCK_BYTES
from wattload.workloads.random_write.conditioning import QUEUE_DEPTH as CONDITION_DEPTH
from wattload.workloads.random_write.conditioning import left_bytes, prepare
from wattload.workloads.random_write.config import Config
from wattload.workloads.random_write.write_area import (
    WORKLOAD,
    WriteArea,
    check_kept,
    claim,
    earlier_random_bytes,
    explained,
    find_area,
    note_random_writes,
    rest_s,
)
from wattload.workloads.random_write.writing import Writing

WHOLE_SECOND_S = 0.9
"""Shorter rows, at the end, are not judged as seconds."""


class RandomWrite:
    """Random writes to a whole drive, or to one file that stands in for it.

    Idle power is measured before the preparation: a drive that rests after it collects garbage, and
    the writes would begin on more free blocks than a busy drive has.
    """

    name: ClassVar[str] = WORKLOAD
    needs: ClassVar[tuple[type, ...]] = ()
    over_hosts: ClassVar[OverHosts] = "one"
    """Passes, conditioning and steady state are those of one drive."""
    target_kinds: ClassVar[frozenset[TargetKind]] = frozenset(
        {TargetKind.DIRECTORY, TargetKind.BLOCK}
    )
    prepares_last: ClassVar[bool] = True

    def __init__(self, config: Config, loader: object, accelerator: Accelerator) -> None:
        self.config = config
        self._area: WriteArea | None = None
        self._written: Writing | None = None
        self._purged: Mapping[str, Any] = {}

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return what the run will write; nothing is created or opened for writing.

        Raises:
            ConfigError: a setting does not fit the target, or ``condition=keep`` finds it
                unprepared.
            TargetError: it was written since it was prepared, or can't say so.
        """
        config = self.config
        area = self._area = find_area(config, context)
        check_kept(area, config.prepared)
        slots_bytes = max(
            CONDITION_BLOCK_BYTES * CONDITION_DEPTH, config.block_bytes * config.queue_depth
        )
        data_bytes = area.range_bytes if area.is_file else 0
        prepare_bytes = left_bytes(config, area)
        covers = prepare_bytes >= area.range_bytes or config.drawn is Draw.each_once
        # Passes over an existing file take no space, so all that they write is present already.
        present_bytes = prepare_bytes if area.history is not None else prepare_bytes - data_bytes
        return WorkloadPlan(
            data_bytes=data_bytes,
            prepare_bytes=prepare_bytes,
            run_bytes=config.most_passes * area.range_bytes,
            peak_bytes=data_bytes,
            present_bytes=present_bytes if area.is_file else 0,
            memory_bytes_per_rank=slots_bytes,
            needs_direct_io=True,
            prepares_again=config.prepared is Condition.sequential,
            covered_bytes=area.range_bytes if covers else 0,
            maximum_ranks=1,
        )

    def prepare(self, context: RunContext) -> DataRecord | None:
        """Purge and write the range sequentially, as configured; see ``conditioning.prepare``."""
        area = self._planned()
        claim(area, context.targets[0])
        reused = left_bytes(self.config, area) == 0
        with explained(area):
            self._purged = prepare(self.config, area, context)
        return area.facts(reused=reused)

    def run(self, context: RunContext) -> Outcome:
        """Write at random until the configured end.

        Raises:
            OSError: the drive or the file system refuses a write.
            RunError: the drive went away.
            TargetError: the device is no longer the one that was released to this run.
        """
        config, area = self.config, self._planned()
        seed = secrets.randbits(63)
        rested_s, judge = rest_s(area), self._judge(area)
        context.progress.begin(
            "writing at random", written_bytes=config.most_passes * area.range_bytes
        )
        with (
            explained(area),
            closing(IOEngine(block_bytes=config.block_bytes, depth=config.queue_depth)) as engine,
            context.phase(PHASE) as phase,
        ):
            written = Writing(config, area, phase, engine, seed=seed, judge=judge)
            written.run()
        self._written = written
        context.progress.end()
        note_random_writes(area, config, written.total.moved_bytes)
        facts = self._facts(area, written, rested_s)
        return Outcome(
            facts=facts,
            paths=(written.path,),
            remarks=tuple(self._remarks(facts)),
            latencies=tuple(self._latencies(written)),
            operations=tuple(written.traced),
            tables={
                SECONDS.name: written.seconds.table(SECONDS),
                ROUNDS.name: written.rounds.table(ROUNDS),
            },
        )

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Read blocks back and compare them with what was written."""
        if self._written is None:
            return ()
        area, seed = self._planned(), secrets.randbits(63)
        with explained(area):
            return (written_blocks(self.config, area, self._written, seed=seed),)

    def _judge(self, area: WriteArea) -> SteadyJudge | None:
        """Return the rule of steady state; ``None`` where there is none.

        Each-once draws have none, and neither has a drive that was not full before.
        """
        is_full = self.config.prepared is not Condition.none
        if self.config.drawn is Draw.each_once or not is_full:
            return None
        # What is not written is spare area, too.
        unused_bytes = area.device.size_bytes - area.range_bytes if area.device else 0
        return SteadyJudge(
            area.range_bytes,
            already_random_bytes=earlier_random_bytes(area, self.config),
            rest_s=rest_s(area),
            spare_share=LARGEST_SPARE_SHARE + unused_bytes / area.range_bytes,
        )

    def _facts(self, area: WriteArea, written: Writing, rested_s: float | None) -> WriteFacts:
        config = self.config
        rates = written.seconds.rates_bytes_per_s(least_s=WHOLE_SECOND_S)
        return WriteFacts(
            settings=WriteSettings.model_validate(config),
            range_bytes=area.range_bytes,
            drive_bytes=None if area.device is None else area.device.size_bytes,
            draw=config.drawn,
            draw_seed=f"{written.seed:016x}",
            condition=config.prepared,
            rest_s=rested_s,
            purged=self._purged,
            ended_by=written.ended_by,
            passes=tuple(written.passes),
            first_round_bytes_per_s=written.rounds.rates_bytes_per_s()[0],
            slowest_second_bytes_per_s=min(rates, default=None),
            steady=written.verdicts,
        )

    def _latencies(self, written: Writing) -> Iterator[Latency]:
        """Yield the latencies of all writes, and those of the steady state."""
        of = partial(latencies_of, kind="write", operation_bytes=self.config.block_bytes)
        yield from of(written.total.latency, phase=PHASE)
        yield from of(written.steady_latency, phase=STEADY)

    def _remarks(self, facts: WriteFacts) -> Iterator[str]:
        config, written = self.config, format_bytes(facts.range_bytes)
        if facts.drive_bytes is None:
            yield (
                f"{written} in a file were overwritten: a drive that is mostly empty has more "
                "spare area than a full one."
            )
        elif not facts.covers_drive:
            part, whole = compared_bytes(facts.range_bytes, facts.drive_bytes)
            yield (
                f"{part} of {whole} were overwritten: the rest of the drive may serve as spare "
                "area."
            )
        if config.rate_bytes_per_s is not None:
            yield (
                f"The rate was limited to {format_rate(config.rate_bytes_per_s)}: rates are not "
                "what the drive sustains."
            )
        steady = facts.steady
        if config.until is Until.steady and steady and not steady.headline.is_steady:
            total = format_bytes(facts.total.written_bytes)
            yield f"Not steady after {total}: {steady.headline.reason}."

    def _planned(self) -> WriteArea:
        if self._area is None:
            raise RuntimeError("plan() has to be called before prepare() and run()")
        return self._area
