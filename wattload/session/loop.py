"""The runs of one command: composed, ordered, and made one after the other.

Every order, whether a sweep's, that of interleaved arms or a search's, is a ``Schedule``;
``make_runs`` is the one loop that makes its runs, and resumes from the session's journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattload.core.errors import ConfigError, MisplacedRecordError, WattloadError
from wattload.core.record.file import read_record
from wattload.core.record.run import DataRecord
from wattload.run.compose import compose
from wattload.run.config import RunConfig
from wattload.run.lifecycle import (
    Preview,
    execute,
    generate_data,
    preview_run,
    require_ready,
)
from wattload.run.preflight import WriteLedger, finished_writes
from wattload.run.process import ProcessContext, Reporter, start_process, unsampled_process
from wattload.session.accelerator_search import AcceleratorSearch, plan_search
from wattload.session.axes import labelled, makes_arms, read_axes
from wattload.session.forecast import (
    Part,
    noted_if_slow,
    outlook_of,
    planned_writes,
    preview_parts,
    require_possible,
)
from wattload.session.interleaving import Interleaving, plan_turns
from wattload.session.knee_search import KneeSearch
from wattload.session.schedule import (
    Outlook,
    Pace,
    Point,
    Schedule,
    SessionJournal,
    SessionPosition,
    SessionReporter,
    Sweep,
    keyed_on_all_hosts,
    names_of,
    point_key,
)


def generate(overrides: Sequence[str], reporter: Reporter) -> DataRecord | None:
    """Generate or complete the data of a workload, or of a search's runs, and nothing else.

    Returns the data's facts on rank 0; ``None`` on other ranks and where a run needs no data.
    """
    config, _ = compose(overrides)
    with unsampled_process(config, reporter) as process:
        composed = overrides
        if config.sweep.name == "accelerators":  # how much data it needs depends on their number
            ranks, memory_bytes = process.communicator.world_size, process.hosts_memory_bytes
            plan = process.on_all_ranks(lambda: plan_search(overrides, ranks, memory_bytes))
            composed = plan.widest()
        data = generate_data(process, composed, ("wattload", "datagen", *overrides))
        if data is None:
            process.note("this workload needs no data before a run")
        return data if process.is_root else None


def plan_run(overrides: Sequence[str], reporter: Reporter) -> Preview | None:
    """Return what one run would do to its targets, ``None`` on other ranks than 0.

    Changes nothing.
    """
    config, _ = compose(overrides)
    with unsampled_process(config, reporter, measures=False) as process:
        preview = preview_run(process, overrides)
        return preview if process.is_root else None


def different_runs(overrides: Sequence[str], *, multirun: bool) -> tuple[tuple[str, ...], ...]:
    """Return the overrides of each run of a command, in order, those that repeat another only once.

    Raises:
        ConfigError: the settings are invalid.
    """
    axes = read_axes(overrides, multirun=multirun)
    combinations = tuple(labelled(axes))
    first = compose(combinations[0])[0]
    if first.interleaves:
        return tuple(dict.fromkeys(turn.overrides for turn in plan_turns(axes, first)))
    return combinations


def run_all(overrides: Sequence[str], *, multirun: bool, reporter: SessionReporter) -> int:
    """Make all runs of a command that are not done yet; returns 0, or 3 if a check failed.

    Raises:
        WattloadError: the settings are invalid, the session can't succeed, or a run failed. The
            same command then resumes with the runs that are left.
    """
    first, schedules = _read(overrides, multirun=multirun, reporter=reporter)
    with start_process(first, reporter) as process:
        return max(make_runs(process, schedule, reporter) for schedule in schedules(process))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPreview:
    """What a session will do: its runs in order, and what those that are left take.

    ``finished`` of the runs are valid and not repeated. ``writes`` has the bytes by drive, and
    ``refusal`` is why the session would not start.
    """

    points: Sequence[Point]
    parts: Sequence[Part]
    finished: int
    left_s: float | None
    outlook: Outlook
    warnings: Sequence[str]
    writes: WriteLedger
    refusal: WattloadError | None


def plan_all(
    overrides: Sequence[str], *, multirun: bool, reporter: SessionReporter
) -> SessionPreview | None:
    """Return what the runs of a command would do, ``None`` on other ranks than 0.

    Changes nothing on the targets.

    Raises:
        WattloadError: the settings are invalid, or a target can't be used.
    """
    first, schedules = _read(overrides, multirun=multirun, reporter=reporter)
    if first.sweep.searches:
        raise ConfigError(
            f"sweep={first.sweep.name} chooses each run by what the last one measured, so it has "
            "no plan; for that of one run use wattload plan WORKLOAD"
        )
    with unsampled_process(first, reporter, measures=False) as process:
        (schedule,) = schedules(process)
        schedule.planned = keyed_on_all_hosts(schedule.planned, process)
        done = _resume(process, schedule.journal, schedule.planned)
        left = schedule.left(done)
        parts = preview_parts(process, left)
        warnings: Sequence[str] = ()
        refusal = None
        try:
            warnings = require_possible(process, schedule, parts)
        except WattloadError as error:
            if not process.is_root:
                raise
            refusal = error
        if not process.is_root:
            return None
        outlook = outlook_of(schedule, parts)
        if refusal is not None and outlook.can_decide:
            outlook = Outlook(can_decide=False, words="these runs are refused")
        return SessionPreview(
            points=schedule.planned,
            parts=parts,
            finished=len(schedule.planned) - len(left),
            left_s=_pace_of(done).left_s(len(left)),
            outlook=outlook,
            warnings=warnings,
            writes=planned_writes(process, parts),
            refusal=refusal,
        )


def _read(
    overrides: Sequence[str], *, multirun: bool, reporter: SessionReporter
) -> tuple[RunConfig, Callable[[ProcessContext], Iterator[Schedule]]]:
    """Return the configuration of a command's first run, and what yields its schedules.

    Every rank has to take the schedules.

    Raises:
        ConfigError: the settings are invalid.
    """
    axes = read_axes(overrides, multirun=multirun)
    combinations = list(labelled(axes))
    runs = noted_if_slow(combinations, reporter, "reading the settings of")
    composed = [compose(run) for run in runs]  # fail before the first run
    first = composed[0][0]
    if first.interleaves:
        command = ("wattload", "run", *(["-m"] if multirun else []), *overrides)
        interleaving = Interleaving(axes, first, command, reporter)
        return first, lambda _: iter([interleaving])
    if any(config.interleaves for config, _ in composed):
        raise ConfigError(
            "interleave applies to a whole session and can't be swept; give it one value"
        )
    searches = [config.sweep.searches for config, _ in composed]
    if all(searches):
        return first, lambda process: (
            (KneeSearch if config.sweep.name == "knee" else AcceleratorSearch)(
                process, combination, reporter
            )
            for combination, (config, _) in zip(combinations, composed, strict=True)
        )
    if any(searches):
        raise ConfigError("some of the runs are searches and some are not; give sweep= one value")
    is_one = sum(config.repeat for config, _ in composed) == 1
    journal = None if is_one else SessionJournal.of_sweep(Path(first.runs), overrides)
    names = names_of(combinations)
    arms_by = [axis.key for axis in axes if makes_arms(axis)]

    def points() -> list[Point]:
        return [
            Point(
                overrides=combination,
                repetition=repetition,
                key=point_key(config, config_values, repetition),
                arm=config.label,
                name=names[combination],
            )
            for repetition in range(max(config.repeat for config, _ in composed))
            for combination, (config, config_values) in zip(combinations, composed, strict=True)
            if repetition < config.repeat
        ]

    return first, lambda process: iter(
        [Sweep(process.on_all_ranks(points), arms_by, journal, reporter)]
    )


def make_runs(process: ProcessContext, schedule: Schedule, reporter: SessionReporter) -> int:
    """Make the runs of a schedule that are not done yet; returns 0, or 3 if a check failed.

    Raises:
        WattloadError: the planned runs together write too much, or a run failed.
    """
    journal = schedule.journal
    schedule.planned = keyed_on_all_hosts(schedule.planned, process)
    done = _resume(process, journal, schedule.planned)
    left = schedule.left(done)
    if journal is not None:  # a single run's own preflight guards against wear
        if left and len(process.hosts) > 1:  # else only a part of their faults would be listed
            require_ready(process, left[0].overrides)
        warnings = require_possible(process, schedule, preview_parts(process, left))
        process.note_once([f"warning: {each}" for each in warnings])
    schedule.begin(process, done)
    pace = _begin_session(process, schedule, done, len(left), reporter)
    to_make, worst = {point.key for point in left}, 0
    made: list[Path] = []
    for step in schedule.steps():
        point = step.point
        if point.key not in to_make and point.key not in done:
            done.update(_resume(process, journal, [point]))
        step.reused = point.key in done and point.key not in to_make
        if step.reused:
            step.folder = done[point.key] if process.is_root else None
            continue
        if process.is_root and journal is not None:
            pace.begin()
            reporter.run_begins(
                SessionPosition(
                    number=step.comparison.order + 1,
                    count=len(schedule.planned) or None,
                    left_s=pace.left_s(len(to_make) - len(made)) if to_make else None,
                    name=point.name,
                )
            )
        try:
            step.folder, status = execute(
                process, point.overrides, step.comparison, calibrates=step.calibrates
            )
        except (WattloadError, KeyboardInterrupt) as error:
            if journal is not None:
                if isinstance(error, MisplacedRecordError):
                    journal.add(point, error.folder)
                    made.append(error.folder)
                error.add_note(_session_note(len(schedule.planned), len(to_make), len(made)))
            elif isinstance(error, KeyboardInterrupt):
                none = "  record      none: the run had not begun\n"
                noted = "" if hasattr(error, "__notes__") else none
                error.add_note(f"{noted}  next        run the same command again")
            raise
        worst = max(worst, status)
        if step.folder is not None and journal is not None:
            made.append(step.folder)
            journal.add(point, step.folder)
    if process.is_root and journal is not None and schedule.planned:
        reporter.session_finished([*done.values(), *made], journal.path)
    return max(worst, schedule.conclude())


def _session_note(planned: int, to_make: int, made: int) -> str:
    """Return how a session goes on after one of its runs has failed or was interrupted."""
    finished = f"{planned - to_make + made} of {planned} runs finished" if planned else ""
    return "  session     " + "; ".join(
        filter(
            None,
            [finished, "the same command resumes it; of finished runs it repeats only warm-ups"],
        )
    )


def _begin_session(
    process: ProcessContext,
    schedule: Schedule,
    done: Mapping[str, Path],
    left_count: int,
    reporter: SessionReporter,
) -> Pace:
    """Report the runs that are done, and return the pace of the session."""
    if not process.is_root or schedule.journal is None or not done:
        return Pace()
    planned = len(schedule.planned)
    reporter.session_resumed(planned - left_count, planned, schedule.journal.path)
    return _pace_of(done)


def _pace_of(done: Mapping[str, Path]) -> Pace:
    seconds = [read_record(path).wall_s or 0.0 for path in done.values()]
    return Pace([each for each in seconds if each > 0])


def _resume(
    process: ProcessContext, journal: SessionJournal | None, points: Sequence[Point]
) -> dict[str, Path]:
    """Return the folders of the points that are done and valid, by key, on every rank.

    A resumed session is still one: the bytes that these runs wrote are charged to the drives of
    each host, and later runs use the calibrations that these used.
    """
    found: Mapping[str, Path] = {}
    if process.is_root and journal is not None:
        found, refused = journal.done(points)
        for reason in refused:
            process.note(reason)
    found = process.communicator.broadcast(found)
    if process.leaders is not None:
        records = map(read_record, found.values() if process.is_root else ())
        used = [
            ({host: finished_writes(each, host) for host in process.hosts}, each.power)
            for each in records
        ]
        for writes, power in process.leaders.broadcast(used):
            process.ledger.charge(*writes[process.host])
            if process.sampling is not None:
                process.sampling.calibrations.recall(power)
    return dict(found)
