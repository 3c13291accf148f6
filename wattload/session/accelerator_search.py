"""The search for the largest number of emulated accelerators that hold their utilisation.

Counts double until one fails; the search then bisects the interval between the last count that held
and the first that failed. A journal lets an interrupted search resume.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from wattload.core.errors import CHECK_FAILED, ConfigError, TargetError
from wattload.core.files import FOLDER_MODE, open_folder
from wattload.core.record.run import Comparison, RunRecord
from wattload.results.reading import read_judged
from wattload.run.compose import compose, workload_class
from wattload.run.config import RunConfig, override_of
from wattload.run.config_folders import key_of
from wattload.run.lifecycle import preview_run
from wattload.run.process import ProcessContext
from wattload.session.schedule import (
    Point,
    Schedule,
    SessionJournal,
    SessionReporter,
    Step,
    keyed_on_all_hosts,
    point_key,
)
from wattload.session.search_result import (
    Measurement,
    Question,
    SearchOutcome,
    conclude,
    measured,
)

M = TypeVar("M")

RESULT_FILE = "result.json"
_SET_BY_SEARCH = ("label", "seed", "accelerator.count")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """A search: its question, and the settings of its runs besides the user's overrides."""

    question: Question
    user_overrides: tuple[str, ...]
    """The user's overrides, without those that the search sets itself."""
    label: str
    seed: int
    settings: Mapping[int, Mapping[str, int]]

    def point(self, accelerators: int, repetition: int) -> tuple[str, ...]:
        """Return the overrides of a run: the count is in its label, each repetition has a seed."""
        workload = self.settings[accelerators]
        return (
            *self.user_overrides,
            *(f"workload.{name}={value}" for name, value in workload.items()),
            f"accelerator.count={accelerators}",
            override_of("label", f"{self.label}-n{accelerators}"),
            f"seed={self.seed + repetition}",
        )

    def widest(self) -> tuple[str, ...]:
        """Return the overrides of the run with the most accelerators; its data suffices for all."""
        return self.point(max(self.settings), 0)


def plan_search(overrides: Sequence[str], ranks: int, memory_bytes: int) -> SearchPlan:
    """Return the search that the overrides configure, on hosts with so much memory together.

    Raises:
        ConfigError: the workload emulates no accelerators, these ranks can't run any of the
            counts, the data set does not fit, or an override sets what the search sets itself.
    """
    config, _ = compose(overrides)
    keys = [key_of(text) for text in overrides]
    _check_overrides(config, keys)
    question = _question(config, ranks)
    counts = range(ranks, question.maximum + 1, ranks)
    settings = config.workload.search_settings(
        scale=config.scale.name,
        accelerators=counts,
        memory_bytes=memory_bytes,
        given="workload.file_count" in keys,
    )
    own = {*_SET_BY_SEARCH, *(f"workload.{name}" for of in settings.values() for name in of)}
    plan = SearchPlan(
        question=question,
        user_overrides=overrides_without(overrides, own),
        label=config.label,
        seed=config.seed,
        settings=settings,
    )
    compose(plan.widest())  # refuse invalid settings before the first run
    return plan


def overrides_without(overrides: Sequence[str], own: Collection[str]) -> tuple[str, ...]:
    """Return the overrides without the keys that a search sets itself, and without its settings."""
    keys = [(text, key_of(text)) for text in overrides]
    return tuple(text for text, key in keys if key not in own and not key.startswith("sweep"))


def _check_overrides(config: RunConfig, keys: Sequence[str]) -> None:
    if not hasattr(config.workload, "search_settings"):
        raise ConfigError(
            f"sweep={config.sweep.name} searches for accelerators, but {config.workload._target_} "
            "emulates none; use workload=unet3d, or sweep=none"
        )
    if "accelerator.count" in keys:
        raise ConfigError(
            f"accelerator.count={config.accelerator.count} can't be combined with "
            f"sweep={config.sweep.name}, which sets it; limit it with sweep.start and sweep.maximum"
        )
    refuse_repeats(config)


def refuse_repeats(config: RunConfig) -> None:
    if config.repeat > 1:
        raise ConfigError(
            f"repeat={config.repeat} can't be combined with sweep={config.sweep.name}; "
            f"sweep.confirmations={config.repeat - 1} repeats the result that often"
        )


