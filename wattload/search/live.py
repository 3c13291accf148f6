"""A search as it happens: run after run, each with its own record, and a journal to go on from."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from wattload.compose import compose
from wattload.core.errors import ConfigError, TargetError
from wattload.core.record.run import Comparison, read_record
from wattload.life.life import Session
from wattload.run import execute, foresee, session
from wattload.search.measurement import Measurement, measured
from wattload.search.plan import SearchPlan, plan_search
from wattload.search.result import SearchResult, conclude
from wattload.search.show import print_result, run_line
from wattload.search.strategy import Trials, largest_held
from wattload.sweep import CHECK_FAILED, Journal, Point, point_key

RESULT_FILE = "result.json"


class _UntrustedRunError(Exception):
    """A run whose figures decide nothing: a check of it failed, or it has no utilisation."""


def search(overrides: Sequence[str], *, as_json: bool) -> int:
    """Search and print the result; returns 0, or 3 when a failed check ended it without one.

    An interrupted search goes on when the same command is given again.

    Raises:
        WattloadError: what makes the search impossible, or made a run of it fail.
    """
    config, _ = compose(overrides)
    here = session(config)
    plan = plan_search(overrides, here.communicator)
    key = hashlib.sha256("\x1f".join(("search", *plan.given, plan.label)).encode()).hexdigest()[:8]
    folder = Path(config.runs) / f"search-{key}"
    runner = _Runner(here, plan, Journal(Path(config.runs), key, folder / "journal.jsonl"))
    runner.try_widest()
    found = runner.search()
    result = conclude(
        plan.question,
        runner.runs,
        found,
        session_id=key,
        command=("wattload", "run", *overrides),
    )
    if here.communicator.rank == 0:
        path = _write(result, folder)
        if as_json:
            print(result.model_dump_json())
        else:
            print_result(result, path)
    return CHECK_FAILED if result.verdict == "invalid" else 0


def _write(result: SearchResult, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / (RESULT_FILE + ".tmp")
    temporary.write_text(result.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return temporary.replace(folder / RESULT_FILE)


class _Runner:
    """Makes the runs of a search on all ranks; rank 0 decides what each showed."""

    def __init__(self, here: Session, plan: SearchPlan, journal: Journal) -> None:
        self.runs: list[Measurement] = []
        self._here = here
        self._world = here.communicator
        self._plan = plan
        self._journal = journal

    def try_widest(self) -> None:
        """Refuse a search whose largest data set or buffers do not fit, before its first run."""
        maximum = self._plan.question.maximum
        try:
            foresee(self._plan.widest(), judge=True)
        except (ConfigError, TargetError) as error:
            raise type(error)(
                f"the widest run of the search, with sweep.maximum={maximum}, is refused: {error}"
            ) from error
        self._say(
            f"searching up to {maximum} accelerators on one data set of "
            f"{self._plan.settings[maximum]['file_count']} files"
        )

    def search(self) -> int | None:
        """Return the most accelerators that hold, over all ranks; ``None`` without a score."""
        question = self._plan.question
        unit = question.unit
        try:
            return unit * largest_held(
                Trials(lambda count, repetition: self._holds(count * unit, repetition)),
                start=question.start // unit,
                maximum=question.maximum // unit,
                confirmations=question.confirmations,
            )
        except _UntrustedRunError:
            return None

    def _holds(self, accelerators: int, repetition: int) -> bool:
        overrides = self._plan.point(accelerators, repetition)
        point = self._point(overrides, repetition)
        done = self._world.broadcast(self._journal.done(point) if point else None)
        folder = done or self._execute(overrides, point, repetition)
        run = self._read(folder, accelerators, repetition, reused=done is not None)
        self.runs.append(run)
        threshold = self._plan.question.threshold
        self._say(run_line(run, threshold, reused=done is not None))
        if run.faults or run.au_dlio is None:
            raise _UntrustedRunError
        return run.holds(threshold)

    def _point(self, overrides: tuple[str, ...], repetition: int) -> Point | None:
        """Return the point on rank 0, whose journal it is; ``None`` on the others."""
        if self._world.rank:
            return None
        config, plain = compose(overrides)
        return Point(overrides, repetition, point_key(config, plain, repetition))

    def _execute(
        self, overrides: tuple[str, ...], point: Point | None, repetition: int
    ) -> Path | None:
        comparison = Comparison(
            session_id=self._journal.session_id, arm="", block=repetition, order=len(self.runs)
        )
        folder, _ = execute(overrides, comparison)
        if folder is not None and point is not None:
            self._journal.add(point, folder)
        return folder

    def _read(
        self, folder: Path | None, accelerators: int, repetition: int, *, reused: bool
    ) -> Measurement:
        run = None
        if self._world.rank == 0 and folder is not None:
            record = read_record(folder)
            run = measured(record, accelerators, repetition)
            if reused:
                self._here.ledger.add_record(record)
        found: Measurement = self._world.broadcast(run)
        return found

    def _say(self, text: str) -> None:
        if self._world.rank == 0:
            print(text, file=sys.stderr)
