"""The lifecycle of one run on one rank, step by step."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import filterfalse, islice
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from wattload.core import interrupts
from wattload.core.clock import utc_text
from wattload.core.errors import (
    CHECK_FAILED,
    ConfigError,
    MisplacedRecordError,
    RankLostError,
    RunError,
    TargetError,
    host_fault,
)
from wattload.core.files import Lock
from wattload.core.host.counters import ProcessTree, rank_facts, read_block_stats
from wattload.core.host_paths import on_host
from wattload.core.record.file import RECORD_FILE, is_owned, owner_text
from wattload.core.record.host import RankRecord
from wattload.core.record.run import Comparison, DataRecord, RunRecord, Status
from wattload.core.storage.guard import Guard
from wattload.core.storage.targets import Target, TargetKind, check_writable
from wattload.core.units import format_bytes
from wattload.core.workload import Communicator, Workload, WorkloadPlan
from wattload.loaders.data.target_folder import TargetLock
from wattload.loaders.engine import heartbeat
from wattload.run.clocks import exchange
from wattload.run.compose import (
    build_workload,
    compose,
    composition,
    require_hosts,
    require_target_kind,
    without_session_keys,
)
from wattload.run.config_folders import replaced_text
from wattload.run.energy import with_samples_found
from wattload.run.folder import make_run_folder, new_run_id, remove_run_folder, try_run_folder
from wattload.run.host import HostCapture, devices_under
from wattload.run.host_load.session import LoadSession, Rank, is_wanted
from wattload.run.hosts import ALSO, Faults, compare_hosts
from wattload.run.phases import Context, PhaseRecorder, RankJournal
from wattload.run.power_session import PowerSession
from wattload.run.preflight import (
    hosts_text,
    preflight,
    require_controllers,
    require_own_meters,
    require_trace,
    waits_text,
    writes_of,
)
from wattload.run.process import ProcessContext
from wattload.run.ranks import override_text, reason_of, rest_until_all_here
from wattload.run.raw_drive import ClaimedDrive, KnownDrive, claim_drives, inspect_drives
from wattload.run.record import (
    Findings,
    Header,
    HostReport,
    Order,
    RankReport,
    conclude,
    draft_document,
    record_failure,
)
from wattload.run.target_sharing import prove_sharing
from wattload.run.traces import placed_operations
from wattload.run.transport import ReceivedReports, rank_reports, send_report

if TYPE_CHECKING:
    from wattload.run.config import RunConfig

T = TypeVar("T")

MAX_FILES = 1000

NO_COMPARISON = Comparison(session_id="", arm="", block=0, order=0)


def execute(
    process: ProcessContext,
    overrides: Sequence[str],
    comparison: Comparison,
    *,
    calibrates: bool = False,
) -> tuple[Path | None, int]:
    """Make one run; returns its folder on rank 0 (else ``None``) and the exit status, 0 or 3.

    ``calibrates`` is whether meters may be calibrated within its idle time.

    Raises:
        WattloadError: the run is impossible or failed. Rank 0 raises it; the other ranks exit
            silently with the same status.
    """
    command = ("wattload", "run", *without_session_keys(overrides))
    life = RunLifecycle(process, overrides, command, comparison, calibrates=calibrates)
    return _undone_on_failure(life, life.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a run would do to its targets.

    ``drives`` are what it would meet on the raw drives of this host, by the target's index; only
    the first process of a host has them. ``hosts`` is how it divides its work over several hosts,
    in words; empty on one host. Of the bytes that are read and written, the plan has one of
    ``shares``, which differ little. ``faults`` are what the preflight of the run would refuse on
    this rank's host.
    """

    config: RunConfig
    targets: tuple[Target, ...]
    plan: WorkloadPlan
    drives: Mapping[int, Guard]
    hosts: str = ""
    shares: float = 1.0
    faults: Faults = field(default_factory=Faults)


class Planned(NamedTuple):
    """A plan of a run, what carries it out, and the lines to print before it."""

    plan: WorkloadPlan
    workload: Workload
    context: Context
    lines: list[str]


