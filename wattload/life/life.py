"""One run on one rank, step by step: the order of things that the documentation promises."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

from wattload.core.clock import utc_text
from wattload.core.errors import RankLostError, WattloadError
from wattload.core.host import rank_facts
from wattload.core.record.run import RunRecord, Status
from wattload.core.resolve import check_writable, resolve_targets
from wattload.core.target import Target
from wattload.core.workload import (
    Communicator,
    DataFacts,
    Outcome,
    Progress,
    Workload,
    WorkloadPlan,
)
from wattload.life.assemble import Findings, Header, Order, RankReport
from wattload.life.build import build_workload
from wattload.life.capture import HostCapture, devices_under, read_stats
from wattload.life.conclude import conclude, write_draft
from wattload.life.context import Context
from wattload.life.cpu import ProcessTree
from wattload.life.folder import make_run_folder, new_run_id, write_configuration
from wattload.life.journal import Journal
from wattload.life.latencies import merged, of_rank
from wattload.life.operations import OperationRow, operation_rows
from wattload.life.phases import PhaseRecorder
from wattload.life.powering import Powering, PowerReport
from wattload.life.preflight import preflight
from wattload.life.sampling import Sampling
from wattload.life.wear import WriteLedger, writes_of
from wattload.loaders.datafolder.targetlock import TargetLock

T = TypeVar("T")
CHECK_FAILED = 3
MOST_FILES = 1000


@dataclass(slots=True, kw_only=True)
class Session:
    """What lasts over the runs of one process: its world, and the sampler on its host's leader.

    ``ledger`` holds what those runs write to each drive.
    """

    communicator: Communicator
    sampling: Sampling | None
    host: str
    ledger: WriteLedger = field(default_factory=WriteLedger)


class Life:
    """Carries one run from its configuration to its record."""

    def __init__(
        self,
        session: Session,
        order: Order,
        progress: Progress,
    ) -> None:
        self._session = session
        self._world = session.communicator
        self._order = order
        self._config = order.config
        self._progress = progress
        self._started_utc = utc_text()
        self._folder: Path | None = None
        self._journal: Journal | None = None
        self._held = ExitStack()
        self.failed_together = False
        """Whether every rank knows of the failure, so that none has to be ended by force."""

    def live(self) -> tuple[Path | None, int]:
        """Run; returns the folder on rank 0 (else ``None``), and 0 or 3 when a check failed."""
        targets = self._together(self._resolve)
        workload, context = self._together(lambda: self._plan(targets))
        folder = self._open_folder(workload, context)
        capture = HostCapture.begin(targets, self._session.host) if self._session.sampling else None
        header = self._header(workload, folder)
        reports = self._gather(context, capture, None)
        if self._world.rank == 0:
            write_draft(header, reports)
        powering = self._together(lambda: self._powering(folder, capture))
        data = workload.prepare(context)
        if powering is not None:
            powering.up(context.recorder)
        self._world.barrier()
        outcome = self._with_all_latencies(workload.run(context))
        verification = tuple(workload.verify(context))
        power = powering.down(context.recorder) if powering is not None else None
        if capture is not None:
            finished = power.finished if power is not None else None
            readings = finished.controllers if finished is not None else {}
            capture.finish(_data_files(targets, data), readings)
        self._held.close()
        reports = self._gather(context, capture, power)
        findings = Findings(
            data=data,
            outcome=outcome,
            verification=verification,
            operations=self._operations(outcome, targets),
        )
        record = conclude(header, reports, findings) if self._world.rank == 0 else None
        return self._verdict(folder, record)

    def foresee(self, *, judge: bool) -> tuple[tuple[Target, ...], WorkloadPlan]:
        """Return what the run would do to its targets; makes nothing, and refuses if asked to."""
        targets = self._together(self._resolve)
        plan = self._together(lambda: self._judged(targets, judge=judge)[2])
        self._held.close()
        return targets, plan

    def generate(self) -> None:
        """Generate or complete the data; writes no record."""
        targets = self._together(self._resolve)
        workload, context = self._together(lambda: self._plan(targets))
        data = workload.prepare(context)
        if data is not None and self._world.rank == 0:
            print(f"{'reused' if data.reused else 'generated'}: {data.folder}")
        self._held.close()

    def fail(self, error: BaseException) -> None:
        """Undo what was changed and have the record of an unfinished run written."""
        self._held.close()
        if self._folder is None:
            return
        interrupted = isinstance(error, KeyboardInterrupt)
        status: Status = "aborted" if interrupted else "failed"
        reason = "interrupted" if interrupted else str(error) or type(error).__name__
        if self._journal is not None:
            self._journal.write("failed", {"status": status, "reason": reason})
        if self._session.sampling is not None:
            self._session.sampling.abort(self._folder, status, reason)

    def _resolve(self) -> tuple[Target, ...]:
        """Resolve the targets and lock them; a step of its own, for a plan may gather over ranks.

        One run at a time works on a target: two would measure each other.
        """
        targets = resolve_targets(self._config.target.paths(), host=self._session.host)
        if self._world.rank == 0:
            for target in targets:
                if target.path is not None:
                    check_writable(target)
                    self._held.callback(TargetLock.acquire(target.path).remove)
        return targets

    def _plan(self, targets: tuple[Target, ...]) -> tuple[Workload, Context]:
        """Build the workload and try what can fail before time is spent; charge its writes."""
        workload, context, plan, lines = self._judged(targets, judge=True)
        self._session.ledger.add(targets, writes_of(plan))
        if self._world.rank == 0:
            print("\n".join(lines), file=sys.stderr)
        return workload, context

    def _judged(
        self, targets: tuple[Target, ...], *, judge: bool
    ) -> tuple[Workload, Context, WorkloadPlan, list[str]]:
        workload = build_workload(self._config)
        context = self._context(targets)
        plan = workload.plan(context)
        ledger, ranks = self._session.ledger, self._world.world_size
        lines = preflight(self._config, targets, plan, ranks, ledger) if judge else []
        return workload, context, plan, lines

    def _context(self, targets: tuple[Target, ...]) -> Context:
        devices = devices_under(targets)
        sampling = self._session.sampling
        recorder = PhaseRecorder(
            host=self._session.host,
            rank=self._world.rank,
            tree=ProcessTree(frozenset([sampling.pid] if sampling and sampling.pid else [])),
            read_stats=lambda: read_stats(devices),
        )
        return Context(
            targets=targets,
            communicator=self._world,
            progress=self._progress,
            seed=self._config.seed,
            scale=self._config.scale.name,
            recorder=recorder,
        )

    def _open_folder(self, workload: Workload, context: Context) -> Path:
        """Make the run's folder on rank 0 and open this rank's journal in it."""
        run_id = self._world.broadcast(new_run_id(workload.name, self._config.label))
        runs = Path(self._config.runs).absolute()
        self._together(lambda: self._make_folder(runs, run_id))
        self._folder = runs / run_id
        self._journal = Journal(self._folder, self._world.rank)
        context.recorder.write_to(self._journal)
        return self._folder

    def _make_folder(self, runs: Path, run_id: str) -> None:
        if self._world.rank == 0:
            write_configuration(make_run_folder(runs, run_id), self._order.plain)

    def _header(self, workload: Workload, folder: Path) -> Header:
        return Header(
            folder=folder,
            order=self._order,
            started_utc=self._started_utc,
            workload=workload.name,
            world_size=self._world.world_size,
        )

    def _powering(self, folder: Path, capture: HostCapture | None) -> Powering | None:
        """Open the sampler for this run on the host's leader; the power state is reachable then."""
        sampling = self._session.sampling
        if sampling is None or capture is None:
            return None
        powering = Powering.open(
            sampling,
            self._config.power,
            folder,
            host=self._session.host,
            devices=capture.controller_names or capture.block_devices,
            block_devices=capture.block_devices,
        )
        capture.add_before(powering.controllers)
        return powering

    def _with_all_latencies(self, outcome: Outcome) -> Outcome:
        """Return a rank's outcome with the latencies of all ranks."""
        own = of_rank(outcome.latencies, host=self._session.host, rank=self._world.rank)
        return replace(outcome, latencies=merged(self._world.gather(own)))

    def _operations(self, outcome: Outcome, targets: Sequence[Target]) -> list[OperationRow]:
        """Return the traced operations of all ranks."""
        host, rank = self._session.host, self._world.rank
        own = operation_rows(outcome.operations, targets, host=host, rank=rank)
        return [row for rows in self._world.gather(own) for row in rows]

    def _gather(
        self, context: Context, capture: HostCapture | None, power: PowerReport | None
    ) -> list[RankReport]:
        return self._world.gather(
            RankReport(
                rank=rank_facts(
                    self._world.rank, self._session.host, context.recorder.tree.cpu_s()
                ),
                marked=context.recorder.spans,
                traffic=context.recorder.traffic_rows(),
                capture=capture.report() if capture is not None else None,
                power=power,
            )
        )

    def _verdict(self, folder: Path, record: RunRecord | None) -> tuple[Path | None, int]:
        failed = record is not None and any(c.verdict == "fail" for c in record.checks)
        status = self._world.broadcast(CHECK_FAILED if failed else 0)
        if self._journal is not None:
            self._journal.close()
        return (folder if record is not None else None), status

    def _together(self, step: Callable[[], T]) -> T:
        """Do a step on every rank; if it fails on one, all of them end, and rank 0 says why."""
        failure: WattloadError | None = None
        value: T | None = None
        try:
            value = step()
        except WattloadError as error:
            failure = error
        failures = [found for found in self._world.gather(failure) if found is not None]
        if not failures:
            return value  # type: ignore[return-value]  # no failure: step() has returned a T
        self.failed_together = True
        if self._world.rank == 0:
            raise failures[0]
        raise RankLostError(failures[0].exit_code)


def _data_files(targets: Sequence[Target], data: DataFacts | None) -> list[Path]:
    """Return the data's files, at most ``MOST_FILES`` a target: each costs an ioctl."""
    if data is None:
        return []
    return [path for target in targets for path in islice(_files(target, data), MOST_FILES)]


def _files(target: Target, data: DataFacts) -> Iterator[Path]:
    for path in sorted((target.data_folder / data.key).rglob("*")):
        if not path.name.startswith(".") and path.is_file():
            yield path