def _question(config: RunConfig, unit: int) -> Question:
    sweep, name = config.sweep, workload_class(config).name
    if not config.accelerator.step_s.get(name):
        raise ConfigError(
            f"accelerator={config.accelerator.name} has no step time for {name}, so there is no "
            "utilisation; use accelerator=a100, h100 or b200"
        )
    start = unit if sweep.start == 1 else sweep.start
    if start % unit or sweep.maximum < start:
        raise ConfigError(
            f"{unit} ranks emulate a multiple of {unit} accelerators; sweep.start must be 1 (one "
            f"per rank) or such a multiple, and sweep.maximum at least as large, got {sweep.start} "
            f"and {sweep.maximum}"
        )
    threshold = sweep.au_threshold
    return Question(
        workload=name,
        loader=config.loader.name,
        scale=config.scale.name,
        accelerator=config.accelerator.name,
        threshold=config.workload.au_threshold if threshold is None else threshold,
        start=start,
        maximum=sweep.maximum - sweep.maximum % unit,
        unit=unit,
        confirmations=sweep.confirmations,
    )


Trial = Generator[Step, None, bool]
Measure = Callable[[int, int], Trial]
"""Yields a run and returns whether it held; takes the count and the repetition, from 0."""


class Trials:
    """The trials of a search, each made once; ``held`` maps a count to the results of its runs."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self.held: dict[int, list[bool]] = {}

    def holds(self, count: int, repetition: int = 0) -> Trial:
        """Return whether a run of a count held; the repetitions before it are made first."""
        runs = self.held.setdefault(count, [])
        while len(runs) <= repetition:
            runs.append((yield from self._measure(count, len(runs))))
        return runs[repetition]

    def all_hold(self, count: int, runs: int) -> Trial:
        """Return whether the first ``runs`` runs of a count all held; stop at one that fails."""
        for repetition in range(runs):
            if not (yield from self.holds(count, repetition)):
                return False
        return True


def largest_held(
    trials: Trials, *, start: int, maximum: int, confirmations: int = 1, step: int | None = None
) -> Generator[Step, None, int]:
    """Yield the runs of a search and return the largest count that holds, 0 if none does.

    A count holds if its first run and ``confirmations`` more all hold; a single failure decides
    against it. A count on the edge therefore does not hold, and the next smaller one is confirmed
    instead. The count above the result is run as often, to show how far it is from holding.

    Args:
        trials: makes the runs and keeps their results.
        start: the first count to try, 1 or more.
        maximum: the largest count to try.
        confirmations: further runs of the result and of the count above it.
        step: what is added to a count that holds until one fails, or taken off one that fails
            until one holds; ``None`` doubles counts, and bisects below the first.
    """
    low, high = yield from _bracket(trials, start, maximum, step)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if (yield from trials.holds(middle)) else (low, middle)
    runs = 1 + confirmations
    while low and not (yield from trials.all_hold(low, runs)):
        low -= 1
    if low < maximum:
        for repetition in range(runs):
            yield from trials.holds(low + 1, repetition)
    return low


def _bracket(
    trials: Trials, start: int, maximum: int, step: int | None
) -> Generator[Step, None, tuple[int, int]]:
    """Return a count that held (0 if none did) and one that failed (maximum + 1 if none did)."""
    low, count = 0, start
    while (yield from trials.holds(count)):
        if count == maximum:
            return maximum, maximum + 1
        low, count = count, min(count + (step or count), maximum)
    while step and not low and count > 1:
        below = max(count - step, 1)
        if (yield from trials.holds(below)):
            return below, count
        count = below
    return low, count


class UntrustedRunError(Exception):
    """A run whose figures can't be used: one of its checks failed, or it has no utilisation."""


