"""The run record: everything known about one run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field

from wattload.core.base_models import Frozen, Observed
from wattload.core.io import DataPath
from wattload.core.power import Scope
from wattload.core.record.clocks import CommonClock
from wattload.core.record.energy import EnergyRecord, PowerSection
from wattload.core.record.host import HostRecord, LoadRecord, RankRecord, SoftwareFacts
from wattload.core.record.phase import (
    IoCounter,
    PhaseHalves,
    PhaseSpan,
    PhaseWindow,
    TraceFile,
    by_phase,
    phase_windows,
)
from wattload.core.record.results import Check, Latency, Metric, merge_latencies
from wattload.core.record.target import ControllerRecord, TargetRecord

WARM_UP_BLOCK = -1
"""The block of a warm-up; see ``Comparison``."""


def _with_zone(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a time needs its zone")
    return text


IsoTime = Annotated[str, AfterValidator(_with_zone)]
"""A date and time in ISO 8601, with its zone."""

Status = Literal["complete", "failed", "aborted"]
Interleave = Literal["none", "abba", "aa"]


class StartTemperature(Observed):
    """A drive's temperature at the start of a run and of the session's first compared run on it.

    Both are whole kelvins, as drives report them.
    """

    host: str
    serial: str
    temperature_k: int | None
    reference_k: int | None


class RunStart(Frozen):
    """How a run waited for its drives to reach the temperature of the session's first run.

    It waited ``waited_s``, at most about ``limit_s``, until each drive was within ``allowed_k``.
    ``drives`` is empty if there is no NVMe controller under the target.
    """

    waited_s: float = Field(ge=0)
    limit_s: float = Field(ge=0)
    allowed_k: float = Field(gt=0)
    drives: tuple[StartTemperature, ...] = ()


class Comparison(Frozen):
    """A run's place in an experiment of several runs.

    ``session_id`` identifies a command and stays the same when the command resumes after an
    interruption. ``arm`` is what is compared: the run's label. If ``interleave`` is ``aa``, all
    runs have one label, and the arm is that label followed by ``-1`` or ``-2``.

    ``interleave`` is how runs alternate. With ``abba`` and ``aa``, runs of equal ``session_id`` and
    ``block`` are one run of each arm, equal in every other setting, one after the other; any two of
    them are a pair. ``block`` counts from 0 over the whole session, so no two points of a sweep
    share one. Odd blocks have the arms in reverse order. With ``none``, ``block`` is the
    repetition, which many runs share; these are not pairs.

    A run that failed, was interrupted or failed a check stays in its block with the run that
    replaced it. Pairs consist of valid runs; of an arm's valid runs in a block, the last one to
    start counts. A ``warm_up`` precedes the runs of its point, has ``block`` -1 and is
    not compared.

    ``order`` is the position in the session's order, from 0, warm-ups included; a repeated run
    keeps its position. ``pair_gap_s`` is the wall-clock time from the end of the block's first run
    to the start of this one, without the runs in between and their cooling; ``None`` in the first.
    ``start`` and ``command`` (the session's command line) are recorded for interleaved sessions
    only.
    """

    session_id: str
    arm: str
    block: int
    order: int
    interleave: Interleave = "none"
    warm_up: bool = False
    pair_gap_s: float | None = None
    start: RunStart | None = None
    command: tuple[str, ...] = ()

    @property
    def idle_s(self) -> float:
        """``pair_gap_s`` without cooling; 0 in a block's first run, and if the clock was set back.

        The time between two runs of a block, without runs in between, is the difference of theirs.
        """
        if self.pair_gap_s is None:
            return 0.0
        return max(0.0, self.pair_gap_s - (self.start.waited_s if self.start else 0.0))


class DataRecord(Frozen):
    """The data that a run used. ``wattload report --redact`` masks ``folder``."""

    key: str
    folder: str
    file_count: int
    data_bytes: int
    reused: bool
    parameters: Mapping[str, Any]


class WorkloadSection(Frozen):
    """The workload and its own statements. ``remarks`` are sentences that the page must print.

    ``loader`` is the configured one. If ``uses_loader`` is false, the workload does its own I/O and
    no loader takes part. ``facts`` are those that ``wattload.results`` declares for the workload.
    """

    name: str
    loader: str
    uses_loader: bool = True
    scale: str
    accelerator: str
    rank_count: int
    queue_depth_asked: int | None = None
    block_bytes_asked: int | None = None
    paths: tuple[DataPath, ...] = ()
    facts: Mapping[str, Any] = Field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    data: DataRecord | None = None


_COMPUTED: Mapping[str, Set[str]] = {
    "clock": {"hosts"},
    "windows": {"spans", "halves", "hosts"},
    "joined_windows": {"spans", "halves", "hosts"},
    "spans_by_phase": {"spans"},
    "counters_by_phase": {"counters"},
    "merged_latencies": {"latencies"},
    "_drives": {"controllers"},
}
"""What a record computes once, and the fields that it depends on."""


class ConfigFile(Frozen):
    """A file of settings from a folder besides wattload's own, which took part in a run.

    ``replaces`` is whether it was read instead of wattload's file of that name. The values are in
    the record's ``config``. ``wattload report --redact`` masks ``path``.
    """

    path: str
    sha256: str
    replaces: bool


class RunRecord(Frozen):
    """One run, in SI base units. Missing is ``None`` with a reason, never zero."""

    schema_version: Literal[1] = 1
    run_id: str
    status: Status
    status_reason: str
    label: str
    started_utc: IsoTime
    finished_utc: IsoTime | None
    command: tuple[str, ...]
    config: Mapping[str, Any]
    config_files: tuple[ConfigFile, ...] = ()
    comparison: Comparison
    software: SoftwareFacts
    workload: WorkloadSection
    hosts: tuple[HostRecord, ...]
    ranks: tuple[RankRecord, ...]
    targets: tuple[TargetRecord, ...]
    controllers: tuple[ControllerRecord, ...]
    spans: tuple[PhaseSpan, ...]
    halves: tuple[PhaseHalves, ...] = ()
    metrics: tuple[Metric, ...] = Field(default=(), exclude=True)
    """Computed when a record is judged (``wattload.results.reading``), and not stored."""
    counters: tuple[IoCounter, ...]
    power: PowerSection
    checks: tuple[Check, ...]
    limits: tuple[str, ...]
    """What could not be measured and why, one sentence each; the page opens with them."""
    traces: tuple[TraceFile, ...]
    latencies: tuple[Latency, ...] = ()
    """By phase, kind and size of operation, of each rank; ``()`` if no loader measured any."""
    loads: tuple[LoadRecord, ...] = ()
    """By host, what kept it busy during the workload; ``()`` if nothing did."""
    summary: Mapping[str, Any] = Field(default_factory=dict)
    """Figures for people, set when written and not kept when read; see ``core.record.summary``."""
    seal: str | None = None
    """SHA-256 of the file without this field's line, set when written; see ``core.record.file``."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy, without what was computed from fields that ``update`` may replace."""
        copied = super().model_copy(update=update, deep=deep)
        for name, sources in _COMPUTED.items():
            if update is not None and not sources.isdisjoint(update):
                copied.__dict__.pop(name, None)
        return copied

    @cached_property
    def clock(self) -> CommonClock:
        """What converts times of all hosts to the first one's clock."""
        return CommonClock({host.facts.name: host.offsets for host in self.hosts})

    @cached_property
    def windows(self) -> tuple[PhaseWindow, ...]:
        """Each phase over all ranks of a host, on its own clock.

        Phases are in order of their first start, and in each the hosts in that of the record.
        """
        windows = phase_windows(self.spans, self.halves)
        hosts = {host.facts.name: number for number, host in enumerate(self.hosts)}
        phases = sorted(windows, key=lambda each: self.clock.ns(each.host, each.start_ns))
        names = list(dict.fromkeys(each.name for each in phases))
        return tuple(
            sorted(windows, key=lambda each: (names.index(each.name), hosts.get(each.host, 0)))
        )

    @cached_property
    def joined_windows(self) -> tuple[PhaseWindow, ...]:
        """Each phase over all ranks of all hosts, on the first one's clock, by their start."""
        if len({span.host for span in self.spans}) <= 1:
            return self.windows
        return phase_windows([self._on_common_clock(span) for span in self.spans])

    def _on_common_clock(self, span: PhaseSpan) -> PhaseSpan:
        start_ns, end_ns = (self.clock.ns(span.host, at) for at in (span.start_ns, span.end_ns))
        return span.model_copy(update={"host": "", "start_ns": start_ns, "end_ns": end_ns})

    @cached_property
    def spans_by_phase(self) -> Mapping[tuple[str, str], Sequence[PhaseSpan]]:
        """The spans by host and phase."""
        return by_phase((span.host, span.name, span) for span in self.spans)

    @cached_property
    def counters_by_phase(self) -> Mapping[tuple[str, str], Sequence[IoCounter]]:
        """The block devices' counters by host and phase."""
        return by_phase((each.host, each.phase, each) for each in self.counters)

    @cached_property
    def merged_latencies(self) -> tuple[Latency, ...]:
        return merge_latencies(self.latencies)

    @property
    def wall_s(self) -> float | None:
        """How long the run took by the wall clock, ``None`` if it was not finished."""
        if self.finished_utc is None:
            return None
        start, end = (
            datetime.fromisoformat(text) for text in (self.started_utc, self.finished_utc)
        )
        return (end - start).total_seconds()

    def metric(self, name: str) -> Metric | None:
        return next((metric for metric in self.metrics if metric.name == name), None)

    def moved_bytes(self, phase: str, kind: Literal["read", "written"]) -> int:
        """Return the bytes that a phase read or wrote, over all hosts."""
        windows = [window for window in self.windows if window.name == phase]
        return sum(w.read_bytes if kind == "read" else w.written_bytes for w in windows)

    def drive_energies(self, phase: str) -> Sequence[EnergyRecord]:
        """Return the chosen energies of drives in a phase, each drive once.

        A drive that several hosts use has an energy on each, of all its joules there. That of the
        host counts that was in the phase longest, of those with a figure.
        """
        found: dict[tuple[str, str], EnergyRecord] = {}
        for each in self.power.energy:
            if each.phase == phase and each.chosen and each.scope is Scope.DRIVE:
                drive = self.drive_of(each.host, each.device)
                found[drive] = max(
                    (found.get(drive, each), each),
                    key=lambda energy: (energy.energy_j is not None, energy.seconds),
                )
        return tuple(found.values())

    def drive_of(self, host: str, device: str) -> tuple[str, str]:
        """Return the first host that has a device, and the device: several may have one drive."""
        return self._drives.get((host, device), (host, device))

    @cached_property
    def _drives(self) -> Mapping[tuple[str, str], tuple[str, str]]:
        """The first host and serial of each drive, by those of each of its hosts.

        All hosts see the model and serial of a drive, over NVMe over Fabrics too.
        """
        first: dict[tuple[str | None, str], tuple[str, str]] = {}
        found = {}
        for facts in (each.facts for each in self.controllers if each.facts.serial):
            place = facts.host, facts.serial
            found[place] = first.setdefault((facts.model, facts.serial), place)
        return found

    @property
    def shared_drives(self) -> Mapping[str, Sequence[str]]:
        """The hosts of each drive that several hosts use, by serial."""
        hosts: dict[tuple[str, str], list[str]] = defaultdict(list)
        for (host, _), drive in self._drives.items():
            hosts[drive].append(host)
        return {serial: own for (_, serial), own in hosts.items() if len(own) > 1}

    def unread_drives(self, phase: str) -> Sequence[tuple[str, str]]:
        """Return the targets' drives without a chosen source in a timed phase, with their hosts.

        A drive belongs to the phase if one of its hosts took part in it. Of a host without a known
        drive and a chosen energy of one, the block devices are named, or else the target.
        """
        hosts = {window.host for window in self.timed_windows() if window.name == phase}
        energies = self.drive_energies(phase)
        read = {self.drive_of(each.host, each.device) for each in energies}
        drives = {(each.facts.host, each.facts.serial) for each in self.controllers}
        for target in self.targets:
            drives |= {(target.facts.host, serial) for serial in target.facts.controllers}
        known = {host for host, _ in drives} | {each.host for each in energies}
        for target in self.targets:
            if target.facts.host not in known:
                devices = target.facts.devices or ("the target",)
                drives |= {(target.facts.host, device) for device in devices}
        return sorted(
            (host, drive)
            for host, drive in drives
            if host in hosts and self.drive_of(host, drive) not in read
        )

    def timed_windows(self, *, parts: bool = True) -> Sequence[PhaseWindow]:
        """Return the windows that metrics and energy are computed from.

        Sums over phases leave out the ``parts`` of others.
        """
        return [each for each in self.windows if each.timed and (parts or not each.is_part)]