def require_ready(process: ProcessContext, overrides: Sequence[str]) -> None:
    """Make the checks of a run and raise what it would raise; every rank must call it."""
    life = RunLifecycle(process, overrides, tuple(overrides))
    _undone_on_failure(life, life.check)


def preview_run(
    process: ProcessContext, overrides: Sequence[str], *, check: bool = False
) -> Preview:
    """Return what a run would do to its targets, without changing them; every rank must call it.

    With ``check``, the preflight checks of the run are made and raise what they would raise.
    """
    life = RunLifecycle(process, overrides, tuple(overrides))
    return _undone_on_failure(life, lambda: life.preview(check=check))


def generate_data(
    process: ProcessContext, overrides: Sequence[str], command: tuple[str, ...]
) -> DataRecord | None:
    """Generate or complete the data of a run; returns its facts, ``None`` if the run needs none."""
    life = RunLifecycle(process, overrides, command)
    return _undone_on_failure(life, life.generate)


def _undone_on_failure(life: RunLifecycle, work: Callable[[], T]) -> T:
    """Do the work; if it fails, undo on this rank what it changed, and record why."""
    try:
        return work()
    except RankLostError as lost:
        with interrupts.ignored():
            life.leave(lost)
        raise
    except BaseException as error:
        failure = host_fault(error) or error
        if failure is not error:
            for note in getattr(error, "__notes__", ()):
                failure.add_note(note)
        with interrupts.ignored():
            life.fail(failure)
            life.explain(failure)
        if failure is error:
            raise
        raise failure from error