class Search(Schedule):
    """The runs of a search; each follows from the results of those before it.

    An interrupted search resumes when the same command is run again. ``identity`` tells a search
    from others in the same folder. ``found`` is the result, ``None`` without one.
    """

    journal: SessionJournal

    def __init__(
        self,
        process: ProcessContext,
        overrides: Sequence[str],
        reporter: SessionReporter,
        identity: Sequence[str],
    ) -> None:
        self._process = process
        self._reporter = reporter
        self._command = ("wattload", "run", *overrides)
        key = hashlib.sha256("\x1f".join(("search", *identity)).encode()).hexdigest()[:8]
        runs = Path(compose(overrides)[0].runs)
        self._folder = runs / f"search-{key}"
        self.journal = SessionJournal(runs, key, self._folder / "journal.jsonl")
        self._order = 0
        self.found: int | None = None

    def steps(self) -> Iterator[Step]:
        """Yield runs until the result is confirmed or one of them can't be used."""
        with suppress(UntrustedRunError):
            self.found = yield from self._search()

    @abstractmethod
    def _search(self) -> Generator[Step, None, int]:
        """Yield runs and return the largest count that holds, 0 if none does."""

    def measure(
        self,
        overrides: tuple[str, ...],
        repetition: int,
        name: str,
        read: Callable[[RunRecord], M],
    ) -> Generator[Step, None, tuple[M, bool]]:
        """Yield a run; return what is read from its record, and whether it was finished earlier."""
        point = Point(overrides, repetition, point_key(*compose(overrides), repetition), name=name)
        step = Step(
            point=keyed_on_all_hosts([point], self._process)[0],
            comparison=Comparison(
                session_id=self.journal.session_id,
                arm="",
                block=repetition,
                order=self._order,
            ),
            calibrates=not self._order,
        )
        self._order += 1
        yield step
        found = self._process.communicator.broadcast(
            read(read_judged(step.folder).record) if step.folder else None
        )
        assert found is not None  # rank 0 has made the run or found its record
        return found, step.reused

    def finish(self, result: SearchOutcome) -> int:
        """Store and report the result; returns 3 if a failed check ended the search, else 0."""
        if self._process.is_root:
            path = _write(result, self._folder)
            host = self._process.record_host
            self._reporter.search_finished(result, path, self.journal.path, host)
        return CHECK_FAILED if result.verdict == "invalid" else 0


class AcceleratorSearch(Search):
    """The runs of a search for accelerators."""

    def __init__(
        self, process: ProcessContext, overrides: Sequence[str], reporter: SessionReporter
    ) -> None:
        """Plan the search; every rank must call it.

        Raises:
            ConfigError: what ``plan_search`` refuses.
        """
        ranks, memory_bytes = process.communicator.world_size, process.hosts_memory_bytes
        self._plan = process.on_all_ranks(lambda: plan_search(overrides, ranks, memory_bytes))
        identity = (*self._plan.user_overrides, self._plan.label)
        super().__init__(process, overrides, reporter, identity)
        self._runs: list[Measurement] = []

    def begin(self, process: ProcessContext, done: Mapping[str, Path]) -> None:
        """Refuse a search whose largest data set or buffers do not fit."""
        maximum = self._plan.question.maximum
        try:
            preview_run(process, self._plan.widest(), check=True)
        except (ConfigError, TargetError) as error:
            raise type(error)(
                f"the widest run of the search, with sweep.maximum={maximum}, is refused: {error}"
            ) from error
        process.note(
            f"searching up to {maximum} accelerators on one data set of "
            f"{self._plan.settings[maximum]['file_count']} files"
        )

    def _search(self) -> Generator[Step, None, int]:
        question = self._plan.question
        unit = question.unit
        found = yield from largest_held(
            Trials(lambda count, repetition: self._trial(count * unit, repetition)),
            start=question.start // unit,
            maximum=question.maximum // unit,
            confirmations=question.confirmations,
        )
        return found * unit

    def _trial(self, accelerators: int, repetition: int) -> Trial:
        run, reused = yield from self.measure(
            self._plan.point(accelerators, repetition),
            repetition,
            f"{accelerators} accelerators",
            lambda record: measured(record, accelerators, repetition),
        )
        self._runs.append(run)
        threshold = self._plan.question.threshold
        if self._process.is_root:
            self._reporter.trial_finished(run, threshold, reused=reused)
        if run.faults or run.au is None:
            raise UntrustedRunError
        return run.holds(threshold)

    def conclude(self) -> int:
        """Store and report the result; returns 3 if a failed check ended the search, else 0."""
        result = conclude(
            self._plan.question,
            self._runs,
            self.found,
            session_id=self.journal.session_id,
            command=self._command,
        )
        return self.finish(result)


def _write(result: SearchOutcome, folder: Path) -> Path:
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    with open_folder(folder) as own:
        own.write(RESULT_FILE, result.model_dump_json(indent=1) + "\n")
    return folder / RESULT_FILE
