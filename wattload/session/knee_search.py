"""The search for the knee of a workload: the largest load at which a figure is within its limit.

Loads are on a grid of eighths of an octave, so that neighbours are within 10 %. From the load that
the user set they double until one fails, or halve until one holds, and are then bisected.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from wattload.core.base_models import Frozen
from wattload.core.errors import ConfigError
from wattload.core.record.run import RunRecord
from wattload.results.knee import Knee
from wattload.results.reading import asked
from wattload.results.registry import every_results, results_of
from wattload.run.compose import compose, workload_class
from wattload.run.config import RunConfig
from wattload.run.config_folders import key_of
from wattload.run.lifecycle import preview_run
from wattload.run.process import ProcessContext
from wattload.session.accelerator_search import (
    Search,
    Trial,
    Trials,
    UntrustedRunError,
    largest_held,
    overrides_without,
    refuse_repeats,
)
from wattload.session.schedule import SessionReporter, Step
from wattload.session.search_result import (
    SearchOutcome,
    Verdict,
    doubts,
    faults_of,
    unproved_of,
)

STEPS, OCTAVES = 8, 8
"""Loads in an octave, and octaves on either side of the load that the user set."""
ORIGIN, LAST = OCTAVES * STEPS + 1, 2 * OCTAVES * STEPS + 1
"""The places of that load and of the largest on the grid; the first is 1."""


class KneeRun(Frozen):
    """One run: its load, its figure in its base unit, and both in words.

    ``holds`` is ``None`` if the run can't be judged, and ``figure`` where ``words`` say why.
    ``faults`` and ``unproved`` are those of ``Measurement``.
    """

    load: float
    run_id: str
    figure: float | None
    words: str
    holds: bool | None
    faults: tuple[str, ...]
    unproved: tuple[str, ...]


_VERDICTS = {True: "holds", False: "does not hold", None: "can't be judged by"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KneePlan:
    """What to search for, from which load, and what has to hold in words."""

    knee: Knee[Any]
    config: RunConfig
    start: float
    goal: str
    user_overrides: tuple[str, ...]

    def load(self, place: int) -> float:
        """Return a load of the grid, rounded as it is printed."""
        return float(f"{self.start * 2 ** ((place - ORIGIN) / STEPS):.4g}")

    def point(self, place: int, repetition: int = 0) -> tuple[str, ...]:
        """Return the overrides of a run; each repetition has a seed."""
        load, seed = self.load(place), self.config.seed + repetition
        return (*self.user_overrides, f"workload.{self.knee.setting}={load!r}", f"seed={seed}")

    def read(self, place: int, record: RunRecord) -> KneeRun:
        """Return what a run measured."""
        metric, load = record.metric(self.knee.figure), self.load(place)
        figure = metric.value if metric else None
        shown = metric.missing.get("value", "") if metric else f"without {self.knee.figure}"
        if figure is not None:
            shown = self.knee.shown(figure)
        return KneeRun(
            load=load,
            run_id=record.run_id,
            figure=figure,
            words=f"{load:g} {self.knee.unit} ({shown})",
            holds=asked(record, self.knee.holds, None),
            faults=faults_of(record),
            unproved=unproved_of(record),
        )


class KneeResult(SearchOutcome):
    """The largest load at which all runs held, and the next one; ``None`` if there is none."""

    search: Literal["knee"] = "knee"
    setting: str
    goal: str
    holds_at: float | None
    fails_at: float | None
    runs: tuple[KneeRun, ...]


def plan_knee(overrides: Sequence[str]) -> KneePlan:
    """Return the search that the overrides configure.

    Raises:
        ConfigError: the workload has no knee, its limit or its first load is not set, or an
            override belongs to another search.
    """
    config, _ = compose(overrides)
    workload = workload_class(config).name
    knee = getattr(results_of(workload), "knee", None)
    if knee is None:
        searchable = ", ".join(each.name for each in every_results() if each.knee)
        raise ConfigError(
            f"sweep=knee needs a workload whose load has a limit, and {workload} has none; use "
            f"workload={searchable}, or sweep=none"
        )
    setting = f"workload.{knee.setting}"
    start, goal = getattr(config.workload, knee.setting), knee.goal(config.workload)
    if start is None or goal is None:
        key = setting if start is None else knee.goal_setting
        raise ConfigError(f"sweep=knee needs {key}, which is not set; add {key}=VALUE")
    for key in ("sweep.start", "sweep.maximum", "sweep.au_threshold"):
        if key in map(key_of, overrides):
            raise ConfigError(
                f"{key} belongs to sweep=accelerators; sweep=knee starts from {setting}={start:g}"
            )
    refuse_repeats(config)
    own = overrides_without(overrides, (setting, "seed"))
    plan = KneePlan(knee=knee, config=config, start=start, goal=goal, user_overrides=own)
    for place in (1, LAST):  # refuse loads out of range before the first run
        compose(plan.point(place))
    return plan


class KneeSearch(Search):
    """The runs of a search for a knee."""

    def __init__(
        self, process: ProcessContext, overrides: Sequence[str], reporter: SessionReporter
    ) -> None:
        """Plan the search; every rank must call it.

        Raises:
            ConfigError: what ``plan_knee`` refuses.
        """
        self._plan = process.on_all_ranks(lambda: plan_knee(overrides))
        super().__init__(process, overrides, reporter, self._plan.user_overrides)
        self._runs: list[KneeRun] = []

    def begin(self, process: ProcessContext, done: Mapping[str, Path]) -> None:
        """Refuse a search whose first run does not fit."""
        preview_run(process, self._plan.point(ORIGIN), check=True)

    def _search(self) -> Generator[Step, None, int]:
        confirmations = self._plan.config.sweep.confirmations
        return largest_held(
            Trials(self._trial), start=ORIGIN, maximum=LAST, confirmations=confirmations, step=STEPS
        )

    def _trial(self, place: int, repetition: int) -> Trial:
        plan = self._plan
        run, reused = yield from self.measure(
            plan.point(place, repetition),
            repetition,
            f"{plan.load(place):g} {plan.knee.unit}",
            lambda record: plan.read(place, record),
        )
        self._runs.append(run)
        self._process.note(
            f"{run.words}, run {repetition + 1}: {_VERDICTS[run.holds]} {plan.goal}"
            f"{'; finished earlier, not repeated' if reused else ''}"
        )
        if run.holds is None or (run.holds and run.faults):  # a failed check lets no run hold
            raise UntrustedRunError
        return run.holds

    def conclude(self) -> int:
        """Store and report the result; returns 3 if a failed check ended the search, else 0."""
        plan, config, found = self._plan, self._plan.config, self.found
        at = plan.load(found) if found else None
        above = plan.load(found + 1) if found is not None and found < LAST else None
        held: dict[float, list[bool]] = {}
        words: dict[float, str] = {}
        notes: list[str] = []
        unproved: list[str] = []
        for run in self._runs:
            held.setdefault(run.load, []).append(bool(run.holds))
            if not run.holds or run.load not in words:
                words[run.load] = run.words
            notes += [f"Run {run.run_id} failed {fault}" for fault in run.faults]
            unproved += [f"Run {run.run_id} lacks {u}" for u in run.unproved if run.load == at]
        verdict: Verdict
        if found is None:
            why = "failed a check" if self._runs[-1].holds else "can't be judged"
            verdict, sentence = "invalid", f"has no knee: {self._runs[-1].words} {why}"
        elif at is None:
            verdict = "none_holds"
            sentence = f"does not even hold {words[min(held)]} at {plan.goal}"
        elif unproved:
            verdict, sentence = "unproved", f"has no knee: runs at {words[at]} lack a check"
        elif above is None:
            verdict, sentence = "at_least", f"holds at least {words[at]} at {plan.goal}"
        else:
            sentence = f"holds {words[at]} at {plan.goal}; fails at {words[above]}"
            verdict = "found"
        job = f"{workload_class(config).name} with loader={config.loader.name}"
        return self.finish(
            KneeResult(
                session_id=self.journal.session_id,
                command=self._command,
                verdict=verdict,
                sentence=f"{job} at scale={config.scale.name} {sentence}.",
                notes=(*notes, *doubts(held, plan.knee.unit), *unproved),
                setting=f"workload.{plan.knee.setting}",
                goal=plan.goal,
                holds_at=at if verdict in ("found", "at_least") else None,
                fails_at=above,
                runs=tuple(self._runs),
            )
        )