class RunLifecycle:
    """Carries one run from its configuration to its record."""

    def __init__(
        self,
        process: ProcessContext,
        overrides: Sequence[str],
        command: tuple[str, ...],
        comparison: Comparison = NO_COMPARISON,
        *,
        calibrates: bool = False,
    ) -> None:
        config, config_values = compose(overrides)
        self._process = process
        self._world = process.communicator
        self._config = config
        self._order = Order(
            config=config,
            config_values=config_values,
            config_files=composition(overrides).files,
            comparison=comparison,
            command=command,
        )
        self._calibrates = calibrates
        self._started_utc = utc_text()
        self._folder: Path | None = None
        self._journal: RankJournal | None = None
        self._draft: str | None = None
        self._lock: Lock | None = None
        self._is_recorded = False
        self._resources = ExitStack()
        self._drives: dict[int, ClaimedDrive] = {}
        self._known: dict[int, KnownDrive] = {}
        self._planned_bytes = 0
        self._covered_bytes = 0

    def run(self) -> tuple[Path | None, int]:
        """Make the run; returns its folder on rank 0 (else ``None``) and the status, 0 or 3."""
        workload, context = self._plan()
        targets = context.targets
        capture = None
        if self._process.sampling:
            capture = HostCapture(targets, self._process.host, self._drives)
        self._compare_clocks(capture)
        header = self._open_folder(workload, context, capture)
        folder = header.folder
        self._resources.enter_context(self._process.live())
        power_session = self._process.on_all_ranks(lambda: self._open_power(folder, capture))
        self._process.on_all_ranks(lambda: self._begin_writes(folder))
        self._plan_rest(context, power_session)
        load = self._plan_load(context)
        with load.watched() if load is not None else nullcontext():
            data = self._prepare(targets, workload, context, power_session, load)
            self._compare_clocks(capture)
            self._world.barrier()
            if capture is not None:
                capture.read_histories()
                capture.read_clocks()
            outcome = workload.run(context)
            context.end_job()
            if is_wanted(self._config.load):
                rest_until_all_here(self._world)
                self._while_others_rest(load.end if load is not None else None)
        self._compare_clocks(capture)
        if capture is not None:
            capture.read_clocks()
        verification = tuple(workload.verify(context))
        power = power_session.down(context.recorder) if power_session is not None else None
        if capture is not None:
            finished = power.finished if power is not None else None
            readings = finished.controllers if finished is not None else {}
            capture.finish(_data_files(targets, data), readings)
        self._end_writes("complete", self._written_bytes(context))
        self._resources.close()
        own = RankReport(
            rank=self._rank_facts(context),
            marked=context.recorder.spans,
            traffic=context.recorder.traffic_of_phases(),
            latencies=outcome.latencies,
            operations=placed_operations(outcome.operations, targets),
        )
        ranks = rank_reports(self._process.local, own)
        report = HostReport(
            folder=folder,
            ranks=(),
            capture=capture.report() if capture is not None else None,
            power=with_samples_found(power, folder) if power is not None else None,
            load=load.record() if load is not None else None,
        )
        findings = Findings(data=data, outcome=outcome, verification=verification)
        return self._verdict(folder, self._conclude(header, report, ranks, findings))

    def _compare_clocks(self, capture: HostCapture | None) -> None:
        """Measure how far each host's clock is ahead of the first one's, on the leaders."""
        offset = exchange(self._process.leaders)
        if capture is not None:
            capture.add_offset(offset)

    def preview(self, *, check: bool) -> Preview:
        """Return what the run would do to its targets, without changing them."""
        targets = self._process.on_all_ranks(self._resolve)
        inspections: Mapping[int, Guard] = {}
        if self._config.target.is_block and self._process.is_host_leader:
            inspections, self._known = inspect_drives(self._config, targets)
        planned = self._process.on_all_ranks(lambda: self._plan_run(targets))
        faults = Faults()
        faults.of(lambda: require_own_meters(self._config.power, self._process.hosts))
        if self._process.is_host_leader:
            faults.of(lambda: require_trace(self._config.power))
            faults.of(lambda: require_controllers(self._config.power, targets))
        faults.of(lambda: self._preflight(planned))
        for refusal in (each for found in inspections.values() for each in found.refusals):
            faults.add(TargetError(refusal.sentence))
        if check:
            self._process.on_all_ranks(faults.raise_all)
        return Preview(
            config=self._config,
            targets=targets,
            plan=planned.plan,
            drives=inspections,
            hosts=self._hosts_text,
            shares=self._world.world_size / self._sharers.world_size,
            faults=faults,
        )

    def check(self) -> None:
        """Make the checks of the run, and release what it would hold."""
        self._process.on_all_ranks(lambda: self._checked(runs=True))
        self._resources.close()

    def generate(self) -> DataRecord | None:
        """Generate or complete the data and return its facts; there is no record."""
        if self._config.target.is_block:
            raise ConfigError(
                "datagen writes data files, and target=block has none; a run prepares its drive "
                "itself"
            )
        workload, context = self._plan(runs=False)
        self._resources.enter_context(self._process.live())
        data = workload.prepare(context)
        self._resources.close()
        return data

    def fail(self, error: BaseException, status: Status = "failed") -> None:
        """Undo what was changed and write the record of an unfinished run.

        The reason is written down and told first, as the rest may hang, such as on a lost drive.
        """
        if interrupts.interruption():
            status = "aborted"
        reason = reason_of(error)
        if self._journal is not None and not self._is_recorded:
            self._journal.write("failed", {"status": status, "reason": reason})
        self._process.tell_why(reason)
        self._end_writes(status)
        self._resources.close()
        if self._folder is None or self._is_recorded:
            return
        sampling = self._process.sampling
        states = sampling.abort(self._folder.name) if sampling is not None else ()
        if self._draft is not None:  # else the host that made the folder records the run
            place, why = record_failure(self._folder, self._draft, status, reason, states)
            if why:
                self._process.note_here(f"the record of this run is in {place}, because {why}")
                self._folder = place
        self._release_folder()

    def leave(self, lost: RankLostError) -> None:
        """Undo what was changed on another rank than the root; a host has a record of its own."""
        if self._draft is not None:
            root = self._process.hosts[0]
            self.fail(RunError(f"{lost}; the record of the run on {root} says why"), "aborted")
            return
        self._end_writes("failed")
        self._resources.close()
        if self._process.sampling is not None and self._folder is not None:
            self._process.sampling.abort(self._folder.name)

    def explain(self, error: BaseException) -> None:
        """Note on an error where the record of the run is, and how far it got."""
        if self._folder is None:
            return
        folder, host = on_host(self._folder), self._process.host
        at, on = (f"{host}:", f"on {host}: ") if self._process.record_host else ("", "")
        error.add_note(f"  record      {at}{folder / RECORD_FILE}")
        if not isinstance(error, KeyboardInterrupt):
            command = f"{on}wattload check {quote(str(folder))}"
            error.add_note(f"  next        {command} shows how far it got")

    @property
    def _sharers(self) -> Communicator:
        """The ranks that see the same targets as this one."""
        shared = self._config.target.shared and not self._config.target.is_block
        return self._world if shared else self._process.local

    @property
    def _hosts_text(self) -> str:
        hosts = self._process.hosts
        if len(hosts) == 1:
            return ""
        return hosts_text(self._config, hosts, self._world.world_size)

    def _plan(self, *, runs: bool = True) -> tuple[Workload, Context]:
        """Check all hosts, hold their targets, plan the run, and charge its writes to the drives.

        Unless it ``runs``, only its data is written.
        """
        plan, workload, context, lines = self._process.on_all_ranks(
            lambda: self._checked(runs=runs)
        )
        self._process.ledger.add(context.targets, writes_of(plan))
        self._planned_bytes, self._covered_bytes = writes_of(plan), plan.covered_bytes
        replaced = replaced_text(self._order.config_files)
        self._process.note_once([*filter(None, [replaced]), *lines, *self._wear_lines()])
        return workload, context

    def _checked(self, *, runs: bool) -> Planned:
        """Return what is planned on this rank, unless a check has found a fault; raise all of them.

        What needs the result of a check that failed is left out, but every host takes part in what
        hosts do together. Unless it ``runs``, power does not matter.
        """
        process, power, faults = self._process, self._config.power, Faults()
        faults.of(self._compare)
        targets = faults.of(self._resolve)
        if runs:
            faults.of(lambda: require_own_meters(power, process.hosts))
        if runs and process.is_host_leader:
            faults.of(lambda: require_trace(power))
            faults.of(lambda: try_run_folder(Path(self._config.runs)))
        is_held = process.local.broadcast(faults.of(lambda: self._hold(targets)))
        planned = None
        if targets is not None and is_held:
            if runs:
                faults.of(lambda: require_controllers(power, targets))
            planned = faults.of(
                lambda: self._preflight(self._plan_run(targets, runs=runs), runs=runs)
            )
        faults.raise_all()
        return cast("Planned", planned)  # None where the host's leader raises

    def _compare(self) -> None:
        """Refuse a host that differs from the first one."""
        leaders, hosts = self._process.leaders, self._process.hosts
        if leaders is not None and len(hosts) > 1:
            compare_hosts(leaders, hosts, self._order.config_values, self._process.note_once)

    def _resolve(self) -> tuple[Target, ...]:
        """Resolve the targets of this host, which the workload must be able to use."""
        require_target_kind(self._config)
        require_hosts(self._config, self._process.hosts)
        return self._config.target.resolve(host=self._process.host)

    def _hold(self, targets: tuple[Target, ...] | None) -> bool:
        """Prove which hosts share the directories, and lock them, or claim the drives.

        Two runs in one directory would measure each other. The leader returns whether it holds the
        targets; the other ranks do nothing.
        """
        leaders, hosts = self._process.leaders, self._process.hosts
        if leaders is None:
            return False
        is_block = self._config.target.is_block
        directories = () if targets is None or is_block else targets
        if len(hosts) > 1:
            prove_sharing(self._config.target, directories, leaders, hosts)
        if targets is not None and is_block:
            self._claim(targets)
        if self._sharers.rank == 0:
            for target in filterfalse(self._config.only_reads, directories):
                check_writable(target)
                self._resources.callback(TargetLock.acquire(target.path).remove)
        return targets is not None

    def _claim(self, targets: tuple[Target, ...]) -> None:
        """Hold the drives that will be overwritten."""
        try:
            self._drives = claim_drives(self._config, targets)
        except TargetError as error:
            self._note_refusals(error, targets)
            raise
        for drive in self._drives.values():
            self._resources.callback(drive.close)

    def _note_refusals(self, error: TargetError, targets: tuple[Target, ...]) -> None:
        """Note on a refusal why else the drives would be refused, so that all can be lifted."""
        guards = inspect_drives(self._config, targets)[0].values()
        for sentence in dict.fromkeys(each.sentence for found in guards for each in found.refusals):
            if sentence != str(error):
                error.add_note(ALSO + sentence)

    def _plan_run(self, targets: tuple[Target, ...], *, runs: bool = True) -> Planned:
        """Build the workload and plan it."""
        workload = build_workload(self._config)
        context = self._context(targets)
        plan = workload.plan(context)
        if not runs:
            plan = replace(plan, run_bytes=0, peak_bytes=plan.data_bytes, refusal="")
        return Planned(plan, workload, context, [])

    def _preflight(self, planned: Planned, *, runs: bool = True) -> Planned:
        """Make the preflight checks of a plan, and return it with the lines to print."""
        plan, targets = planned.plan, planned.context.targets
        if plan.refusal:
            raise ConfigError(plan.refusal)
        lines = [f"hosts {self._hosts_text}"] if self._hosts_text else []
        replicates = planned.workload.over_hosts == "replicate"
        lines += preflight(
            self._config,
            targets,
            plan,
            self._world.world_size,
            self._process.ledger,
            job_ranks=self._sharers.world_size if replicates else None,
            host_ranks=self._process.local.world_size,
        )
        if runs and (waits := waits_text(self._config.power, targets)):
            lines.append(f"waits {waits}")
        return planned._replace(lines=lines)

    def _context(self, targets: tuple[Target, ...]) -> Context:
        devices = devices_under(targets)
        heartbeat.start()
        sampling = self._process.sampling
        recorder = PhaseRecorder(
            host=self._process.host,
            rank=self._world.rank,
            tree=ProcessTree(frozenset([sampling.pid] if sampling and sampling.pid else [])),
            read_stats=partial(read_block_stats, devices),
            read_stopped_s=heartbeat.missed_s,
            progress=self._process.progress,
        )
        return Context(
            targets=targets,
            communicator=self._world,
            local=self._process.local,
            sharers=self._sharers,
            seed=self._config.seed,
            scale=self._config.scale.name,
            hosts_memory_bytes=self._process.hosts_memory_bytes,
            recorder=recorder,
            raw_drives=self._drives or self._known,
        )

    def _wear_lines(self) -> list[str]:
        """Return what earlier runs have written to the drives that will be overwritten."""
        lines = []
        for drive in self._drives.values():
            earlier_bytes, count = drive.earlier
            if count:
                runs = "1 run" if count == 1 else f"{count} runs"
                lines.append(
                    f"drive {drive.target.path}: {format_bytes(earlier_bytes)} were written by "
                    f"{runs} of this host before"
                )
        return lines

    def _begin_writes(self, folder: Path) -> None:
        """Write down which drives this run will overwrite, before it writes the first byte."""
        for drive in self._drives.values():
            drive.begin(folder.name, self._order.command, self._planned_bytes, self._covered_bytes)

    def _written_bytes(self, context: Context) -> int | None:
        """Return what this host's ranks wrote to its drive; ``None`` if it has several or none."""
        if not self._config.target.is_block:
            return None
        counts = self._process.local.all_gather(context.recorder.written_bytes)
        return sum(counts) if len(self._drives) == 1 else None

    def _end_writes(self, status: Status, own_bytes: int | None = None) -> None:
        """Write down what was written to the drives; that it fails does not change the run."""
        for drive in self._drives.values():
            try:
                drive.end(status, own_bytes)
            except TargetError as error:
                self._process.note_here(f"warning: {error}")

    def _prepare(
        self,
        targets: Sequence[Target],
        workload: Workload,
        context: Context,
        power_session: PowerSession | None,
        load: LoadSession | None,
    ) -> DataRecord | None:
        """Prepare the data, measure idle power, and settle the load.

        If no rest may follow the preparation, both come before it.
        """
        is_last = getattr(workload, "prepares_last", False)
        if is_last:
            if power_session is not None:
                power_session.up(context.recorder, ())
            self._settle(load)
            self._world.barrier()
        data = workload.prepare(context)
        if not is_last:
            if power_session is not None:
                power_session.up(context.recorder, _data_files(targets, data))
            self._settle(load)
        return data

    def _plan_rest(self, context: Context, power_session: PowerSession | None) -> None:
        """Have all ranks rest at the end of the job if a drive of any host is measured."""
        rests = power_session is not None and power_session.rests
        if not any(self._world.all_gather(rests)):
            return
        recorder = context.recorder
        if power_session is not None:
            recorder.rest_s = power_session.rest_s

        def rest() -> None:
            rest_until_all_here(self._world)
            own_ns = recorder.last_timed_end_ns() or time.monotonic_ns()
            end_ns = max(self._process.local.all_gather(own_ns))
            self._while_others_rest(
                partial(power_session.rest, recorder, end_ns) if power_session is not None else None
            )

        recorder.at_job_end = rest

    def _plan_load(self, context: Context) -> LoadSession | None:
        """Return this host's load on its leader, if there is to be one."""
        if not is_wanted(self._config.load):
            return None
        host = self._process.host
        own = Rank(pid=os.getpid(), cpus=frozenset(os.sched_getaffinity(0)))
        ranks = self._process.local.gather(own)
        if not self._process.is_host_leader:
            return None
        load = LoadSession(self._config.load, host=host, ranks=ranks, recorder=context.recorder)
        self._resources.callback(load.close)
        return load

    def _settle(self, load: LoadSession | None) -> None:
        if is_wanted(self._config.load):
            rest_until_all_here(self._world)
            self._while_others_rest(load.settle if load is not None else None)

    def _while_others_rest(self, step: Callable[[], None] | None) -> None:
        """Do a step on the hosts' leaders while the other ranks sleep.

        If it fails on one, all ranks raise, as in ``on_all_ranks``.
        """
        self._process.on_all_ranks(step or (lambda: None), rests=True)

    def _open_folder(
        self, workload: Workload, context: Context, capture: HostCapture | None
    ) -> Header:
        """Create the run's folder with its draft on each host, and this rank's journal in it.

        The root's is first: the other leaders then see whether they share it.
        """
        run_id = self._world.broadcast(new_run_id(workload.name, self._config.label))
        header = Header(
            folder=Path(self._config.runs).absolute() / run_id,
            order=self._order,
            started_utc=self._started_utc,
            workload=workload.name,
            world_size=self._world.world_size,
            launch_remark=override_text(self._config.ranks),
        )
        draft, owner = self._drafted(header, context, capture)
        for of_root in (True, False):
            self._process.on_all_ranks(
                partial(self._make_folder, header, draft, owner, of_root=of_root)
            )
        self._folder = header.folder
        self._journal = self._process.journal = RankJournal(self._folder, self._world.rank)
        context.recorder.write_to(self._journal)
        return header

    def _drafted(
        self, header: Header, context: Context, capture: HostCapture | None
    ) -> tuple[str, str]:
        """Return the draft of the record and the owner of the root's folder on all leaders."""
        own = RankReport(rank=self._rank_facts(context), marked=context.recorder.spans)
        ranks, leaders = self._process.local.gather(own), self._process.leaders
        if leaders is None:
            return "", ""
        report = HostReport(
            folder=header.folder,
            ranks=ranks,
            capture=capture.report() if capture is not None else None,
            power=None,
            load=None,
        )
        reports = leaders.gather(report)
        return leaders.broadcast((draft_document(header, reports) if reports else "", owner_text()))

    def _make_folder(self, header: Header, draft: str, owner: str, *, of_root: bool) -> None:
        """Make the run's folder on the root, or on the leader of a host that does not share it."""
        process = self._process
        if process.leaders is None or process.is_root is not of_root:
            return
        if is_owned(header.folder, owner):
            return
        with interrupts.held():
            self._lock = make_run_folder(header.folder, self._order.config_values, draft)
            self._folder, self._draft = header.folder, draft

    def _release_folder(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _conclude(
        self, header: Header, report: HostReport, ranks: Sequence[bytes], findings: Findings
    ) -> RunRecord | None:
        """Write the record on rank 0, from what the leaders of other hosts send; return it there.

        The folders of other hosts are then removed.

        Args:
            header: what was known before the run.
            report: this host's, on its leader, without those of its ranks.
            ranks: the pickled reports of this host's ranks, on its leader.
            findings: rank 0's.

        Raises:
            MisplacedRecordError: it is not in the run's folder; the message says where it is.
            RunError: it is lost.
        """
        leaders = self._process.leaders
        if leaders is None:
            return None
        if not self._process.is_root:
            is_own = self._draft is not None
            send_report(leaders, report, ranks, files=header.folder if is_own else None)
            self._is_recorded = True
            if is_own:  # locked until it is gone: it would be taken for that of a run that died
                remove_run_folder(header.folder)
            self._release_folder()
            rest_until_all_here(leaders)
            return None
        reports = ReceivedReports(leaders, report, ranks)
        record, place, why = conclude(header, reports, findings)
        reports.end()
        self._is_recorded, self._folder = True, place
        self._release_folder()
        rest_until_all_here(leaders)  # their folders are removed by then, whatever follows
        if why:
            raise MisplacedRecordError(
                f"the run is complete, but its record is in {place}, because {header.folder} could "
                f"not be used: {why}, or use runs=FOLDER for further runs",
                place,
            )
        return record

    def _open_power(self, folder: Path, capture: HostCapture | None) -> PowerSession | None:
        """Open the sampler for this run, and set the power state, on the host's leader."""
        sampling = self._process.sampling
        if sampling is None or capture is None:
            return None
        power_session = PowerSession.open(
            sampling,
            self._config.power,
            folder,
            host=self._process.host,
            devices=capture.controller_names or capture.block_devices,
            block_devices=capture.block_devices,
            calibrates=self._calibrates,
        )
        capture.add_before(power_session.controllers)
        return power_session

    def _rank_facts(self, context: Context) -> RankRecord:
        return rank_facts(self._world.rank, self._process.host, context.recorder.tree.cpu_s())

    def _verdict(self, folder: Path, record: RunRecord | None) -> tuple[Path | None, int]:
        failed = record is not None and any(c.fails_run for c in record.checks)
        rest_until_all_here(self._world)
        status = self._world.broadcast(CHECK_FAILED if failed else 0)
        if self._journal is not None:
            self._process.journal = None
            self._journal.close()
            if self._journal.failure is not None:
                self._process.note_here(
                    f"warning: the log of {folder} lacks lines of rank {self._world.rank}: "
                    f"{self._journal.failure}"
                )
        return (folder if record is not None else None), status


def _data_files(targets: Sequence[Target], data: DataRecord | None) -> list[Path]:
    """Return the data's files, at most ``MAX_FILES`` per target: each costs an ioctl."""
    if data is None:
        return []
    return [path for target in targets for path in islice(_files(target, data), MAX_FILES)]


def _files(target: Target, data: DataRecord) -> Iterator[Path]:
    if target.kind is not TargetKind.DIRECTORY:
        return
    for path in sorted((target.data_folder / data.key).rglob("*")):
        if not path.name.startswith(".") and path.is_file():
            yield path
